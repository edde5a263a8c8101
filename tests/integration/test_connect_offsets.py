"""Offsets of sinks that are changed by REST while they are stopped, where the target holds the positions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from starlette.testclient import TestClient

from odradek.client.admin import raise_first
from odradek.client.admin.blocking_admin import BlockingAdmin
from odradek.connect.table_formats.iceberg import IcebergCatalog
from odradek.connect.topics import read_all
from odradek.testing.blocking import BlockingBroker
from odradek.wire.errors import KafkaError
from tests.integration.test_connect import produce, rows, state, worker_of
from tests.integration.waiting import until


class Target(NamedTuple):
    """Where a sink writes, and the numbers that it has written there."""

    config: dict[str, str]
    numbers: Callable[[], list[int]]


def sqlite(folder: Path, topic: str, _other: BlockingBroker) -> Target:
    url = f"sqlite:///{folder}/o.db"
    config = {"connector.class": "SqlSink", "connection.url": url, "auto.create": "true"}
    return Target(config, lambda: [n for (n,) in rows(folder / "o.db", f'SELECT n FROM "{topic}" ORDER BY n')])


def delta(folder: Path, _topic: str, _other: BlockingBroker) -> Target:
    def numbers() -> list[int]:
        if not DeltaTable.is_deltatable(str(folder / "delta")):
            return []
        return sorted(DeltaTable(str(folder / "delta")).to_pyarrow_table().column("n").to_pylist())

    config = {"connector.class": "DeltaSink", "table.path": f"{folder}/delta", "rotate.interval.ms": "0"}
    return Target(config, numbers)


def iceberg(folder: Path, _topic: str, _other: BlockingBroker) -> Target:
    catalog = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"}

    def numbers() -> list[int]:
        # this opens the catalog while the sink makes its tables
        opened = IcebergCatalog(catalog)
        try:
            table = opened.load("lake.numbers")
            return [] if table is None else sorted(table.scan().to_arrow().column("n").to_pylist())
        finally:
            opened.close()

    config = {"connector.class": "IcebergSink", "table.name": "lake.numbers", "rotate.interval.ms": "0"}
    return Target(config | {f"catalog.{name}": text for name, text in catalog.items()}, numbers)


def cluster(_folder: Path, topic: str, other: BlockingBroker) -> Target:
    servers = other.bootstrap_servers

    async def read() -> list[int]:
        found = [json.loads(each.value or b"") async for each in read_all({"bootstrap_servers": servers}, topic)]
        return sorted(each["n"] for each in found)

    def numbers() -> list[int]:
        with BlockingAdmin(bootstrap_servers=servers) as admin:
            if topic not in admin.list_topics():
                return []
        return asyncio.run(read())

    return Target({"connector.class": "ClusterSink", "target.bootstrap.servers": servers}, numbers)


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    """The broker of the connectors."""
    with BlockingBroker() as started:
        yield started


@pytest.fixture(scope="module")
def rest(broker: BlockingBroker) -> Iterator[TestClient]:
    """A worker that keeps configurations in memory."""
    with worker_of(broker) as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name of the test's own, for a connector and its topic."""
    return f"c-{uuid4().hex[:10]}"


@pytest.fixture(scope="module")
def other() -> Iterator[BlockingBroker]:
    """Another cluster."""
    with BlockingBroker() as started:
        yield started


def id_of(admin: BlockingAdmin, topic: str) -> bytes | None:
    found = admin.describe_topics([topic])[topic]
    return None if isinstance(found, KafkaError) else found.topic_id


def change(rest: TestClient, name: str, offset: int | None) -> Any:
    partition = {"kafka_topic": name, "kafka_partition": 0}
    given = None if offset is None else {"kafka_offset": offset}
    return rest.patch(f"/connectors/{name}/offsets", json={"offsets": [{"partition": partition, "offset": given}]})


@pytest.mark.parametrize("is_stopped", [True, False], ids=["at-its-start", "while-it-runs"])
@pytest.mark.parametrize("kind", [sqlite, delta, iceberg, cluster])
def test_sink_of_a_topic_that_was_created_again_fails_until_its_offsets_go(
    broker: BlockingBroker,
    rest: TestClient,
    name: str,
    tmp_path: Path,
    other: BlockingBroker,
    kind: Callable[[Path, str, BlockingBroker], Target],
    is_stopped: bool,
) -> None:
    """It left out the first records of the new topic, up to the position in the former one."""
    target = kind(tmp_path, name, other)
    produce(broker, name, [{"n": n} for n in range(3)])
    assert rest.put(f"/connectors/{name}/config", json={**target.config, "topics": name}).status_code == 201
    until(lambda: target.numbers() == [0, 1, 2], "the numbers of the former topic")
    if is_stopped:
        rest.put(f"/connectors/{name}/stop")
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        former = id_of(admin, name)
        raise_first(admin.delete_topics([name]))
        # The consumer of a running task may have the next one created at once.
        until(lambda: id_of(admin, name) != former, "the end of the topic")
    produce(broker, name, [{"n": n} for n in range(10, 15)])
    if is_stopped:
        rest.put(f"/connectors/{name}/resume")
    until(lambda: state(rest, name) == ["RUNNING", "FAILED"], "a failed task")
    trace = rest.get(f"/connectors/{name}/status").json()["tasks"][0]["trace"]
    assert "the topic was deleted and created again" in trace
    rest.put(f"/connectors/{name}/stop")
    assert rest.delete(f"/connectors/{name}/offsets").status_code == 200
    rest.put(f"/connectors/{name}/resume")
    until(lambda: target.numbers() == [0, 1, 2, *range(10, 15)], "the numbers of both topics")


