"""Orders with what is known of their customers: a stream joined with a table that changes.

odradek pipeline run --bootstrap-server 127.0.0.1:9092 --checkpoint state examples/enriched_orders.py

`customers` is a compacted topic: the last record of a key is the customer, a null value deletes it. Each batch of
`orders` is joined with the table as it is then, and written to `enriched-orders` in one transaction. A batch that is
repeated after a crash may see newer customers, but only one attempt is visible. An order whose customer is unknown is
written without a name; to wait for the customer instead, join two streams within watermarks.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.spark.exactly_once import write_exactly_once

TOPICS = ("orders", "customers", "enriched-orders")
ORDER = "customer string, item string, price double"
CUSTOMER = "name string, country string"
REFRESH_S = 60.0
"""How old the table may be: it is read from its beginning to its end."""


class Customers:
    """The table that a compacted topic stands for, read again when it is too old."""

    def __init__(self, spark: SparkSession, servers: str, topic: str, refresh_s: float) -> None:
        source = spark.read.format("odradek").option("kafka.bootstrap.servers", servers)
        self._source = source.option("subscribe", topic)
        self._refresh_s = refresh_s
        self._read_at = 0.0
        self._table: DataFrame | None = None

    def table(self) -> DataFrame:
        """customer, name, country."""
        if self._table is None or time.monotonic() - self._read_at >= self._refresh_s:
            if self._table is not None:
                self._table.unpersist()
            self._table, self._read_at = latest(self._source.load()).persist(), time.monotonic()
        return self._table


def latest(rows: DataFrame) -> DataFrame:
    """The last record of each key, of records with key, offset, value. A key's records are in one partition."""
    last = rows.groupBy(f.col("key").cast("string").alias("customer")).agg(f.max_by("value", "offset").alias("value"))
    fields = f.from_json(f.col("value").cast("string"), CUSTOMER)
    return last.where("value is not null").select("customer", fields.alias("fields")).select("customer", "fields.*")


def enriched(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Orders as records, with the fields of their customers."""
    joined = orders.join(f.broadcast(customers), "customer", "left")
    fields = f.struct("customer", "name", "country", "item", "price")
    return joined.select(f.col("customer").alias("key"), f.to_json(fields).alias("value"))


def start(
    spark: SparkSession,
    servers: str,
    checkpoints: str,
    *,
    once: bool = False,
    refresh_s: float = REFRESH_S,
    topics: tuple[str, str, str] = TOPICS,
) -> Any:
    """The query, running; with `once` it ends when all orders that are there now are written."""
    orders, customers, target = topics
    table = Customers(spark, servers, customers, refresh_s)
    location = f"{checkpoints}/enriched-orders"
    options = {"kafka.bootstrap.servers": servers, "topic": target, "checkpointLocation": location}

    def write(batch: DataFrame, batch_id: int) -> None:
        write_exactly_once(enriched(batch, table.table()), batch_id, options)

    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", servers)
    rows = source.option("subscribe", orders).option("startingOffsets", "earliest").load()
    parsed = rows.select(f.from_json(f.col("value").cast("string"), ORDER).alias("order")).select("order.*")
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "1 second"}
    query = parsed.writeStream.foreachBatch(write).queryName("enriched-orders")
    return query.option("checkpointLocation", location).trigger(**trigger).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="end when all orders that are there now are written")
    given = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None) or "checkpoints"
    servers = os.environ.get("ODRADEK_BOOTSTRAP_SERVER", "127.0.0.1:9092")
    start(spark, servers, checkpoints, once=given.once).awaitTermination()


if __name__ == "__main__":
    main()
