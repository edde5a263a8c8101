"""Our share consumer against Apache Kafka 4.3 (KIP-932), and against our broker, which has no share groups."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.client import Admin, NewTopic, Producer, TopicPartition
from odradek.client.admin import AlterConfig, ConfigResource, ConfigResourceType, raise_first
from odradek.client.errors import DeserializationError, IllegalState, UnsupportedByBroker
from odradek.client.share.acknowledgements import AcknowledgeType
from odradek.client.share.blocking_share_consumer import BlockingShareConsumer
from odradek.client.share.records import ShareRecord
from odradek.client.share.share_consumer import ShareConsumer
from tests.interop.client_suite import run


@pytest.fixture
def topic(apache_kafka: str, unique_name: Callable[[str], str]) -> str:
    """A topic of two partitions with 100 records; the group of its name reads it from the beginning."""
    name = unique_name("share")

    async def create() -> None:
        async with Admin(bootstrap_servers=apache_kafka) as admin:
            raise_first(await admin.create_topics([NewTopic(name, 2, 1)]))
            await admin.cluster.topic(name)
            group = ConfigResource(ConfigResourceType.GROUP, name)
            raise_first(await admin.alter_configs({group: [AlterConfig("share.auto.offset.reset", "earliest")]}))
        async with Producer(bootstrap_servers=apache_kafka) as producer:
            for number in range(100):
                await producer.send(name, b"%d" % number, partition=number % 2)

    run(create())
    return name


@asynccontextmanager
async def share_consumer(server: str, topic: str, **options: Any) -> AsyncIterator[ShareConsumer[Any, Any]]:
    consumer: ShareConsumer[Any, Any] = ShareConsumer(topic, bootstrap_servers=server, group_id=topic, **options)
    async with consumer:
        yield consumer


async def read(consumer: ShareConsumer[Any, Any], count: int) -> list[ShareRecord[Any, Any]]:
    """At least so many records, over as many polls as that takes."""
    records: list[ShareRecord[Any, Any]] = []
    while len(records) < count:
        records += await consumer.poll(1000)
    return records


def values(records: list[ShareRecord[Any, Any]]) -> list[int]:
    return sorted(int(each.value) for each in records)


def test_records_are_read_once_and_accepted_implicitly(apache_kafka: str, topic: str) -> None:
    async def body() -> None:
        async with share_consumer(apache_kafka, topic) as consumer:
            records = await read(consumer, 100)
            assert values(records) == list(range(100))
            assert {each.delivery_count for each in records} == {1}
            assert set((await consumer.commit()).values()) == {None}
            metrics = consumer.metrics()
            assert metrics.value("records-consumed-total") == metrics.value("acknowledgements-send-total") == 100
            assert metrics.value("rebalance-total") >= 1 <= metrics.value("heartbeat-total")
            assert consumer.acquisition_lock_timeout_ms == 30_000
        async with share_consumer(apache_kafka, topic) as consumer:
            assert await consumer.poll(3000) == []

    run(body())


def test_records_that_were_not_accepted_are_released_by_close(apache_kafka: str, topic: str) -> None:
    async def body() -> None:
        async with share_consumer(apache_kafka, topic) as consumer:
            await read(consumer, 100)
        async with share_consumer(apache_kafka, topic) as consumer:
            records = await read(consumer, 1)
            assert {each.delivery_count for each in records} == {2}

    run(body())


def test_released_records_come_again_and_rejected_ones_do_not(apache_kafka: str, topic: str) -> None:
    async def body() -> None:
        async with share_consumer(apache_kafka, topic, share_acknowledgement_mode="explicit") as consumer:
            seen: Counter[int] = Counter()
            done: set[int] = set()
            while len(done) < 100:
                for record in await consumer.poll(1000):
                    number = int(record.value)
                    seen[number] += 1
                    assert record.delivery_count == seen[number]
                    if number % 10 == 3 and seen[number] == 1:
                        consumer.acknowledge(record, AcknowledgeType.RELEASE)
                        continue
                    kind = AcknowledgeType.REJECT if number % 10 == 7 else AcknowledgeType.ACCEPT
                    consumer.acknowledge(record, kind)
                    done.add(number)
            assert set((await consumer.commit()).values()) <= {None}
            assert {number for number, times in seen.items() if times == 2} == set(range(3, 100, 10))
        async with share_consumer(apache_kafka, topic) as consumer:
            assert await consumer.poll(3000) == []

    run(body())


def test_polling_with_unacknowledged_records_is_an_error(apache_kafka: str, topic: str) -> None:
    async def body() -> None:
        async with share_consumer(apache_kafka, topic, share_acknowledgement_mode="explicit") as consumer:
            await read(consumer, 1)
            with pytest.raises(IllegalState, match="acknowledge every record"):
                await consumer.poll()

    run(body())


def test_renewed_records_stay_in_hand(apache_kafka: str, topic: str) -> None:
    async def body() -> None:
        async with share_consumer(apache_kafka, topic, share_acknowledgement_mode="explicit") as consumer:
            records = await read(consumer, 1)
            for record in records:
                consumer.acknowledge(record, AcknowledgeType.RENEW)
            assert set((await consumer.commit()).values()) == {None}
            for record in records:
                consumer.acknowledge(record)
            assert set((await consumer.commit()).values()) == {None}
            with pytest.raises(IllegalState, match="is not acquired"):
                consumer.acknowledge(records[0])

    run(body())


def test_members_share_the_records_of_a_partition(apache_kafka: str, topic: str) -> None:
    """Both members read, neither reads what the other acquired."""

    async def body() -> None:
        options = {"share_acquire_mode": "record_limit", "max_poll_records": 5}
        async with (
            share_consumer(apache_kafka, topic, **options) as first,
            share_consumer(apache_kafka, topic, **options) as second,
        ):
            seen: list[ShareRecord[Any, Any]] = []

            async def poll_both(timeout_ms: float) -> None:
                for records in await asyncio.gather(first.poll(timeout_ms), second.poll(timeout_ms)):
                    assert len(records) <= 5
                    seen.extend(records)

            # The member that joins first may read before the other has an assignment: its records count as well.
            while not (first.assignment() and second.assignment()):
                await poll_both(50)
            while len({each[:3] for each in seen}) < 100:
                await poll_both(500)
            await asyncio.gather(first.commit(), second.commit())
        assert {each.delivery_count for each in seen} == {1}

    run(body())


def test_iteration_accepts_each_record_with_the_next(apache_kafka: str, topic: str) -> None:
    async def body() -> None:
        seen = []
        async with share_consumer(apache_kafka, topic) as consumer:
            async for record in consumer:
                seen.append(int(record.value))
                if len(seen) == 40:
                    break
            assert set((await consumer.commit()).values()) == {None}
        async with share_consumer(apache_kafka, topic) as consumer:
            rest = await read(consumer, 60)
            assert sorted(seen + values(rest)) == list(range(100))

    run(body())


def test_records_of_a_lost_connection_are_delivered_again(apache_kafka: str, topic: str) -> None:
    async def body() -> None:
        async with share_consumer(apache_kafka, topic, share_acknowledgement_mode="explicit") as consumer:
            records = await read(consumer, 1)
            for record in records:
                consumer.acknowledge(record)
            assert consumer._cluster is not None
            (node_id,) = consumer._cluster.metadata.brokers
            connection = consumer._cluster.connections.opened(node_id)
            assert connection is not None
            connection.close()
            assert None not in (await consumer.commit()).values()
            again = await read(consumer, 1)
            while not {each[:3] for each in again} >= {each[:3] for each in records}:
                for record in again:
                    with contextlib.suppress(IllegalState):  # acknowledged in the round before
                        consumer.acknowledge(record)
                again += await consumer.poll(1000)
            counts = {each[:3]: each.delivery_count for each in again}
            assert {counts[each[:3]] for each in records} == {2}

    run(body())


def test_callback_learns_of_acknowledged_offsets(apache_kafka: str, topic: str) -> None:
    told: dict[TopicPartition, set[int]] = {}

    def note(partition: TopicPartition, offsets: frozenset[int], error: Exception | None) -> None:
        assert error is None
        told.setdefault(partition, set()).update(offsets)

    async def body() -> None:
        async with share_consumer(apache_kafka, topic, on_acknowledgement=note) as consumer:
            await read(consumer, 100)
            consumer.commit_async()
            while sum(map(len, told.values())) < 100:
                await consumer.poll(200)
        assert told == {TopicPartition(topic, each): set(range(50)) for each in (0, 1)}

    run(body())


def test_a_record_that_cannot_be_read_is_released(apache_kafka: str, topic: str) -> None:
    def number(data: bytes) -> int:
        if data == b"11":
            raise ValueError("not that one")
        return int(data)

    async def body() -> None:
        failed: list[int] = []
        seen: set[int] = set()
        async with share_consumer(apache_kafka, topic, value_deserializer=number) as consumer:
            while len(seen) < 99 or len(failed) < 2:
                try:
                    seen |= {each.value for each in await consumer.poll(1000)}
                except DeserializationError as error:
                    failed.append(error.offset)
        assert seen == set(range(100)) - {11}
        assert set(failed) == {5}

    run(body())


def test_blocking_share_consumer_reads_and_commits(apache_kafka: str, topic: str) -> None:
    with BlockingShareConsumer(topic, bootstrap_servers=apache_kafka, group_id=topic) as consumer:
        seen = []
        for record in consumer:
            seen.append(int(record.value))
            if len(seen) == 100:
                break
        assert sorted(seen) == list(range(100))
        assert set(consumer.commit().values()) == {None}


def test_a_broker_without_share_groups_is_a_clear_error(odradek_broker: Any) -> None:
    async def body() -> None:
        async with share_consumer(odradek_broker.bootstrap, "any") as consumer:
            with pytest.raises(UnsupportedByBroker, match="UNSUPPORTED_VERSION: this cluster has no share groups"):
                await read(consumer, 1)

    run(body())
