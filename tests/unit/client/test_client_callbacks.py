"""Outcomes beside awaitables: delivery callbacks, interceptors, asynchronous commits."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import CommitFailed, DeliveryTimedOut
from odradek.client.model import ConsumerRecord, OffsetAndMetadata, RecordMetadata
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.unit.client.consumers import filled, read, run
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster

pytestmark = pytest.mark.usefixtures("each_loop")

T0 = TopicPartition("t", 0)
Outcome = tuple[int | None, type[Exception] | None]


def produce(cluster: FakeCluster, body: Callable[[Producer], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(20), Producer(network=cluster, **{**OPTIONS, **options}) as producer:
            await body(producer)

    asyncio.run(main())


class Outcomes:
    def __init__(self) -> None:
        self.seen: list[Outcome] = []

    def __call__(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.seen.append((metadata.offset if metadata else None, type(error) if error else None))


def test_send_and_wait_returns_the_place_of_the_record() -> None:
    async def body(producer: Producer) -> None:
        assert [(await producer.send_and_wait("t", b"x")).offset for _ in range(3)] == [0, 1, 2]

    produce(FakeCluster(), body)


def test_delivery_callback_gets_the_place_of_its_record() -> None:
    outcomes = Outcomes()

    async def body(producer: Producer) -> None:
        for _ in range(3):
            await producer.send("t", b"x", on_delivery=outcomes)
        await producer.flush()
        (await producer.send("t", b"y")).add_callback(outcomes)
        await producer.flush()

    produce(FakeCluster(), body)
    assert outcomes.seen == [(0, None), (1, None), (2, None), (3, None)]


def test_delivery_callback_added_after_the_outcome_is_called_at_once() -> None:
    outcomes = Outcomes()

    async def body(producer: Producer) -> None:
        delivery = await producer.send("t", b"x")
        await delivery
        delivery.add_callback(outcomes)
        assert outcomes.seen == [(0, None)]

    produce(FakeCluster(), body)


def test_failure_that_a_callback_got_is_not_raised_by_flush() -> None:
    outcomes = Outcomes()
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"x")
        cluster.stop(1)
        await producer.send("t", b"y", on_delivery=outcomes)
        await producer.flush()

    produce(cluster, body, linger_ms=0, delivery_timeout_ms=30, request_timeout_ms=20)
    assert outcomes.seen == [(None, DeliveryTimedOut)]


def test_callbacks_follow_records_of_a_split_batch() -> None:
    outcomes = Outcomes()
    cluster = FakeCluster()
    cluster.max_batch_bytes = 400

    async def body(producer: Producer) -> None:
        for n in range(8):
            await producer.send("t", b"%d" % n * 100, on_delivery=outcomes)

    produce(cluster, body, linger_ms=1000)
    assert sorted(outcomes.seen, key=str) == [(n, None) for n in range(8)]


def test_callback_that_raises_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = Outcomes()

    def fails(metadata: RecordMetadata | None, error: Exception | None) -> None:
        raise ZeroDivisionError

    async def body(producer: Producer) -> None:
        await producer.send("t", b"x", on_delivery=fails)
        await producer.send("t", b"x", on_delivery=outcomes)

    produce(FakeCluster(), body, linger_ms=1000)
    assert outcomes.seen == [(1, None)]
    assert any("delivery callback" in each.getMessage() for each in caplog.records)


class Audit:
    def __init__(self) -> None:
        self.consumed: list[int] = []
        self.committed: list[dict[TopicPartition, int]] = []

    def on_consume(self, records: Sequence[ConsumerRecord[Any, Any]]) -> Sequence[ConsumerRecord[Any, Any]]:
        self.consumed += [each.offset for each in records]
        return [each._replace(value=each.value.upper()) for each in records if each.offset % 4 != 3]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append({key: at.offset for key, at in offsets.items()})


@pytest.mark.parametrize("iterate", [False, True])
def test_consumer_interceptor_changes_records_and_sees_commits(iterate: bool) -> None:
    audit = Audit()

    async def body(consumer: Consumer) -> None:
        if iterate:
            records = []
            async for record in consumer:
                records.append(record)
                if len(records) == 15:
                    break
        else:
            records = await read(consumer, 15)
        assert [each.offset for each in records] == [n for n in range(20) if n % 4 != 3]
        await consumer.commit()

    run(filled(FakeCluster()), body, "t", group_id="g", interceptors=[audit], enable_auto_commit=False)
    assert audit.consumed == list(range(20))
    assert len(audit.committed) == 1
    assert audit.committed[0][T0] in (19, 20)


def test_interceptor_that_raises_leaves_records_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    class Fails:
        def on_consume(self, records: Any) -> Any:
            raise ZeroDivisionError

    async def body(consumer: Consumer) -> None:
        assert len(await read(consumer, 20)) == 20

    run(filled(FakeCluster()), body, "t", interceptors=[Fails()])
    assert any(each.levelno == logging.ERROR and "interceptor" in each.getMessage() for each in caplog.records)


def test_asynchronous_commits_arrive_in_order_with_their_callbacks() -> None:
    cluster = filled(FakeCluster())
    done: list[tuple[int, Exception | None]] = []

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        for offset in (1, 2, 3):
            consumer.commit_async({T0: offset}, lambda offsets, error: done.append((offsets[T0].offset, error)))
        task = consumer.commit_async()
        await read(consumer, 4)
        await task
        assert cluster.committed["g"]["t", 0] == 4

    run(cluster, body, "t", group_id="g", enable_auto_commit=False)
    assert done == [(1, None), (2, None), (3, None)]
    assert cluster.count(ApiKey.OFFSET_COMMIT) == 4


def test_asynchronous_commit_reports_its_failure() -> None:
    cluster = filled(FakeCluster())
    failures: list[Exception | None] = []

    def unknown_member(broker: Any, request: Any, version: int, proper: Any) -> Any:
        partitions = [OffsetCommitResponsePartition(0, 25)]
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic("t", partitions=partitions)])

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        cluster.script(ApiKey.OFFSET_COMMIT, unknown_member)
        task = consumer.commit_async(callback=lambda _, error: failures.append(error))
        with pytest.raises(CommitFailed):
            await task

    run(cluster, body, "t", group_id="g", enable_auto_commit=False)
    assert [type(each) for each in failures] == [CommitFailed]
