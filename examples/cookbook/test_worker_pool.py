"""A pool of workers that does each job at least once, with as many jobs at a time as you allow.

The pool polls a batch, works on several keys at a time and on the jobs of one key in order, and commits when the batch
is done. No job is lost: the committed offset only covers finished jobs. After a crash, a batch is repeated.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable

from odradek.client import CommitFailed, Consumer, ConsumerRecord, Producer
from odradek.testing import Simulation, eventually, search

Job = ConsumerRecord[bytes | None, bytes]
JOBS = [(f"customer {number % 4}", f"job {number:02}") for number in range(40)]


async def work(servers: str, handle: Callable[[Job], Awaitable[None]], jobs_at_a_time: int = 8) -> None:
    """Do the jobs of the topic until cancelled. What `handle` raises ends the pool; its batch is not committed."""
    places = asyncio.Semaphore(jobs_at_a_time)

    async def in_order(jobs: list[Job]) -> None:
        for job in jobs:
            async with places:
                await handle(job)

    async with Consumer(
        "jobs",
        bootstrap_servers=servers,
        group_id="pool",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=50,
    ) as consumer:
        while True:
            by_key: defaultdict[bytes | None, list[Job]] = defaultdict(list)
            for job in await consumer.poll(timeout_ms=1_000):
                by_key[job.key].append(job)
            if not by_key:
                continue
            async with asyncio.TaskGroup() as batch:
                for jobs in by_key.values():
                    batch.create_task(in_order(jobs))
            try:
                await consumer.commit()
            except CommitFailed:
                continue  # the group rebalanced meanwhile: another member repeats the batch


async def scenario(sim: Simulation) -> None:
    done: list[tuple[str, str]] = []

    async def handle(job: Job) -> None:
        await asyncio.sleep(sim.random.uniform(0, 0.5))
        done.append(((job.key or b"").decode(), job.value.decode()))

    await sim.topic("jobs", partitions=3)
    for name in ("pool-1", "pool-2"):
        sim.program(name, lambda: work(sim.bootstrap_servers, handle))

    async def give_jobs() -> None:
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            for customer, job in JOBS:
                await producer.send_and_wait("jobs", job.encode(), key=customer.encode())
                await asyncio.sleep(0.5)

    giving = asyncio.create_task(give_jobs())
    await sim.faults(20, ["kill program", "pause program", "kill", "reset", "cut", "rebalance"])
    await giving
    await eventually(lambda: set(JOBS) <= set(done), 120)
    first_times = list(dict.fromkeys(done))
    for customer in dict(JOBS):
        assert [job for job in first_times if job[0] == customer] == [job for job in JOBS if job[0] == customer]


def test_pool_loses_no_job_and_keeps_the_order_of_keys() -> None:
    search(scenario, range(6))
