"""The consumer against a scripted cluster: positions, resets, leader moves, groups of one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientClosed, CommitFailed, IllegalState, NoOffsetForPartition, OffsetOutOfRange
from odradek.client.group.subscriptions import encode_assignment
from odradek.records.builder import encode_batch
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.heartbeat import HeartbeatResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.sync_group import SyncGroupResponse
from tests.unit.client.consumers import filled, read, run
from tests.unit.client.fake_cluster import FakeBroker, FakeCluster, drop

pytestmark = pytest.mark.usefixtures("each_loop")

T0 = TopicPartition("t", 0)


def test_reads_assigned_partitions_in_order() -> None:
    cluster = filled(FakeCluster(brokers=2, topics={"t": 3}))

    async def body(consumer: Consumer) -> None:
        partitions = [TopicPartition("t", n) for n in range(3)]
        consumer.assign(partitions)
        records = await read(consumer, 60)
        for key in partitions:
            own = [each for each in records if each.topic_partition == key]
            assert [each.offset for each in own] == list(range(20))
            assert [each.value for each in own] == [b"%d-%d" % (key.partition, n) for n in range(20)]
            assert await consumer.position(key) == 20
            assert consumer.lag(key) == 0

    run(cluster, body)


def test_async_for_stands_behind_each_record_and_loses_none_on_break() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            assert await consumer.position(T0) == record.offset + 1
            if record.offset == 5:
                break
        async for record in consumer:
            seen.append(record.offset)
            if record.offset == 19:
                break
        assert seen == list(range(20))

    run(cluster, body)


def test_seek_into_a_batch_pause_and_resume() -> None:
    cluster = filled(FakeCluster(topics={"t": 2}))
    other = TopicPartition("t", 1)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0, other])
        consumer.pause([other])
        consumer.seek(T0, 6)
        assert [each.offset for each in await read(consumer, 5)] == [6, 7, 8, 9, 10]
        consumer.seek(T0, 2)
        assert [each.offset for each in await read(consumer, 2)] == [2, 3]
        consumer.pause([T0])
        consumer.resume([other])
        assert {each.partition for each in await read(consumer, 20)} == {1}
        consumer.seek_to_end([T0])
        assert await consumer.position(T0) == 20
        with pytest.raises(IllegalState):
            consumer.seek(TopicPartition("t", 7), 0)

    run(cluster, body)


def test_broken_connections_and_moved_leaders() -> None:
    cluster = filled(FakeCluster(brokers=2, topics={"t": 1}))
    cluster.script(ApiKey.FETCH, drop)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        offsets = [each.offset for each in await read(consumer, 6)]
        cluster.move_leader("t", 0, 2)
        cluster.stop(1)
        offsets += [each.offset for each in await read(consumer, 14)]
        assert offsets == list(range(20))

    run(cluster, body)


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 8), ("latest", 20)])
def test_positions_out_of_range_are_reset(reset: str, expected: int) -> None:
    cluster = filled(FakeCluster())
    cluster.log_start["t", 0] = 8

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        consumer.seek(T0, 3)
        while await consumer.position(T0) == 3:
            if await consumer.poll(10, 1):
                break
        position = await consumer.position(T0)
        assert position in (expected, expected + 1)

    run(cluster, body, auto_offset_reset=reset)


def test_position_that_only_the_former_leader_had_deleted_is_kept() -> None:
    """The first leader's retention was ahead of that of the others."""
    cluster = filled(FakeCluster())
    cluster.log_start["t", 0] = 8

    def by_successor(broker: Any, request: Any, version: int, proper: Any) -> Any:
        cluster.log_start["t", 0] = 1
        return proper()

    cluster.script(ApiKey.LIST_OFFSETS, by_successor)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        consumer.seek(T0, 3)
        assert [each.offset for each in await read(consumer, 2)] == [3, 4]

    run(cluster, body)


def test_position_beyond_the_end_is_reset() -> None:
    cluster = filled(FakeCluster())
    cluster.log_start["t", 0] = 8

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        for _ in range(2):
            consumer.seek(T0, 30)
            assert [each.offset for each in await read(consumer, 1)] == [8]

    run(cluster, body)


