"""The loop of a table, with a consumer of the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from odradek.client.errors import OffsetOutOfRange
from odradek.connect.errors import ConnectError
from odradek.records.topic_partition import TopicPartition
from odradek.tables.process import store_of
from odradek.tables.runner import TableRunner
from odradek.tables.specification import TableSpec, spec_of
from tests.unit.tables.writers import AT_MS

ORDERS = TopicPartition("orders", 0)
FORMER, PRESENT = b"\1" * 16, b"\2" * 16


def table_of(first: int, numbers: Sequence[int]) -> pa.Table:
    return pa.table({
        "topic": ["orders"] * len(numbers),
        "partition": [0] * len(numbers),
        "offset": range(first, first + len(numbers)),
        "timestamp": pa.array([AT_MS] * len(numbers), pa.timestamp("ms", "UTC")),
        "key": pa.nulls(len(numbers), pa.binary()),
        "value": pa.array([json.dumps({"n": n}).encode() for n in numbers], pa.binary()),
    })  # fmt: skip


class Log:
    """A consumer of one partition: its topic is deleted and created again, or loses records, after the first table."""

    def __init__(self, tables: Sequence[pa.Table], *, topic_id: bytes = FORMER, begin: int = 0) -> None:
        """`topic_id` and `begin` are those after the first table."""
        self._tables = list(tables)
        self._then = topic_id, begin
        self._topic_id, self._begin = FORMER, 0
        self._position = 0
        self.cluster = self
        self.metadata = SimpleNamespace(topic_id=lambda _topic: self._topic_id)

    async def topic(self, _name: str) -> Any:
        return SimpleNamespace(partitions=[SimpleNamespace(partition=0)], topic_id=self._topic_id)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._begin)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 100)

    def assign(self, _partitions: Iterable[TopicPartition]) -> None:
        return

    def seek(self, _partition: TopicPartition, offset: int) -> None:
        self._position = offset

    def positions(self) -> Mapping[TopicPartition, Any]:
        return {ORDERS: SimpleNamespace(offset=self._position)}

    async def arrow(self) -> AsyncIterator[pa.Table]:
        for number, table in enumerate(self._tables):
            if number:
                self._topic_id, self._begin = self._then
            if self._position < self._begin:
                raise OffsetOutOfRange([ORDERS])
            self._position = table.column("offset").to_pylist()[-1] + 1
            yield table
        await asyncio.Event().wait()


@pytest.fixture
def spec(tmp_path: Path) -> TableSpec:
    return spec_of("orders", {"topic": "orders", "path": str(tmp_path / "orders"), "commit.interval.ms": "600000"})


def run(spec: TableSpec, log: Any) -> None:
    runner = TableRunner(spec, log, store_of(spec), lambda *_: None)
    with pytest.raises(ConnectError) as failed:
        asyncio.run(asyncio.wait_for(runner.run(asyncio.Event()), 20))
    raise failed.value


def numbers(spec: TableSpec) -> list[int]:
    return sorted(DeltaTable(spec.path).to_pyarrow_table().column("n").to_pylist())


def test_topic_that_is_created_again_while_the_runner_runs_ends_it(spec: TableSpec) -> None:
    """Where the new topic had more records than were read, the runner continued in the middle of it."""
    with pytest.raises(ConnectError, match="was deleted and created again"):
        run(spec, Log([table_of(0, [1, 2]), table_of(2, [30, 40])], topic_id=PRESENT))
    assert numbers(spec) == [1, 2]


def test_gathered_records_are_written_where_the_log_has_lost_them(spec: TableSpec) -> None:
    with pytest.raises(ConnectError, match="begins at 50, and records from 2 on were not read"):
        run(spec, Log([table_of(0, [1, 2]), table_of(50, [3])], begin=50))
    assert numbers(spec) == [1, 2]
