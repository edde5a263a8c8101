"""Avro behind the ids of a registry, which a server in this process plays: it stores schemas by subject."""

from __future__ import annotations

import asyncio
import hashlib
import json
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

import pytest

from odradek.client import (
    AvroDeserializer,
    AvroSerializer,
    ConfigError,
    Consumer,
    DeserializationError,
    Producer,
    RegistryError,
    RegistrySchemas,
    SerializationError,
    registry,
)
from odradek.client.consumer.avro_schema import contains_itself, parse_avro
from odradek.testing import Broker
from tests.newcomer.pages import Page

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "article", "type": "string"}, {"name": "count", "type": "int"}],
}
ORDER_WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": "none"}]}  # type: ignore[misc]
TEA = {"article": "tea", "count": 2}


@dataclass
class Order:
    article: str
    count: int


class Registry(ThreadingHTTPServer):
    """Answers as Confluent's registry does, of which it has the paths for subjects and ids."""

    def __init__(self, schema_type: str = "AVRO") -> None:
        """`schema_type` is that of its client; it has schemas of all types."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.schema_type = schema_type
        self.schemas: dict[int, str] = {}
        self.types: dict[int, str] = {}
        self.references: dict[int, Any] = {}
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.is_away = False
        self.rejects = False

    @property
    def client(self) -> RegistrySchemas:
        return RegistrySchemas(f"http://127.0.0.1:{self.server_port}", timeout_s=5, schema_type=self.schema_type)

    def answer(self, method: str, path: str, document: Any) -> tuple[int, Any]:
        if self.is_away:
            return 503, {}
        parts = [unquote(each) for each in path.partition("?")[0].strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            missing = (404, {"error_code": 40403, "message": "Schema not found"})
            return (200, self.fields(int(parts[2]))) if int(parts[2]) in self.schemas else missing
        versions = self.subjects.get(parts[1], [])
        if method == "POST" and parts[2:] == ["versions"]:
            return self.register(parts[1], document)
        if not versions:
            return 404, {"error_code": 40401, "message": "Subject not found"}
        if method == "POST":
            found = [each for each in versions if self.schemas[each] == document["schema"]]
            missing = (404, {"error_code": 40403, "message": "Schema not found"})
            return (200, {"id": found[0], "version": versions.index(found[0]) + 1}) if found else missing
        if parts[2:] == ["versions"]:
            return 200, list(range(1, len(versions) + 1))
        schema_id = versions[int(parts[3]) - 1]
        return 200, {"id": schema_id, **self.fields(schema_id)}

    def fields(self, schema_id: int) -> dict[str, Any]:
        """As the registry has it, which leaves out Avro's name and the list of no references."""
        fields: dict[str, Any] = {"schema": self.schemas[schema_id]}
        if self.types[schema_id] != "AVRO":
            fields["schemaType"] = self.types[schema_id]
        if self.references[schema_id]:
            fields["references"] = self.references[schema_id]
        return fields

    def register(self, subject: str, document: Any) -> tuple[int, Any]:
        text = document["schema"]
        if self.rejects:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        schema_id = int.from_bytes(hashlib.sha256(text.encode()).digest()[:2], "big")
        self.schemas[schema_id] = text
        self.types[schema_id] = document.get("schemaType", "AVRO")
        self.references[schema_id] = document.get("references", [])
        if schema_id not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(schema_id)
        return 200, {"id": schema_id}


class Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.reply(None)

    def do_POST(self) -> None:
        assert self.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"
        self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def reply(self, document: Any) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        status, fields = self.server.answer(self.command, self.path, document)
        body = json.dumps(fields).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serve(made: Registry) -> Iterator[Registry]:
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def server() -> Iterator[Registry]:
    with serve(Registry()) as made:
        yield made


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PAUSES_S", ())


def test_bytes_are_those_of_the_wire_format(server: Registry) -> None:
    data = AvroSerializer(ORDER, server.client)("orders", TEA)
    (schema_id,) = server.schemas
    assert data == b"\x00" + schema_id.to_bytes(4, "big") + b"\x06tea" + b"\x04"
    assert json.loads(server.schemas[schema_id]) == ORDER
    assert AvroDeserializer(server.client)(data) == TEA


