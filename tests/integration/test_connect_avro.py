"""Records in Avro, whose schemas are in a registry, through sinks of connectors."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.client import AvroSerializer, registry
from odradek.connect.converters import converter_of
from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.plugins import check_config, find
from odradek.connect.registry_converters import SchemaMissing
from odradek.testing.blocking import BlockingBroker
from tests.integration.test_connect import broker, name, produce, rest, rows, sink, state
from tests.integration.waiting import until
from tests.unit.client.test_avro_serializers import Registry

__all__ = ["broker", "name", "rest"]

OLD = {"type": "record", "name": "Order", "fields": [{"name": "n", "type": "int"}]}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "item", "type": ["null", "string"]}]}  # type: ignore[misc]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A registry of the test's own, which is asked once before a task pauses."""
    monkeypatch.setattr(registry, "PAUSES_S", ())
    made = Registry()
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def url(server: Registry) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def avro(server: Registry) -> dict[str, str]:
    return {"value.converter": "avro", "value.converter.schema.registry.url": url(server)}


def converter(server: Registry) -> Any:
    return converter_of("io.confluent.connect.avro.AvroConverter", {"schema.registry.url": url(server)})


def test_rows_follow_schemas_and_wait_for_the_registry(
    broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path, server: Registry
) -> None:
    """A second schema has a further field; the registry is away at first, and again before that schema."""
    path = tmp_path / "o.db"
    old, new = AvroSerializer(OLD, server.client), AvroSerializer(NEW, server.client)
    produce(broker, name, [old(name, {"n": 1}), old(name, {"n": 2})])
    server.is_away = True
    server.asked.clear()
    config = sink(path, name, **avro(server), **{"errors.retry.delay.max.ms": "100"})
    assert rest.put(f"/connectors/{name}/config", json=config).status_code == 201
    until(lambda: len(server.asked) > 2, "requests for the schema")
    assert state(rest, name) == ["RUNNING", "RUNNING"]
    server.is_away = False
    until(lambda: rows(path, f'SELECT n FROM "{name}"') == [(1,), (2,)], "rows in the table")

    later = [old(name, {"n": 3}), new(name, {"n": 4, "item": "tea"}), old(name, {"n": 5})]
    server.is_away = True
    server.asked.clear()
    produce(broker, name, later)
    until(lambda: len(server.asked) > 2, "requests for the schema")
    server.is_away = False
    wanted = [(1, None), (2, None), (3, None), (4, "tea"), (5, None)]
    until(lambda: rows(path, f'SELECT n, item FROM "{name}" ORDER BY n') == wanted, "rows in the table")
    rest.delete(f"/connectors/{name}")


def test_unknown_schema_fails_the_task_unless_it_is_tolerated(
    broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path, server: Registry
) -> None:
    path = tmp_path / "o.db"
    good = AvroSerializer(OLD, server.client)(name, {"n": 1})
    produce(broker, name, [b"\0\0\0\0\1x", b"no Avro", good])
    config = sink(path, name, **avro(server))
    rest.put(f"/connectors/{name}/config", json=config)
    until(lambda: state(rest, name) == ["RUNNING", "FAILED"], "states")
    trace = rest.get(f"/connectors/{name}/tasks/0/status").json()["trace"]
    assert f"{name}-0@0" in trace
    rest.put(f"/connectors/{name}/config", json={**config, "errors.tolerance": "all"})
    until(lambda: rows(path, f'SELECT n FROM "{name}"') == [(1,)], "rows in the table")
    rest.delete(f"/connectors/{name}")


def test_values_that_json_lacks_become_text(server: Registry) -> None:
    fields = [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "raw", "type": {"type": "array", "items": "bytes"}},
    ]
    value = {"at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "price": Decimal("1.50"), "raw": [b"\x00\xff"]}
    data = AvroSerializer({"type": "record", "name": "R", "fields": fields}, server.client)("orders", value)
    made = converter(server)
    with pytest.raises(SchemaMissing) as missing:
        made.decode(data)
    missing.value.fetch()
    assert made.decode(data) == {"at": "2026-01-02T00:00:00+00:00", "price": "1.50", "raw": ["AP8="]}
    assert made.decode(None) is None


def test_failure_of_the_registry_says_whether_to_wait(server: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    made = converter(server)
    with pytest.raises(SchemaMissing) as missing:
        made.decode(b"\0\0\0\0\1x")
    with pytest.raises(ValueError, match="no schema with id 1"):
        missing.value.fetch()
    server.is_away = True
    with pytest.raises(TargetAway):
        missing.value.fetch()
    monkeypatch.setattr(server, "answer", lambda *_request: (401, {}))
    with pytest.raises(ConnectError) as caught:
        missing.value.fetch()
    assert type(caught.value) is ConnectError


@pytest.mark.parametrize("format_", ["avro", "json-schema", "protobuf"])
def test_source_registers_schemas_of_its_rows_that_a_sink_reads(
    broker: BlockingBroker, rest: TestClient, name: str, tmp_path: Path, server: Registry, format_: str
) -> None:
    """The registry is away at first. A later row has a value in a column that was null before."""
    store = sqlite3.connect(tmp_path / "source.db")
    store.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL)")
    store.execute("INSERT INTO orders VALUES (1, NULL, 2.5)")
    store.commit()
    values = {"value.converter": format_, "value.converter.schema.registry.url": url(server)}
    source = {"connector.class": "SqlSource", "connection.url": f"sqlite:///{tmp_path}/source.db",
              "mode": "incrementing", "incrementing.column.name": "id", "table.whitelist": "orders",
              "topic.prefix": f"{name}-", "poll.interval.ms": "50", "errors.retry.delay.max.ms": "100"}  # fmt: skip
    server.is_away = True
    assert rest.put(f"/connectors/{name}-in/config", json={**source, **values}).status_code == 201
    until(lambda: len(server.asked) > 2, "requests for the schema")
    server.is_away = False
    target = tmp_path / "target.db"
    assert rest.put(f"/connectors/{name}/config", json=sink(target, f"{name}-orders", **values)).status_code == 201
    query = f'SELECT id, price FROM "{name}-orders"'
    until(lambda: rows(target, query) == [(1, 2.5)], "the first row")
    store.execute("INSERT INTO orders VALUES (2, 'tea', 4)")
    store.commit()
    query = f'SELECT id, item, price FROM "{name}-orders" ORDER BY id'
    until(lambda: rows(target, query) == [(1, None, 2.5), (2, "tea", 4)], "the second row")
    assert len(server.subjects[f"{name}-orders-value"]) == 2
    store.close()
    for each in (name, f"{name}-in"):
        rest.delete(f"/connectors/{each}")


@pytest.mark.parametrize(
    ("config", "part"),
    [
        (
            {
                "value.converter.schema.registry.url": "http://r",
                "value.converter.schema": "x",
                "value.converter.use.latest.version": "true",
            },
            "only one of them is possible",
        ),
        ({"value.converter.schema.registry.url": "r"}, "not an address of a schema registry"),
        ({"value.converter.schema.registry.url": "http://r", "value.converter.x": "1"}, "x is not a setting"),
    ],
)
def test_avro_of_a_source_without_address_or_choice_is_rejected(config: dict[str, str], part: str) -> None:
    plugin = find("FileStreamSource")
    assert plugin is not None
    own = {"name": "c", "connector.class": "FileStreamSource", "file": "f", "topic": "t", "value.converter": "avro"}
    (lines,) = check_config(plugin, {**own, **config}).errors.values()
    assert part in lines[0]
