"""A job queue as Celery has it: functions become jobs by a decorator, any worker does them, failures are repeated.

A job runs at least once, and may run twice. Jobs of one partition run one after another: there are as many jobs at a
time as partitions. A job that fails waits behind the others; after its last attempt it is a dead letter.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.client import CommitFailed, Consumer, Producer
from odradek.testing import Simulation, eventually, search

Function = Callable[..., Awaitable[object]]


class JobQueue:
    """The jobs of one topic; failed ones end in the topic's name with `.failed`."""

    def __init__(self, servers: str, topic: str, *, attempts: int = 3) -> None:
        self.servers = servers
        self.topic = topic
        self.attempts = attempts
        self._functions: dict[str, Function] = {}

    def job(self, function: Function) -> Function:
        """Make a coroutine function a job, by its name. Arguments must fit into JSON."""
        self._functions[function.__name__] = function
        return function

    async def enqueue(self, producer: Producer[bytes, bytes], function: Function, *arguments: Any) -> None:
        """Have a worker call the function. The job is safe when this returns. LookupError if it is not a job."""
        if function.__name__ not in self._functions:
            raise LookupError(f"{function.__name__} is not a job of {self.topic}")
        await self._put(producer, {"name": function.__name__, "arguments": arguments, "attempt": 1})

    async def _put(self, producer: Producer[bytes, bytes], job: dict[str, Any]) -> None:
        topic = self.topic if job["attempt"] <= self.attempts else f"{self.topic}.failed"
        await producer.send_and_wait(topic, json.dumps(job).encode())

    async def work(self) -> None:
        """Do jobs until cancelled: one worker, of as many as there are partitions."""
        async with (
            Producer(bootstrap_servers=self.servers) as producer,
            Consumer(
                self.topic,
                bootstrap_servers=self.servers,
                group_id=f"{self.topic}-workers",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
        ):
            while True:
                # One at a time: a job that takes long must not make others exceed max_poll_interval_ms.
                for record in await consumer.poll(timeout_ms=1_000, max_records=1):
                    await self._run(producer, json.loads(record.value))
                    try:
                        await consumer.commit()
                    except CommitFailed:
                        continue  # another worker repeats the job

    async def _run(self, producer: Producer[bytes, bytes], job: dict[str, Any]) -> None:
        try:
            function = self._functions[job["name"]]
            await function(*job["arguments"])
        except Exception as error:  # noqa: BLE001 - the worker outlives its jobs
            await self._put(producer, {**job, "attempt": job["attempt"] + 1, "error": repr(error)})


async def scenario(sim: Simulation) -> None:
    queue = JobQueue(sim.bootstrap_servers, "mail")
    sent: list[str] = []
    attempts: dict[str, int] = {}

    @queue.job
    async def send_mail(to: str) -> None:
        attempts[to] = attempts.get(to, 0) + 1
        await asyncio.sleep(0.2)
        if to == "nobody" or (to == "busy" and attempts[to] < 2):
            raise OSError(f"no answer from {to}")
        sent.append(to)

    addresses = [*(f"user {number}" for number in range(6)), "nobody", "busy"]
    await sim.topic("mail", partitions=3)
    await sim.topic("mail.failed")
    for name in ("worker-1", "worker-2"):
        sim.program(name, queue.work)

    async def enqueue() -> None:
        async with Producer(bootstrap_servers=sim.bootstrap_servers) as producer:
            for address in addresses:
                await queue.enqueue(producer, send_mail, address)
                await asyncio.sleep(1)

    enqueuing = asyncio.create_task(enqueue())
    await sim.faults(15, ["kill program", "pause program", "kill", "reset", "cut", "rebalance"])
    await enqueuing

    async def failed() -> set[str]:
        return {json.loads(record.value or b"")["arguments"][0] for record in await sim.records("mail.failed")}

    async def all_ended() -> bool:
        return len({*sent, *await failed()}) == len(addresses)

    await eventually(all_ended, 120, 1)
    assert set(sent) == {*addresses} - {"nobody"}
    assert await failed() == {"nobody"}
    assert attempts["nobody"] >= 3
    assert attempts["busy"] >= 2


def test_jobs_run_at_least_once_and_failures_are_repeated() -> None:
    search(scenario, range(6))
