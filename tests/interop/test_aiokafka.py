"""aiokafka as it comes from PyPI: it sends old versions of most requests."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

RECORDS = 300


async def consume(consumer: Any, count: int) -> list[Any]:
    records: list[Any] = []
    async with asyncio.timeout(30):
        while len(records) < count:
            for batch in (await consumer.getmany(timeout_ms=500, max_records=count - len(records))).values():
                records.extend(batch)
    return records


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