@pytest.mark.parametrize("kind", [sqlite, delta, iceberg, cluster])
def test_sink_continues_where_its_offsets_were_set(
    broker: BlockingBroker,
    rest: TestClient,
    name: str,
    tmp_path: Path,
    other: BlockingBroker,
    kind: Callable[[Path, str, BlockingBroker], Target],
) -> None:
    """Set back, the records come again; forward, some never come; removed or reset, all come again."""
    target = kind(tmp_path, name, other)
    produce(broker, name, [{"n": n} for n in range(3)])
    assert rest.put(f"/connectors/{name}/config", json={**target.config, "topics": name}).status_code == 201
    expected = [0, 1, 2]

    def check(more: list[int], end: int) -> None:
        expected.extend(more)
        until(lambda: target.numbers() == sorted(expected), f"the numbers {sorted(expected)}")
        wanted = [{"partition": {"kafka_topic": name, "kafka_partition": 0}, "offset": {"kafka_offset": end}}]
        until(lambda: rest.get(f"/connectors/{name}/offsets").json()["offsets"] == wanted, f"offset {end}")

    check([], 3)
    rejected = change(rest, name, 1)
    assert (rejected.status_code, "STOPPED state" in rejected.json()["message"]) == (400, True)
    for offset, more in ((1, [1, 2]), (None, [0, 1, 2])):
        rest.put(f"/connectors/{name}/stop")
        assert change(rest, name, offset).status_code == 200
        assert target.numbers() == sorted(expected), "rows stay as they are"
        rest.put(f"/connectors/{name}/resume")
        check(more, 3)
    rest.put(f"/connectors/{name}/stop")
    produce(broker, name, [{"n": 3}, {"n": 4}])
    assert change(rest, name, 4).status_code == 200
    rest.put(f"/connectors/{name}/resume")
    check([4], 5)
    rest.put(f"/connectors/{name}/stop")
    assert rest.delete(f"/connectors/{name}/offsets").status_code == 200
    assert rest.get(f"/connectors/{name}/offsets").json() == {"offsets": []}
    rest.put(f"/connectors/{name}/resume")
    check([0, 1, 2, 3, 4], 5)
    assert state(rest, name) == ["RUNNING", "RUNNING"]
    rest.delete(f"/connectors/{name}")


def test_reset_finds_positions_that_the_group_has_no_longer(
    broker: BlockingBroker,
    rest: TestClient,
    name: str,
    tmp_path: Path,
    other: BlockingBroker,
) -> None:
    """Offsets of a group expire, those in a database do not."""
    target = sqlite(tmp_path, name, other)
    produce(broker, name, [{"n": 7}])
    config = {**target.config, "topics.regex": f"{name}|{name}-more"}
    assert rest.put(f"/connectors/{name}/config", json=config).status_code == 201
    until(lambda: target.numbers() == [7], "the row")
    rest.put(f"/connectors/{name}/stop")
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.groups.delete([f"connect-{name}"])
    assert rest.get(f"/connectors/{name}/offsets").json() == {"offsets": []}
    assert rest.delete(f"/connectors/{name}/offsets").status_code == 200
    rest.put(f"/connectors/{name}/resume")
    until(lambda: target.numbers() == [7, 7], "the row again")
    rest.delete(f"/connectors/{name}")


def test_positions_in_names_of_files_stay(
    broker: BlockingBroker,
    rest: TestClient,
    name: str,
    tmp_path: Path,
) -> None:
    produce(broker, name, [{"n": 1}])
    config = {"connector.class": "FilesSink", "directory": str(tmp_path), "topics": name, "rotate.interval.ms": "0"}
    rest.put(f"/connectors/{name}/config", json=config)
    until(lambda: rest.get(f"/connectors/{name}/offsets").json()["offsets"] != [], "offsets")
    rest.put(f"/connectors/{name}/stop")
    for answer in (change(rest, name, 0), rest.delete(f"/connectors/{name}/offsets")):
        assert answer.status_code == 400
        assert "are its positions" in answer.json()["message"]
    (file,) = tmp_path.glob("*.jsonl")
    file.unlink()
    assert change(rest, name, 0).status_code == 200
    rest.put(f"/connectors/{name}/resume")
    until(lambda: [each.name for each in tmp_path.glob("*.jsonl")] == [file.name], "the file again")
    rest.delete(f"/connectors/{name}")
