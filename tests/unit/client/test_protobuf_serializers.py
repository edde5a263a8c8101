"""Protobuf behind the ids of a registry, which a server in this process plays: it stores schemas by subject."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

from odradek.client import (
    ConfigError,
    Consumer,
    FixedSchemas,
    Producer,
    ProtobufDeserializer,
    ProtobufMessages,
    ProtobufSerializer,
    RegistrySchemas,
    SerializationError,
    message_fields,
    registry,
)
from odradek.client.framing import framed
from odradek.testing import Broker
from tests.unit.client.test_avro_serializers import Registry, serve

WELL_KNOWN = (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)
DOUBLE, INT64, STRING, MESSAGE, BYTES, ENUM = 1, 3, 9, 11, 12, 14


def field(message: Any, name: str, kind: int, type_name: str | None = None, label: int = 1) -> None:
    message.field.add(name=name, number=len(message.field) + 1, type=kind, type_name=type_name, label=label)


def files() -> list[Any]:
    """An article in a file of its own, and orders that import it."""
    article = descriptor_pb2.FileDescriptorProto(name="shop/article.proto", package="shop", syntax="proto3")
    field(article.message_type.add(name="Article"), "name", STRING)
    order = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["shop/article.proto", *(each.DESCRIPTOR.name for each in WELL_KNOWN)])
    order.enum_type.add(name="State").value.add(name="OPEN", number=0)
    note = order.message_type.add(name="Note")
    field(note, "text", STRING)
    message = order.message_type.add(name="Order")
    field(message, "article", MESSAGE, ".shop.Article")
    field(message, "count", INT64)
    field(message, "state", ENUM, ".shop.State")
    field(message, "at", MESSAGE, ".google.protobuf.Timestamp")
    field(message, "took", MESSAGE, ".google.protobuf.Duration")
    field(message, "discount", MESSAGE, ".google.protobuf.DoubleValue")
    field(message, "extra", MESSAGE, ".google.protobuf.Struct")
    field(message, "tags", STRING, label=3)
    entry = message.nested_type.add(name="StockEntry")
    entry.options.map_entry = True
    field(entry, "key", STRING)
    field(entry, "value", INT64)
    field(message, "stock", MESSAGE, ".shop.Order.StockEntry", label=3)
    field(message.nested_type.add(name="Line"), "raw", BYTES)
    return [article, order]


POOL = descriptor_pool.Default()
for _file in files():
    POOL.Add(_file)


def kind(name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(name))


Order, Note, Line, Article = (kind(f"shop.{each}") for each in ("Order", "Note", "Order.Line", "Article"))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(registry, "PAUSES_S", ())
    with serve(Registry("PROTOBUF")) as made:
        yield made


def order() -> Any:
    made = Order(article=Article(name="tea"), count=2, tags=["hot"], stock={"berlin": 5})
    made.at.FromDatetime(dt.datetime(2026, 11, 23, tzinfo=dt.UTC))
    made.took.FromTimedelta(dt.timedelta(seconds=-1.5))
    made.discount.value = 0.5
    made.extra.update({"a": [1, None, {"b": "c"}], "d": True})
    return made


FIELDS = {
    "article": {"name": "tea"},
    "count": 2,
    "state": "OPEN",
    "at": dt.datetime(2026, 11, 23, tzinfo=dt.UTC),
    "took": dt.timedelta(seconds=-1.5),
    "discount": 0.5,
    "extra": {"a": [1.0, None, {"b": "c"}], "d": True},
    "tags": ["hot"],
    "stock": {"berlin": 5},
}


def test_bytes_are_those_of_the_wire_format(server: Registry) -> None:
    for message, path in ((Note(text="x"), b"\x00"), (order(), b"\x02\x02"), (Line(raw=b"y"), b"\x04\x02\x02")):
        data = ProtobufSerializer(type(message), server.client)("orders", message)
        (schema_id,) = server.subjects["orders-value"]
        assert data == b"\x00" + schema_id.to_bytes(4, "big") + path + message.SerializeToString()


def test_imports_are_registered_as_references(server: Registry) -> None:
    ProtobufSerializer(Order, server.client)("orders", order())
    (article_id,), (order_id,) = server.subjects["shop/article.proto"], server.subjects["orders-value"]
    assert server.references[article_id] == []
    article = {"name": "shop/article.proto", "subject": "shop/article.proto", "version": 1}
    assert server.references[order_id] == [article]
    described = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(server.schemas[order_id]))
    assert described == files()[1]


def test_record_becomes_its_fields_without_generated_code(server: Registry) -> None:
    data = ProtobufSerializer(Order, server.client)("orders", order())
    assert ProtobufDeserializer(server.client)(data) == FIELDS
    fetched = [each for each in server.asked if each.startswith("GET")]
    assert len(fetched) == 2
    assert all(each.endswith("?format=serialized") for each in fetched)
    assert ProtobufMessages(server.client).read(data).DESCRIPTOR.full_name == "shop.Order"


def test_each_message_of_a_file_is_found_by_its_place(server: Registry) -> None:
    read = ProtobufDeserializer(server.client)
    for message, fields in ((Note(text="x"), {"text": "x"}), (Line(raw=b"y"), {"raw": b"y"})):
        assert read(ProtobufSerializer(type(message), server.client)("orders", message)) == fields


def test_fields_that_are_not_set_are_none_or_zero() -> None:
    none = dict.fromkeys(("article", "at", "took", "discount", "extra"))
    assert message_fields(Order()) == {**none, "count": 0, "state": "OPEN", "tags": [], "stock": {}}


def test_unknown_number_of_an_enum_is_text() -> None:
    assert message_fields(Order(state=7))["state"] == "7"


def test_time_that_python_lacks_is_a_serialization_error(server: Registry) -> None:
    late = Order()
    late.at.CopyFrom(timestamp_pb2.Timestamp(seconds=1 << 60))
    data = ProtobufSerializer(Order, server.client)("orders", late)
    with pytest.raises(SerializationError, match="no time of Python's"):
        ProtobufDeserializer(server.client)(data)


def test_record_becomes_a_message_of_the_generated_class(server: Registry) -> None:
    data = ProtobufSerializer(Order, server.client)("orders", order())
    assert ProtobufDeserializer(server.client, Order)(data) == order()
    asked = len(server.asked)
    assert ProtobufDeserializer(None, Order)(data) == order()
    assert len(server.asked) == asked


def test_other_message_than_the_generated_class_is_rejected(server: Registry) -> None:
    data = ProtobufSerializer(Note, server.client)("orders", Note(text="x"))
    with pytest.raises(SerializationError, match=r"expected shop\.Order, got shop\.Note"):
        ProtobufDeserializer(server.client, Order)(data)


def test_prepared_ones_do_not_ask_with_records(server: Registry) -> None:
    async def main() -> None:
        serializer, deserializer = ProtobufSerializer(Order, server.client), ProtobufDeserializer(server.client)
        await serializer.prepare("orders")
        await deserializer.prepare("orders-value")
        server.is_away = True
        assert deserializer(serializer("orders", order())) == FIELDS

    asyncio.run(main())


def test_schema_is_looked_up_where_it_must_not_be_registered(server: Registry) -> None:
    fixed = ProtobufSerializer(Order, server.client, register=False)
    with pytest.raises(LookupError, match=r"no such schema in subject shop/article\.proto"):
        fixed("orders", order())
    assert server.subjects == {}
    expected = ProtobufSerializer(Order, server.client)("orders", order())
    assert fixed("orders", order()) == expected


def test_bytes_that_do_not_fit_are_rejected(server: Registry) -> None:
    data = ProtobufSerializer(Order, server.client)("orders", order())
    header = data[:5]
    read = ProtobufDeserializer(server.client)
    for wrong, text in (
        (b"", "has no id"),
        (header, "message indexes end too early"),
        (header + b"\x02\x0a", r"has no message with the indexes \[5\]"),
        (header + b"\x02\x01", r"has no message with the indexes \[-1\]"),
        (header + b"\x02\x02\xff", "not a message shop.Order"),
        (b"\x00\xff\xff\xff\xff\x00", "no schema with id 4294967295"),
    ):
        with pytest.raises(SerializationError, match=text):
            read(wrong)


def test_object_of_another_class_is_rejected(server: Registry) -> None:
    with pytest.raises(SerializationError, match=r"expected shop\.Order, got"):
        ProtobufSerializer(Order, server.client)("orders", Note())
    assert server.asked == []


def test_unusable_arguments_are_rejected_at_once(server: Registry) -> None:
    avro = RegistrySchemas("http://localhost:1")
    for make in (
        lambda: ProtobufSerializer(dict, server.client),
        lambda: ProtobufSerializer(Order, avro),
        lambda: ProtobufDeserializer(avro),
        lambda: ProtobufDeserializer(avro, Order),
        lambda: ProtobufDeserializer(None, dict),
        lambda: ProtobufDeserializer(None, None),  # type: ignore[call-overload]
    ):
        with pytest.raises(ConfigError):
            make()


def text(file: Any) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ('syntax = "proto3";', "is not a descriptor in base64; the registry has to know format=serialized"),
        (text(descriptor_pb2.FileDescriptorProto(dependency=["a.proto"])), "schema 7 is no complete Protobuf file"),
        (text(descriptor_pb2.FileDescriptorProto()), r"schema 7 has no message with the indexes \[0\]"),
    ],
)
def test_unusable_schema_is_a_value_error(schema: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ProtobufMessages(FixedSchemas({7: schema})).read(framed(7, b"", (0,)))


def test_types_of_confluent_need_no_reference() -> None:
    """Registries have these two files themselves; that of options has nothing to decode."""
    file = descriptor_pb2.FileDescriptorProto(syntax="proto3")
    file.dependency.extend(["confluent/meta.proto", "confluent/type/decimal.proto"])
    field(file.message_type.add(name="Price"), "amount", MESSAGE, ".confluent.type.Decimal")
    amount = b"\x0a\x02" + (-1234).to_bytes(2, "big", signed=True) + b"\x18\x02"
    price = ProtobufMessages(FixedSchemas({7: text(file)})).read(
        framed(7, b"\x0a" + bytes([len(amount)]) + amount, (0,))
    )
    assert message_fields(price) == {"amount": Decimal("-12.34")}


def test_json_values_are_their_content() -> None:
    holder = struct_pb2.Struct()
    holder.update({"a": None, "b": [1, "x"], "c": {"d": False}})
    assert message_fields(Order(extra=holder))["extra"] == {"a": None, "b": [1.0, "x"], "c": {"d": False}}


def test_records_pass_through_a_broker(server: Registry) -> None:
    async def main() -> None:
        async with Broker(in_process=True) as broker:
            async with Producer(
                bootstrap_servers=broker.bootstrap_servers, value_serializer=ProtobufSerializer(Order, server.client)
            ) as producer:
                await producer.send_and_wait("orders", order())
                await producer.send_and_wait("orders", None, key=b"a")
            async with Consumer(
                "orders",
                bootstrap_servers=broker.bootstrap_servers,
                auto_offset_reset="earliest",
                value_deserializer=ProtobufDeserializer(server.client),
            ) as consumer:
                found: list[Any] = []
                while len(found) < 2:
                    found += [record.value for record in await consumer.poll(10_000)]
                assert found == [FIELDS, None]

    asyncio.run(main())
