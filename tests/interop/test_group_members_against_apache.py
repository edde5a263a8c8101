"""Members of groups in our client, against Apache Kafka 4.3 and our own broker, in both group protocols."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from odradek.client import (
    Admin,
    Consumer,
    GroupMembershipOperation,
    IllegalState,
    KafkaError,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    RecordMetadata,
    TopicPartition,
)
from odradek.client.admin import raise_first
from tests.interop.client_suite import Record, address_of, run

PARTITIONS = 4
TOPICS = ("first", "second")


class Listener:
    """Keeps count of the partitions by what it is called with."""

    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()
        self.lost: set[TopicPartition] = set()
        self.calls: list[str] = []

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        assert not partitions & self.held, "assigned twice"
        self.calls.append("assigned")
        self.held |= partitions

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        await asyncio.sleep(0)  # it may be a coroutine
        assert partitions <= self.held, "revoked, but never assigned"
        self.calls.append("revoked")
        self.held -= partitions

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.calls.append("lost")
        self.lost |= partitions
        self.held -= partitions


class CommittingListener:
    """Commits what was read before another member reads the partitions."""

    consumer: Consumer[Any, Any]

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        await self.consumer.commit()


SHORT = [("odradek", "classic"), ("odradek", "consumer"), ("apache", "classic")]
LONG = [("odradek", "cooperative"), ("apache", "cooperative"), ("apache", "consumer")]


@pytest.fixture(params=[*SHORT, *(pytest.param(each, marks=pytest.mark.long) for each in LONG)], ids="-".join)
def options(request: pytest.FixtureRequest, unique_name: Callable[[str], str]) -> dict[str, Any]:
    """Those of members of one group."""
    where, protocol = request.param
    server = address_of(request, where)
    found = {"bootstrap_servers": server, "group_id": unique_name("members"), "auto_offset_reset": "earliest"}
    if protocol == "consumer":
        return {**found, "group_protocol": "consumer"}
    assignor = "cooperative-sticky" if protocol == "cooperative" else "range"
    return {
        **found,
        "heartbeat_interval_ms": 100,
        "metadata_max_age_ms": 200,
        "partition_assignment_strategy": assignor,
    }


@pytest.fixture
def topics(options: dict[str, Any], unique_name: Callable[[str], str]) -> list[str]:
    """Two topics whose names begin with the same word, with their leaders."""
    prefix = unique_name("members")
    names = [f"{prefix}-{each}" for each in TOPICS]
    run(created(options["bootstrap_servers"], names))
    return names


async def created(server: str, names: Iterable[str]) -> None:
    async with Admin(bootstrap_servers=server) as admin:
        raise_first(await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]))
        for name in names:
            await admin.cluster.topic(name)


def all_of(*names: str) -> set[TopicPartition]:
    return {TopicPartition(name, partition) for name in names for partition in range(PARTITIONS)}


async def poll_until(condition: Callable[[], bool], *consumers: Consumer[Any, Any]) -> list[Record]:
    """What the consumers read in turns until the condition holds."""
    found: list[Record] = []
    while not condition():
        for each in consumers:
            found += await each.poll(50)
    return found


async def sent(server: str, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=server) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def test_listener_is_called_for_every_partition(topics: list[str], options: dict[str, Any]) -> None:
    wanted = all_of(topics[0])
    first, second = Listener(), Listener()

    async def body() -> None:
        async with Consumer(topics[0], listener=first, **options) as a:
            await poll_until(lambda: first.held == wanted, a)
            async with Consumer(topics[0], listener=second, **options) as b:
                await poll_until(
                    lambda: (
                        len(first.held) == len(second.held) == PARTITIONS // 2 and first.held | second.held == wanted
                    ),
                    a, b,
                )  # fmt: skip
                assert (a.assignment(), b.assignment()) == (first.held, second.held)
            assert second.held == set()
            await poll_until(lambda: first.held == wanted, a)
        assert first.held == set()
        assert (first.calls[-1], second.calls[-1]) == ("revoked", "revoked")
        assert first.lost | second.lost == set()

    run(body())


def test_listener_commits_before_others_read(topics: list[str], options: dict[str, Any]) -> None:
    """Nothing is read twice, although nothing but the listener commits."""
    server, listener, count = options["bootstrap_servers"], CommittingListener(), 40
    values: list[int] = []

    async def body() -> None:
        await sent(server, topics[0], count)
        async with Consumer(topics[0], listener=listener, enable_auto_commit=False, **options) as a:
            listener.consumer = a
            while len(values) < count:
                values.extend(int(each.value) for each in await a.poll(50))
            async with Consumer(topics[0], enable_auto_commit=False, **options) as b:
                again = await poll_until(lambda: len(a.assignment()) == len(b.assignment()) == PARTITIONS // 2, a, b)
                await sent(server, topics[0], count)
                while len(again) < count:
                    again += await a.poll(50) + await b.poll(50)
                values.extend(int(each.value) for each in again)
        assert sorted(values) == sorted([*range(count), *range(count)])

    run(body())


def test_listener_is_called_for_lost_partitions(topics: list[str], options: dict[str, Any]) -> None:
    """An administrator removes the member, which joins again."""
    listener = Listener()

    async def body() -> None:
        async with (
            Consumer(topics[0], listener=listener, group_instance_id="one", **options) as consumer,
            Admin(bootstrap_servers=options["bootstrap_servers"]) as admin,
        ):
            await poll_until(lambda: listener.held == all_of(topics[0]), consumer)
            raise_first(await admin.groups.remove_members(options["group_id"], ["one"]))
            await poll_until(lambda: listener.lost == all_of(topics[0]), consumer)
            await poll_until(lambda: listener.held == all_of(topics[0]), consumer)

    run(body())


def test_pattern_reads_the_topics_that_match(topics: list[str], options: dict[str, Any]) -> None:
    listener = Listener()

    async def body() -> None:
        async with Consumer(**options) as consumer:
            # Apache's coordinator matches a pattern again after ten seconds if it does not know the new topics yet.
            consumer.subscribe([topics[1]], listener=listener)
            await poll_until(lambda: listener.held == all_of(topics[1]), consumer)
            consumer.subscribe(pattern=topics[0].replace("first", "(first|other)"))
            await poll_until(lambda: listener.held == all_of(topics[0]), consumer)
            assert consumer.assignment() == listener.held
            assert consumer.subscription() == set()

    run(body())


def test_static_member_keeps_its_partitions(topics: list[str], options: dict[str, Any]) -> None:
    """A member that comes back has its partitions, and the others learn of nothing."""
    first, second, again = Listener(), Listener(), Listener()

    async def body() -> None:
        async with Consumer(topics[0], listener=second, group_instance_id="b", **options) as b:
            async with Consumer(topics[0], listener=first, group_instance_id="a", **options) as a:
                await poll_until(
                    lambda: len(first.held) == len(second.held) == PARTITIONS // 2
                    and first.held | second.held == all_of(topics[0]),
                    a, b,
                )  # fmt: skip
                before, calls = set(first.held), len(second.calls)
            async with Consumer(topics[0], listener=again, group_instance_id="a", **options) as a:
                await poll_until(lambda: bool(again.held), a, b)
                assert again.held == before
                assert len(second.calls) == calls

    run(body())


def test_static_member_id_has_one_member(topics: list[str], options: dict[str, Any]) -> None:
    """The newer member replaces the older one in the classic protocol, and is rejected in the other."""
    is_classic = "group_protocol" not in options

    async def body() -> None:
        async with Consumer(topics[0], group_instance_id="a", **options) as older:
            await poll_until(lambda: older.assignment() == all_of(topics[0]), older)
            async with Consumer(topics[0], group_instance_id="a", **options) as newer:
                with pytest.raises(KafkaError) as failure:
                    await poll_until(lambda: False, *((newer, older) if is_classic else (newer,)))
                assert failure.value.code.name == ("FENCED_INSTANCE_ID" if is_classic else "UNRELEASED_INSTANCE_ID")

    run(body())


class Interceptor:
    """Observes and changes records of a producer and a consumer."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[str, int]] = []
        self.committed: dict[TopicPartition, int] = {}

    def on_send(self, topic: str, key: Any, value: Any, headers: Any) -> tuple[Any, Any, Any]:
        return key, b"sent " + value, [*headers, ("by", b"interceptor")]

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        assert error is None
        assert metadata is not None
        self.acknowledged.append((metadata.topic, metadata.offset))

    def on_consume(self, records: Sequence[Record]) -> Sequence[Record]:
        return [each for each in records if not each.value.endswith(b"3")]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed |= {key: each.offset for key, each in offsets.items()}


