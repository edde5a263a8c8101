"""Our source and sink through Spark Connect, with a server that Spark starts beside it; prints what was read.

python -m tests.spark.connect_job BOOTSTRAP SOURCE TARGET CHECKPOINT
"""

import json
import os
import sys

from odradek.spark.interpreter import launcher
from odradek.spark.java import ensure_java


def main(bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", launcher())
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    assert "connect" in type(spark).__module__
    server = {"kafka.bootstrap.servers": bootstrap}
    rows = spark.read.format("odradek").options(**server).option("subscribe", source).load()
    counts = rows.groupBy("partition").agg(f.count("*").alias("n"), f.max("offset").alias("last")).collect()
    print("read", json.dumps(sorted((each.partition, each.n, each.last) for each in counts)), flush=True)
    stream = spark.readStream.format("odradek").options(**server, subscribe=source, startingOffsets="earliest")
    stream = stream.option("maxOffsetsPerTrigger", 400).load().select("key", "value")
    for _ in range(2):
        writer = stream.writeStream.format("odradek").options(**server, topic=target, sourceGroup=f"{target}-lag")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        print("batches", query.lastProgress and query.lastProgress["batchId"], flush=True)
    spark.range(3).selectExpr("cast(id as string) value").write.format("odradek").options(**server).option(
        "topic", target
    ).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
