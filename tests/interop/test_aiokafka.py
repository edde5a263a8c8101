"""aiokafka as it comes from PyPI: it sends old versions of most requests."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

RECORDS = 300


async def consume(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            for batch in (await consumer.getmany(timeout_ms=500, max_records=count - len(records))).values():
                records.extend(batch)
    return records


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


async def produce(bootstrap: str, topic: str, **config: Any) -> list[tuple[int, int]]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, **config) as producer:
        sent = [await producer.send(topic, f"value-{i}".encode(), f"key-{i}".encode()) for i in range(RECORDS)]
        return [(m.partition, m.offset) for m in await asyncio.gather(*sent)]


@pytest.mark.parametrize("config", [{"acks": 1}, {"enable_idempotence": True, "compression_type": "gzip"}])
def test_produce_consume_commit_and_resume(
    bootstrap: str, create_topic: Callable[..., str], unique_name: Callable[[str], str], config: dict[str, Any]
) -> None:
    topic, group = create_topic(), unique_name("group")

    def group_consumer() -> Any:
        return AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )

    async def scenario() -> None:
        offsets = await produce(bootstrap, topic, **config)
        async with group_consumer() as first:
            head = await consume(first, 100)
            await first.commit({TopicPartition(topic, r.partition): r.offset + 1 for r in head})
        async with group_consumer() as second:
            tail = await consume(second, RECORDS - 100)
        assert sorted(r.value for r in head + tail) == sorted(f"value-{i}".encode() for i in range(RECORDS))
        assert sorted((r.partition, r.offset) for r in head + tail) == sorted(offsets)

    asyncio.run(scenario())


@pytest.mark.parametrize("assignor", [RoundRobinPartitionAssignor, StickyPartitionAssignor])
def test_members_come_and_go(
    bootstrap: str, create_topic: Callable[..., str], unique_name: Callable[[str], str], assignor: Any
) -> None:
    async def scenario() -> None:
        topic, group = create_topic(partitions=4), unique_name("group")
        config = {
            "bootstrap_servers": bootstrap,
            "group_id": group,
            "partition_assignment_strategy": [assignor],
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 1000,
        }
        async with AIOKafkaConsumer(topic, **config) as first:
            await until(lambda: len(first.assignment()) == 4)
            async with AIOKafkaConsumer(topic, **config) as second:
                await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
                assert not first.assignment() & second.assignment()
            await until(lambda: len(first.assignment()) == 4)
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            assert (group, "consumer") in await admin.list_consumer_groups()
            (answer,) = await admin.describe_consumer_groups([group])
            assert answer.groups[0][2] == "Empty"
            assert (await admin.describe_topics([topic]))[0]["topic"] == topic
        finally:
            await admin.close()

    asyncio.run(scenario())


def test_records_and_offsets_in_transactions(
    bootstrap: str, create_topic: Callable[..., str], unique_name: Callable[[str], str]
) -> None:
    async def scenario() -> None:
        source, target, group = create_topic(partitions=1), create_topic(partitions=1), unique_name("group")
        place = TopicPartition(source, 0)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=unique_name("tx")) as producer:
            for number, commits in enumerate((True, False, True)):
                await producer.begin_transaction()
                await producer.send_and_wait(target, f"{commits}".encode())
                await producer.send_offsets_to_transaction({place: number + 1}, group)
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        reader: dict[str, Any] = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(target, isolation_level="read_committed", **reader) as consumer:
            assert [record.value for record in await consume(consumer, 2)] == [b"True", b"True"]
        async with AIOKafkaConsumer(target, **reader) as consumer:
            assert [record.value for record in await consume(consumer, 3)] == [b"True", b"False", b"True"]
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group) as consumer:
            consumer.assign([place])
            assert await consumer.committed(place) == 3

    asyncio.run(scenario())
