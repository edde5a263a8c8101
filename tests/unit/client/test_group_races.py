"""What changes while a group's member joins, or between two polls."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import CommitFailed
from odradek.client.group.assignors import RangeAssignor
from odradek.client.group.subscriptions import encode_assignment
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.heartbeat import HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.sync_group import SyncGroupResponse
from tests.unit.client.consumers import filled, read, run, until
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster, drop, silent
from tests.unit.client.virtual_time import run_in_virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
IN_GROUP: dict[str, Any] = {"group_id": "g", "heartbeat_interval_ms": 5, "enable_auto_commit": False}


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, set[int]]] = []

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        self.heard.append(("assigned", {each.partition for each in partitions}))

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        self.heard.append(("revoked", {each.partition for each in partitions}))

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self.heard.append(("lost", {each.partition for each in partitions}))


def membership(consumer: Consumer) -> Any:
    return consumer._group._membership  # type: ignore[union-attr]


def heartbeat(code: int) -> Any:
    return lambda *_: HeartbeatResponse(0, code)


def test_a_subscription_changed_during_a_rebalance_is_joined_with() -> None:
    cluster = filled(FakeCluster(topics={"t": 1, "u": 1}), 3)

    async def body(consumer: Consumer) -> None:
        def changed(broker: Any, request: Any, version: int, proper: Any) -> Any:
            consumer.subscribe(["t", "u"])
            return proper()

        cluster.script(ApiKey.SYNC_GROUP, changed)
        assert {each.topic for each in await read(consumer, 24)} == {"t", "u"}

    run(cluster, body, "t", **IN_GROUP)


def test_a_topic_that_turns_up_during_a_rebalance_is_joined_with() -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(pattern="[tu]")
        asked, seen = asyncio.Event(), asyncio.Event()

        def not_before_it_was_seen(broker: Any, request: Any, version: int, proper: Any) -> Any:
            asked.set()
            if seen.is_set():
                return proper()
            cluster.script(ApiKey.SYNC_GROUP, not_before_it_was_seen)
            return SyncGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

        await read(consumer, 12)
        while membership(consumer).rejoin:
            await consumer.poll(5)
        cluster.script(ApiKey.HEARTBEAT, heartbeat(27))
        await until(lambda: membership(consumer).rejoin)
        cluster.script(ApiKey.SYNC_GROUP, not_before_it_was_seen)
        while not asked.is_set():
            await consumer.poll(5)
        cluster.topics["u"] = 1
        cluster.leaders["u", 0] = 1
        await consumer.cluster.refresh_metadata()
        await consumer.poll(0)
        seen.set()
        while TopicPartition("u", 0) not in consumer.assignment():
            await consumer.poll(20)

    run(cluster, body, **IN_GROUP)


def test_removed_member_commits_under_its_former_identity() -> None:
    """A client without membership may commit offsets of an empty group, and in a transaction always."""
    cluster = filled(FakeCluster(topics={"t": 1}), 3)

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        member = consumer.group_metadata()
        assert member.generation >= 0
        cluster.script(ApiKey.HEARTBEAT, heartbeat(25))
        await until(lambda: membership(consumer).generation < 0)
        assert consumer.group_metadata() == member

        def unknown(broker: Any, request: Any, version: int, proper: Any) -> Any:
            code = 25 if request.generation_id_or_member_epoch >= 0 else 0
            answers = [OffsetCommitResponsePartition(0, code)]
            return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=answers)])

        cluster.script(ApiKey.OFFSET_COMMIT, unknown)
        with pytest.raises(CommitFailed):
            await consumer.commit()
        await read(consumer, 4)
        assert consumer.group_metadata() != member

    run(cluster, body, "t", **IN_GROUP)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_who_polled_too_late_has_lost_his_partitions_before_he_has_left(strategy: str) -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)
    listener = Listener()

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(["t"], listener=listener)
        await read(consumer, 4)
        cluster.script(ApiKey.LEAVE_GROUP, silent)
        # As if the last poll were long past. With a short interval any poll might come too late, not this one only.
        membership(consumer)._last_poll -= 1000
        await until(lambda: cluster.count(ApiKey.LEAVE_GROUP))
        await read(consumer, 4)
        assert listener.heard == [("assigned", {0}), ("lost", {0}), ("assigned", {0})]

    run(cluster, body, partition_assignment_strategy=strategy, **IN_GROUP)


def test_what_was_claimed_and_is_lost_meanwhile_is_given_to_others_too() -> None:
    """Their leader leaves out what one member claims and another is to have, until the first has joined again."""
    cluster = filled(FakeCluster(topics={"t": 2}), 3)
    data = encode_assignment([T0])

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        cluster.script(ApiKey.JOIN_GROUP, lambda *_: JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        cluster.script(ApiKey.SYNC_GROUP, lambda b, r, v, p: SyncGroupResponse(0, 0, "consumer", r.protocol_name, data))
        cluster.script(ApiKey.HEARTBEAT, heartbeat(27))
        while cluster.scripts[ApiKey.SYNC_GROUP]:
            await consumer.poll(20)
        while consumer.assignment() != {T0, T1}:
            await consumer.poll(20)

    run(cluster, body, "t", partition_assignment_strategy="cooperative-sticky", **IN_GROUP)


def test_who_unsubscribes_leaves_with_the_next_poll() -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        consumer.unsubscribe()
        await consumer.poll(0)
        assert cluster.count(ApiKey.LEAVE_GROUP) == 1
        consumer.assign([T0])
        assert len(await read(consumer, 12)) == 12

    run(cluster, body, "t", **IN_GROUP)
    assert cluster.count(ApiKey.LEAVE_GROUP) == 1


def test_what_the_group_took_away_is_not_what_was_assigned_by_hand_since() -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        cluster.script(ApiKey.HEARTBEAT, heartbeat(25))
        await until(lambda: membership(consumer).lost)
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert len(await read(consumer, 12)) == 12

    run(cluster, body, "t", **IN_GROUP)


@pytest.mark.parametrize("trouble", ["no answer", "no such topic yet"])
def test_group_leader_refreshes_metadata_of_a_topic_without_partitions(trouble: str) -> None:
    """Found by the simulator (network-1104044): a member alone in its group read nothing, for ever."""
    cluster = filled(FakeCluster(topics={"t": 2}), 6)

    def unknown(broker: Any, request: Any, version: int, proper: Any) -> Any:
        answer = proper()
        answer.topics = []
        return answer

    cluster.script(ApiKey.METADATA, *[drop if trouble == "no answer" else unknown] * 2)

    async def body(consumer: Consumer) -> None:
        assert len(await read(consumer, 12)) == 12

    run(cluster, body, "t", **IN_GROUP, retry_backoff_max_ms=20, retry_backoff_ms=10)


class ForgetfulAssignor(RangeAssignor):
    """Fails at its first assignment."""

    name = "forgetful"

    def __init__(self) -> None:
        self.calls = 0

    def assigned(self, partitions: Sequence[TopicPartition], generation: int) -> None:
        self.calls += 1
        if self.calls == 1:
            raise ZeroDivisionError


def test_partitions_are_read_after_an_assignor_has_failed() -> None:
    async def body(consumer: Consumer) -> None:
        with pytest.raises(ZeroDivisionError):
            await read(consumer, 1)
        assert len(await read(consumer, 12)) == 12

    run(
        filled(FakeCluster(topics={"t": 1}), 3), body, "t",
        partition_assignment_strategy=[ForgetfulAssignor()], **IN_GROUP,
    )  # fmt: skip


def test_member_rejoins_after_an_unreadable_assignment() -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)

    def unreadable(broker: Any, request: Any, version: int, proper: Any) -> Any:
        return SyncGroupResponse(0, 0, "consumer", request.protocol_name, b"\0")

    cluster.script(ApiKey.SYNC_GROUP, unreadable)

    async def body(consumer: Consumer) -> None:
        with pytest.raises(KafkaError, match="INCONSISTENT_GROUP_PROTOCOL"):
            await read(consumer, 1)
        assert len(await read(consumer, 12)) == 12

    run(cluster, body, "t", **IN_GROUP)


@pytest.mark.parametrize("key", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_rebalance_leaves_a_coordinator_that_stands_still(key: ApiKey) -> None:
    """Its connection stays open, and its answer may take the rebalance timeout: five minutes."""
    cluster = filled(FakeCluster(brokers=2, topics={"t": 1}), 3)

    def stands_still(broker: Any, request: Any, version: int, proper: Any) -> None:
        cluster.coordinator = 2

    cluster.script(key, stands_still)

    async def main() -> None:
        options = {**OPTIONS, **IN_GROUP, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 3_000}
        async with asyncio.timeout(100), Consumer("t", network=cluster, **options) as consumer:
            await read(consumer, 12)

    run_in_virtual_time(main())
    asked = [node_id for node_id, each, _, _ in cluster.requests if each == key]
    assert asked == [1, 2]


def test_slow_rebalance_is_waited_for_at_its_coordinator() -> None:
    cluster = filled(FakeCluster(brokers=2, topics={"t": 1}), 3)

    async def main() -> None:
        options = {**OPTIONS, **IN_GROUP, "auto_offset_reset": "earliest", "heartbeat_interval_ms": 3_000}
        async with Consumer("t", network=cluster, **options) as consumer:
            cluster.script(ApiKey.JOIN_GROUP, silent)
            assert await consumer.poll(200_000) == []

    run_in_virtual_time(main())
    assert cluster.count(ApiKey.JOIN_GROUP) == 1


def test_queued_commit_belongs_to_the_generation_of_its_call() -> None:
    """It waits for the commit before it, and the group rebalances meanwhile: another member may have the partitions."""
    cluster = filled(FakeCluster(topics={"t": 1}), 3)
    rebalanced = asyncio.Event()

    async def body(consumer: Consumer) -> None:
        def not_before_the_rebalance(broker: Any, request: Any, version: int, proper: Any) -> Any:
            if rebalanced.is_set():
                return proper()
            cluster.script(ApiKey.OFFSET_COMMIT, not_before_the_rebalance)
            partitions = [OffsetCommitResponsePartition(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
            topics = [OffsetCommitResponseTopic(each.name, each.topic_id, partitions) for each in request.topics]
            return OffsetCommitResponse(topics=topics)

        await read(consumer, 4)
        first = consumer.group_metadata().generation
        cluster.script(ApiKey.OFFSET_COMMIT, not_before_the_rebalance)
        commits = [consumer.commit_async(), consumer.commit_async()]
        await until(lambda: cluster.count(ApiKey.OFFSET_COMMIT))
        cluster.script(ApiKey.HEARTBEAT, heartbeat(27))
        await until(lambda: membership(consumer).rejoin)
        while membership(consumer).rejoin:
            await consumer.poll(5)
        assert consumer.group_metadata().generation > first
        rebalanced.set()
        await asyncio.gather(*commits)
        asked = [
            each.generation_id_or_member_epoch for _, key, _, each in cluster.requests if key == ApiKey.OFFSET_COMMIT
        ]
        assert set(asked) == {first}

    run(cluster, body, "t", **IN_GROUP)


def test_commit_follows_the_commits_that_were_begun_before() -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)

    def loading(broker: Any, request: Any, version: int, proper: Any) -> Any:
        partitions = [OffsetCommitResponsePartition(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
        topics = [OffsetCommitResponseTopic(each.name, each.topic_id, partitions) for each in request.topics]
        return OffsetCommitResponse(topics=topics)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        cluster.script(ApiKey.OFFSET_COMMIT, loading, loading)
        first = consumer.commit_async({T0: 4})
        await until(lambda: cluster.count(ApiKey.OFFSET_COMMIT))
        await consumer.commit({T0: 8})
        await first
        assert cluster.committed["g"]["t", 0] == 8

    run(cluster, body, **IN_GROUP, retry_backoff_ms=20, retry_backoff_max_ms=20)


@pytest.mark.parametrize("group_id", ["g", None])
def test_pattern_subscriber_waits_for_its_brokers(group_id: str | None) -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)
    cluster.stop(1)

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(pattern="t.*")
        if group_id is not None:
            assert await consumer.poll(20) == []
        reading = asyncio.create_task(read(consumer, 12))
        await asyncio.sleep(0.02)
        cluster.brokers[1].up = True
        assert len(await reading) == 12

    run(cluster, body, group_id=group_id)


@pytest.mark.parametrize("group_id", ["g", None])
def test_pattern_after_names_finds_topics_at_once(group_id: str | None) -> None:
    """The metadata have the topics subscribed to by name only."""

    async def body(consumer: Consumer) -> None:
        await read(consumer, 12)
        consumer.subscribe(pattern="[tu]")
        topics: set[str] = set()
        while "u" not in topics:
            topics.update(each.topic for each in await consumer.poll(100))

    run(filled(FakeCluster(topics={"t": 1, "u": 1}), 3), body, "t", group_id=group_id)


@pytest.mark.parametrize("ending", ["poll", "close"])
def test_listener_learns_of_the_end_of_a_subscription(ending: str) -> None:
    listener = Listener()

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(["t"], listener=listener)
        await read(consumer, 4)
        consumer.unsubscribe()
        assert listener.heard == [("assigned", {0})]
        if ending == "poll":
            await consumer.poll(0)
            assert listener.heard[1:] == [("revoked", {0})]

    cluster = filled(FakeCluster(topics={"t": 1}), 3)
    run(cluster, body, **IN_GROUP)
    assert listener.heard == [("assigned", {0}), ("revoked", {0})]
    assert cluster.count(ApiKey.LEAVE_GROUP) == 1


def test_partitions_that_a_program_assigns_end_those_of_the_group() -> None:
    listener = Listener()

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(["t"], listener=listener)
        await read(consumer, 8)
        consumer.assign([T1])
        await consumer.poll(0)
        assert listener.heard == [("assigned", {0, 1}), ("revoked", {0, 1})]
        assert consumer.assignment() == {T1}

    run(filled(FakeCluster(topics={"t": 2}), 3), body, **IN_GROUP)


def test_listener_learns_of_a_subscription_that_begins_again() -> None:
    listener = Listener()

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(["t"], listener=listener)
        await read(consumer, 4)
        consumer.unsubscribe()
        consumer.subscribe(["t"], listener=listener)
        await read(consumer, 4)
        assert listener.heard == [("assigned", {0}), ("revoked", {0}), ("assigned", {0})]

    run(filled(FakeCluster(topics={"t": 1}), 3), body, **IN_GROUP)