def test_consumer_asked_to_begin_again_keeps_no_position() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        consumer.seek(T0, 5)
        assert [each.offset for each in await read(consumer, 1)] == [5]
        consumer.seek_to_beginning([T0])
        assert [each.offset for each in await read(consumer, 1)] == [0]

    run(cluster, body)


def test_without_reset_policy_it_says_so() -> None:
    cluster = filled(FakeCluster())
    cluster.log_start["t", 0] = 8

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        with pytest.raises(NoOffsetForPartition):
            await read(consumer, 1)
        consumer.seek(T0, 3)
        with pytest.raises(OffsetOutOfRange):
            await read(consumer, 1)

    run(cluster, body, auto_offset_reset="none")


def test_a_log_that_was_cut_by_an_unclean_election_is_noticed() -> None:
    """KIP-320: the new leader has less than what was read; reading continues where its log ends."""
    cluster = filled(FakeCluster(brokers=2, topics={"t": 1}))

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        assert len(await read(consumer, 20)) == 20
        del cluster.logs["t", 0][12:]
        del cluster.batches["t", 0][3:]
        cluster.move_leader("t", 0, 2)
        cluster.append(cluster.brokers[2], "t", 0, bytes(encode_batch([(1, None, b"new", ())])))
        # The end of the old epoch is 13 here as the fake does not keep epochs apart: what counts is that 20 is left.
        while await consumer.position(T0) == 20:
            await consumer.poll(20)
        assert await consumer.position(T0) == 13

    run(cluster, body)


def test_offsets_by_time_and_raw_batches() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        found = await consumer.offsets_for_times({T0: 1002})
        first = found[T0]
        assert first is not None
        assert first.offset == 8
        assert await consumer.offsets_for_times({T0: 99_999}) == {T0: None}
        assert await consumer.beginning_offsets([T0]) == {T0: 0}
        assert await consumer.end_offsets([T0]) == {T0: 20}
        raw = await consumer.fetch_raw("t", 0, 5)
        assert bytes(raw.batches) == cluster.batches["t", 0][1][2]
        assert raw.high_watermark == 20
        with pytest.raises(KafkaError):
            await consumer.fetch_raw("t", 0, 50)

    run(cluster, body)


def test_metadata_of_a_topic_that_is_no_longer_read_is_refreshed() -> None:
    """The leader's epoch of then would be refused for ever."""
    cluster = filled(FakeCluster(brokers=2, topics={"t": 1}))

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        assert len(await read(consumer, 20)) == 20
        consumer.assign([])
        cluster.move_leader("t", 0, 2)
        assert await consumer.end_offsets([T0]) == {T0: 20}

    run(cluster, body)


def test_damaged_batches_are_reported_not_skipped() -> None:
    cluster = filled(FakeCluster())
    base, last, data = cluster.batches["t", 0][0]
    cluster.batches["t", 0][0] = (base, last, data[:-1] + bytes([data[-1] ^ 1]))

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        with pytest.raises(ValueError, match="CRC"):
            await read(consumer, 1)

    run(cluster, body)


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, set[int]]] = []

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.heard.append(("assigned", {each.partition for each in partitions}))

    async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self.heard.append(("revoked", {each.partition for each in partitions}))

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.heard.append(("lost", {each.partition for each in partitions}))


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_a_group_member_reads_commits_and_resumes(strategy: str) -> None:
    cluster = filled(FakeCluster(topics={"t": 2}))

    async def first(consumer: Consumer) -> None:
        assert len(await read(consumer, 12)) == 12
        await consumer.commit()

    async def second(consumer: Consumer) -> None:
        assert len(await read(consumer, 28)) == 28
        assert await consumer.poll(10) == []

    options = {"group_id": "g", "partition_assignment_strategy": strategy}
    run(cluster, first, "t", **options)
    assert sum(cluster.committed["g"].values()) == 12
    run(cluster, second, "t", **options)
    assert cluster.committed["g"] == {("t", 0): 20, ("t", 1): 20}
    assert cluster.count(ApiKey.LEAVE_GROUP) == 2


