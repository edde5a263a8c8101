"""One run of three queries whose checkpoints are on S3: to a topic, to SQLite, to a Delta table on S3.

A process of its own, because Spark's Java takes its jars and its environment when it starts.
"""

import os
import sys

from bench.peers import s3a
from odradek.spark.interpreter import launcher
from odradek.spark.java import ensure_java
from odradek.spark.stores.databases import Sqlite
from odradek.spark.stores.delta import DeltaSink
from odradek.spark.stores.sql import SqlSink
from tests.spark.support import run_to_end


def main() -> None:
    """`BOOTSTRAP SOURCE TARGET PLACE DATABASE`, with the store in the environment (`AWS_…`)."""
    bootstrap, source, target, place, database = sys.argv[1:]
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", launcher())
    from pyspark.sql import SparkSession

    hadoop = {
        "endpoint": os.environ["AWS_ENDPOINT_URL"],
        "endpoint.region": os.environ["AWS_REGION"],
        "access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "path.style.access": "true",
    }
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.extraClassPath", os.pathsep.join(s3a.jars()))
    for name, value in hadoop.items():
        builder = builder.config(f"spark.hadoop.fs.s3a.{name}", value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    checkpoints = {name: f"{place.replace('s3:', 's3a:')}/{name}" for name in ("topic", "sql", "delta")}
    read = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    rows = read.options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="8").load()
    topic = rows.select("value").writeStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    topic = topic.options(topic=target, sourceGroup=f"{target}-lag")
    numbers = rows.selectExpr("cast(value as string) value", "topic", "partition", "offset")
    sql = numbers.writeStream.foreachBatch(SqlSink(Sqlite(database), "records", checkpoints["sql"]))
    store = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    sink = DeltaSink(f"{place}/table", checkpoints["delta"], name="numbers", storage_options=store)
    delta = numbers.writeStream.foreachBatch(sink)
    for name, writer in {"topic": topic, "sql": sql, "delta": delta}.items():
        run_to_end(writer.option("checkpointLocation", checkpoints[name]).trigger(availableNow=True).start)
    spark.stop()


if __name__ == "__main__":
    main()
