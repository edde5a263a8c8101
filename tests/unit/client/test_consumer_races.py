"""What changes between an answer and what the consumer makes of it; what fails after it was taken."""

import asyncio
import pickle
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import CallTimedOut, DeserializationError
from odradek.client.model import OffsetAndMetadata
from odradek.records.builder import encode_batch
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.messages.metadata import MetadataResponseTopic
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseTopic,
)
from odradek.wire.primitives import ZERO_UUID
from tests.unit.client.consumers import filled, read, run, until
from tests.unit.client.fake_cluster import FakeCluster, silent

pytestmark = pytest.mark.usefixtures("each_loop")

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Fails:
    """A deserializer that fails on one value, until it is mended."""

    def __init__(self, value: bytes) -> None:
        self.value: bytes | None = value

    def __call__(self, topic: str, value: bytes | None) -> bytes | None:
        if value == self.value:
            raise ZeroDivisionError
        return value

    def mend(self) -> None:
        self.value = None


@pytest.mark.parametrize("failing", [b"0-0", b"0-6", b"0-11"])
def test_records_whose_deserializer_failed_are_returned_by_the_next_poll(failing: bytes) -> None:
    seen: list[object] = []
    deserializer = Fails(failing)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        failures: list[object] = []
        while len(seen) < 12:
            try:
                seen.extend(each.value for each in await consumer.poll(1000))
            except DeserializationError as error:
                failures.append((error.topic_partition, error.offset, type(error.__cause__)))
                deserializer.mend()
        assert failures == [(T0, int(failing[2:]), ZeroDivisionError)]

    run(filled(FakeCluster(topics={"t": 1}), 3), body, value_deserializer=deserializer)
    assert seen == [b"0-%d" % n for n in range(12)]


def test_deserialization_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(DeserializationError("bad", T0, 7)))
    assert (str(error), error.topic_partition, error.offset) == ("bad", T0, 7)


def test_seek_skips_only_the_record_that_a_deserializer_fails_on() -> None:
    seen: list[object] = []

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        while len(seen) < 11:
            try:
                seen.extend(each.value for each in await consumer.poll(1000))
            except DeserializationError as error:
                consumer.seek(error.topic_partition, error.offset + 1)

    run(filled(FakeCluster(topics={"t": 1}), 3), body, value_deserializer=Fails(b"0-6"))
    assert seen == [b"0-%d" % n for n in range(12) if n != 6]


def test_a_damaged_batch_is_never_passed_over() -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)
    base, last, data = cluster.batches["t", 0][0]
    cluster.batches["t", 0][0] = (base, last, data[:-1] + bytes([data[-1] ^ 1]))

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        for _ in range(3):
            with pytest.raises(ValueError, match="CRC"):
                await read(consumer, 1)
        assert await consumer.position(T0) == 0

    run(cluster, body)


def test_records_of_one_partition_are_returned_although_another_fails() -> None:
    seen: list[object] = []
    deserializer = Fails(b"0-0")

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0, T1])
        # Both have records waiting when the poll takes them.
        await consumer.poll(0)
        states = consumer._fetcher.states  # type: ignore[union-attr]
        await until(lambda: all(each.has_records for each in states.values()))
        while len(seen) < 24:
            try:
                seen.extend(each.value for each in await consumer.poll(1000))
            except DeserializationError:
                deserializer.mend()

    run(filled(FakeCluster(topics={"t": 2}), 3), body, value_deserializer=deserializer)
    assert set(seen) == {b"%d-%d" % (p, n) for p in range(2) for n in range(12)}
    assert len(seen) == 24


def test_late_out_of_range_answer_does_not_undo_a_seek() -> None:
    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        consumer.seek(T0, 1000)
        await consumer.poll(0)
        await until(lambda: consumer._fetcher._out_of_range)  # type: ignore[union-attr]
        consumer.seek(T0, 5)
        assert (await read(consumer, 1))[0].offset == 5

    run(filled(FakeCluster(topics={"t": 1}), 3), body)


def test_truncation_does_not_concern_a_reassigned_partition() -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)
    asked = asyncio.Event()

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        await read(consumer, 12)
        consumer.pause([T0])
        await until(lambda: not any(each.fetching for each in consumer._fetcher._nodes.values()))  # type: ignore[union-attr]
        cluster.move_leader("t", 0, 1)
        del cluster.logs["t", 0][4:], cluster.batches["t", 0][1:]
        await consumer.cluster.refresh_metadata()

        def assigned_anew(broker: Any, request: Any, version: int, proper: Any) -> Any:
            consumer.assign([])
            consumer.assign([T0])
            consumer.seek(T0, 2)
            asked.set()
            return proper()

        cluster.script(ApiKey.OFFSET_FOR_LEADER_EPOCH, assigned_anew)
        records = await read(consumer, 1)
        assert asked.is_set()
        assert [each.offset for each in records] == [2]

    run(cluster, body)