def test_rebalance_and_loss_are_heard() -> None:
    cluster = filled(FakeCluster(topics={"t": 2}))
    listener = Listener()

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(["t"], listener=listener)
        await read(consumer, 4)
        assert listener.heard == [("assigned", {0, 1})]
        cluster.script(ApiKey.HEARTBEAT, lambda *_: HeartbeatResponse(0, 27))
        while len(listener.heard) < 3:
            await consumer.poll(20, 1)
        assert listener.heard[1:] == [("revoked", {0, 1}), ("assigned", {0, 1})]
        cluster.script(ApiKey.HEARTBEAT, lambda *_: HeartbeatResponse(0, 25))
        while len(listener.heard) < 5:
            await consumer.poll(20, 1)
        assert listener.heard[3:] == [("lost", {0, 1}), ("assigned", {0, 1})]

    run(cluster, body, group_id="g", heartbeat_interval_ms=5, partition_assignment_strategy="range")


def test_reason_of_an_enforced_rebalance_is_sent_once() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        consumer.enforce_rebalance("r" * 300)
        await read(consumer, 4)
        consumer.enforce_rebalance()
        await read(consumer, 4)
        consumer.subscribe(["t"])
        await read(consumer, 4)

    run(cluster, body, "t", group_id="g", partition_assignment_strategy="cooperative-sticky")
    reasons = [request.reason for _, key, _, request in cluster.requests if key == ApiKey.JOIN_GROUP]
    assert [each for each in reasons if each] == ["r" * 255, "the program enforces a rebalance"]
    assert not reasons[-1]


@pytest.mark.parametrize(
    ("client_rack", "change", "joins"),
    [
        ("a", lambda brokers: setattr(brokers[1], "rack", "b"), 2),
        ("a", lambda brokers: setattr(brokers[2], "up", False), 1),
        ("", lambda brokers: setattr(brokers[1], "rack", "b"), 1),
    ],
    ids=["another rack", "broker away", "racks do not matter"],
)
def test_group_rebalances_when_the_racks_of_its_partitions_change(
    client_rack: str, change: Callable[[dict[int, FakeBroker]], None], joins: int
) -> None:
    cluster = filled(FakeCluster(brokers=2, topics={"t": 2}))
    cluster.leaders = dict.fromkeys(cluster.leaders, 1)
    cluster.replicas = [1, 2]
    for broker in cluster.brokers.values():
        broker.rack = "a"

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(["t"])
        await read(consumer, 4)
        change(cluster.brokers)
        asked = cluster.count(ApiKey.METADATA)
        while cluster.count(ApiKey.METADATA) < asked + 3 or cluster.count(ApiKey.JOIN_GROUP) < joins:
            await consumer.poll(5, 1)
        assert cluster.count(ApiKey.JOIN_GROUP) == joins

    given = {"group_id": "g", "partition_assignment_strategy": "range", "metadata_max_age_ms": 20}
    run(cluster, body, client_rack=client_rack, **given)


def test_listener_commits_while_the_consumer_closes() -> None:
    cluster = filled(FakeCluster(topics={"t": 2}))
    outcomes: list[object] = []

    async def polled(consumer: Consumer) -> None:
        with pytest.raises(ClientClosed):
            await consumer.poll(0)
        outcomes.append("closed to others")

    class Committing:
        consumer: Consumer

        async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
            assert self.consumer.assignment() == partitions
            await asyncio.create_task(polled(self.consumer))
            await self.consumer.commit()
            outcomes.append("committed")

    async def body(consumer: Consumer) -> None:
        listener = Committing()
        listener.consumer = consumer
        consumer.subscribe(["t"], listener=listener)
        await read(consumer, 40)
        await consumer.close()
        with pytest.raises(ClientClosed):
            await consumer.commit()

    run(cluster, body, group_id="g", enable_auto_commit=False)
    assert outcomes == ["closed to others", "committed"]
    assert cluster.committed["g"] == {("t", 0): 20, ("t", 1): 20}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_member_removed_while_it_joins_keeps_its_final_assignment(strategy: str, code: ErrorCode) -> None:
    cluster = filled(FakeCluster(topics={"t": 2}))
    listener = Listener()

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(["t"], listener=listener)
        await read(consumer, 4)
        refused = asyncio.Event()

        def refuse(*_: Any) -> SyncGroupResponse:
            refused.set()
            return SyncGroupResponse(error_code=code)

        cluster.script(ApiKey.SYNC_GROUP, refuse)
        cluster.script(ApiKey.HEARTBEAT, lambda *_: HeartbeatResponse(0, 27))
        while not refused.is_set():
            await consumer.poll(1000, 1)
        ends: set[int] = set()
        while len(ends) < 2:
            ends |= {each.partition for each in await consumer.poll(1000) if each.offset == 19}
        assert consumer.assignment() == {TopicPartition("t", 0), TopicPartition("t", 1)}
        assert listener.heard[1:] == [("revoked" if strategy == "range" else "lost", {0, 1}), ("assigned", {0, 1})]

    options = {"heartbeat_interval_ms": 5, "enable_auto_commit": False}
    run(cluster, body, group_id="g", partition_assignment_strategy=strategy, **options)


