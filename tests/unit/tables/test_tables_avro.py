"""Avro values in tables, with a server in this process that answers as a schema registry does."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable
from fastavro import parse_schema, schemaless_writer

from odradek.client.framing import framed
from odradek.client.registry import RegistryError, RegistrySchemas
from odradek.connect.converters import NAMES, registry_of
from odradek.connect.errors import ConnectError, TargetAway
from odradek.tables.registry_fields import UNKNOWN_S, RegistryFields
from odradek.tables.specification import TableSpec, spec_of
from tests.unit.tables.writers import Writer

FIRST = {
    "type": "record", "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": ["null", "string"], "default": None}],
}  # fmt: skip
SECOND = {
    **FIRST,
    "fields": [
        *FIRST["fields"],
        {"name": "price", "type": ["null", "double"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


class Registry(ThreadingHTTPServer):
    """Schemas by id; others are unknown. `status` is that of all answers unless it is 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.schemas: dict[int, Any] = {}
        self.status = 200
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, schema: Any) -> int:
        """The id of a schema that the registry has now."""
        self.schemas[len(self.schemas) + 1] = schema
        return len(self.schemas)


class Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        schema = self.server.schemas.get(int(self.path.rpartition("/")[2]))
        status, answer = self.server.status, {"schema": json.dumps(schema)}
        if status == 200 and schema is None:
            status, answer = 404, {"error_code": 40403}  # type: ignore[dict-item]
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry()
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def spec(tmp_path: Path, registry: Registry) -> Callable[..., TableSpec]:
    def make(**settings: str) -> TableSpec:
        given = {each.replace("_", "."): text for each, text in settings.items()}
        converters = {"value.converter": "avro", "value.converter.schema.registry.url": registry.url}
        return spec_of("orders", {"topic": "orders", "path": str(tmp_path / "orders"), **converters, **given})

    return make


def avro(schema_id: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return framed(schema_id, out.getvalue())


def rows(path: str, *columns: str) -> list[tuple[Any, ...]]:
    found = DeltaTable(path).to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted((tuple(each.values()) for each in found), key=str)


def test_fields_become_columns_and_new_schemas_add_some(spec: Callable[..., TableSpec], registry: Registry) -> None:
    """A column comes with the schema, with its type, though no record has a value for it."""
    made, first, second = spec(), registry.add(FIRST), registry.add(SECOND)
    writer = Writer(made)
    writer.write(avro(first, FIRST, {"id": 1, "item": None}))
    assert writer.store.describe()["columns"]["item"] == "string"
    at = datetime(2026, 1, 2, tzinfo=UTC)
    writer.write(avro(second, SECOND, {"id": 2, "item": "tea", "price": None, "at": at}), avro(first, FIRST, {"id": 3}))
    assert (
        writer.store.describe()["columns"] | {"price": "double", "at": "timestamp"}
        == (writer.store.describe()["columns"])
    )
    assert rows(made.path, "id", "item", "price", "at") == [
        (1, None, None, None), (2, "tea", None, at), (3, None, None, None),
    ]  # fmt: skip
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]


def test_undecodable_values_go_to_the_table_of_bad_records(spec: Callable[..., TableSpec], registry: Registry) -> None:
    made, known = spec(), registry.add(FIRST)
    text, broken = registry.add("string"), registry.add({"type": "nope"})
    good = avro(known, FIRST, {"id": 1, "item": "tea"})
    values = [b'{"id": 1}', framed(99, b"\x02\x00"), good[:-1], good + b"\x00", avro(text, "string", "x"),
              framed(broken, b"\x00"), good]  # fmt: skip
    Writer(made).write(*values)
    assert rows(made.path, "id", "__offset") == [(1, 6)]
    found = rows(made.bad_path, "offset", "value", "reason")
    assert [(offset, value) for offset, value, _ in found] == list(enumerate(values[:6]))
    reasons = [reason for _, _, reason in found]
    assert reasons[1] == "the schema registry has no schema with id 99"
    assert "has no id" in reasons[0]
    assert reasons[2].startswith("not Avro of schema 1")
    assert reasons[3] == "not Avro of schema 1: it takes 6 bytes of 7"
    assert reasons[4] == "an Avro record expected, got str"
    assert reasons[5].startswith(f"schema {broken}: not an Avro schema")


def test_field_of_another_type_than_its_column_is_a_bad_record(
    spec: Callable[..., TableSpec], registry: Registry
) -> None:
    changed = {**FIRST, "fields": [{"name": "id", "type": "string"}]}
    first, second = registry.add(FIRST), registry.add(changed)
    made = spec()
    Writer(made).write(avro(first, FIRST, {"id": 1}), avro(second, changed, {"id": "a"}))
    assert rows(made.path, "id") == [(1,)]
    assert rows(made.bad_path, "offset", "reason") == [(1, "field id is of type string, its column of type bigint")]


