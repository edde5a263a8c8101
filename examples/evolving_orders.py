"""Orders whose format changes while the pipeline runs: JSON, Avro and Protobuf become the same columns.

odradek pipeline run --bootstrap-server 127.0.0.1:9092 --checkpoint state examples/evolving_orders.py protobuf

Writers may be older or newer than this program. Older ones do not write `currency`: the reader's default stands in.
Newer ones write fields that this program does not know: it leaves them out. The rule that makes this work: add fields
with a default, change no type, and never use a name (JSON, Avro) or a number (Protobuf) of a removed field again.
Avro records name the schema that wrote them by the id of a registry; the others say it by names and numbers.
Avro and Protobuf need the extra `formats`.
"""

import argparse
import json
import os
from typing import Any

from google.protobuf import descriptor_pb2
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as f

from odradek.client import RegistrySchemas
from odradek.spark.formats.avro import from_avro
from odradek.spark.formats.protobuf import from_protobuf

FIELDS = {"order": "string", "amount": "double", "currency": "string"}
DEFAULT_CURRENCY = "EUR"


def from_json() -> Column:
    """A field that is missing is null, which the query replaces by the default; others are not read."""
    columns = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
    return f.from_json(f.col("value").cast("string"), columns)


def from_registered_avro(schemas: Any) -> Column:
    """Spark's rows by this program's schema, from values of any schema that `schemas` knows by its id."""
    fields: list[dict[str, Any]] = [{"name": name, "type": kind} for name, kind in FIELDS.items()]
    fields[-1]["default"] = DEFAULT_CURRENCY
    schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
    return from_avro("value", schema, schemas=schemas)


def descriptors(fields: tuple[str, ...] = tuple(FIELDS)) -> bytes:
    """What `protoc --descriptor_set_out` writes for a message with these fields, numbered from 1."""
    kinds = {"double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE}
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    for number, name in enumerate(fields, 1):
        kind = kinds.get(FIELDS.get(name, "string"), descriptor_pb2.FieldDescriptorProto.TYPE_STRING)
        message.field.add(name=name, number=number, type=kind, label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
    found: bytes = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return found


def from_described_protobuf() -> Column:
    """A field that is missing is empty, as always in Protobuf; fields of unknown numbers are not read."""
    return from_protobuf("value", "shop.Order", descriptors())


def start(
    spark: SparkSession, servers: str, checkpoint: str, values: Column, source: str, target: str, *, once: bool = False
) -> Any:
    """The query: the orders of `source` as JSON of one kind in `target`; one that cannot be read ends it."""
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", servers)
    orders = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    orders = orders.select(values.alias("it")).select("it.*")
    given = f.when(f.col("currency") != "", f.col("currency"))
    orders = orders.withColumn("currency", f.coalesce(given, f.lit(DEFAULT_CURRENCY)))
    rows = orders.select(f.col("order").alias("key"), f.to_json(f.struct(*FIELDS)).alias("value"))
    writer = rows.writeStream.format("odradek").queryName("evolving-orders")
    writer = writer.options(**{"kafka.bootstrap.servers": servers, "topic": target, "checkpointLocation": checkpoint})
    trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "1 second"}
    return writer.trigger(**trigger).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=("json", "avro", "protobuf"))
    parser.add_argument("--registry", default="http://127.0.0.1:8081", metavar="URL", help="of the schemas of Avro")
    given = parser.parse_args()
    spark = SparkSession.builder.getOrCreate()
    if given.format == "avro":
        values = from_registered_avro(RegistrySchemas([given.registry]))
    else:
        values = from_json() if given.format == "json" else from_described_protobuf()
    state = spark.conf.get("spark.sql.streaming.checkpointLocation", None) or "checkpoints"
    servers = os.environ.get("ODRADEK_BOOTSTRAP_SERVER", "127.0.0.1:9092")
    topic = f"orders-{given.format}"
    start(spark, servers, f"{state}/{topic}", values, topic, f"{topic}-read").awaitTermination()


if __name__ == "__main__":
    main()