def test_interceptors_see_records_and_commits(topics: list[str], options: dict[str, Any]) -> None:
    server, seen = options["bootstrap_servers"], Interceptor()
    place = TopicPartition(topics[0], 0)

    async def body() -> None:
        async with Producer(bootstrap_servers=server, interceptors=[seen]) as producer:
            for number in range(5):
                await producer.send(topics[0], b"%d" % number, partition=0)
        assert seen.acknowledged == [(topics[0], offset) for offset in range(5)]
        async with Consumer(topics[0], interceptors=[seen], auto_commit_interval_ms=100, **options) as consumer:
            records: list[Record] = []
            while len(records) < 4:
                records += await consumer.poll(50)
            assert [each.value for each in records] == [b"sent %d" % number for number in (0, 1, 2, 4)]
            assert {tuple(each.headers) for each in records} == {(("by", b"interceptor"),)}
            more = await poll_until(lambda: seen.committed.get(place) == 5, consumer)
            assert more == []
        async with Admin(bootstrap_servers=server) as admin:
            assert (await admin.groups.offsets(options["group_id"]))[place].offset == 5

    run(body())


DEFAULT, LEAVE, REMAIN = GroupMembershipOperation


@pytest.mark.parametrize(
    ("is_static", "operation", "members"),
    [(True, DEFAULT, 1), (True, LEAVE, 0), (True, REMAIN, 1), (False, DEFAULT, 0), (False, REMAIN, 1)],
)
def test_closed_member_leaves_the_group_or_remains(
    topics: list[str],
    options: dict[str, Any],
    is_static: bool,
    operation: GroupMembershipOperation,
    members: int,
) -> None:
    """KIP-1092."""

    async def main() -> None:
        consumer = Consumer(topics[0], group_instance_id="i" if is_static else None, **options)
        await consumer.start()
        await poll_until(lambda: consumer.assignment() == all_of(topics[0]), consumer)
        await consumer.close(membership=operation)
        group_id = options["group_id"]
        async with Admin(bootstrap_servers=options["bootstrap_servers"]) as admin:
            assert len(raise_first(await admin.groups.describe([group_id]))[group_id].members) == members

    run(main())


