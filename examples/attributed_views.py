"""Which page views led to a purchase: two streams without duplicates, joined within half an hour, late ones included.

odradek pipeline run --bootstrap-server 127.0.0.1:9092 --checkpoint state examples/attributed_views.py

`views` has JSON with id, user, page and at; `purchases` has id, user, amount and at. Their writers may send a record
again, and up to an hour late. `attributed-views` gets each view once: with the purchase as soon as that is there, or
without one when none can come any longer, an hour and a half later. A view with two purchases is written for each.
Views and purchases that are more than an hour late do not count.
"""

import argparse
import os
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

LATE = "1 hour"
WITHIN = "30 minutes"
TOPICS = ("views", "purchases", "attributed-views")
VIEW = "id string, user string, page string, at timestamp"
PURCHASE = "id string, user string, amount double, at timestamp"


def distinct(records: DataFrame, schema: str) -> DataFrame:
    """The columns of JSON values, each id once; a value that is no JSON is left out."""
    parsed = records.select(f.from_json(f.col("value").cast("string"), schema).alias("it")).select("it.*")
    return parsed.where("at is not null").withWatermark("at", LATE).dropDuplicatesWithinWatermark(["id"])


def attributed(views: DataFrame, purchases: DataFrame) -> DataFrame:
    """Each view with its purchase, or without one, as key and value."""
    later = purchases.select(
        f.col("user").alias("buyer"), f.col("amount"), f.col("id").alias("purchase"), f.col("at").alias("bought")
    )
    same = f.expr(f"user = buyer AND bought >= at AND bought <= at + interval {WITHIN}")
    fields = f.struct("id", "user", "page", "purchase", "amount")
    return views.join(later, same, "leftOuter").select(f.col("user").alias("key"), f.to_json(fields).alias("value"))


def start(
    spark: SparkSession, servers: str, checkpoint: str, *, once: bool = False, topics: tuple[str, str, str] = TOPICS
) -> Any:
    """The query, running; with `once` it ends when all that is there now is joined."""

    def read(topic: str, schema: str) -> DataFrame:
        source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", servers)
        return distinct(source.option("subscribe", topic).option("startingOffsets", "earliest").load(), schema)

    rows = attributed(read(topics[0], VIEW), read(topics[1], PURCHASE))
    writer = rows.writeStream.format("odradek").queryName("attributed-views")
    writer = writer.options(
        **{"kafka.bootstrap.servers": servers, "topic": topics[2], "checkpointLocation": checkpoint}
    )
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="end when all that is there now is joined")
    given = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    state = spark.conf.get("spark.sql.streaming.checkpointLocation", None) or "checkpoints"
    servers = os.environ.get("ODRADEK_BOOTSTRAP_SERVER", "127.0.0.1:9092")
    start(spark, servers, f"{state}/attributed-views", once=given.once).awaitTermination()


if __name__ == "__main__":
    main()
