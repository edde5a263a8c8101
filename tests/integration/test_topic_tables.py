"""Tables of topics that ask for one by their settings, and of a cluster whose topics have no such settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from odradek.cli.main import main
from odradek.client.blocking_clients import BlockingProducer
from odradek.connect.errors import ConfigInvalid, ConnectError
from odradek.tables import process, topic_tables
from odradek.tables.process import run_found_tables
from odradek.tables.specification import TableSpec
from odradek.tables.store import Written
from odradek.tables.topic_tables import Warehouse, find_specs
from odradek.testing.blocking import BlockingBroker


@pytest.fixture
def broker() -> Iterator[BlockingBroker]:
    """A broker of the test's own: the runner looks at all topics."""
    with BlockingBroker() as started:
        yield started


def filled(broker: BlockingBroker, **configs: str) -> str:
    """A topic with two records of one key."""
    name = f"t-{uuid4().hex[:10]}"
    broker.topic(name, partitions=1, configs={each.replace("_", "."): text for each, text in configs.items()})
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for price in (1, 2):
            producer.send(name, json.dumps({"price": price}).encode(), key=b"k")
        producer.flush()
    return name


def prices(path: Path) -> list[Any]:
    return sorted(DeltaTable(str(path)).to_pyarrow_table().column("price").to_pylist())


def test_topics_get_tables_as_their_settings_say(
    broker: BlockingBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = filled(broker, odradek_table_format="delta", odradek_table_columns="price double")
    last = filled(broker, odradek_table_format="delta", odradek_table_mode="upsert")
    wrong = filled(broker, odradek_table_format="delta", odradek_table_partition_by="nowhere")
    filled(broker)
    words = ["--warehouse", str(tmp_path / "lake"), "--bootstrap-server", broker.bootstrap_servers]
    assert main(["tables", "run", *words, "--once"]) == 0
    assert sorted(each.name for each in (tmp_path / "lake").iterdir()) == sorted([rows, last])
    assert prices(tmp_path / "lake" / rows) == [1.0, 2.0]
    assert prices(tmp_path / "lake" / last) == [2]
    capsys.readouterr()
    assert main(["tables", "check", *words]) == 2
    assert f"table {wrong}: partition.by" in capsys.readouterr().err


def test_iceberg_tables_of_topics_are_in_the_namespace(broker: BlockingBroker, tmp_path: Path) -> None:
    name = filled(broker, odradek_table_format="iceberg")
    catalog = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": str(tmp_path / "lake")}
    words = [part for each, text in catalog.items() for part in ("--set", f"catalog.{each}={text}")]
    servers = ["--bootstrap-server", broker.bootstrap_servers]
    assert main(["tables", "run", "--warehouse", "sales", *words, "--once", *servers]) == 0
    table = load_catalog("default", **catalog).load_table(f"sales.{name}")
    assert sorted(table.scan().to_arrow().column("price").to_pylist()) == [1, 2]


def test_topic_that_asks_later_gets_its_table(
    broker: BlockingBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "LOOK_S", 0.05)
    clients = {"bootstrap_servers": broker.bootstrap_servers}
    invalid: list[ConfigInvalid] = []
    warehouse = Warehouse(str(tmp_path), {"commit.interval.ms": "0"})
    written: list[str] = []

    async def run() -> dict[str, ConnectError]:
        stopping = asyncio.Event()

        async def find() -> Mapping[str, TableSpec]:
            return await find_specs(clients, warehouse, invalid.append)

        def on_commit(table: str, _written: Written, _ends: Mapping[int, int]) -> None:
            if not written:
                first.set()
            written.append(table)
            if len(set(written)) == 2:
                stopping.set()

        first = asyncio.Event()
        work = asyncio.create_task(run_found_tables(find, clients, stopping, on_commit))
        async with asyncio.timeout(60):
            await first.wait()
            later.append(await asyncio.to_thread(filled, broker, odradek_table_format="delta"))
            return await work

    early, later = filled(broker, odradek_table_format="delta"), list[str]()
    assert asyncio.run(run()) == {}
    assert not invalid
    assert prices(tmp_path / early) == prices(tmp_path / later[0]) == [1, 2]


def test_cluster_without_such_settings_is_an_error(broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka leaves settings out that it does not have, as this broker does with unknown ones."""
    filled(broker)
    monkeypatch.setattr(topic_tables, "FORMAT", "odradek.table.unknown")
    monkeypatch.setattr(topic_tables, "SETTINGS", {"odradek.table.unknown": "format"})
    with pytest.raises(ConnectError, match="describe the tables in a file"):
        asyncio.run(find_specs({"bootstrap_servers": broker.bootstrap_servers}, Warehouse("lake"), lambda _: None))
