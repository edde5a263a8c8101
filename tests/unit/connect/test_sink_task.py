"""The loop of a sink's task, with a consumer and a sink of the test's own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from odradek.client.model import CREATE_TIME, ConsumerRecord
from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.conversion import Conversion
from odradek.connect.converters import JsonConverter, StringConverter
from odradek.connect.model import Batch
from odradek.connect.sink_task import SinkTask
from odradek.connect.transforms import transforms_of
from odradek.records.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)
TEAS = TopicPartition("teas", 0)
POLICY = ErrorPolicy(False, 0.0, 0.1, False, "", False)


def record(partition: TopicPartition, offset: int, number: int) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(*partition, offset, 1_000, CREATE_TIME, None, json.dumps({"n": number}).encode(), (), 0)


class Polls:
    """A consumer that returns one list of records at each poll, and loses a partition before the second poll."""

    def __init__(self, polls: Iterable[list[ConsumerRecord[Any, Any]]], lost: set[TopicPartition]) -> None:
        self._polls = list(polls)
        self._lost = lost
        self._asked = 0
        self.task: SinkTask | None = None
        self.stopping = asyncio.Event()
        self.committed: list[dict[TopicPartition, int]] = []

    async def poll(self, **_options: Any) -> list[ConsumerRecord[Any, Any]]:
        self._asked += 1
        if self._asked == 2:
            assert self.task is not None
            self.task.on_partitions_revoked(self._lost)
        await asyncio.sleep(0)
        return self._polls.pop(0) if self._polls else []

    async def commit(self, ends: dict[TopicPartition, int]) -> None:
        self.committed.append(ends)
        self.stopping.set()


class Kept:
    """A sink that keeps batches of two records."""

    batch_records = 2
    batch_wait_s = 1_000.0

    def __init__(self) -> None:
        self.batches: list[Batch] = []

    async def open(self) -> None:
        pass

    async def positions(self, _partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {}

    async def write(self, batch: Batch) -> None:
        self.batches.append(batch)

    async def close(self) -> None:
        pass


def test_routed_records_of_a_lost_partition_are_not_written() -> None:
    """A transform changed their topic; the partition that they came from counts."""

    async def run() -> None:
        route = {"r.type": "RegexRouter", "r.regex": ".*", "r.replacement": "all"}
        conversion = Conversion(StringConverter(), JsonConverter(), transforms_of(["r"], route))
        consumer, sink = Polls([[record(ORDERS, 4, 1)], [record(TEAS, 7, 2), record(TEAS, 8, 3)]], {ORDERS}), Kept()
        consumer.task = SinkTask("c-0", consumer, sink, conversion, POLICY, None)  # type: ignore[arg-type]
        async with asyncio.timeout(60):
            await consumer.task.run(consumer.stopping)
        (written,) = sink.batches
        assert [(each.topic, each.origin, each.offset) for each in written.records] == [
            ("all", TEAS, 7),
            ("all", TEAS, 8),
        ]
        assert consumer.committed == [{TEAS: 9}]

    asyncio.run(run())
