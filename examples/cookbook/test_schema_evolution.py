"""Values whose schema changes: new readers understand old records, old readers new ones, in JSON, Avro and Protobuf.

The rule is the same in all three: add fields with a default, never change the meaning or the type of one, and never
use the name (JSON, Avro) or the number (Protobuf) of a removed one again. Then writers and readers are updated in any
order.
Avro and Protobuf need the extra `formats`.
"""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import dataclass
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from odradek.client import AvroValues, BlockingConsumer, BlockingProducer, Consumer, FixedSchemas
from odradek.testing import BlockingBroker

# --- JSON: the reader names what it needs, and has defaults for what came later ---


@dataclass
class Order:
    """An order, as of the second version: `currency` came later."""

    item: str
    price: float
    currency: str = "EUR"

    @classmethod
    def parse(cls, value: bytes) -> Order:
        """Fields that are not known are left alone: a newer writer may have added them."""
        found = json.loads(value)
        return cls(**{name: found[name] for name in cls.__dataclass_fields__ if name in found})


# --- Avro: records name the schema that wrote them, and are resolved to the reader's ---

FIELDS = [{"name": "item", "type": "string"}, {"name": "price", "type": "double"}]
CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
SCHEMAS = {
    1: json.dumps({"type": "record", "name": "Order", "fields": FIELDS}),
    2: json.dumps({"type": "record", "name": "Order", "fields": [*FIELDS, CURRENCY]}),
}


def avro(schema_id: int, order: dict[str, Any]) -> bytes:
    """A value in Confluent's wire format: a zero byte, the id of the schema, the record."""
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(SCHEMAS[schema_id])), order)
    return b"\0" + schema_id.to_bytes(4, "big") + buffer.getvalue()


# --- Protobuf: fields have numbers; unknown ones are kept, missing ones have the default ---


def message_of(package: str, *fields: tuple[str, int]) -> Any:
    """The class that `protoc` would generate of a message Order with these texts."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    message = file.message_type.add(name="Order")
    for name, number in fields:
        field = descriptor_pb2.FieldDescriptorProto
        message.field.add(name=name, number=number, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Order"))


FirstOrder = message_of("first", ("item", 1))
SecondOrder = message_of("second", ("item", 1), ("currency", 2))


def written(broker: BlockingBroker, *values: bytes) -> str:
    topic: str = broker.topic()
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value)
        producer.flush()
    return topic


def read(broker: BlockingBroker, topic: str, count: int) -> list[bytes]:
    values: list[bytes] = []
    with BlockingConsumer(topic, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        while len(values) < count:
            values += [record.value for record in consumer.poll(timeout_ms=1_000)]
    return values


def test_json_of_all_versions_is_read(kafka_broker: BlockingBroker) -> None:
    old = {"item": "tea", "price": 4}
    new = {**old, "currency": "CZK", "coupon": "spring"}
    topic = written(kafka_broker, *(json.dumps(each).encode() for each in (old, new)))
    orders = [Order.parse(value) for value in read(kafka_broker, topic, 2)]
    assert orders == [Order("tea", 4, "EUR"), Order("tea", 4, "CZK")]


def test_avro_of_all_versions_becomes_columns_of_the_newest(kafka_broker: BlockingBroker) -> None:
    order = {"item": "tea", "price": 4.0}
    topic = written(kafka_broker, avro(1, order), avro(2, {**order, "currency": "CZK"}))
    values = AvroValues(SCHEMAS[2], schemas=FixedSchemas(SCHEMAS))

    async def main() -> list[Any]:
        found: list[Any] = []
        servers = kafka_broker.bootstrap_servers
        async with Consumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
            async for table in consumer.arrow(values=values):
                found += table.column("value").to_pylist()
                if len(found) == 2:
                    break
        return found

    assert asyncio.run(main()) == [{**order, "currency": "EUR"}, {**order, "currency": "CZK"}]


def test_protobuf_of_all_versions_is_read(kafka_broker: BlockingBroker) -> None:
    old, new = FirstOrder(item="tea"), SecondOrder(item="tea", currency="CZK")
    topic = written(kafka_broker, old.SerializeToString(), new.SerializeToString())
    values = read(kafka_broker, topic, 2)
    assert [SecondOrder.FromString(value).currency for value in values] == ["", "CZK"]
    passed_on = FirstOrder.FromString(values[1]).SerializeToString()  # by an old program
    assert SecondOrder.FromString(passed_on).currency == "CZK"
