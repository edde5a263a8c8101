"""Dead letters: a record that cannot be processed moves aside, with its place and its error, and the others continue.

Only errors of the record itself go there. An error of the world around it (a database that is away) is for a retry: it
would send every record to the dead letters.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from odradek.client import Admin, CommitFailed, Consumer, Producer, TopicPartition
from odradek.testing import Simulation, eventually, search

VALUES = [b"not JSON" if number % 7 == 3 else b'{"n": %d}' % number for number in range(28)]


async def process(servers: str, handle: Callable[[Any], None]) -> None:
    """Handle the documents of a topic at least once; what is not a valid document goes to `documents.dead`."""
    async with (
        Producer(bootstrap_servers=servers, linger_ms=50) as producer,  # the dead letters of a poll share a batch
        # No deserializer: the dead letter has the bytes as they came.
        Consumer(
            "documents",
            bootstrap_servers=servers,
            group_id="processors",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        while True:
            records = await consumer.poll(timeout_ms=1_000)
            for record in records:
                try:
                    handle(json.loads(record.value)["n"])
                except (ValueError, KeyError, TypeError) as error:
                    headers = {
                        "topic": record.topic.encode(),
                        "partition": b"%d" % record.partition,
                        "offset": b"%d" % record.offset,
                        "error": repr(error).encode(),
                    }
                    await producer.send("documents.dead", record.value, record.key, [*record.headers, *headers.items()])
            await producer.flush()  # a commit before it could lose a dead letter
            try:
                if records:
                    await consumer.commit()
            except CommitFailed:
                continue


async def scenario(sim: Simulation) -> None:
    handled: set[int] = set()
    await sim.topic("documents", partitions=2)
    await sim.topic("documents.dead")
    sim.program("processor", lambda: process(sim.bootstrap_servers, handled.add))

    async def write() -> None:
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            for number, value in enumerate(VALUES):
                await producer.send_and_wait("documents", value, partition=number % 2)
                await asyncio.sleep(0.5)

    writing = asyncio.create_task(write())
    await sim.faults(15, ["kill program", "kill", "reset", "cut", "rebalance"], between_s=0.7)
    await writing

    async def dead() -> set[tuple[bytes | None, bytes | None]]:
        found = [dict(record.headers) for record in await sim.records("documents.dead")]
        return {(headers["partition"], headers["offset"]) for headers in found}

    async def all_ended() -> bool:
        return len(handled) + len(await dead()) == len(VALUES)

    await eventually(all_ended, 120, 1)
    bad = [number for number, value in enumerate(VALUES) if value == b"not JSON"]
    assert handled == set(range(len(VALUES))) - set(bad)
    assert await dead() == {(b"%d" % (number % 2), b"%d" % (number // 2)) for number in bad}


async def killed_after_its_commit(sim: Simulation) -> None:
    """The processor is killed as soon as the offset of a bad record is committed."""
    await sim.topic("documents")
    await sim.topic("documents.dead")
    processor = sim.program("processor", lambda: process(sim.bootstrap_servers, set[int]().add))
    await sim.produce("documents", b"not JSON")
    async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:

        async def is_committed() -> bool:
            return TopicPartition("documents", 0) in await admin.groups.offsets("processors")

        await eventually(is_committed, 60, 0.001)
    processor.kill()
    assert len(await sim.records("documents.dead")) == 1


async def frozen_processor(sim: Simulation) -> None:
    """A processor stands still at work until another one has its partition; it then continues as a member."""
    handled: list[int] = []
    await sim.topic("documents")

    def handle(number: int) -> None:
        handled.append(number)
        if handled == [1]:
            frozen.pause(55)  # longer than its session, shorter than max_block_ms

    frozen = sim.program("processor-1", lambda: process(sim.bootstrap_servers, handle))
    await sim.topic("documents.dead")
    await sim.produce("documents", b'{"n": 1}', b"not JSON")
    await eventually(lambda: handled == [1], 60)
    second = sim.program("processor-2", lambda: process(sim.bootstrap_servers, handle))
    await eventually(lambda: handled == [1, 1], 60)
    await asyncio.sleep(30)
    second.stop()
    await sim.produce("documents", b'{"n": 2}')
    await eventually(lambda: 2 in handled, 60)
    assert frozen.starts == 1


def test_processor_continues_when_it_lost_its_partition() -> None:
    search(frozen_processor, range(2))


def test_dead_letter_is_safe_before_its_offset_is_committed() -> None:
    search(killed_after_its_commit, range(2))


def test_bad_records_become_dead_letters_and_others_continue() -> None:
    search(scenario, range(6))
