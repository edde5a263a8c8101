"""Consumers in groups of KIP-848 (group_protocol="consumer"): on a real broker, and under faults in a simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Self

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.admin.requests import raise_first
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientClosed, CommitFailed, ConfigError, IllegalState
from odradek.client.group.assignors import NO_RACKS, Assignment, MemberSubscription, RangeAssignor
from odradek.client.group.consumer_group_driver import ConsumerGroupDriver
from odradek.client.group.racks import PartitionRacks
from odradek.client.model import GroupMembershipOperation
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import TransactionalProducer
from odradek.records.topic_partition import TopicPartition
from odradek.testing import BlockingBroker, Simulation, eventually, search, simulate
from odradek.wire.errors import ErrorCode, KafkaError

MODERN: dict[str, Any] = {"group_protocol": "consumer", "auto_offset_reset": "earliest"}


@pytest.fixture(scope="module")
def kafka() -> Iterator[BlockingBroker]:
    with BlockingBroker(
        {"group.consumer.heartbeat.interval.ms": 200, "group.consumer.min.heartbeat.interval.ms": 200}
    ) as broker:
        yield broker


class Reader:
    """A consumer that polls all the time, and what happened to it."""

    def __init__(self, address: str, *topics: str, **options: Any) -> None:
        self.values: list[bytes | None] = []
        self.events: list[tuple[str, int]] = []
        self.consumer = Consumer(*topics, bootstrap_servers=address, listener=self, **{**MODERN, **options})
        self._task: asyncio.Task[None] | None = None

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.events.append(("assigned", len(partitions)))

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self.events.append(("revoked", len(partitions)))

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.events.append(("lost", len(partitions)))

    async def __aenter__(self) -> Self:
        await self.consumer.start()
        self._task = asyncio.create_task(self._read())
        return self

    async def _read(self) -> None:
        while True:
            self.values += [record.value for record in await self.consumer.poll(1_000)]

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        await self.consumer.close()

    async def stop(self) -> None:
        """Poll no longer."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    @property
    def count(self) -> int:
        return len(self.consumer.assignment())


def test_members_share_partitions_and_take_over(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=4)
    address = kafka.bootstrap_servers

    async def main() -> None:
        async with Reader(address, topic, group_id=topic) as first:
            await eventually(lambda: first.count == 4)
            async with Reader(address, topic, group_id=topic) as second:
                await eventually(lambda: (first.count, second.count) == (2, 2))
                assert first.events == [("assigned", 4), ("revoked", 2)]
                async with Producer(bootstrap_servers=address) as producer:
                    for number in range(40):
                        await producer.send_and_wait(topic, b"%d" % number, partition=number % 4)
                await eventually(lambda: len(first.values) + len(second.values) == 40)
                assert set(first.values).isdisjoint(second.values)
            await eventually(lambda: first.count == 4)
        async with Reader(address, topic, group_id=topic) as third:
            await eventually(lambda: third.count == 4)
            assert third.values == [], "everything was committed"

    asyncio.run(main())


def test_pattern_is_evaluated_by_the_broker(kafka: BlockingBroker) -> None:
    address = kafka.bootstrap_servers
    kafka.topic("pattern-a")

    async def main() -> None:
        async with Reader(address, group_id="pattern") as reader:
            await reader.stop()
            reader.consumer.subscribe(pattern="pattern-.*", listener=reader)
            reader._task = asyncio.create_task(reader._read())
            await eventually(lambda: reader.count == 1, 30)

    asyncio.run(main())


def test_member_that_does_not_poll_gives_its_partitions_to_others(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=2)
    address = kafka.bootstrap_servers

    async def main() -> None:
        async with Reader(address, topic, group_id=topic, max_poll_interval_ms=500) as slow:
            await eventually(lambda: slow.count == 2)
            await slow.stop()
            async with Reader(address, topic, group_id=topic) as other:
                await eventually(lambda: other.count == 2)
                with pytest.raises(CommitFailed):
                    await slow.consumer.commit({TopicPartition(topic, 0): 0})
                await slow.consumer.poll(100)
                assert slow.events[-1] == ("lost", 2)

    asyncio.run(main())


