"""Deduplication: a topic without the repetitions that its writers make, each id once.

An idempotent producer drops its own retries, but not a request that a customer sends twice or a job that runs again.
The worker of a partition remembers the last ids that it wrote, and reads them from its result when it starts. The
result, the ids and the offsets are one transaction, so that a crash neither loses nor repeats an id.
"""

from __future__ import annotations

import asyncio
import logging

from odradek.client import ClientError, Consumer, KafkaError, Producer, TopicPartition, TransactionalProducer
from odradek.testing import Simulation, eventually, search

logger = logging.getLogger(__name__)

IDS_KEPT = 10_000
"""A repetition that comes later than that many other ids is not noticed."""
PAYMENTS = [f"payment {number:02}" for number in range(24)]

Ids = dict[bytes | None, None]


async def written_ids(servers: str, partition: TopicPartition) -> Ids:
    """The last ids of a partition of the result, oldest first."""
    ids: Ids = {}
    async with Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        consumer.seek(partition, max(end - IDS_KEPT, (await consumer.beginning_offsets([partition]))[partition]))
        while await consumer.position(partition) < end:
            ids.update((record.key, None) for record in await consumer.poll(timeout_ms=1_000))
    return ids


async def deduplicate(servers: str, number: int) -> None:
    """Copy a partition of `payments` to the same one of `payments-once`, until an error."""
    async with (
        TransactionalProducer(
            bootstrap_servers=servers, transactional_id=f"once-{number}", transaction_timeout_ms=10_000
        ) as producer,
        Consumer(
            bootstrap_servers=servers, group_id="once", auto_offset_reset="earliest", enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
    ):  # fmt: skip
        # The producer has fenced a former worker by now: its ids do not change any longer.
        ids = await written_ids(servers, TopicPartition("payments-once", number))
        consumer.assign([TopicPartition("payments", number)])
        while True:
            payments = await consumer.poll(timeout_ms=1_000)
            if not payments:
                continue
            async with producer.transaction():
                for payment in payments:
                    if payment.key not in ids:
                        ids[payment.key] = None
                        await producer.send("payments-once", payment.value, key=payment.key, partition=number)
                await producer.send_offsets("once", consumer.positions(), consumer.group_metadata())
            while len(ids) > IDS_KEPT:
                del ids[next(iter(ids))]


async def deduplicate_forever(servers: str, number: int) -> None:
    """Begin again from the committed offsets after each error of the cluster."""
    while True:
        try:
            await deduplicate(servers, number)
        except (ClientError, KafkaError) as error:
            logger.warning("partition %d: %s; again in a second", number, error)
            await asyncio.sleep(1)


async def scenario(sim: Simulation) -> None:
    await sim.topic("payments", partitions=2)
    await sim.topic("payments-once", partitions=2)
    for number in range(2):
        sim.program(f"worker-{number}", lambda number=number: deduplicate_forever(sim.bootstrap_servers, number))  # type: ignore[misc]

    async def pay() -> None:
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            for number, payment in enumerate(PAYMENTS):
                for each in (payment, PAYMENTS[max(0, number - 6)]):  # again some seconds later
                    await producer.send_and_wait("payments", each.encode(), key=each.encode())
                await asyncio.sleep(0.5)

    paying = asyncio.create_task(pay())
    await sim.faults(14, ["kill program", "kill", "reset", "cut", "rebalance"], between_s=0.7)
    await paying

    async def paid() -> list[str]:
        return sorted((record.value or b"").decode() for record in await sim.records("payments-once"))

    async def is_complete() -> bool:
        return len(set(await paid())) == len(PAYMENTS)

    await eventually(is_complete, 120)
    assert await paid() == PAYMENTS


def test_repeated_payments_are_written_once() -> None:
    search(scenario, range(4))
