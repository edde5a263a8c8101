"""Failures that repeat are logged at once and then less often; calls that can never succeed raise."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import IllegalState
from odradek.client.network.failure_log import FailureLog
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from tests.unit.client.consumers import filled, read, run, until
from tests.unit.client.fake_cluster import OPTIONS, FakeBroker, FakeCluster


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno >= logging.WARNING and each.name.startswith("odradek.client.")
    ]


async def _iterate(consumer: Consumer) -> None:
    async for _ in consumer:
        pass


@pytest.mark.parametrize("group", [None, "g"])
def test_async_for_on_a_dead_address_warns_at_once(group: str | None, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()
    cluster.stop(1)

    async def main() -> None:
        async with Consumer("t", network=cluster, group_id=group, **OPTIONS) as consumer:
            reading = asyncio.create_task(_iterate(consumer))
            await until(lambda: warnings(caplog))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    asyncio.run(main())
    assert "connection to broker at fake:1" in warnings(caplog)[0]
    assert "refused" in warnings(caplog)[0]
    assert "retrying in" in warnings(caplog)[0]


def test_log_records_carry_the_client_as_a_field(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()
    cluster.stop(1)

    async def main() -> None:
        async with Producer(network=cluster, client_id="orders", max_block_ms=50, **OPTIONS) as producer:
            with pytest.raises(TimeoutError):
                await producer.send("t", b"x")

    asyncio.run(main())
    assert {getattr(each, "client_id", None) for each in caplog.records if each.levelno >= logging.WARNING} == {
        "orders"
    }


@pytest.mark.parametrize("group", [None, "g"])
def test_reading_without_a_subscription_raises(group: str | None) -> None:
    async def body(consumer: Consumer) -> None:
        with pytest.raises(IllegalState, match="no subscription"):
            await consumer.poll(10)
        with pytest.raises(IllegalState, match="no subscription"):
            await _iterate(consumer)

    run(FakeCluster(), body, group_id=group)


@pytest.mark.parametrize("group", [None, "g"])
def test_missing_topic_warns_and_is_read_once_it_exists(group: str | None, caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()

    async def body(consumer: Consumer) -> None:
        reading = asyncio.create_task(read(consumer, 4))
        await until(lambda: any("later" in each for each in warnings(caplog)))
        cluster.topics["later"] = 1
        cluster.leaders["later", 0] = 1
        filled(cluster, 1)
        assert {each.topic for each in await reading} == {"later"}

    run(cluster, body, "later", group_id=group)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in next(each for each in warnings(caplog) if "later" in each)


def test_missing_topic_warns_with_the_first_answer(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()

    async def body(consumer: Consumer) -> None:
        reading = asyncio.create_task(_iterate(consumer))
        await until(lambda: warnings(caplog))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)

    run(cluster, body, "nope", allow_auto_create_topics=False)
    assert warnings(caplog)[:1] == ["metadata of topic nope failed: UNKNOWN_TOPIC_OR_PARTITION; retrying"]


def test_missing_topic_raises_after_the_api_timeout_without_a_group() -> None:
    async def body(consumer: Consumer) -> None:
        with pytest.raises(TimeoutError, match=r"topic nope.*UNKNOWN_TOPIC_OR_PARTITION"):
            await _iterate(consumer)

    run(FakeCluster(), body, "nope", default_api_timeout_ms=50)


@pytest.mark.parametrize("group", [None, "g"])
def test_topic_without_permission_raises(group: str | None) -> None:
    cluster = FakeCluster()

    def forbid(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
        topics = [MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, each.name) for each in request.topics]
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "fake", 1)], cluster_id="fake", topics=topics)

    cluster.script(ApiKey.METADATA, *[forbid] * 50)

    async def body(consumer: Consumer) -> None:
        with pytest.raises(KafkaError) as caught:
            await _iterate(consumer)
        assert caught.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    run(cluster, body, "secret", group_id=group)


def test_repeated_failure_is_logged_at_growing_intervals(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = FailureLog(logging.getLogger("odradek.client.test"), lambda: now, {})
    times = []
    while now < 100:
        before = len(warnings(caplog))
        log.failed("connection", "refused", "retrying")
        if len(warnings(caplog)) > before:
            times.append(now)
        now += 0.5
    assert times == [0, 1, 3, 7, 15, 31, 63]
    assert warnings(caplog)[-1] == "connection failed (127 attempts in 63.0 s): refused; retrying"


def test_failure_that_passes_quickly_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = FailureLog(logging.getLogger("odradek.client.test"), lambda: now, {})
    log.failed("fetch", "moved", "retrying", quiet_s=1)
    now = 0.9
    log.failed("fetch", "moved", "retrying", quiet_s=1)
    log.succeeded("fetch")
    now = 5
    log.failed("fetch", "moved", "retrying", quiet_s=1)
    assert not warnings(caplog)
    now = 6
    log.failed("fetch", "moved", "retrying", quiet_s=1)
    assert len(warnings(caplog)) == 1


def test_lost_records_are_logged_with_their_partition(caplog: pytest.LogCaptureFixture) -> None:
    cluster = FakeCluster()

    async def main() -> None:
        async with Producer(
            network=cluster, linger_ms=0, delivery_timeout_ms=30, request_timeout_ms=20, **OPTIONS
        ) as p:
            await p.send_and_wait("t", b"x")
            cluster.stop(1)
            with pytest.raises(TimeoutError):
                await p.send_and_wait("t", b"y")

    asyncio.run(main())
    assert any("producing to t-0" in each and "1 records are lost" in each for each in warnings(caplog))


def test_unsubscribed_consumer_raises_after_it_left_its_group() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        await read(consumer, 4)
        consumer.unsubscribe()
        await consumer.poll()
        assert cluster.count(ApiKey.LEAVE_GROUP) == 1
        with pytest.raises(IllegalState):
            await consumer.poll()
        consumer.assign([TopicPartition("t", 0)])
        await consumer.poll()

    run(cluster, body, "t", group_id="g")