def test_records_of_a_revoked_partition_are_not_returned() -> None:
    seen: list[TopicPartition] = []

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        async for record in consumer:
            seen.append(record.topic_partition)
            if len(seen) == 1:
                consumer.assign([T1])
            if len(seen) == 5:
                break

    run(filled(FakeCluster(topics={"t": 2}), 3), body)
    assert seen == [T0, T1, T1, T1, T1]


@pytest.mark.parametrize("group_id", [None, "g"])
def test_partition_of_a_missing_topic_does_not_stop_the_others(group_id: str | None) -> None:
    async def body(consumer: Consumer) -> None:
        consumer.assign([TopicPartition("missing", 0), T0])
        assert [each.offset for each in await read(consumer, 12)] == list(range(12))
        consumer.assign([TopicPartition("missing", 0), T0, T1])
        assert [each.partition for each in await read(consumer, 12)] == [1] * 12

    run(filled(FakeCluster(topics={"t": 2}), 3), body, group_id=group_id)


def test_partition_without_leader_does_not_stop_the_check_of_another() -> None:
    """Both were read under earlier leaders; one of them has none now."""
    cluster = filled(FakeCluster(brokers=2, topics={"t": 2}), 1)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0, T1])
        await read(consumer, 8)
        cluster.move_leader("t", 0, -1)
        cluster.move_leader("t", 1, 1)
        await consumer.cluster.refresh_metadata()
        cluster.append(cluster.brokers[1], "t", 1, bytes(encode_batch([(2000, b"k", b"later", ())])))
        assert [each.value for each in await read(consumer, 1)] == [b"later"]

    run(cluster, body)


def test_records_are_returned_while_a_position_is_looked_up() -> None:
    """The leader of one partition stands still: a poll does not wait for it where another one has records."""
    cluster = filled(FakeCluster(brokers=2, topics={"t": 2}), 3)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        await read(consumer, 1)
        cluster.script(ApiKey.LIST_OFFSETS, silent)
        consumer.assign([T0, T1])
        assert (await consumer.poll(60_000))[0].offset == 1

    run(cluster, body)


def test_poll_fails_where_no_position_is_found_in_time() -> None:
    async def body(consumer: Consumer) -> None:
        consumer.assign([TopicPartition("missing", 0)])
        with pytest.raises(CallTimedOut, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await read(consumer, 1)

    run(FakeCluster(), body, default_api_timeout_ms=50)


def committed_topics(cluster: FakeCluster) -> list[tuple[bytes, list[int]]]:
    """Topic ids, zeros for topics by name, and partitions of all commits."""
    return [
        (topic.topic_id, [each.partition_index for each in topic.partitions])
        for _, key, _, request in cluster.requests
        if key == ApiKey.OFFSET_COMMIT
        for topic in request.topics
    ]


def test_positions_are_committed_by_topic_id_in_all_ways() -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 1)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        await read(consumer, 4)
        await consumer.commit()
        await consumer.commit_async()
        await consumer.commit(consumer.positions())
        await consumer.commit({T0: 4})

    run(cluster, body, group_id="g", enable_auto_commit=False)
    assert committed_topics(cluster) == [(cluster.topic_id("t"), [0])] * 3 + [(ZERO_UUID, [0])]