def test_registry_is_asked_once_for_each_topic_and_id(server: Registry) -> None:
    serializer, deserializer = AvroSerializer(ORDER, server.client), AvroDeserializer(server.client)
    for _ in range(3):
        assert deserializer(serializer("orders", TEA)) == TEA
    (schema_id,) = server.schemas
    assert server.asked == ["POST /subjects/orders-value/versions", f"GET /schemas/ids/{schema_id}"]
    serializer("returns", TEA)
    assert server.subjects == {"orders-value": [schema_id], "returns-value": [schema_id]}


def test_prepared_ones_do_not_ask_with_records(server: Registry) -> None:
    async def main() -> None:
        serializer, deserializer = AvroSerializer(ORDER, server.client), AvroDeserializer(server.client)
        AvroSerializer(ORDER_WITH_NOTE, server.client)("orders", TEA)
        await serializer.prepare("orders", "returns")
        await deserializer.prepare("orders-value")
        server.is_away = True
        asked = len(server.asked)
        assert deserializer(serializer("orders", TEA)) == TEA
        serializer("returns", TEA)
        assert len(server.asked) == asked

    asyncio.run(main())


def test_subjects_follow_keys_and_own_functions(server: Registry) -> None:
    AvroSerializer('"string"', server.client, is_key=True)("orders", "k")
    AvroSerializer(ORDER, server.client, subject=lambda topic: f"shop/{topic} Order")("orders", TEA)
    assert server.asked == ["POST /subjects/orders-key/versions", "POST /subjects/shop%2Forders%20Order/versions"]


def test_schema_is_looked_up_where_it_must_not_be_registered(server: Registry) -> None:
    fixed = AvroSerializer(ORDER, server.client, register=False)
    with pytest.raises(LookupError, match="no such schema in subject orders-value"):
        fixed("orders", TEA)
    assert server.subjects == {}
    expected = AvroSerializer(ORDER, server.client)("orders", TEA)
    assert fixed("orders", TEA) == expected
    assert server.asked[-1] == "POST /subjects/orders-value"


def test_rejected_schema_is_an_error_with_the_reason(server: Registry) -> None:
    server.rejects = True
    with pytest.raises(RegistryError, match="status 409: Schema being registered is incompatible") as caught:
        AvroSerializer(ORDER, server.client)("orders", TEA)
    assert not caught.value.is_transient


def test_record_that_cannot_be_resolved_is_an_error_of_the_package(server: Registry) -> None:
    data = AvroSerializer(ORDER, server.client)("orders", TEA)
    needed = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string"}]}  # type: ignore[misc]
    with pytest.raises(SerializationError, match="does not fit schema"):
        AvroDeserializer(server.client, needed)(data)


NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


def test_value_that_is_too_deep_is_rejected(server: Registry) -> None:
    """The compiled reader of fastavro overflowed the stack, which ended the process."""
    serializer, deserializer = AvroSerializer(NODE, server.client), AvroDeserializer(server.client)
    node = {"next": {"next": {"next": None}}}
    data = serializer("nodes", node)
    assert deserializer(data) == node
    with pytest.raises(SerializationError, match="too deep"):
        deserializer(data[:5] + b"\x02" * 1_000_000 + b"\0")
    with pytest.raises(SerializationError, match="does not fit schema"):
        deserializer(data[:-1])


def test_types_that_contain_themselves_are_found() -> None:
    inner = {"type": "record", "name": "I", "fields": [{"name": "o", "type": {"type": "map", "values": "O"}}]}
    outer = {"type": "record", "name": "O", "fields": [{"name": "i", "type": {"type": "array", "items": inner}}]}
    assert contains_itself(parse_avro(outer))
    assert contains_itself(parse_avro(["null", NODE]))
    twice = {**ORDER, "fields": [{"name": "a", "type": {**ORDER, "name": "A"}}, {"name": "b", "type": "A"}]}
    assert not contains_itself(parse_avro(twice))


def test_records_of_an_older_schema_are_resolved_to_the_own_one(server: Registry) -> None:
    data = AvroSerializer(ORDER, server.client)("orders", TEA)
    assert AvroDeserializer(server.client, ORDER_WITH_NOTE)(data) == {**TEA, "note": "none"}


def test_objects_are_converted_both_ways(server: Registry) -> None:
    order = Order("tea", 2)
    data = AvroSerializer(ORDER, server.client)("orders", order)
    assert AvroDeserializer(server.client, from_avro=lambda fields: Order(**fields))(data) == order
    text = AvroSerializer('"string"', server.client, to_avro=str)
    assert AvroDeserializer(server.client, from_avro=int)(text("numbers", 17)) == 17


