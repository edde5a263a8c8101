"""Visits of a web site, from its log: a visit ends when its user has been away for half an hour.

odradek pipeline run --bootstrap-server 127.0.0.1:9092 --checkpoint state examples/visits.py

`visits` gets each visit once, when no line of it can arrive any longer: lines may come six hours late, later ones do
not count. A late line may join two visits that looked separate; Spark keeps them open until then. The functions
`visits` and `records` take any table of views, so that `test_visits.py` tests them without a broker.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from page_views import views
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

AWAY = "30 minutes"
LATE = "6 hours"
TOPICS = ("access-log", "visits")


def visits(rows: DataFrame) -> DataFrame:
    """user, begin, end, pages, entry of every visit; `rows` have user, at, page."""
    visit = f.session_window("at", AWAY)
    return (
        rows.withWatermark("at", LATE)
        .groupBy(visit, "user")
        .agg(
            f.min("at").alias("begin"),
            f.max("at").alias("end"),
            f.count("*").alias("pages"),
            # of two views in the same second the one whose page comes first
            f.min(f.struct("at", "page"))["page"].alias("entry"),
        )
        .drop("session_window")
    )


def records(rows: DataFrame) -> DataFrame:
    """Visits as records: the user is the key, so that the visits of a user stay in order."""
    second = "yyyy-MM-dd'T'HH:mm:ss"
    fields = f.struct(
        "user",
        f.date_format("begin", second).alias("begin"),
        f.date_format("end", second).alias("end"),
        "pages",
        "entry",
    )
    return rows.select(f.col("user").alias("key"), f.to_json(fields).alias("value"))


def start(
    spark: SparkSession,
    servers: str,
    checkpoints: str,
    *,
    once: bool = False,
    per_trigger: int | None = None,
    topics: tuple[str, str] = TOPICS,
) -> Any:
    """The query, running; with `once` it ends when all that is there now is counted."""
    log, target = topics
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "1 second"}
    return (
        records(visits(views(spark, servers, per_trigger, log)))
        .writeStream.format("odradek")
        .queryName("visits")
        .options(**{"kafka.bootstrap.servers": servers, "topic": target})
        .option("checkpointLocation", f"{checkpoints}/visits")
        .trigger(**trigger)
        .start()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="end when all that is there now is counted")
    parser.add_argument("--per-trigger", type=int, metavar="N", help="most lines of a batch")
    given = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None) or "checkpoints"
    servers = os.environ.get("ODRADEK_BOOTSTRAP_SERVER", "127.0.0.1:9092")
    start(spark, servers, checkpoints, once=given.once, per_trigger=given.per_trigger).awaitTermination()


if __name__ == "__main__":
    main()
