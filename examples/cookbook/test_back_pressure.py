"""Back pressure: a partition whose work piles up is paused until half of it is done; the others continue.

The consumer polls all the time, so that it stays in its group however long the work takes, and memory stays bounded:
each partition has a queue, and fetches of a full one wait at the broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.client import BlockingProducer, Consumer, ConsumerRecord, TopicPartition
from odradek.testing import BlockingBroker, eventually

Event = ConsumerRecord[bytes | None, bytes]
FULL = 20
"""Records of a partition that may wait, until it is paused."""


class Lane:
    """The queue and the worker of one partition."""

    def __init__(self, work: Callable[[Event], Awaitable[None]]) -> None:
        self.queue: asyncio.Queue[Event] = asyncio.Queue()
        self.worker = asyncio.create_task(self._run(work))

    async def _run(self, work: Callable[[Event], Awaitable[None]]) -> None:
        while True:
            await work(await self.queue.get())
            self.queue.task_done()


async def consume(consumer: Consumer[bytes | None, bytes], work: Callable[[Event], Awaitable[None]]) -> None:
    """Work on records of all partitions at a time, in order within each, until cancelled or a worker fails."""
    lanes: dict[TopicPartition, Lane] = {}
    try:
        while True:
            for event in await consumer.poll(timeout_ms=100, max_records=FULL):
                lane = lanes.get(event.topic_partition)
                if lane is None:
                    lane = lanes[event.topic_partition] = Lane(work)
                lane.queue.put_nowait(event)
            for lane in lanes.values():
                if lane.worker.done():
                    lane.worker.result()
            consumer.pause(each for each, lane in lanes.items() if lane.queue.qsize() >= FULL)
            consumer.resume(each for each in consumer.paused() if lanes[each].queue.qsize() <= FULL // 2)
    finally:
        for lane in lanes.values():
            lane.worker.cancel()
        await asyncio.gather(*(lane.worker for lane in lanes.values()), return_exceptions=True)


def test_slow_partition_is_paused_and_the_other_one_continues(kafka_broker: BlockingBroker) -> None:
    topic = kafka_broker.topic(partitions=2)
    with BlockingProducer(bootstrap_servers=kafka_broker.bootstrap_servers) as producer:
        for number in range(200):
            producer.send(topic, b"%d" % number, partition=number % 2)
        producer.flush()
    done: dict[int, list[int]] = {0: [], 1: []}

    async def main() -> None:
        gate, quick, all_done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work(event: Event) -> None:
            if event.partition == 0:
                await gate.wait()
            done[event.partition].append(int(event.value))
            if len(done[1]) == 100:
                quick.set()
            if len(done[0]) == len(done[1]) == 100:
                all_done.set()

        async with Consumer(bootstrap_servers=kafka_broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
            consuming = asyncio.create_task(consume(consumer, work))
            await asyncio.wait((consuming, asyncio.create_task(quick.wait())), return_when=asyncio.FIRST_COMPLETED)
            await eventually(lambda: consumer.paused() == {TopicPartition(topic, 0)}, 60)
            assert await consumer.position(TopicPartition(topic, 0)) < 100
            gate.set()
            await asyncio.wait((consuming, asyncio.create_task(all_done.wait())), return_when=asyncio.FIRST_COMPLETED)
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)

    asyncio.run(main())
    assert done == {partition: list(range(partition, 200, 2)) for partition in done}
