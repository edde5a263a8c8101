"""A table in memory from a compacted topic: the latest value of each key, complete before the first look-up.

The topic is the table: `cleanup.policy=compact` keeps the latest record of each key, and a null value deletes the key.
Each instance reads all partitions, without a group, and continues to follow the topic.
"""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Self

from odradek.client import Consumer, ConsumerRecord, Producer, TopicPartition
from odradek.testing import Simulation, eventually, search

Row = ConsumerRecord[bytes, bytes | None]


class Table:
    """`table[key]` and `key in table`, as of the records read so far."""

    def __init__(self, servers: str, topic: str, max_poll_records: int = 500) -> None:
        self._consumer: Consumer[bytes, bytes | None] = Consumer(
            bootstrap_servers=servers, max_poll_records=max_poll_records
        )
        self._topic = topic
        self.rows: dict[bytes, bytes] = {}

    async def __aenter__(self) -> Self:
        """Read all that is there now, then follow the topic in a task."""
        consumer = await self._consumer.__aenter__()
        partitions = [
            TopicPartition(self._topic, each.partition) for each in await consumer.partitions_for(self._topic)
        ]
        consumer.assign(partitions)
        consumer.seek_to_beginning(partitions)
        # Offsets may have no record (compaction, markers of transactions): compare positions, do not count records.
        for partition, end in (await consumer.end_offsets(partitions)).items():
            while await consumer.position(partition) < end:
                await self._read()
        self._following = asyncio.create_task(self._follow())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._following
        await self._consumer.close()

    async def _follow(self) -> None:
        while True:
            await self._read()

    async def _read(self) -> None:
        for row in await self._consumer.poll(timeout_ms=500):
            if row.value is None:
                self.rows.pop(row.key, None)
            else:
                self.rows[row.key] = row.value

    def __contains__(self, key: bytes) -> bool:
        return key in self.rows

    def __getitem__(self, key: bytes) -> bytes:
        return self.rows[key]


async def scenario(sim: Simulation) -> None:
    # Small segments and an eager cleaner: compaction happens while the tables are read.
    compacted = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
    await sim.topic("prices", partitions=2, configs=compacted)
    latest: dict[bytes, bytes] = {}
    async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:

        async def change(times: int) -> None:
            for _ in range(times):
                key, price = b"article %d" % sim.random.randrange(8), b"%d" % sim.random.randrange(100)
                if sim.random.random() < 0.2:
                    latest.pop(key, None)
                    await producer.send_and_wait("prices", None, key)
                else:
                    latest[key] = price
                    await producer.send_and_wait("prices", price, key)
                await asyncio.sleep(0.3)

        await change(40)
        async with Table(sim.bootstrap_servers, "prices", max_poll_records=5) as table:
            assert table.rows == latest, "the table is not complete at its start"
            changing = asyncio.create_task(change(40))
            await sim.faults(12, ["kill", "restart", "reset"])
            await changing
            await eventually(lambda: table.rows == latest, 60)
            assert all(table[key] == price for key, price in latest.items())


def test_table_is_complete_at_its_start_and_follows_the_topic() -> None:
    search(scenario, range(6), settings={"log.cleaner.backoff.ms": 500})
