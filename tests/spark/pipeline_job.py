"""A query from topic to topic, exactly once, as a program of its own, so that a test can kill it.

python -m tests.spark.pipeline_job BOOTSTRAP SOURCE TARGET CHECKPOINT ROWS_PER_BATCH MASTER SOURCE_OPTIONS
"""

import json
import os
import sys

from pyspark.sql import SparkSession

from odradek.spark.java import ensure_java


def main(
    bootstrap: str, source: str, target: str, checkpoint: str, rows_per_batch: str, master: str, options: str
) -> None:
    ensure_java()
    builder = SparkSession.builder.master(master).appName("pipeline")
    for name in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(name, "127.0.0.1")
    for name in ("PYTHONPATH", "ODRADEK_TEST_FAULTS", "PYTHONPYCACHEPREFIX"):
        builder = builder.config(f"spark.executorEnv.{name}", os.environ[name])
    builder = builder.config("spark.executor.memory", "512m")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    rows = rows.option("subscribe", source).option("startingOffsets", "earliest")
    rows = rows.options(**json.loads(options))
    writer = (
        rows.option("maxOffsetsPerTrigger", rows_per_batch)
        .load()
        .select("value", "key")
        .writeStream.format("odradek")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", target)
        .option("sourceGroup", f"{target}-lag")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
