"""The other half of the client under faults: transactions of tables, batches, groups of KIP-848.

Two writers send tables within transactions, some of which they abort. Two members of a group whose coordinator assigns
the partitions read batches; two members of a classic, cooperative group read tables.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import pyarrow as pa

from odradek.client import (
    ClientError,
    CommitFailed,
    Consumer,
    KafkaError,
    TopicPartition,
    TransactionalProducer,
)
from odradek.testing import Simulation, eventually

TOPIC = "rows"
PARTITIONS = 3
ROWS = 12
"""Rows of a transaction."""
BATCHES, TABLES = "by-batches", "by-tables"
GROUPS = (BATCHES, TABLES)
FAULTS = ["kill", "restart", "pause", "cut", "reset", "stall", "rebalance", "kill program", "pause program"]
SECONDS = 20.0

Place = tuple[int, int]
"""Partition and offset."""


class Abandoned(Exception):
    """The writer does not want what it has sent."""


class Tables:
    """What writers and readers have done, as they know it themselves."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.begun = 0
        self.committed: set[int] = set()
        """Transactions, by number: rows are values `NUMBER ROW`."""
        self.abandoned: set[int] = set()
        self.read: dict[str, dict[Place, bytes]] = {group: {} for group in GROUPS}
        self.stopping = False

    async def write(self, name: str) -> None:
        """A transaction after the other. One whose commit fails may be committed or not."""
        while not self.stopping:
            try:
                async with TransactionalProducer(
                    bootstrap_servers=self.sim.bootstrap_servers,
                    transactional_id=name,
                    transaction_timeout_ms=5_000,
                    request_timeout_ms=2_000,
                    delivery_timeout_ms=6_000,
                    max_block_ms=10_000,
                ) as producer:
                    while not self.stopping:
                        await self._transact(producer)
                        await asyncio.sleep(self.sim.random.uniform(0, 0.3))
            except (KafkaError, ClientError):
                await asyncio.sleep(0.2)

    async def _transact(self, producer: TransactionalProducer[bytes, bytes]) -> None:
        self.begun += 1
        number = self.begun
        table = pa.table({"value": [f"{number} {row}" for row in range(ROWS)], "partition": self._partitions()})
        try:
            async with producer.transaction():
                await producer.send_table(table, TOPIC, partition="partition")
                if number % 4 == 0:
                    raise Abandoned
            self.committed.add(number)
        except Abandoned:
            self.abandoned.add(number)

    def _partitions(self) -> list[int]:
        return [self.sim.random.randrange(PARTITIONS) for _ in range(ROWS)]

    def note(self, group: str, partition: int, rows: Iterable[tuple[int, bytes | None]]) -> None:
        for offset, value in rows:
            assert value is not None
            assert int(value.split()[0]) not in self.abandoned, f"{group} reads {value!r} of an aborted transaction"
            assert self.read[group].setdefault((partition, offset), value) == value, f"two values at {offset}"

    async def read_batches(self) -> None:
        """A member of a group of KIP-848."""
        async with Consumer(
            TOPIC,
            bootstrap_servers=self.sim.bootstrap_servers,
            group_id=BATCHES,
            group_protocol="consumer",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            request_timeout_ms=2_000,
        ) as consumer:
            async for batch in consumer.batches():
                assert len(batch.offsets) == len(batch.values) == len(batch)
                await asyncio.sleep(0.01)
                self.note(BATCHES, batch.topic_partition.partition, zip(batch.offsets, batch.values, strict=True))
                await committed(consumer.commit)

    async def read_tables(self) -> None:
        """A member of a classic group that rebalances cooperatively."""
        async with Consumer(
            TOPIC,
            bootstrap_servers=self.sim.bootstrap_servers,
            group_id=TABLES,
            partition_assignment_strategy=["cooperative-sticky"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            request_timeout_ms=2_000,
        ) as consumer:
            async for table in consumer.arrow(batch_rows=ROWS):
                await asyncio.sleep(0.01)
                for row in table.select(["partition", "offset", "value"]).to_pylist():
                    self.note(TABLES, row["partition"], [(row["offset"], row["value"])])
                await committed(consumer.commit)


async def committed(commit: Callable[[], Awaitable[object]]) -> None:
    """Commit; a member that has lost its partitions, or its coordinator, reads the rows again."""
    try:
        await commit()
    except (CommitFailed, KafkaError, TimeoutError):
        return


async def scenario(sim: Simulation) -> None:
    """Faults, then a quiet time after which all committed rows have been read, and no others."""
    await sim.topic(TOPIC, partitions=PARTITIONS)
    tables = Tables(sim)
    for name in ("writer-1", "writer-2"):
        sim.program(name, lambda name=name: tables.write(name))  # type: ignore[misc]
    for number in (1, 2):
        sim.program(f"batches-{number}", tables.read_batches)
        sim.program(f"tables-{number}", tables.read_tables)
    await sim.faults(SECONDS, FAULTS, between_s=1.0)
    tables.stopping = True
    await asyncio.sleep(15)
    found = await read_committed(sim)
    await eventually(lambda: all(read.keys() >= found.keys() for read in tables.read.values()), 60, 1)
    for group, read in tables.read.items():
        assert read == found, f"{group} has read what is not there"
    rows = Counter(found.values())
    whole = Counter(int(value.split()[0]) for value in rows)
    assert set(rows.values()) <= {1}, "a row of a transaction is in the log more than once"
    assert set(whole.values()) <= {ROWS}, f"{whole} rows of transactions are committed, of {ROWS} each"
    assert tables.committed <= whole.keys(), f"transactions {tables.committed - whole.keys()} are lost"
    assert not tables.abandoned & whole.keys(), "an aborted transaction is committed"
    assert len(tables.committed) > ROWS, "too few transactions"


async def read_committed(sim: Simulation) -> dict[Place, bytes]:
    """All rows that a reader of committed records finds."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    found: dict[Place, bytes] = {}
    async with Consumer(
        bootstrap_servers=sim.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        while any([await consumer.position(key) < end for key, end in ends.items()]):
            for record in await consumer.poll(timeout_ms=500):
                found[record.partition, record.offset] = record.value
    return found
