"""Read, process and write exactly once: results and consumed offsets are committed in one transaction.

Readers of the results use `isolation_level="read_committed"`. Each process has a `transactional_id` of its own, the
same one after each start, so that a new process aborts the transaction that the previous one left open.
"""

from __future__ import annotations

import asyncio
import logging

from odradek.client import ClientError, Consumer, KafkaError, Producer, TransactionalProducer
from odradek.testing import Simulation, eventually, search

logger = logging.getLogger(__name__)

WORDS = [f"word {number:02}" for number in range(40)]


async def copy(servers: str, transactional_id: str) -> None:
    """Copy `words` to `loud`, until an error: records and offsets of the last transaction are then aborted."""
    async with (
        Consumer(
            "words",
            bootstrap_servers=servers,
            group_id="copiers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        TransactionalProducer(
            bootstrap_servers=servers, transactional_id=transactional_id, transaction_timeout_ms=10_000
        ) as producer,
    ):
        while True:
            records = await consumer.poll(timeout_ms=1_000)
            if not records:
                continue
            async with producer.transaction():
                for record in records:
                    await producer.send("loud", record.value.upper(), key=record.key)
                # With the member's generation, the coordinator rejects a member that lost its partitions (KIP-447).
                await producer.send_offsets("copiers", consumer.positions(), consumer.group_metadata())


async def copy_forever(servers: str, transactional_id: str) -> None:
    """Begin again from the committed offsets after each error of the cluster; errors of the program end it."""
    while True:
        try:
            await copy(servers, transactional_id)
        except (ClientError, KafkaError) as error:
            logger.warning("transaction failed: %s; a new producer and a new member begin in a second", error)
            await asyncio.sleep(1)


async def scenario(sim: Simulation) -> None:
    await sim.topic("words", partitions=3)
    await sim.topic("loud")
    for name in ("copier-1", "copier-2"):
        sim.program(name, lambda name=name: copy_forever(sim.bootstrap_servers, name))  # type: ignore[misc]

    async def say_words() -> None:
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            for word in WORDS:
                await producer.send_and_wait("words", word.encode(), key=word.encode())
                await asyncio.sleep(0.5)

    saying = asyncio.create_task(say_words())
    await sim.faults(20, ["kill program", "pause program", "kill", "reset", "cut"], between_s=0.7)
    await saying

    async def loud() -> list[str]:
        return sorted((record.value or b"").decode() for record in await sim.records("loud"))

    async def all_are_loud() -> bool:
        return len(await loud()) >= len(WORDS)

    await eventually(all_are_loud, 120, 1)
    assert await loud() == [word.upper() for word in WORDS]


def test_each_word_is_copied_exactly_once() -> None:
    search(scenario, range(6))