@pytest.mark.parametrize("is_back", [False, True])
def test_removed_member_commits_under_its_former_identity(kafka: BlockingBroker, is_back: bool) -> None:
    """Its offsets are of partitions that others may own since, also where it has joined again before the next poll."""
    topic = kafka.topic(partitions=1)
    address = kafka.bootstrap_servers
    # A member that polls too late does not join before its next poll; one that was removed by another does at once.
    interval_ms = 300_000 if is_back else 500

    async def main() -> None:
        async with Reader(address, topic, group_id=topic, max_poll_interval_ms=interval_ms) as reader:
            await eventually(lambda: reader.count == 1)
            await reader.stop()
            consumer = reader.consumer
            former = consumer.group_metadata()
            assert isinstance(consumer._group, ConsumerGroupDriver)
            member = consumer._group._member
            if is_back:
                async with Admin(bootstrap_servers=address) as admin:
                    await admin.groups.remove_members(topic)
            await eventually(lambda: member.epoch != former.generation and member.has_joined == is_back)
            assert consumer.group_metadata() == former
            offsets = {TopicPartition(topic, 0): 0}
            with pytest.raises(CommitFailed):
                await consumer.commit(offsets)
            options: dict[str, Any] = {"transactional_id": topic, "bootstrap_servers": address}
            async with TransactionalProducer(**options) as producer:
                with pytest.raises(KafkaError):
                    async with producer.transaction():
                        await producer.send_offsets(topic, offsets, consumer.group_metadata())
            await consumer.poll(100)
            assert ("lost", 1) in reader.events
            await eventually(lambda: member.has_joined)
            assert consumer.group_metadata() == member.identity

    asyncio.run(main())


def test_group_that_cannot_be_joined_is_an_error() -> None:
    """The member joined again at once, without end: the coordinator had no pause, and the program no error."""

    async def main(broker: BlockingBroker, topic: str) -> None:
        options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "group_id": topic}
        async with Consumer(topic, **options) as classic, Consumer(topic, **options, **MODERN) as modern:
            while not classic.assignment():
                await classic.poll(100)
            with pytest.raises(KafkaError, match="online upgrade is disabled") as raised:
                await modern.poll(5_000)
            assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    with BlockingBroker({"group.consumer.migration.policy": "disabled"}) as broker:
        asyncio.run(main(broker, broker.topic()))


def test_unsubscribed_member_leaves(kafka: BlockingBroker) -> None:
    topic = kafka.topic()
    address = kafka.bootstrap_servers

    async def main() -> None:
        async with Reader(address, topic, group_id=topic) as first, Reader(address, topic, group_id=topic) as second:
            await eventually(lambda: first.count + second.count == 1)
            owner, other = (first, second) if first.count else (second, first)
            await owner.stop()
            owner.consumer.assign([TopicPartition(topic, 0)])
            await owner.consumer.poll(100)
            await eventually(lambda: other.count == 1)

    asyncio.run(main())


def test_unknown_assignor_is_raised_by_a_poll(kafka: BlockingBroker) -> None:
    topic = kafka.topic()

    async def main() -> None:
        options: Any = {**MODERN, "group_id": topic, "group_remote_assignor": "none-such"}
        async with Consumer(topic, bootstrap_servers=kafka.bootstrap_servers, **options) as consumer:
            with pytest.raises(KafkaError) as caught:
                await consumer.poll(30_000)
            assert caught.value.code is ErrorCode.UNSUPPORTED_ASSIGNOR

    asyncio.run(main())


class Greedy(RangeAssignor):
    """A program's own assignor: all partitions to the member with the last name."""

    __slots__ = ()

    name = "greedy"

    def assign(
        self, counts: Mapping[str, int], members: Mapping[str, MemberSubscription], racks: PartitionRacks = NO_RACKS
    ) -> Assignment:
        found: Assignment = {member_id: [] for member_id in members}
        last = max(members, key=lambda each: members[each].group_instance_id or "")
        found[last] = [TopicPartition(topic, each) for topic, count in counts.items() for each in range(count)]
        return found


def test_classic_group_assigns_by_a_program_s_own_assignor(kafka: BlockingBroker) -> None:
    topic = kafka.topic("own-assignor", partitions=3)

    async def main() -> None:
        given: dict[str, Any] = {
            "group_protocol": "classic",
            "group_id": topic,
            "partition_assignment_strategy": [Greedy()],
            "heartbeat_interval_ms": 100,
        }
        async with (
            Reader(kafka.bootstrap_servers, topic, group_instance_id="a", **given) as first,
            Reader(kafka.bootstrap_servers, topic, group_instance_id="b", **given) as second,
        ):
            await eventually(lambda: len(second.consumer.assignment()) == 3 and not first.consumer.assignment())

    asyncio.run(main())


CLASSIC: dict[str, Any] = {"group_protocol": "classic", "heartbeat_interval_ms": 100}
LEAVES = GroupMembershipOperation.LEAVE_GROUP
REMAINS = GroupMembershipOperation.REMAIN_IN_GROUP


@pytest.mark.parametrize(
    ("instance_id", "operation", "members"),
    [
        (None, GroupMembershipOperation.DEFAULT, 0),
        ("i", GroupMembershipOperation.DEFAULT, 1),
        ("i", LEAVES, 0),
        (None, REMAINS, 1),
        ("i", REMAINS, 1),
    ],
)
@pytest.mark.parametrize("protocol", [CLASSIC, MODERN], ids=["classic", "consumer"])
def test_closed_member_leaves_the_group_or_remains_in_it(
    kafka: BlockingBroker,
    protocol: dict[str, Any],
    instance_id: str | None,
    operation: GroupMembershipOperation,
    members: int,
) -> None:
    topic = kafka.topic()

    async def main() -> None:
        consumer = Reader(kafka.bootstrap_servers, topic, group_id=topic, group_instance_id=instance_id, **protocol)
        async with consumer:
            await eventually(lambda: consumer.count == 1)
            await consumer.stop()
            await consumer.consumer.close(membership=operation)
            assert consumer.events == [("assigned", 1), ("revoked", 1)]
        async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            found = raise_first(await admin.groups.describe([topic]))[topic]
        assert len(found.members) == members

    asyncio.run(main())


