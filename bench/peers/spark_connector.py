#!/usr/bin/env python3
"""Spark's own Kafka connector (structured streaming and batch): fetch it, and measure it against any Kafka broker.

    spark_connector.py jars                          fetch from Maven Central once; print the value for spark.jars
    spark_connector.py bench --bootstrap HOST:PORT [--rows 2000000] [--repeat 3] [--limit 600]
                                                     one JSON line per measurement, best of --repeat runs, local[2]:
                                                     batch write, batch read to noop, read and count, and a stream
                                                     topic to topic (availableNow, 1,000,000 offsets per trigger)

`bench` needs pyspark 4 importable (pip install pyspark), java 17+ and a broker that lets a client create and delete
topics. Rows are a decimal key and a value of 100 bytes; topics have 4 partitions and are deleted at the end.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

CACHE = pathlib.Path(os.environ.get("PEERS_CACHE", pathlib.Path.home() / ".cache" / "peers")) / "spark-kafka-4.2.0"
ARTIFACTS = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.0",
    "org.apache.commons:commons-pool2:2.12.0",
]
POM = (
    '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    "<groupId>peers</groupId><artifactId>spark</artifactId><version>1</version></project>\n"
)
PARTITIONS = 4


def jars() -> list[str]:
    """One plain copy per jar: resolving the connector's dependencies needs a repository that may be out of reach."""
    if not (CACHE / "complete").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "pom.xml").write_text(POM)
        for artifact in ARTIFACTS:
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", "-DoutputDirectory=lib"]
            if subprocess.run(command, cwd=CACHE, stdout=sys.stderr).returncode:
                sys.exit(f"spark_connector.py: mvn could not fetch {artifact}")
        (CACHE / "complete").touch()
    return cached_jars()


def cached_jars() -> list[str]:
    """The jars that were fetched; none before."""
    return sorted(str(jar) for jar in (CACHE / "lib").glob("*.jar")) if (CACHE / "complete").exists() else []


def out_of_time(limit: float) -> None:
    print(f"spark_connector.py: not done after {limit:g} s", file=sys.stderr, flush=True)
    os._exit(124)  # the JVM ends with its standard input


def bench(args: argparse.Namespace) -> int:
    try:
        from pyspark.sql import DataFrame, SparkSession, functions
    except ImportError:
        sys.exit("spark_connector.py: bench needs pyspark: pip install pyspark")
    timer = threading.Timer(args.limit, out_of_time, [args.limit])
    timer.daemon = True
    timer.start()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("spark_connector")
        .config("spark.jars", ",".join(jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    jvm, rows = spark._jvm, args.rows
    clients = jvm.org.apache.kafka.clients.admin  # the connector's own client manages the topics
    settings = jvm.java.util.Properties()
    settings.put("bootstrap.servers", args.bootstrap)
    settings.put("default.api.timeout.ms", "20000")
    settings.put("request.timeout.ms", "10000")
    admin = clients.Admin.create(settings)
    topics: list[str] = []

    def fresh_topic() -> str:
        name, optional = f"spark-bench-{uuid.uuid4().hex[:12]}", jvm.java.util.Optional
        admin.createTopics([clients.NewTopic(name, optional.of(PARTITIONS), optional.empty())]).all().get()
        topics.append(name)
        return name

    def kafka(source: Any) -> Any:
        return source.format("kafka").option("kafka.bootstrap.servers", args.bootstrap)

    def read(topic: str) -> DataFrame:
        return kafka(spark.read).option("subscribe", topic).option("startingOffsets", "earliest").load()

    def write() -> None:
        kafka(made.write).option("topic", fresh_topic()).option("kafka.linger.ms", "5").option(
            "kafka.batch.size", "131072"
        ).save()

    def stream() -> None:
        with tempfile.TemporaryDirectory(prefix="spark-bench-") as checkpoint:
            query = (
                kafka(spark.readStream)
                .option("subscribe", source)
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", 1_000_000)
                .load()
                .select("key", "value")
                .writeStream.format("kafka")
                .option("kafka.bootstrap.servers", args.bootstrap)
                .option("topic", fresh_topic())
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

    def measure(name: str, action: Callable[[], None]) -> None:
        best = float("inf")
        for _ in range(args.repeat):
            began = time.perf_counter()
            action()
            best = min(best, time.perf_counter() - began)
        print(
            json.dumps({"name": name, "rows": rows, "seconds": round(best, 3), "rows_per_second": round(rows / best)}),
            flush=True,
        )

    def check(name: str, topic: str) -> bool:
        key, value = functions.col("key").cast("string").cast("long"), functions.length("value")
        got = read(topic).agg(functions.count("*"), functions.sum(key), functions.sum(value)).first()
        good = tuple(got) == (rows, rows * (rows - 1) // 2, rows * 100)
        print(json.dumps({"name": name, "rows": got[0], "correct": good}), flush=True)
        return good

    made = spark.range(rows).select(
        functions.col("id").cast("string").cast("binary").alias("key"),
        functions.expr("cast(repeat('x', 100) as binary)").alias("value"),
    )
    try:
        measure("batch write", write)
        source = topics[-1]
        good = check("check of batch write", source)
        measure("batch read to noop", lambda: read(source).write.format("noop").mode("overwrite").save())
        measure("batch read and count", lambda: read(source).count())
        measure("stream topic to topic", stream)
        good = check("check of stream", topics[-1]) and good
    finally:
        if topics:
            admin.deleteTopics(topics).all().get()
        admin.close()
        spark.stop()
    return 0 if good else 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="command", required=True)
    sub.add_parser("jars")
    b = sub.add_parser("bench")
    b.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    b.add_argument("--rows", type=int, default=2_000_000)
    b.add_argument("--repeat", type=int, default=3)
    b.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="for the whole run")
    args = parser.parse_args()
    if args.command == "jars":
        print(",".join(jars()))
    else:
        sys.exit(bench(args))


if __name__ == "__main__":
    main()
