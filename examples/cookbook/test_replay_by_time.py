"""Replay by time: read what was written between two moments, beside the group that reads the topic as ever.

The broker finds the first record of each partition at or after a time. The reader belongs to no group: it moves no
committed offset. To move a group itself, stop it and commit the offsets found, or use `odradek groups`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

from odradek.client import Consumer, ConsumerRecord, Producer, TopicPartition
from odradek.testing import BlockingBroker

Event = ConsumerRecord[bytes | None, bytes]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def in_ms(moment: datetime) -> int:
    """Kafka's timestamps."""
    return int(moment.timestamp() * 1000)


async def replay(servers: str, topic: str, begin: datetime, end: datetime) -> AsyncIterator[Event]:
    """The records whose timestamps are in [begin, end), partition by partition in order, up to the topic's end now.

    Producers may write timestamps out of order: records are sought from the first one at or after `begin`, and each is
    compared with both limits.
    """
    async with Consumer(bootstrap_servers=servers) as consumer:
        partitions = [TopicPartition(topic, found.partition) for found in await consumer.partitions_for(topic)]
        begins = await consumer.offsets_for_times(dict.fromkeys(partitions, in_ms(begin)))
        ends = await consumer.end_offsets(partitions)
        places = {partition: found.offset for partition, found in begins.items() if found is not None}
        for partition, place in places.items():
            consumer.assign([partition])
            consumer.seek(partition, place)
            while await consumer.position(partition) < ends[partition]:
                for event in await consumer.poll(timeout_ms=1_000):
                    if event.offset < ends[partition] and in_ms(begin) <= event.timestamp < in_ms(end):
                        yield event


def test_replay_returns_the_records_between_two_moments(kafka_broker: BlockingBroker) -> None:
    topic = kafka_broker.topic(partitions=2)

    async def main() -> list[str]:
        async with Producer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
            for minute in range(60):
                at = in_ms(NOON + timedelta(minutes=minute))
                await producer.send(topic, b"%d" % minute, partition=minute % 2, timestamp_ms=at)
        span = (NOON + timedelta(minutes=20), NOON + timedelta(minutes=25))
        return [event.value.decode() async for event in replay(kafka_broker.bootstrap_servers, topic, *span)]

    assert sorted(asyncio.run(main())) == ["20", "21", "22", "23", "24"]


def test_replay_is_empty_when_nothing_was_written_since(kafka_broker: BlockingBroker) -> None:
    topic = kafka_broker.topic(partitions=2)

    async def main() -> list[Event]:
        async with Producer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
            await producer.send(topic, b"old", timestamp_ms=in_ms(NOON))
        span = (NOON + timedelta(hours=1), NOON + timedelta(hours=2))
        return [event async for event in replay(kafka_broker.bootstrap_servers, topic, *span)]

    assert asyncio.run(main()) == []
