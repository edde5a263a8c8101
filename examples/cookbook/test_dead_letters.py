"""Dead letters: a record that cannot be processed moves aside, with its place and its error, and the others continue.

Only errors of the record itself go there. An error of the world around it (a database that is away) is for a retry: it
would send every record to the dead letters.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from odradek.client import CommitFailed, Consumer, Producer
from odradek.testing import Simulation, eventually, search

VALUES = [b"not JSON" if number % 7 == 3 else b'{"n": %d}' % number for number in range(28)]


async def process(servers: str, handle: Callable[[Any], None]) -> None:
    """Handle the documents of a topic at least once; what is not a valid document goes to `documents.dead`."""
    async with (
        Producer(bootstrap_servers=servers) as producer,
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
    await sim.faults(15, ["kill program", "kill", "reset", "cut"], between_s=0.7)
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


def test_bad_records_become_dead_letters_and_others_continue() -> None:
    search(scenario, range(6))
