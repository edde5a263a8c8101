"""Retry topics: a record that fails is tried again after 5 s, then after 60 s, and ends among the dead letters.

Other records do not wait for it: it moves to the topic of the next delay, with the time when it is due in a header. All
records of a retry topic wait equally long, so that the first one of a partition is due first. Order by key is lost.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from odradek.client import CommitFailed, Consumer, ConsumerRecord, Producer
from odradek.testing import Simulation, eventually, search

Payment = ConsumerRecord[bytes | None, bytes]
STEPS = ((0.0, "payments"), (5.0, "payments.retry-5s"), (60.0, "payments.retry-60s"))
DEAD = "payments.dead"
FAILURES = {"fine": 0, "hiccup": 1, "outage": 2, "hopeless": 9}
"""How often each payment of the test fails."""


async def run_step(
    servers: str, step: int, handle: Callable[[Payment], Awaitable[None]], clock: Callable[[], float] = time.time
) -> None:
    """Handle the records of one step; start one such worker, or several, for each step. `clock` is in seconds."""
    topic = STEPS[step][1]
    delay, next_topic = STEPS[step + 1] if step + 1 < len(STEPS) else (0.0, DEAD)
    async with (
        Producer(bootstrap_servers=servers) as producer,
        Consumer(
            topic,
            bootstrap_servers=servers,
            group_id=f"{topic}-workers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        while True:
            for record in await consumer.poll(timeout_ms=1_000, max_records=1):
                await wait_until(consumer, float(dict(record.headers).get("due") or 0), clock)
                try:
                    await handle(record)
                except Exception as error:  # noqa: BLE001 - the application's error concerns this record only
                    headers = [pair for pair in record.headers if pair[0] not in ("due", "error")]
                    headers += [("due", str(clock() + delay).encode()), ("error", repr(error).encode())]
                    await producer.send_and_wait(next_topic, record.value, record.key, headers)
                try:
                    await consumer.commit()
                except CommitFailed:
                    continue


async def wait_until(consumer: Consumer[bytes | None, bytes], due: float, clock: Callable[[], float]) -> None:
    """Wait without leaving the group: poll with all partitions paused."""
    while (left := due - clock()) > 0:
        consumer.pause(consumer.assignment())
        early = await consumer.poll(timeout_ms=min(left, 1.0) * 1000)
        for record in reversed(early):  # of partitions that a rebalance has just brought: read them again later
            consumer.seek(record.topic_partition, record.offset)
    consumer.resume(consumer.paused())


async def scenario(sim: Simulation) -> None:
    tries: dict[str, list[float]] = {payment: [] for payment in FAILURES}
    paid: set[str] = set()

    async def pay(record: Payment) -> None:
        payment = record.value.decode()
        tries[payment].append(sim.now)
        step = [topic for _, topic in STEPS].index(record.topic)
        if step < FAILURES[payment]:
            raise RuntimeError(f"the bank rejects {payment}")
        paid.add(payment)

    for topic in (*(topic for _, topic in STEPS), DEAD):
        await sim.topic(topic, partitions=2)
    for step in range(len(STEPS)):
        name = f"step-{step}"
        sim.program(name, lambda step=step: run_step(sim.bootstrap_servers, step, pay, lambda: sim.now))  # type: ignore[misc]
    await sim.produce("payments", *FAILURES)
    await sim.faults(20, ["kill program", "kill", "reset", "cut", "rebalance"])

    async def dead() -> set[str]:
        return {(record.value or b"").decode() for record in await sim.records(DEAD)}

    async def all_ended() -> bool:
        return len(paid) == 3 and bool(await dead())

    await eventually(all_ended, 300, 1)
    assert paid == {"fine", "hiccup", "outage"}
    assert await dead() == {"hopeless"}
    assert tries["hiccup"][-1] - tries["hiccup"][0] >= 5
    assert tries["outage"][-1] - tries["outage"][0] >= 65


def test_payments_are_retried_with_delays_then_given_up() -> None:
    search(scenario, range(6))
