"""Serializers decide the types of keys and values."""

from dataclasses import dataclass

from pydantic import BaseModel

from odradek.client import (
    AvroDeserializer,
    AvroSerializer,
    Consumer,
    Producer,
    PydanticDeserializer,
    PydanticSerializer,
    RegistrySchemas,
)
from odradek.client.serializers import (
    DataclassDeserializer,
    DataclassSerializer,
    LongDeserializer,
    StringDeserializer,
    StringSerializer,
)


@dataclass
class Order:
    number: int


class Parcel(BaseModel):
    weight: int


async def models() -> None:
    producer = Producer(value_serializer=PydanticSerializer(Parcel))
    await producer.send("parcels", Parcel(weight=1))
    await producer.send("parcels", Order(1))  # E: [arg-type]
    async for record in Consumer("parcels", value_deserializer=PydanticDeserializer(Parcel)):
        print(record.value.weight + 1)
        record.value.decode()  # E: [attr-defined]


async def avro(registry: RegistrySchemas) -> None:
    loose = Producer(value_serializer=AvroSerializer('"int"', registry))
    await loose.send("numbers", 1)
    producer = Producer(value_serializer=AvroSerializer('"int"', registry, to_avro=number_of))
    await producer.send("orders", Order(1))
    await producer.send("orders", 1)  # E: [arg-type]
    async for record in Consumer("orders", value_deserializer=AvroDeserializer(registry, from_avro=Order)):
        print(record.value.number + 1)
        record.value.decode()  # E: [attr-defined]


def number_of(order: Order) -> int:
    return order.number


async def main() -> None:
    producer = Producer(key_serializer=StringSerializer(), value_serializer=DataclassSerializer(Order))
    await producer.send("orders", Order(1), key="a")
    await producer.send("orders", None, key="a")
    await producer.send("orders", b"bytes", key="a")  # E: [arg-type]
    await producer.send("orders", Order(1), key=b"a")  # E: [arg-type]
    await send_one(producer)
    consumer = Consumer(
        "orders", key_deserializer=StringDeserializer(), value_deserializer=DataclassDeserializer(Order)
    )
    async for record in consumer:
        print(record.key.upper(), record.value.number + 1)
        record.value.decode()  # E: [attr-defined]
    annotated: Consumer[str, Order | None] = Consumer(
        "orders", key_deserializer=bytes.decode, value_deserializer=DataclassDeserializer(Order)
    )
    for each in await annotated.poll():
        print(each.value.number if each.value is not None else "deleted")
        print(each.value.number)  # E: [union-attr]
    wrong: Consumer[str, int] = Consumer(key_deserializer=LongDeserializer())  # E: [arg-type]
    del wrong


async def send_one(producer: Producer[str, Order]) -> None:
    await producer.send_and_wait("orders", Order(2), key="b")