def test_close_that_takes_too_long_closes_without_leaving(kafka: BlockingBroker) -> None:
    topic = kafka.topic()

    class Slow:
        async def on_partitions_revoked(self, _: set[TopicPartition]) -> None:
            await asyncio.Event().wait()

    async def main() -> None:
        given: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": topic, **CLASSIC}
        async with asyncio.timeout(60):
            consumer = Consumer(topic, listener=Slow(), **given)
            await consumer.start()
            while not consumer.assignment():
                await consumer.poll(100)
            await consumer.close(timeout_ms=50)
            with pytest.raises(ClientClosed):
                await consumer.poll()
            assert consumer.cluster.connections.open_count == 0

    asyncio.run(main())


def test_leader_enforces_a_rebalance_with_the_next_poll(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=2)

    async def main() -> None:
        given: dict[str, Any] = {"group_id": topic, "partition_assignment_strategy": "range", **CLASSIC}
        async with Reader(kafka.bootstrap_servers, topic, **given) as first:
            await eventually(lambda: first.count == 2)
            before = first.consumer.group_metadata().generation
            first.consumer.enforce_rebalance("a new disk")
            await eventually(lambda: first.consumer.group_metadata().generation == before + 1)
            await eventually(lambda: first.events == [("assigned", 2), ("revoked", 2), ("assigned", 2)])

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "no group_id"),
        ({"group_id": "g"}, "no subscription"),
        ({"group_id": "g", "group_protocol": "consumer", "topics": ["t"]}, "group_protocol=classic: with consumer"),
    ],
)
def test_rebalance_that_cannot_be_enforced_is_an_error(options: dict[str, Any], text: str) -> None:
    async def main() -> None:
        topics = options.pop("topics", ())
        async with Consumer(*topics, bootstrap_servers="127.0.0.1:1", **options) as consumer:
            with pytest.raises(IllegalState, match=text):
                consumer.enforce_rebalance()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"group_protocol": "modern"}, "group_protocol: 'modern' is not one of classic, consumer"),
        ({"group_protocol": "consumer"}, "group_protocol=consumer needs a group_id"),
        ({"group_protocol": "consumer", "group_id": "g", "session_timeout_ms": 9_000}, "session_timeout_ms goes with"),
        ({"group_remote_assignor": "uniform"}, "group_remote_assignor goes with group_protocol=consumer only"),
    ],
)
def test_option_that_does_not_go_is_an_error(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Consumer("t", bootstrap_servers="127.0.0.1:1", **options)


async def work(sim: Simulation, topic: str, done: dict[bytes, int]) -> None:
    """A worker that commits what it has processed."""
    async with Consumer(
        topic, bootstrap_servers=sim.bootstrap_servers, group_id="workers", enable_auto_commit=False, **MODERN
    ) as consumer:
        while True:
            records = await consumer.poll(1_000)
            for record in records:
                done[record.value] = done.get(record.value, 0) + 1
            if records:
                try:
                    await consumer.commit()
                except CommitFailed:
                    continue


def test_every_record_is_processed_under_faults() -> None:
    wanted = {b"%d" % number for number in range(60)}

    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic(partitions=3)
        done: dict[bytes, int] = {}
        for name in ("one", "two", "three"):
            sim.program(name, lambda: work(sim, topic, done))

        async def produce() -> None:
            async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
                for value in sorted(wanted):
                    await producer.send_and_wait(topic, value, key=value)
                    await asyncio.sleep(0.5)

        producing = asyncio.create_task(produce())
        await sim.faults(40)
        await producing
        await eventually(lambda: wanted == done.keys(), 120)

    settings = {
        "group.consumer.session.timeout.ms": 6_000,
        "group.consumer.min.session.timeout.ms": 6_000,
        "group.consumer.heartbeat.interval.ms": 1_000,
        "group.consumer.min.heartbeat.interval.ms": 1_000,
    }
    search(scenario, range(6), settings=settings)


def test_records_are_processed_once_without_faults() -> None:
    async def scenario(sim: Simulation) -> None:
        topic = await sim.topic(partitions=4)
        done: dict[bytes, int] = {}
        await sim.produce(topic, *(str(number) for number in range(20)), key=None)
        for name in ("one", "two", "three"):
            sim.program(name, lambda: work(sim, topic, done))
            await asyncio.sleep(10)
            await sim.produce(topic, *(f"{name}-{number}" for number in range(20)), key=None)
        await eventually(lambda: len(done) == 80, 60)
        assert set(done.values()) == {1}

    simulate(scenario, 3)
