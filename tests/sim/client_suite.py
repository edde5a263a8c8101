"""An application that uses much of the client, under faults, and what must be true of it whatever breaks.

A writer with keys and an idempotent producer; two readers that commit by themselves after their work; one reader whose
positions are committed automatically. The topic grows meanwhile. All that they rely on is checked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

from odradek.client import (
    Admin,
    CallTimedOut,
    ClientClosed,
    CommitFailed,
    Consumer,
    Delivery,
    DeliveryTimedOut,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from odradek.client.producer.partitioners import partition_for_key
from odradek.testing import Simulation, eventually

TOPIC = "events"
BEFORE, AFTER = 3, 5
"""Partitions, until the topic grows and then."""
BY_HAND, AUTOMATIC = "by-hand", "automatic"
GROUPS = (BY_HAND, AUTOMATIC)
FAULTS = ["kill", "restart", "pause", "cut", "reset", "stall", "kill program", "pause program"]
SECONDS = 20.0
REPEATED = b"repeated"
"""A value that is in the log more than once; all others are written once."""


class Begun:
    """Where a member continues: within an assignment, it reads no record twice."""

    def __init__(self) -> None:
        self._next: dict[TopicPartition, int] = {}

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        for key in partitions:
            self._next.pop(key, None)

    def check(self, key: TopicPartition, offset: int) -> None:
        assert offset >= self._next.get(key, 0), f"{key} is read at {offset} again"
        self._next[key] = offset + 1


class Application:
    """What its parts have done, as they know it themselves."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """Values by partition and offset, as deliveries said."""
        self.written = 0
        self.processed: dict[str, set[tuple[int, int]]] = {group: set() for group in GROUPS}
        self.committed: dict[str, dict[TopicPartition, int]] = {group: {} for group in GROUPS}
        self.stopping = False

    async def write(self) -> None:
        """Write until `stopping`; another producer follows after some batches, to see that `close` loses nothing."""
        while not self.stopping:
            deliveries: list[tuple[bytes, Delivery]] = []
            with contextlib.suppress(DeliveryTimedOut):  # `close` raises it of the last record
                async with Producer(
                    bootstrap_servers=self.sim.bootstrap_servers,
                    linger_ms=20,
                    delivery_timeout_ms=6_000,
                    request_timeout_ms=2_000,
                    metadata_max_age_ms=60_000,
                ) as producer:
                    for number in range(30):
                        for _ in range(self.sim.random.randrange(1, 6)):
                            self.written += 1
                            value = b"%d" % self.written
                            with contextlib.suppress(CallTimedOut):
                                deliveries.append((value, await producer.send(TOPIC, value, key=value)))
                        if number % 10 == 5:
                            with contextlib.suppress(DeliveryTimedOut):
                                await producer.flush()
                            assert all(each.done() for _, each in deliveries), (
                                "flush returned before all were delivered"
                            )
                        await asyncio.sleep(self.sim.random.uniform(0, 0.3))
                    with contextlib.suppress(DeliveryTimedOut):
                        await producer.flush()
                    last = await producer.send(TOPIC, REPEATED, key=b"last")
                    producer.forget_failure()
            assert last.done(), "close returned before all were delivered"
            self._judge_last(last)
            for value, delivery in deliveries:
                with contextlib.suppress(DeliveryTimedOut):
                    place = delivery.result()
                    self.acknowledged[place.partition, place.offset] = value

    @staticmethod
    def _judge_last(last: Delivery) -> None:
        try:
            assert last.result().offset >= 0
        except DeliveryTimedOut:
            pass
        except ClientClosed:
            raise AssertionError("close dropped the last record") from None

    async def read(self, group: str) -> None:
        """Process records, at least once each."""
        done = self.processed[group]
        by_hand = group == BY_HAND
        begun = Begun()
        async with Consumer(
            TOPIC,
            bootstrap_servers=self.sim.bootstrap_servers,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=not by_hand,
            auto_commit_interval_ms=300,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            request_timeout_ms=2_000,
            metadata_max_age_ms=3_000,
            listener=begun,
        ) as consumer:
            while True:
                records = await consumer.poll(timeout_ms=500, max_records=7)
                for record in records:
                    begun.check(record.topic_partition, record.offset)
                    await asyncio.sleep(0.01)
                    done.add((record.partition, record.offset))
                if by_hand and records:
                    with contextlib.suppress(CommitFailed, KafkaError, CallTimedOut):
                        await consumer.commit()

    async def watch(self) -> None:
        """Committed offsets never pass a record that no reader has processed, and never go back."""
        async with Admin(bootstrap_servers=self.sim.bootstrap_servers, request_timeout_ms=2_000) as admin:
            while True:
                for group in GROUPS:
                    with contextlib.suppress(KafkaError, CallTimedOut):
                        self._judge(group, {key: at.offset for key, at in (await admin.groups.offsets(group)).items()})
                await asyncio.sleep(0.2)

    def _judge(self, group: str, offsets: dict[TopicPartition, int]) -> None:
        for key, offset in offsets.items():
            missed = [
                (partition, at)
                for partition, at in self.acknowledged
                if partition == key.partition and at < offset and (partition, at) not in self.processed[group]
            ]
            assert not missed, f"{group} committed {key} at {offset} without {missed[0]}"
            # Repetitions after a crash begin at the committed offset, so that it does not go back either.
            assert offset >= self.committed[group].get(key, 0), (
                f"{group} committed {key} at {offset}, then further back"
            )
        self.committed[group] |= offsets


async def scenario(sim: Simulation) -> None:
    """Faults, then a quiet time in which everything must be done."""
    await sim.topic(TOPIC, partitions=BEFORE)
    servers = sim.bootstrap_servers
    async with (
        Producer(bootstrap_servers=servers, metadata_max_age_ms=3_000) as early,
        Producer(bootstrap_servers=servers, delivery_timeout_ms=60_000, request_timeout_ms=2_000) as steady,
    ):
        await early.send_and_wait(TOPIC, b"early", key=b"early")
        await steady.send_and_wait(TOPIC, b"steady", partition=0)
        await _run(sim, early)
        await _follow_the_leader(sim, steady)


async def _run(sim: Simulation, early: Producer[bytes, bytes]) -> None:
    application = Application(sim)
    sim.program("writer-of-its-own", application.write)
    for name, group in (("hand-1", BY_HAND), ("hand-2", BY_HAND), ("automatic-1", AUTOMATIC)):
        sim.program(name, lambda group=group: application.read(group))  # type: ignore[misc]
    watching = asyncio.create_task(application.watch())
    faults = asyncio.create_task(sim.faults(SECONDS, FAULTS, between_s=1.0))
    await asyncio.sleep(SECONDS / 2)
    async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
        await eventually(lambda: _grown(admin), 60, 1)
    await faults
    await asyncio.sleep(5)
    application.stopping = True
    await _keys_use_all_partitions(early)

    async def all_is_processed() -> bool:
        assert not watching.done() or watching.result() is None
        end = {(record.partition, record.offset) for record in await sim.records(TOPIC)}
        return all(end <= done for done in application.processed.values())

    await eventually(all_is_processed, 60, 1)
    records = await sim.records(TOPIC)
    found = {(record.partition, record.offset): record.value for record in records}
    for place, value in application.acknowledged.items():
        assert found.get(place) == value, f"{value!r} was acknowledged at {place}, where {found.get(place)!r} is"
    twice = [value for value, times in Counter(found.values()).items() if times > 1 and value != REPEATED]
    assert not twice, f"{twice} are in the log more than once"

    async def all_is_committed() -> bool:
        async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
            ends = {partition: offset + 1 for partition, offset in sorted(found)}
            offsets = [await admin.groups.offsets(group) for group in GROUPS]
        nothing = OffsetAndMetadata(0)
        return all(
            of.get(TopicPartition(TOPIC, partition), nothing).offset >= end
            for of in offsets
            for partition, end in ends.items()
        )

    await eventually(all_is_committed, 60, 1)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching


async def _grown(admin: Admin) -> bool:
    answer = (await admin.create_partitions({TOPIC: AFTER}))[TOPIC]
    return answer is None or "already" in str(answer)


async def _follow_the_leader(sim: Simulation, steady: Producer[bytes, bytes]) -> None:
    """A producer whose leader is gone for good asks for the new one: its metadata do not age within the run."""
    await steady.send_and_wait(TOPIC, REPEATED, partition=0)
    sim.broker(steady.cluster.metadata.leader(TOPIC, 0)).kill()
    try:
        await steady.send_and_wait(TOPIC, REPEATED, partition=0)
    except DeliveryTimedOut:
        raise AssertionError("a producer has not found the new leader of a partition") from None


async def _keys_use_all_partitions(early: Producer[bytes, bytes]) -> None:
    """A producer that knew the topic before it grew learns of it, and sends each key where Java's would."""

    async def are_where_they_belong() -> bool:
        for number in range(20):
            key = b"key %d" % number
            place = await early.send_and_wait(TOPIC, REPEATED, key=key)
            assert place.partition == partition_for_key(key, AFTER), f"{key!r} is in {place.partition}"
        return True

    await eventually(are_where_they_belong, 60, 1)
