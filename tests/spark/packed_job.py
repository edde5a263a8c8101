"""A program on a cluster whose executors have no package of ours: reads a topic, writes another in a transaction."""

import os
import sys

from pyspark.sql import SparkSession

servers, source, target, archive, bare = sys.argv[1:]
# The driver's Java looks for formats with this one; executors have the other.
os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["PYSPARK_PYTHON"] = bare
builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("packed")
settings = {
    "spark.archives": f"{archive}#odradek-env",
    "spark.executorEnv.PYTHONPATH": "odradek-env",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("FATAL")
places = spark.sparkContext.range(4, numSlices=4).map(lambda _: __import__("odradek").__file__).distinct().collect()
rows = spark.read.format("odradek").option("kafka.bootstrap.servers", servers).option("subscribe", source).load()
rows = rows.repartition(4).select("key", "value")
rows.write.format("odradek").option("kafka.bootstrap.servers", servers).option("topic", target).mode("append").save()
print(rows.count(), *places)
spark.stop()
