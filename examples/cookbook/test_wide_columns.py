"""Records into a store of wide rows (HBase, Bigtable, Cassandra), where repeating a write changes nothing.

The row key comes from the record, each field is a cell, and the record's offset is the version of the cell. A cell only
takes a newer version, so that records may be written again after a crash, in any order, by several workers at a time:
at least once, with the effect of once. SQLite stands for the store.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from pathlib import Path
from typing import Any

from odradek.client import BlockingProducer, Consumer
from odradek.testing import BlockingBroker, eventually


class WideRows:
    """Cells by row key and column, each with the version that wrote it."""

    def __init__(self, file: Path) -> None:
        self._store = sqlite3.connect(file)
        self._store.execute("CREATE TABLE IF NOT EXISTS cells (row, column, version, value, PRIMARY KEY (row, column))")

    def put(self, row: str, fields: dict[str, Any], version: int) -> None:
        """Write cells unless they are newer. A value of None is a deletion, which has a version, too."""
        with self._store:
            self._store.executemany(
                "INSERT INTO cells VALUES (?, ?, ?, ?) ON CONFLICT (row, column) DO UPDATE "
                "SET version = excluded.version, value = excluded.value WHERE excluded.version > version",
                [(row, column, version, value) for column, value in fields.items()],
            )

    def get(self, row: str) -> dict[str, Any]:
        """The cells of a row that have a value."""
        query = "SELECT column, value FROM cells WHERE row = ? AND value IS NOT NULL"
        return dict(self._store.execute(query, (row,)).fetchall())


async def store(servers: str, topic: str, group: str, rows: WideRows) -> None:
    """Write the topic's records until cancelled; offsets are committed after the cells."""
    async with Consumer(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        while True:
            records = await consumer.poll(timeout_ms=1_000)
            for record in records:
                # All records of a key are in one partition, so their offsets are in order.
                rows.put((record.key or b"").decode(), json.loads(record.value), record.offset)
            if records:
                await consumer.commit()


class CountingRows(WideRows):
    """Counts the writes."""

    puts = 0

    def put(self, row: str, fields: dict[str, Any], version: int) -> None:
        super().put(row, fields, version)
        self.puts += 1


def test_repeated_and_late_writes_change_nothing(kafka_broker: BlockingBroker, tmp_path: Path) -> None:
    topic = kafka_broker.topic(partitions=2)
    with BlockingProducer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
        for fields in ({"name": "Odradek", "city": "Prague"}, {"city": None, "shape": "star"}, {"shape": "spool"}):
            producer.send(topic, json.dumps(fields).encode(), key=b"user 1")
        producer.flush()
    rows = CountingRows(tmp_path / "rows.db")

    async def write_all(group: str) -> None:
        puts = rows.puts + 3
        working = asyncio.create_task(store(kafka_broker.bootstrap_servers, topic, f"{topic}-{group}", rows))
        await eventually(lambda: working.done() or rows.puts == puts, 60)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert (rows.puts, rows.get("user 1")) == (puts, {"name": "Odradek", "shape": "spool"})

    async def main() -> None:
        await write_all("first")
        await write_all("again")  # another group begins with the first record

    asyncio.run(main())
    rows.put("user 1", {"city": "Prague", "shape": "star"}, 0)  # a worker that was stopped long ago
    assert rows.get("user 1") == {"name": "Odradek", "shape": "spool"}
