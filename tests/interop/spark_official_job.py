"""Spark's official connector against a broker: `python spark_official_job.py BOOTSTRAP TOPIC GROUP DIRECTORY JARS`.

Writes two batches of rows and runs, after each, a query of its own on one checkpoint; shows what had arrived by then.
A process of its own, because a JVM takes `spark.jars` only when it starts.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

ROWS = 1000


def main(bootstrap: str, topic: str, group: str, directory: str, jars: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    seen: list[list[int]] = []
    for round_number in range(2):
        rows = spark.range(ROWS * round_number, ROWS * (round_number + 1))
        rows.selectExpr("cast(id as string) key", "cast(id as string) value").write.format("kafka").option(
            "kafka.bootstrap.servers", bootstrap
        ).option("topic", topic).save()
        source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        source = source.option("subscribe", topic).option("startingOffsets", "earliest").option("kafka.group.id", group)
        values = source.load().selectExpr("cast(cast(value as string) as long) value")
        out, checkpoint = str(Path(directory) / "out"), str(Path(directory) / "checkpoint")
        query = values.writeStream.format("parquet").option("path", out).option("checkpointLocation", checkpoint)
        query.trigger(availableNow=True).start().awaitTermination()
        seen.append([row.value for row in spark.read.parquet(out).collect()])
    spark.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