def test_group_begins_at_the_first_record_of_a_duration(topics: list[str], options: dict[str, Any]) -> None:
    """KIP-1106. The second topic has no record that is so young: it begins at the end."""

    async def main() -> None:
        server, now = options["bootstrap_servers"], int(time.time() * 1000)
        async with Producer(bootstrap_servers=server) as producer:
            for name, ages_h in ((topics[0], (48, 2, 0)), (topics[1], (48, 47))):
                for age_h in ages_h:
                    await producer.send_and_wait(name, b"", partition=0, timestamp_ms=now - age_h * 3_600_000)
        given = {**options, "auto_offset_reset": "by_duration:PT3H"}
        async with Consumer(*topics, **given) as consumer:
            found = await poll_until(lambda: consumer.assignment() == all_of(*topics), consumer)
            assert await consumer.position(TopicPartition(topics[1], 0)) == 2
            consumer.seek_to_beginning([TopicPartition(topics[1], 0)])
            while len(found) < 4:
                found += await consumer.poll(1_000)
            assert sorted(each.offset for each in found if each.topic == topics[0]) == [1, 2]

    run(main())


def test_enforced_rebalance_ends_in_a_new_generation(topics: list[str], options: dict[str, Any]) -> None:
    """KIP-568; the coordinator assigns groups of KIP-848, where it is an error."""

    async def main() -> None:
        async with Consumer(topics[0], **options) as consumer:
            await poll_until(lambda: consumer.assignment() == all_of(topics[0]), consumer)
            before = consumer.group_metadata().generation
            if options.get("group_protocol") == "consumer":
                with pytest.raises(IllegalState, match="group_protocol=classic"):
                    consumer.enforce_rebalance()
                return
            consumer.enforce_rebalance("a test")
            await poll_until(lambda: consumer.group_metadata().generation > before, consumer)
            await poll_until(lambda: consumer.assignment() == all_of(topics[0]), consumer)

    run(main())
