"""Protobuf and JSON Schema values in tables and in sinks of connectors, by a registry in this process."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from odradek.client import JsonSchemaSerializer, ProtobufSerializer
from odradek.client.framing import framed
from odradek.connect.converters import converter_of
from odradek.connect.registry_converters import SchemaMissing
from odradek.tables.schema_kinds import json_kinds
from odradek.tables.specification import TableSpec, spec_of
from tests.unit.client.test_avro_serializers import Registry, serve
from tests.unit.client.test_protobuf_serializers import Line, Note, Order, order
from tests.unit.tables.writers import Writer

NOON = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["null", "number"]},
        "at": {"anyOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
        "item": {"$ref": "#/$defs/Item"},
    },
    "$defs": {"Item": {"type": "object"}},
}


@pytest.fixture
def servers() -> Iterator[dict[str, Registry]]:
    with serve(Registry("PROTOBUF")) as one, serve(Registry("JSON")) as other:
        yield {"protobuf": one, "json-schema": other}


@pytest.fixture
def spec(tmp_path: Path, servers: dict[str, Registry]) -> Callable[..., TableSpec]:
    def make(converter: str, **settings: str) -> TableSpec:
        url = f"http://127.0.0.1:{servers[converter].server_port}"
        config = {"value.converter": converter, "value.converter.schema.registry.url": url, **settings}
        return spec_of("orders", {"topic": "orders", "path": str(tmp_path / "orders"), **config})

    return make


def rows(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: int(row["__offset" if "__offset" in row else "offset"]))


def test_protobuf_fields_become_columns(spec: Callable[..., TableSpec], servers: dict[str, Registry]) -> None:
    """Messages of one schema have columns of their own; a column comes with the schema, without a value."""
    client, made = servers["protobuf"].client, spec("protobuf")
    writer = Writer(made)
    first = ProtobufSerializer(Order, client)("orders", Order(count=1))
    writer.write(first)
    kinds = writer.store.describe()["columns"]
    wanted = {"count": "bigint", "at": "timestamp", "discount": "double", "state": "string", "extra": "string"}
    assert kinds | wanted == kinds
    writer.write(
        ProtobufSerializer(Order, client)("orders", order()),
        ProtobufSerializer(Note, client)("orders", Note(text="a")),
        ProtobufSerializer(Line, client)("orders", Line(raw=b"\xff")),
        first[:5] + b"\x02\x0e",
        framed(99, b"\x00x"),
    )
    found = rows(made.path)
    assert [(row["count"], row["discount"], row["text"], row["raw"]) for row in found] == [
        (1, None, None, None), (2, 0.5, None, None), (None, None, "a", None), (None, None, None, b"\xff"),
    ]  # fmt: skip
    assert (found[1]["article"], found[1]["at"], found[1]["tags"], found[1]["stock"]) == (
        '{"name":"tea"}', dt.datetime(2026, 11, 23, tzinfo=dt.UTC), '["hot"]', '{"berlin":5}',
    )  # fmt: skip
    reasons = [row["reason"] for row in rows(made.bad_path)]
    assert reasons[0].startswith("not Protobuf of schema")
    assert "no schema with id 99" in reasons[1]


def test_documents_have_the_columns_of_their_json_schema(
    spec: Callable[..., TableSpec], servers: dict[str, Registry]
) -> None:
    """A number without a fraction does not make a column of whole numbers, and times are times."""
    serialize = JsonSchemaSerializer(SCHEMA, servers["json-schema"].client)
    made = spec("json-schema")
    Writer(made).write(
        serialize("orders", {"id": 1, "price": 4, "at": None, "item": {"name": "tea"}}),
        serialize("orders", {"id": 2, "price": 1.5, "at": NOON.isoformat()}),
        serialize("orders", {"id": 3, "at": "noon"}),
        serialize("orders", {})[:5] + b"{",
    )
    found = [(row["id"], row["price"], row["at"], row["item"]) for row in rows(made.path)]
    assert found == [(1, 4.0, None, '{"name":"tea"}'), (2, 1.5, NOON, None)]
    reasons = [row["reason"] for row in rows(made.bad_path)]
    assert reasons[0].startswith("field at: a time expected")
    assert reasons[1].startswith("not JSON of schema")


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"properties": {"a": {"type": "boolean"}, "b": {"type": ["string", "integer"]}}}, {"a": "boolean"}),
        ({"properties": {"a": {"oneOf": [{"type": "integer"}, {"type": "string"}]}}}, {}),
        ({"properties": {"a": {"allOf": [{"$ref": "#/d/x~1y"}]}}, "d": {"x/y": {"type": "array"}}}, {"a": "string"}),
        ({"properties": {"a": {"$ref": "other.json"}, "b": {"$ref": "#/nowhere"}, "c": True}}, {}),
        ({"$ref": "#/d/R", "d": {"R": {"properties": {"a": {"type": "number"}}}}}, {"a": "double"}),
        ({"properties": {"a": {"$ref": "#/d/A"}}, "d": {"A": {"$ref": "#/d/A"}}}, {}),
        (True, {}),
        ({"type": "string", "properties": 1}, {}),
    ],
)
def test_json_schema_says_types_of_columns(schema: Any, kinds: dict[str, str]) -> None:
    assert json_kinds(schema) == kinds


def converter(name: str, server: Registry) -> Any:
    return converter_of(name, {"schema.registry.url": f"http://127.0.0.1:{server.server_port}"})


def test_sinks_read_protobuf_once_its_schemas_are_there(servers: dict[str, Registry]) -> None:
    server = servers["protobuf"]
    data = ProtobufSerializer(Order, server.client)("orders", order())
    made = converter("protobuf", server)
    with pytest.raises(SchemaMissing) as missing:
        made.decode(data)
    missing.value.fetch()
    asked = len(server.asked)
    found = made.decode(data)
    assert len(server.asked) == asked
    assert (found["article"], found["at"], found["count"]) == ({"name": "tea"}, "2026-11-23T00:00:00+00:00", 2)
    with pytest.raises(ValueError, match="not Protobuf"):
        made.decode(data[:-1])
    assert made.decode(None) is None


def test_sinks_read_documents_behind_ids_that_the_registry_has(servers: dict[str, Registry]) -> None:
    server = servers["json-schema"]
    data = JsonSchemaSerializer(SCHEMA, server.client)("orders", {"id": 1})
    made = converter("io.confluent.connect.json.JsonSchemaConverter", server)
    with pytest.raises(SchemaMissing) as missing:
        made.decode(data)
    missing.value.fetch()
    assert made.decode(data) == {"id": 1}
    with pytest.raises(ValueError, match="not JSON"):
        made.decode(data[:-1])
    with pytest.raises(SchemaMissing) as missing:
        made.decode(framed(7, json.dumps({}).encode()))
    with pytest.raises(ValueError, match="no schema with id 7"):
        missing.value.fetch()