def test_logical_and_nested_types_have_columns(spec: Callable[..., TableSpec], registry: Registry) -> None:
    def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
        return {"type": kind, "logicalType": name, **more}

    inner = {"type": "record", "name": "Inner", "fields": [{"name": "b", "type": "bytes"},
                                                          {"name": "d", "type": logical("int", "date")}]}  # fmt: skip
    values: dict[str, tuple[Any, Any, Any]] = {
        "day": (logical("int", "date"), date(2026, 1, 2), date(2026, 1, 2)),
        "clock": (logical("int", "time-millis"), time(1, 2, 3), "01:02:03"),
        "amount": (logical("bytes", "decimal", precision=9, scale=2), Decimal("1.50"), "1.50"),
        "number": (logical("string", "uuid"), UUID(int=7), str(UUID(int=7))),
        "raw": ({"type": "fixed", "name": "F", "size": 2}, b"\x00\xff", b"\x00\xff"),
        "kind": ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        "ratio": ("float", 0.5, 0.5),
        "tags": ({"type": "array", "items": "string"}, ["a", "ä"], '["a","ä"]'),
        "parts": ({"type": "map", "values": inner}, {"x": {"b": b"\x01", "d": date(2026, 1, 2)}},
                  '{"x":{"b":"AQ==","d":"2026-01-02"}}'),
        "either": (["null", "string", "long"], 5, 5),
    }  # fmt: skip
    schema = {"type": "record", "name": "R",
              "fields": [{"name": name, "type": kind} for name, (kind, _, _) in values.items()]}  # fmt: skip
    made, number = spec(), registry.add(schema)
    Writer(made).write(avro(number, schema, {name: value for name, (_, value, _) in values.items()}))
    assert rows(made.path, *values) == [tuple(wanted for _, _, wanted in values.values())]


def test_upsert_by_keys_in_avro(spec: Callable[..., TableSpec], registry: Registry) -> None:
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
    keys, first = registry.add(key), registry.add(FIRST)
    made = spec(
        mode="upsert", key_columns="id", columns="id bigint", key_converter="io.confluent.connect.avro.AvroConverter",
        key_converter_schema_registry_url=registry.url,
    )  # fmt: skip
    writer = Writer(made)
    by_id = {number: avro(keys, key, {"id": number}) for number in (1, 2)}
    writer.write(*((by_id[each], avro(first, FIRST, {"id": each, "item": "tea"})) for each in (1, 2)))
    writer.write((by_id[1], avro(first, FIRST, {"id": 1, "item": "milk"})), (by_id[2], None))
    assert rows(made.path, "id", "item") == [(1, "milk")]


@pytest.mark.parametrize(("status", "kind"), [(401, ConnectError), (503, TargetAway)])
def test_registry_that_does_not_answer_makes_no_bad_record(
    spec: Callable[..., TableSpec], registry: Registry, status: int, kind: type[ConnectError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The records are read again later: an outage says nothing about them."""
    monkeypatch.setattr("odradek.client.registry.PAUSES_S", ())
    made, first = spec(), registry.add(FIRST)
    writer = Writer(made)
    registry.status = status
    with pytest.raises(ConnectError) as caught:
        writer.write(avro(first, FIRST, {"id": 1}))
    assert type(caught.value) is kind
    registry.status = 200
    writer.write(avro(first, FIRST, {"id": 1}))
    assert rows(made.path, "id", "__offset") == [(1, 0)]


def test_unknown_id_is_asked_for_again_after_a_while() -> None:
    now = [0.0]
    asked: list[int] = []

    class Schemas(RegistrySchemas):
        def schema(self, schema_id: int) -> str:
            asked.append(schema_id)
            if len(asked) == 1:
                raise LookupError("there is no schema with id 1")
            return json.dumps(FIRST)

    converter = RegistryFields(Schemas("http://unused"), lambda: now[0])
    value = avro(1, FIRST, {"id": 1, "item": None})
    for _ in range(3):
        with pytest.raises(ValueError, match="no schema with id 1"):
            converter.decode(value)
    assert asked == [1]
    now[0] = UNKNOWN_S
    assert converter.decode(value) == {"id": 1, "item": None}
    assert asked[1:]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"basic.auth.user.info": "me"}, "USER:PASSWORD expected"),
        ({"basic.auth.credentials.source": "URL"}, "USER_INFO expected"),
    ],
)
def test_login_that_is_incomplete_is_rejected(settings: dict[str, str], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        registry_of(NAMES["avro"], {"schema.registry.url": "http://r:8081", **settings})


def test_several_addresses_and_a_login_are_used(registry: Registry) -> None:
    number = registry.add(FIRST)
    urls = f"http://127.0.0.1:1, {registry.url}"
    converter = RegistryFields(
        registry_of(NAMES["avro"], {"schema.registry.url": urls, "basic.auth.user.info": "me:se:cret"})
    )
    assert converter.decode(avro(number, FIRST, {"id": 1})) == {"id": 1, "item": None}


def test_error_of_a_registry_says_whether_it_may_pass(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.client.registry.PAUSES_S", ())
    for status, is_transient in ((503, True), (401, False)):
        registry.status = status
        with pytest.raises(RegistryError) as caught:
            RegistrySchemas(registry.url).schema(1)
        assert caught.value.is_transient is is_transient
