"""What the suite of our client shares. Its tests run on our broker, and, marked `long`, on Apache Kafka 4.3."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.client import Admin, Consumer, ConsumerRecord, NewTopic, TopicPartition
from odradek.client.admin import raise_first

LIMIT_SECONDS = 90

Record = ConsumerRecord[Any, Any]


def run(body: Coroutine[Any, Any, None], timeout_s: float = LIMIT_SECONDS) -> None:
    async def limited() -> None:
        async with asyncio.timeout(timeout_s):
            await body

    asyncio.run(limited())


def address_of(request: pytest.FixtureRequest, where: str) -> str:
    """HOST:PORT of a broker, `apache` or `odradek`; Apache's is skipped with its reason without Java or Maven."""
    if where == "apache":
        return str(request.getfixturevalue("apache_kafka"))
    return str(request.getfixturevalue("odradek_broker").bootstrap)


def topic_with_leaders(server: str, name: str, partitions: int = 3) -> str:
    """A topic that has its leaders."""

    async def create() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            raise_first(await admin.create_topics([NewTopic(name, partitions, 1)]))
            await admin.cluster.topic(name)

    run(create())
    return name


async def until(condition: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Apache's brokers learn of a change a moment after the controller has confirmed it."""
    while not await condition():
        await asyncio.sleep(0.05)


async def drain(server: str, topic: str, **options: Any) -> list[Record]:
    """Everything that the topic holds now."""
    async with Consumer(bootstrap_servers=server, auto_offset_reset="earliest", **options) as consumer:
        keys = [TopicPartition(topic, each.partition) for each in await consumer.partitions_for(topic)]
        ends = await consumer.end_offsets(keys)
        consumer.assign(keys)
        records: list[Record] = []
        while any([await consumer.position(key) < ends[key] for key in keys]):
            records += await consumer.poll(1000)
        return records
