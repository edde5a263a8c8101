"""A consumer of the scripted cluster, and logs for it to read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from odradek.client.consumer.consumer import Consumer
from odradek.client.model import ConsumerRecord
from odradek.records.builder import encode_batch
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster

Body = Callable[[Consumer], Coroutine[Any, Any, None]]


def filled(cluster: FakeCluster, batches: int = 5, per_batch: int = 4) -> FakeCluster:
    for topic, partition in list(cluster.leaders):
        for batch in range(batches):
            records = [
                (1000 + batch, b"k", b"%d-%d" % (partition, batch * per_batch + n), ()) for n in range(per_batch)
            ]
            leader = cluster.brokers[cluster.leaders[topic, partition]]
            cluster.append(leader, topic, partition, bytes(encode_batch(records)))
    return cluster


def run(cluster: FakeCluster, body: Body, *topics: str, **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            given = {**OPTIONS, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 5, **options}
            async with Consumer(*topics, network=cluster, **given) as consumer:  # type: ignore[arg-type]
                await body(consumer)

    asyncio.run(main())


async def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        records += await consumer.poll(1000, count - len(records))
    return records


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.001)
