"""Rebuild a table from its topic beside the old one, and let readers change at once.

The rules of a table change: another type, a column that was left out, a bug. The new table has another name and path,
begins where the topic begins, and catches up while the old one serves readers. When it has, one atomic step moves the
name that readers use. The old table stays for the way back. Needs the extras `connect` and `stores`.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from odradek.client import BlockingProducer
from odradek.tables.process import run_tables
from odradek.tables.specification import TableSpec, spec_of
from odradek.testing import BlockingBroker


def write(servers: str, *specs: TableSpec) -> None:
    """Bring tables up to the topics' ends of now."""
    clients = {"bootstrap_servers": servers}
    failures = asyncio.run(run_tables(specs, clients, asyncio.Event(), lambda *_: None, once=True))
    if failures:
        raise RuntimeError(str(failures))


def swap(name: Path, table: Path) -> None:
    """Make `name` lead to the table; readers see the one or the other. A view of the database does the same."""
    draft = name.with_name(f"{name.name}.new")
    draft.symlink_to(table, target_is_directory=True)
    os.replace(draft, name)


def rows(path: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["price"]) for row in found)


def test_new_table_has_what_the_old_rules_left_out(kafka_broker: BlockingBroker, tmp_path: Path) -> None:
    servers = kafka_broker.bootstrap_servers
    topic = kafka_broker.topic(partitions=2)
    orders, first, second = tmp_path / "orders", tmp_path / "orders-1", tmp_path / "orders-2"

    def produce(*prices: float) -> None:
        with BlockingProducer(bootstrap_servers=servers) as producer:
            for number, price in enumerate(prices):
                producer.send(topic, json.dumps({"id": f"{len(prices)}-{number}", "price": price}).encode())
            producer.flush()

    produce(4, 2.5, 3)
    old = spec_of("orders-1", {"topic": topic, "path": str(first), "columns": "id string,price bigint"})
    write(servers, old)
    swap(orders, first)
    assert rows(orders) == [("3-0", 4), ("3-2", 3)]  # 2.5 is a bad record

    new = spec_of("orders-2", {"topic": topic, "path": str(second), "columns": "id string,price double"})
    write(servers, new)
    produce(1.5)
    write(servers, old, new)  # both follow the topic until readers have changed
    assert rows(orders) == [("3-0", 4), ("3-2", 3)]
    swap(orders, second)
    assert rows(orders) == [("1-0", 1.5), ("3-0", 4.0), ("3-1", 2.5), ("3-2", 3.0)]
    assert rows(first) == [("3-0", 4), ("3-2", 3)]