def test_logical_types_are_pythons(server: Registry) -> None:
    schema = {"type": "long", "logicalType": "timestamp-millis"}
    now = datetime(2026, 11, 23, 12, tzinfo=UTC)
    assert AvroDeserializer(server.client)(AvroSerializer(schema, server.client)("times", now)) == now


@pytest.mark.parametrize(
    "value", [{"article": "tea"}, {"article": 1, "count": 2}, {"article": "tea", "count": 1 << 40}, 7]
)
def test_object_that_does_not_fit_the_schema_is_rejected(server: Registry, value: object) -> None:
    with pytest.raises(SerializationError, match="Avro cannot carry"):
        AvroSerializer(ORDER, server.client)("orders", value)


def test_bytes_that_do_not_fit_are_rejected(server: Registry) -> None:
    data = AvroSerializer(ORDER, server.client)("orders", TEA)
    deserializer = AvroDeserializer(server.client)
    for wrong, text in (
        (b"", "has no id"),
        (b"{}", "has no id"),
        (data[:-1], "does not fit schema"),
        (data + b"12", "2 bytes follow a record of schema"),
        (b"\x00\xff\xff\xff\xff", "schema 4294967295: the schema registry has no schema with id 4294967295"),
    ):
        with pytest.raises(SerializationError, match=text):
            deserializer(wrong)


@pytest.mark.parametrize("schema", ["{", '"strin"', {"type": "record"}])
def test_malformed_schema_is_rejected_at_once(server: Registry, schema: Any) -> None:
    with pytest.raises(ConfigError, match="not an Avro schema"):
        AvroSerializer(schema, server.client)
    with pytest.raises(ConfigError, match="not an Avro schema"):
        AvroDeserializer(server.client, schema)
    assert server.asked == []


def test_unknown_subject_cannot_be_prepared(server: Registry) -> None:
    with pytest.raises(LookupError, match="has no subject orders-value"):
        asyncio.run(AvroDeserializer(server.client).prepare("orders-value"))


def test_poll_continues_when_the_registry_is_back(server: Registry) -> None:
    """Keys and values, nulls among them, through a broker; the first poll meets an outage."""

    async def main() -> None:
        async with Broker(in_process=True) as broker:
            producer = Producer(
                bootstrap_servers=broker.bootstrap_servers,
                key_serializer=AvroSerializer('"string"', server.client, is_key=True),
                value_serializer=AvroSerializer(ORDER, server.client),
            )
            async with producer:
                await producer.send_and_wait("orders", TEA, key="a")
                await producer.send_and_wait("orders", None, key="a")
            consumer = Consumer(
                "orders",
                bootstrap_servers=broker.bootstrap_servers,
                auto_offset_reset="earliest",
                key_deserializer=AvroDeserializer(server.client),
                value_deserializer=AvroDeserializer(server.client),
            )
            async with consumer:
                server.is_away = True
                with pytest.raises(DeserializationError) as caught:
                    await consumer.poll(10_000)
                assert isinstance(caught.value.__cause__, RegistryError)
                server.is_away = False
                found = [(record.key, record.value) for record in await consumer.poll(10_000)]
                assert found == [("a", TEA), ("a", None)]

    asyncio.run(main())


def test_lines_of_the_guide_work(server: Registry) -> None:
    """They stand in CLIENT.md as an excerpt, because its programs have a broker and no registry."""
    blocks = Page("docs/CLIENT.md").text.split("```")
    (excerpt,) = [each for each in blocks if each.startswith("\nregistry = RegistrySchemas(")]
    lines = excerpt.strip().replace("http://registry:8081", f"http://127.0.0.1:{server.server_port}")
    names = {**globals(), "schema": ORDER, "asdict": asdict}
    exec(f"async def run():\n{textwrap.indent(lines, '    ')}\n    return orders, consumer", names)

    async def main() -> None:
        orders, consumer = await names["run"]()
        assert isinstance(consumer, Consumer)
        data = orders("orders", Order("tea", 2))
        assert AvroDeserializer(server.client, from_avro=lambda fields: Order(**fields))(data) == Order("tea", 2)

    asyncio.run(main())
    assert server.asked[0] == "POST /subjects/orders-value/versions"
