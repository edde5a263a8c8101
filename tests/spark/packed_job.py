"""A program for spark-submit on a cluster whose executors have no package of ours: reads a topic, writes another."""

import sys

from pyspark.sql import SparkSession

servers, source, target = sys.argv[1:]
spark = SparkSession.builder.appName("packed").getOrCreate()
spark.sparkContext.setLogLevel("FATAL")
places = spark.sparkContext.range(4, numSlices=4).map(lambda _: __import__("odradek").__file__).distinct().collect()
rows = spark.read.format("odradek").option("kafka.bootstrap.servers", servers).option("subscribe", source).load()
rows = rows.repartition(4).select("key", "value")
rows.write.format("odradek").option("kafka.bootstrap.servers", servers).option("topic", target).mode("append").save()
print("read", rows.count(), *places)
spark.stop()