@pytest.mark.parametrize("raises", ["on_partitions_revoked", "on_partitions_assigned"])
def test_what_the_group_has_decided_holds_although_a_listener_raises(
    raises: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = filled(FakeCluster(topics={"t": 2}))
    listener = Listener()

    async def body(consumer: Consumer) -> None:
        def only(partition: int) -> Any:
            def answer(broker: Any, request: Any, version: int, proper: Any) -> Any:
                data = encode_assignment([TopicPartition("t", partition)])
                return SyncGroupResponse(0, 0, "consumer", request.protocol_name, data)

            return answer

        def fail(partitions: set[TopicPartition]) -> None:
            monkeypatch.undo()
            raise ZeroDivisionError

        cluster.script(ApiKey.SYNC_GROUP, only(0))
        consumer.subscribe(["t"], listener=listener)
        await read(consumer, 4)
        assert consumer.assignment() == {T0}
        monkeypatch.setattr(listener, raises, fail)
        cluster.script(ApiKey.SYNC_GROUP, only(1))
        cluster.script(ApiKey.HEARTBEAT, lambda *_: HeartbeatResponse(0, 27))
        with pytest.raises(ZeroDivisionError):
            await read(consumer, 1000)
        assert consumer.assignment() == {TopicPartition("t", 1)}
        assert len(await read(consumer, 4)) == 4

    run(cluster, body, group_id="g", heartbeat_interval_ms=5, partition_assignment_strategy="cooperative-sticky")


def test_a_commit_of_an_old_generation_fails_clearly() -> None:
    cluster = filled(FakeCluster())

    def gone(broker: Any, request: Any, version: int, proper: Any) -> Any:
        answers = [OffsetCommitResponsePartition(0, 22)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=answers)])

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        cluster.script(ApiKey.OFFSET_COMMIT, gone)
        with pytest.raises(CommitFailed):
            await consumer.commit()
        assert len(await read(consumer, 4)) == 4

    run(cluster, body, "t", group_id="g", enable_auto_commit=False)


def test_a_commit_of_an_old_generation_does_not_end_the_new_one() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        membership = consumer._group._membership  # type: ignore[union-attr]

        def overtaken(broker: Any, request: Any, version: int, proper: Any) -> Any:
            # A join completes while the answer to the commit is on its way.
            membership.generation += 1
            answers = [OffsetCommitResponsePartition(0, 22)]
            return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=answers)])

        cluster.script(ApiKey.OFFSET_COMMIT, overtaken)
        joined = cluster.count(ApiKey.JOIN_GROUP)
        with pytest.raises(CommitFailed):
            await consumer.commit()
        assert membership.generation >= 0
        assert len(await read(consumer, 4)) == 4
        assert cluster.count(ApiKey.JOIN_GROUP) == joined

    run(cluster, body, "t", group_id="g", enable_auto_commit=False)


def test_subscription_without_a_group_reads_everything() -> None:
    cluster = filled(FakeCluster(topics={"t": 2, "u": 1, "x": 1}))

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(pattern="[tu]")
        assert {(each.topic, each.partition) for each in await read(consumer, 60)} == {("t", 0), ("t", 1), ("u", 0)}

    run(cluster, body)


def test_an_old_broker_without_topic_ids_and_sessions() -> None:
    cluster = filled(FakeCluster())
    cluster.max_versions = {ApiKey.FETCH: 4, ApiKey.METADATA: 1, ApiKey.LIST_OFFSETS: 1, ApiKey.FIND_COORDINATOR: 0}

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        assert len(await read(consumer, 20)) == 20

    run(cluster, body)
