"""Spark batch jobs on local[2]: our data source beside the official connector, on the same broker and the same topic.

Rows are a decimal key and a value of 100 bytes in 4 partitions. Each job runs three times, the two in turn, and the
best time counts; reads go to Spark's noop sink. The official connector's jars come from Maven Central.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from bench.cases import topics
from bench.servers import Running
from odradek.spark.java import ensure_java

ROWS = 2_000_000
REPEATS = 3
PARTITIONS = 4
CONNECTOR = Path(__file__).resolve().parents[1] / "peers" / "spark_connector.py"
FORMATS = {"odradek": "odradek", "official": "kafka"}


def session() -> Any:
    from pyspark.sql import SparkSession

    ensure_java()
    jars = subprocess.check_output([sys.executable, str(CONNECTOR), "jars"], text=True).strip()
    builder = SparkSession.builder.master("local[2]").appName("bench").config("spark.jars", jars)
    spark = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def checked_count(frame: Any, rows: int) -> None:
    found = frame.selectExpr("count(*)", "sum(length(value))", "sum(cast(cast(key as string) as long))").first()
    if tuple(found) != (rows, 100 * rows, rows * (rows - 1) // 2):
        raise RuntimeError(f"the topic does not hold what was written: {tuple(found)} for {rows} rows")


def run(broker: Running, scale: float) -> dict[str, float]:
    rows, spark = max(1000, int(ROWS * scale)), session()
    made = spark.range(rows).selectExpr(
        "cast(cast(id as string) as binary) key", "cast(repeat('x', 100) as binary) value"
    )
    written: list[str] = []

    def write(name: str) -> None:
        written.append(topics.create(broker.bootstrap, PARTITIONS))
        target = made.write.format(FORMATS[name]).option("kafka.bootstrap.servers", broker.bootstrap)
        target.option("topic", written[-1]).mode("append").save()

    def frame(name: str, topic: str) -> Any:
        source = spark.read.format(FORMATS[name]).option("kafka.bootstrap.servers", broker.bootstrap)
        return source.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def read(name: str) -> None:
        frame(name, written[0]).write.format("noop").mode("overwrite").save()

    best: dict[str, float] = {}
    try:
        for what, action in (("write", write), ("read", read)):
            for _ in range(REPEATS):
                for name in FORMATS:
                    took, metric = seconds(partial(action, name)), f"spark {what}, {name}"
                    best[metric] = min(took, best.get(metric, took))
        for name in FORMATS:
            for topic in written[:2]:
                checked_count(frame(name, topic), rows)
    finally:
        spark.stop()
        for topic in written:
            topics.delete(broker.bootstrap, topic)
    return {metric: rows / took for metric, took in best.items()}
