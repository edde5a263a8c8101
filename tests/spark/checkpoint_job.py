"""One query, its checkpoint continued in turn by Spark's own connector and by ours; prints what each run read.

python -m tests.spark.checkpoint_job BOOTSTRAP TOPIC CHECKPOINT JARS
"""

import asyncio
import json
import sys
from typing import Any

from pyspark.sql import SparkSession

from odradek.client.producer.producer import Producer
from odradek.spark.java import ensure_java


async def fill(bootstrap: str, topic: str, first: int) -> None:
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(first, first + 10):
            await producer.send(topic, b"%d" % number, partition=number % 2)


def main(bootstrap: str, topic: str, checkpoint: str, jars: str) -> None:
    ensure_java()
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    for name in ("spark.driver.bindAddress", "spark.driver.host"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.getOrCreate()
    for turn, connector in enumerate(("kafka", "odradek", "kafka")):
        asyncio.run(fill(bootstrap, topic, 10 * turn))
        found: list[int] = []

        def take(frame: Any, _batch_id: int, found: list[int] = found) -> None:
            found.extend(int(row.value) for row in frame.collect())

        rows = spark.readStream.format(connector).option("kafka.bootstrap.servers", bootstrap)
        rows = rows.option("subscribe", topic).option("startingOffsets", "earliest").load()
        writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()
        print("found", json.dumps(sorted(found)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
