"""A client of Spark Connect that brings the package in an archive: reads a topic, writes two others.

python attached_job.py ARCHIVE CONNECT_ADDRESS BOOTSTRAP SOURCE BATCH_TARGET STREAM_TARGET CHECKPOINT
"""

import sys

# as where the package is not installed
sys.modules["odradek"] = sys.modules["pyspark_odradek"] = None  # type: ignore[assignment]

archive, address, servers, source, batch_target, stream_target, checkpoint = sys.argv[1:]
sys.path.append(archive)

from odradek_connect import attach  # type: ignore[import-not-found]  # noqa: E402 - of the archive
from pyspark.sql import SparkSession  # noqa: E402

spark = SparkSession.builder.remote(address).getOrCreate()
attach(spark)
brokers = {"kafka.bootstrap.servers": servers}
rows = spark.read.format("odradek").options(**brokers, subscribe=source).load()
print("read", rows.count(), flush=True)
rows = rows.repartition(3).select("key", "value")
rows.write.format("odradek").options(**brokers, topic=batch_target).mode("append").save()
stream = spark.readStream.format("odradek").options(**brokers, subscribe=source, startingOffsets="earliest").load()
writer = stream.select("key", "value").writeStream.format("odradek").options(**brokers, topic=stream_target)
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
assert query.awaitTermination(120)
spark.stop()
