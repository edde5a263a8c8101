"""Request and reply over topics: a call that survives the crash of the server that works on it.

A request carries an id and the partition for its reply. Each caller reads one partition of the reply topic, from its
end, without a group. Servers are an ordinary group; a request may be answered twice, and the caller uses the first
reply. A call that is not answered in time raises TimeoutError: the server may have processed it all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from types import TracebackType
from typing import Self

from odradek.client import Admin, CommitFailed, Consumer, NewTopic, Producer, TopicPartition
from odradek.testing import Simulation, eventually, search


class Caller:
    """Calls from one process. Each process that calls at the same time has a partition of `replies` of its own."""

    def __init__(self, servers: str, partition: int) -> None:
        self._producer: Producer[bytes, bytes] = Producer(bootstrap_servers=servers)
        self._consumer: Consumer[bytes | None, bytes] = Consumer(bootstrap_servers=servers)
        self._partition = TopicPartition("replies", partition)
        self._waiting: dict[bytes, asyncio.Future[bytes]] = {}

    async def __aenter__(self) -> Self:
        await self._producer.start()
        await self._consumer.start()
        self._consumer.assign([self._partition])
        self._consumer.seek_to_end([self._partition])
        await self._consumer.position(self._partition)  # know the end before the first request is sent
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        await self._consumer.close()
        await self._producer.close()

    async def call(self, request: bytes, timeout_s: float = 10.0) -> bytes:
        """The reply. Raises TimeoutError."""
        number = uuid.uuid4().bytes
        reply: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        headers = {"id": number, "reply-to": b"%d" % self._partition.partition}
        try:
            async with asyncio.timeout(timeout_s):
                await self._producer.send_and_wait("requests", request, headers=headers)
                return await reply
        finally:
            del self._waiting[number]

    async def _read(self) -> None:
        async for record in self._consumer:
            reply = self._waiting.get(dict(record.headers).get("id") or b"")
            if reply is not None and not reply.done():
                reply.set_result(record.value)


async def serve(servers: str) -> None:
    """Answer requests; start several."""
    async with (
        Producer(bootstrap_servers=servers, linger_ms=50) as producer,  # flush sends at once
        Consumer(
            "requests",
            bootstrap_servers=servers,
            group_id="servers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        while True:
            requests = await consumer.poll(timeout_ms=1_000)
            for request in requests:
                headers = dict(request.headers)
                reply = await answer(request.value)
                partition = int(headers.get("reply-to") or 0)
                await producer.send("replies", reply, headers={"id": headers.get("id")}, partition=partition)
            await producer.flush()  # replies first: a commit before them could lose one
            try:
                if requests:
                    await consumer.commit()
            except CommitFailed:
                continue


async def answer(request: bytes) -> bytes:
    """The work."""
    await asyncio.sleep(0.1)
    return request.upper()


async def scenario(sim: Simulation) -> None:
    await sim.topic("requests", partitions=2)
    await sim.topic("replies", partitions=2)
    for name in ("server-1", "server-2"):
        sim.program(name, lambda: serve(sim.bootstrap_servers))
    replies: dict[str, bytes] = {}

    async def ask(partition: int) -> None:
        async with Caller(sim.bootstrap_servers, partition) as caller:
            for number in range(15):
                question = f"question {partition} {number}"
                replies[question] = await caller.call(question.encode(), timeout_s=120)
                await asyncio.sleep(1)

    asking = asyncio.gather(ask(0), ask(1))
    await sim.faults(20, ["kill program", "kill", "reset", "cut", "rebalance"], between_s=0.7)
    await asking
    assert replies == {question: question.upper().encode() for question in replies}
    assert len(replies) == 30


async def without_servers(sim: Simulation) -> None:
    await sim.topic("requests")
    await sim.topic("replies")
    async with Caller(sim.bootstrap_servers, 0) as caller:
        call = asyncio.create_task(caller.call(b"question", timeout_s=5))
        await eventually(call.done, 10)
        assert isinstance(call.exception(), TimeoutError)


async def killed_after_its_commit(sim: Simulation) -> None:
    """The server is killed as soon as the offset of a request is committed."""
    await sim.topic("requests")
    await sim.topic("replies")
    server = sim.program("server", lambda: serve(sim.bootstrap_servers))
    async with (
        Caller(sim.bootstrap_servers, 0) as caller,
        Admin(bootstrap_servers=sim.bootstrap_servers) as admin,
    ):
        call = asyncio.create_task(caller.call(b"question", timeout_s=60))

        async def is_committed() -> bool:
            return TopicPartition("requests", 0) in await admin.groups.offsets("servers")

        await eventually(is_committed, 60, 0.001)
        server.kill()
        assert await call == b"QUESTION"


async def slow_start(sim: Simulation) -> None:
    """The broker with the replies cannot be reached while the caller starts."""
    async with Admin(bootstrap_servers=sim.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic("requests", replica_assignments={0: [1]})])
        await admin.create_topics([NewTopic("replies", replica_assignments={0: [2]})])
    sim.program("server", lambda: serve(sim.bootstrap_servers))
    replies: list[bytes] = []

    async def call() -> None:
        async with Caller(sim.bootstrap_servers, 0) as caller:
            replies.append(await caller.call(b"question", timeout_s=60))

    await asyncio.sleep(5)  # the server works
    caller = sim.program("caller", call)
    caller.cut_off(5, broker_id=2)
    await caller.ended()
    assert replies == [b"QUESTION"]


def test_reply_is_safe_before_its_request_is_committed() -> None:
    search(killed_after_its_commit, range(2))


def test_reply_is_read_when_the_caller_starts_slowly() -> None:
    search(slow_start, range(2), brokers=2)


def test_each_caller_gets_its_replies() -> None:
    search(scenario, range(6))


def test_call_times_out_when_no_server_runs() -> None:
    search(without_servers, range(1))
