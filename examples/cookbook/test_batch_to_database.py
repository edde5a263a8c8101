"""Batches into a database, each record once: rows and offsets are written in one transaction of the database.

The database says where each partition continues, not the group. A worker that has lost a partition without notice finds
that the stored offset is no longer its own, and writes nothing. SQLite stands for any database with transactions.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from itertools import groupby
from operator import attrgetter

import pytest

from odradek.client import Consumer, ConsumerRecord, Producer, TopicPartition
from odradek.client.model import CREATE_TIME
from odradek.testing import Simulation, eventually, search

Reading = ConsumerRecord[bytes | None, bytes]
READINGS = [f"reading {number:02}" for number in range(40)]
TABLES = """
CREATE TABLE readings (value TEXT);
CREATE TABLE offsets (topic TEXT, partition INTEGER, next INTEGER, PRIMARY KEY (topic, partition));
"""


class Database:
    """Rows and the offsets up to which they were read."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.stale = 0
        """Batches that were dropped because another worker had written them."""

    def next_offset(self, partition: TopicPartition) -> int:
        """The first offset that is not stored yet."""
        where = (partition.topic, partition.partition)
        with self.connection:
            self.connection.execute("INSERT OR IGNORE INTO offsets VALUES (?, ?, 0)", where)
        query = "SELECT next FROM offsets WHERE topic = ? AND partition = ?"
        return int(self.connection.execute(query, where).fetchone()[0])

    def store(self, partition: TopicPartition, begin: int, records: list[Reading]) -> None:
        """Write the records of one partition and their end, both or neither."""
        end = records[-1].offset + 1
        update = "UPDATE offsets SET next = ? WHERE topic = ? AND partition = ? AND next = ?"
        with self.connection:
            place = (end, partition.topic, partition.partition, begin)
            if self.connection.execute(update, place).rowcount == 0:
                self.stale += 1
                return
            rows = [(record.value.decode(),) for record in records]
            self.connection.executemany("INSERT INTO readings VALUES (?)", rows)


async def load(servers: str, database: Database) -> None:
    """Write the readings of a topic into the database; start as many as there is work for."""
    begins: dict[TopicPartition, int] = {}

    class ContinueWhereTheDatabaseEnds:
        def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
            for partition in partitions:
                begins[partition] = database.next_offset(partition)
                consumer.seek(partition, begins[partition])

    consumer: Consumer[bytes | None, bytes] = Consumer(
        "readings",
        bootstrap_servers=servers,
        group_id="loaders",
        enable_auto_commit=False,
        listener=ContinueWhereTheDatabaseEnds(),
        fetch_min_bytes=10_000,  # wait for a good batch, but
        fetch_max_wait_ms=500,  # not longer than this
    )
    async with consumer:
        while True:
            records = await consumer.poll(timeout_ms=1_000, max_records=5_000)
            records.sort(key=attrgetter("partition", "offset"))
            for partition, batch in groupby(records, key=attrgetter("topic_partition")):
                rows = list(batch)
                database.store(partition, begins[partition], rows)
                begins[partition] = rows[-1].offset + 1


async def scenario(sim: Simulation) -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        database = Database(connection)
        await sim.topic("readings", partitions=3)
        for name in ("loader-1", "loader-2"):
            sim.program(name, lambda: load(sim.bootstrap_servers, database))

        async def measure() -> None:
            async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
                for reading in READINGS:
                    await producer.send_and_wait("readings", reading.encode(), key=reading.encode())
                    await asyncio.sleep(0.5)

        def stored() -> list[str]:
            return [value for (value,) in connection.execute("SELECT value FROM readings ORDER BY value")]

        measuring = asyncio.create_task(measure())
        await sim.faults(20, ["kill program", "pause program", "kill", "reset", "cut", "rebalance"], between_s=0.7)
        await measuring
        await eventually(lambda: len(stored()) >= len(READINGS), 120)
        assert stored() == READINGS


async def frozen_loader(sim: Simulation) -> None:
    """A loader stands still until another one has its partitions; the records that it fetched before are stale."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        database = Database(connection)
        await sim.topic("readings", partitions=2)
        frozen = sim.program("loader-1", lambda: load(sim.bootstrap_servers, database))

        def stored() -> list[str]:
            return [value for (value,) in connection.execute("SELECT value FROM readings ORDER BY value")]

        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            for number, reading in enumerate(READINGS):
                await producer.send_and_wait("readings", reading.encode(), partition=number % 2)
                if number == 20:
                    await eventually(lambda: len(stored()) > 20, 60)
                    frozen.pause(90)
        sim.program("loader-2", lambda: load(sim.bootstrap_servers, database))
        await eventually(lambda: database.stale > 0, 120)
        assert stored() == READINGS


def test_each_reading_is_stored_once() -> None:
    search(scenario, range(6))


def test_loader_without_its_partitions_stores_nothing() -> None:
    search(frozen_loader, range(2))


def test_offset_stays_when_rows_are_rejected() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        database, partition = Database(connection), TopicPartition("readings", 0)
        assert database.next_offset(partition) == 0
        not_text = ConsumerRecord[bytes | None, bytes]("readings", 0, 0, 0, CREATE_TIME, None, b"\xff", (), -1)
        with pytest.raises(UnicodeDecodeError):
            database.store(partition, 0, [not_text])
        assert database.next_offset(partition) == 0