def test_position_in_a_deleted_topic_is_not_committed_in_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One partition is paused while its topic is deleted and created again: it has not noticed yet."""
    cluster = filled(FakeCluster(topics={"t": 2}), 1)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0, T1])
        await read(consumer, 8)
        consumer.pause([T0, T1])
        await until(lambda: not any(each.fetching for each in consumer._fetcher._nodes.values()))  # type: ignore[union-attr]
        monkeypatch.setattr(cluster, "topic_id", lambda _name: b"recreated topic!")
        await consumer.cluster.refresh_metadata()
        consumer.resume([T0])
        assert [each.partition for each in await read(consumer, 4)] == [0] * 4
        await consumer.commit()
        assert set(consumer.positions()) == {T0}
        consumer.resume([T1])
        assert [each.partition for each in await read(consumer, 4)] == [1] * 4

    run(cluster, body, group_id="g", enable_auto_commit=False)
    assert committed_topics(cluster) == [(b"recreated topic!", [0])]


def test_position_that_is_sought_with_an_epoch_is_checked() -> None:
    """As in Java (KIP-320): the log may have been truncated since the record was read from which the position is."""
    cluster = filled(FakeCluster(topics={"t": 1}), 3)

    def ends_at_four(broker: Any, request: Any, version: int, proper: Any) -> Any:
        found = OffsetForLeaderEpochResponseEpochEndOffset(0, 0, 1, 4)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderEpochResponseTopic("t", [found])])

    async def body(consumer: Consumer) -> None:
        for _ in range(2):
            cluster.move_leader("t", 0, 1)
        consumer.assign([T0])
        await read(consumer, 12)
        cluster.script(ApiKey.OFFSET_FOR_LEADER_EPOCH, ends_at_four)
        consumer.seek(T0, OffsetAndMetadata(8, "", 1))
        assert (await read(consumer, 1))[0].offset == 4

    run(cluster, body)


def test_subscription_that_a_loop_changes_applies_to_its_next_record() -> None:
    seen: list[str] = []

    async def body(consumer: Consumer) -> None:
        async for record in consumer:
            seen.append(record.topic)
            if len(seen) == 1:
                consumer.subscribe(["u"])
            if len(seen) == 3:
                break

    run(filled(FakeCluster(topics={"t": 1, "u": 1}), 3), body, "t")
    assert seen == ["t", "u", "u"]


@pytest.mark.parametrize("brokers_are_up", [True, False])
def test_poll_without_a_group_ends_at_its_deadline(brokers_are_up: bool) -> None:
    cluster = filled(FakeCluster(topics={"t": 1}), 3)
    if not brokers_are_up:
        cluster.stop(1)

    async def body(consumer: Consumer) -> None:
        consumer.subscribe(["t" if not brokers_are_up else "later"])
        assert await consumer.poll(20) == []
        cluster.brokers[1].up = True
        cluster.topics["later"] = 1
        cluster.leaders["later", 0] = 1
        filled(cluster, 3)
        assert len(await read(consumer, 12)) == 12

    run(cluster, body)


def test_missing_topic_is_an_error_without_a_group() -> None:
    async def body(consumer: Consumer) -> None:
        with pytest.raises(CallTimedOut, match="metadata of topic missing"):
            await read(consumer, 1)

    run(FakeCluster(), body, "missing", default_api_timeout_ms=50)


def test_position_survives_a_broker_that_does_not_know_the_topic() -> None:
    """A broker that lags behind says so of a topic that was created a moment ago."""
    cluster = filled(FakeCluster(topics={"t": 1, "u": 1}), 3)

    def lags_behind(broker: Any, request: Any, version: int, proper: Any) -> Any:
        response = proper()
        response.topics = [
            each if each.name == "u" else MetadataResponseTopic(3, each.name) for each in response.topics
        ]
        return response

    async def body(consumer: Consumer) -> None:
        for place in await assigned(consumer):
            consumer.seek(place, 0)
        assert len(await read(consumer, 4)) == 4
        consumer.pause(consumer.assignment())
        cluster.script(ApiKey.METADATA, lags_behind)
        await consumer.cluster.refresh_metadata()
        await consumer.poll(0)
        assert {each.topic for each in consumer.assignment()} == {"u"}
        await consumer.cluster.refresh_metadata()
        await consumer.poll(0)
        consumer.resume(consumer.assignment())
        assert len(await read(consumer, 20)) == 20

    async def assigned(consumer: Consumer) -> set[TopicPartition]:
        while not consumer.assignment():
            await consumer.poll(5)
        return consumer.assignment()

    run(cluster, body, "t", "u", auto_offset_reset="latest")


def test_partition_is_fetched_ahead_once_its_first_record_is_returned() -> None:
    """Its position is that of the current leader: there is nothing to check before the next fetch."""
    cluster = filled(FakeCluster(topics={"t": 1}), 5)

    async def body(consumer: Consumer) -> None:
        consumer.assign([T0])
        assert len(await read(consumer, 1)) == 1
        fetched = cluster.count(ApiKey.FETCH)
        await until(lambda: cluster.count(ApiKey.FETCH) > fetched)
        states = consumer._fetcher.states  # type: ignore[union-attr]
        await until(lambda: len(states[T0].chunks) == 2)
        assert not cluster.count(ApiKey.OFFSET_FOR_LEADER_EPOCH)

    run(cluster, body)
