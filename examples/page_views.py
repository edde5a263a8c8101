"""Views per page and hour, and per user, from a web server's log: two queries, both exactly once.

odradek pipeline run --bootstrap-server 127.0.0.1:9092 --checkpoint state examples/page_views.py

`page-views` gets each hour of a page once, when no line of it can arrive any longer: lines may come six hours late,
later ones do not count. `user-views` gets a user's total whenever it changes; the last record of a key is the state.
Stop it, kill it, kill the broker: the counts stay those of the log.
"""

import argparse
import os
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from weblog import PATTERN

from odradek.spark.exactly_once import write_exactly_once

LATE = "6 hours"
TOPICS = ("access-log", "page-views", "user-views")


def views(spark: SparkSession, servers: str, per_trigger: int | None, log: str) -> Any:
    """user, at, page of every log line."""
    source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", servers)
    source = source.option("subscribe", log).option("startingOffsets", "earliest")
    if per_trigger is not None:
        source = source.option("maxOffsetsPerTrigger", per_trigger)
    line = f.col("value").cast("string")
    host, user, at, path = (f.regexp_extract(line, PATTERN, group) for group in (1, 2, 3, 5))
    return (
        source.load()
        .where(line.rlike(PATTERN))
        .select(
            f.when(user == "-", host).otherwise(user).alias("user"),
            f.to_timestamp(at, "dd/MMM/yyyy:HH:mm:ss Z").alias("at"),
            f.substring_index(path, "?", 1).alias("page"),
        )
    )


def start(
    spark: SparkSession,
    servers: str,
    checkpoints: str,
    *,
    once: bool = False,
    per_trigger: int | None = None,
    topics: tuple[str, str, str] = TOPICS,
) -> list[Any]:
    """Both queries, running; with `once` they end when all that is there now is counted."""
    log, page_views, user_views = topics
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "1 second"}
    rows = views(spark, servers, per_trigger, log)

    hours = rows.withWatermark("at", LATE).groupBy(f.window("at", "1 hour"), "page").count()
    fields = f.struct("page", f.date_format("window.start", "yyyy-MM-dd'T'HH").alias("hour"), "count")
    pages = (
        hours.select(f.col("page").alias("key"), f.to_json(fields).alias("value"))
        .writeStream.format("odradek")
        .queryName("page-views")
        .options(**{"kafka.bootstrap.servers": servers, "topic": page_views})
        .option("checkpointLocation", f"{checkpoints}/page-views")
        .trigger(**trigger)
        .start()
    )

    totals = (
        rows.groupBy("user").count().select(f.col("user").alias("key"), f.col("count").cast("string").alias("value"))
    )
    location = f"{checkpoints}/user-views"
    options = {"kafka.bootstrap.servers": servers, "topic": user_views, "checkpointLocation": location}

    def write(frame: Any, batch_id: int) -> None:
        write_exactly_once(frame, batch_id, options)

    users = totals.writeStream.outputMode("update").foreachBatch(write).queryName("user-views")
    return [pages, users.option("checkpointLocation", location).trigger(**trigger).start()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--once", action="store_true", help="end when all that is there now is counted")
    parser.add_argument("--per-trigger", type=int, metavar="N", help="at most so many lines in a batch")
    parser.add_argument("--topics", default=",".join(TOPICS), metavar="LOG,PAGES,USERS", help="other names for them")
    given = parser.parse_args()
    log, pages, users = given.topics.split(",")
    spark = SparkSession.builder.getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    checkpoints = spark.conf.get("spark.sql.streaming.checkpointLocation", None) or "checkpoints"
    servers = os.environ.get("ODRADEK_BOOTSTRAP_SERVER", "127.0.0.1:9092")
    start(spark, servers, checkpoints, once=given.once, per_trigger=given.per_trigger, topics=(log, pages, users))
    while spark.streams.active:
        spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()


if __name__ == "__main__":
    main()
