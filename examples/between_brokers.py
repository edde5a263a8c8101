"""Read from one broker, process, write to another, exactly once: what was half done is never seen.

odradek pipeline run --checkpoint state examples/between_brokers.py \\
    --source 127.0.0.1:9092 --source-topic orders --target 127.0.0.1:9192 --target-topic orders-eu

Readers of the target need isolation.level=read_committed. A batch is one transaction on the target broker; it carries
its number, so that a batch of an unconfirmed commit is not written again. If a query fails, it is restarted.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession


def process(rows: DataFrame) -> DataFrame:
    """The place for your own: here, values in upper case."""
    return rows.selectExpr("key", "upper(cast(value as string)) value")


def start(
    spark: SparkSession,
    source: tuple[str, str],
    target: tuple[str, str],
    checkpoint: str,
    *,
    once: bool = False,
    per_trigger: int = 100_000,
    process: Callable[[DataFrame], DataFrame] = process,
) -> Any:
    """The query, running. `source` and `target` are (bootstrap servers, topic)."""
    rows = spark.readStream.format("odradek").option("kafka.bootstrap.servers", source[0])
    rows = rows.option("subscribe", source[1]).option("startingOffsets", "earliest")
    # what an aborted transaction left in the source is not there
    rows = rows.option("kafka.isolation.level", "read_committed").option("maxOffsetsPerTrigger", per_trigger)
    writer = process(rows.load()).writeStream.format("odradek").queryName("between-brokers")
    writer = writer.options(**{"kafka.bootstrap.servers": target[0], "topic": target[1]})
    writer = writer.option("checkpointLocation", checkpoint)
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "0 seconds"}
    return writer.trigger(**trigger).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("source", "source-topic", "target", "target-topic"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--once", action="store_true", help="end when all that is there now is written")
    parser.add_argument("--restarts", type=int, default=10, help="how often to start again after a failure")
    given = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None) or "checkpoints"
    places = (given.source, given.source_topic), (given.target, given.target_topic), f"{checkpoints}/between-brokers"
    for left in range(given.restarts, -1, -1):
        try:
            start(spark, *places, once=given.once).awaitTermination()
            return
        except StreamingQueryException as error:
            if not left:
                raise
            sys.stderr.write(f"started again after: {str(error).splitlines()[0]}\n")
            time.sleep(1)


if __name__ == "__main__":
    main()
