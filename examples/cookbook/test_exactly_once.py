"""Read, process and write exactly once: results and consumed offsets are committed in one transaction.

Readers of the results use `isolation_level="read_committed"`. Each process has a `transactional_id` of its own, the
same one after each start, so that a new process aborts the transaction that the previous one left open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from odradek.client import ClientError, Consumer, KafkaError, Producer, TransactionalProducer
from odradek.testing import Simulation, eventually, search

logger = logging.getLogger(__name__)

Work: TypeAlias = Callable[[bytes], Awaitable[bytes]]

WORDS = [f"word {number:02}" for number in range(40)]


async def shout(word: bytes) -> bytes:
    """The work, before the transaction: a transaction in which nothing slow happens is over before it times out."""
    return word.upper()


async def copy(servers: str, transactional_id: str, work: Work = shout) -> None:
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
            results = [(record.key, await work(record.value)) for record in records]
            async with producer.transaction():
                for key, result in results:
                    await producer.send("loud", result, key=key)
                # With the member's generation, the coordinator rejects a member that lost its partitions (KIP-447).
                await producer.send_offsets("copiers", consumer.positions(), consumer.group_metadata())


async def copy_forever(servers: str, transactional_id: str, work: Work = shout) -> None:
    """Begin again from the committed offsets after each error of the cluster; errors of the program end it."""
    while True:
        try:
            await copy(servers, transactional_id, work)
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
    await sim.faults(20, ["kill program", "pause program", "kill", "reset", "cut", "rebalance"], between_s=0.7)
    await saying

    async def loud() -> list[str]:
        return sorted((record.value or b"").decode() for record in await sim.records("loud"))

    async def all_are_loud() -> bool:
        return len(await loud()) >= len(WORDS)

    await eventually(all_are_loud, 120, 1)
    assert await loud() == [word.upper() for word in WORDS]


async def frozen_copier(sim: Simulation) -> None:
    """A copier stands still between reading and its transaction, until another one has its partitions."""
    await sim.topic("words", partitions=2)
    await sim.topic("loud")

    async def shout_after_a_pause(word: bytes) -> bytes:
        if word == b"pause":
            frozen.pause(90)
            await asyncio.sleep(0)
        return await shout(word)

    frozen = sim.program("copier-1", lambda: copy_forever(sim.bootstrap_servers, "copier-1", shout_after_a_pause))
    await sim.produce("words", "pause")
    await asyncio.sleep(5)
    sim.program("copier-2", lambda: copy_forever(sim.bootstrap_servers, "copier-2"))
    await sim.produce("words", *WORDS)
    await asyncio.sleep(200)
    loud = sorted((record.value or b"").decode() for record in await sim.records("loud"))
    assert loud == ["PAUSE", *(word.upper() for word in WORDS)]


def test_copier_without_its_partitions_writes_nothing() -> None:
    search(frozen_copier, range(2))


def test_each_word_is_copied_exactly_once() -> None:
    search(scenario, range(6))
