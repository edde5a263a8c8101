"""How a task sends what it has encoded, with leases and a producer that are not there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.spark.leases import LeaseError
from odradek.spark.protocol import Encoded, Sending


class FakeLeases:
    """Grants what the test says, one answer after the other."""

    def __init__(self, *answers: list[tuple[str, int]] | LeaseError) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []
        self.released: list[tuple[str, int]] = []
        self.left_after: int | None = None

    async def acquire(self, wanted: list[str]) -> list[tuple[str, int]]:
        self.asked.append(wanted)
        answer = self.answers.pop(0)
        if isinstance(answer, LeaseError):
            raise answer
        return answer

    def release(self, name: str, records: int) -> None:
        self.released.append((name, records))

    async def leave(self) -> None:
        self.left_after = len(self.released)

    def close(self) -> None:
        raise AssertionError("the task closes the conversation, not the sending")


class FakeProducer:
    """Takes batches; each is acknowledged when the test says so."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, int, int]] = []
        self.deliveries: list[asyncio.Future[None]] = []
        self.sequences: dict[tuple[str, int], int] = {}
        self.sender = SimpleNamespace(sequences=SimpleNamespace(resume=self.sequences.__setitem__))

    async def send_batch(self, topic: str, partition: int, batches: list[bytearray]) -> list[Awaitable[None]]:
        made = [asyncio.get_running_loop().create_future() for _ in batches]
        self.taken.append((topic, partition, len(batches)))
        self.deliveries += made
        return list(made)


def sending(producer: FakeProducer, leases: FakeLeases, task: int = 0) -> Sending:
    transactional: Any = SimpleNamespace(producer=producer)
    return Sending(transactional, task, leases)


def encoded(partition: int, records: int) -> Encoded:
    return Encoded("t", partition, records, [bytearray(b"batch")])


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_partitions_granted_together_are_sent_before_any_is_acknowledged() -> None:
    async def run() -> None:
        producer, leases = FakeProducer(), FakeLeases([("t-0", 7), ("t-1", 0), ("t-2", 3)])
        task = sending(producer, leases)
        task.take([encoded(2, 5), encoded(0, 1), encoded(1, 1), encoded(0, 2)])
        under_way = asyncio.create_task(task.send())
        await turns()
        assert producer.taken == [("t", 0, 1), ("t", 0, 1), ("t", 1, 1), ("t", 2, 1)]
        assert producer.sequences == {("t", 0): 7, ("t", 1): 0, ("t", 2): 3}
        assert leases.released == []
        for each in producer.deliveries:
            each.set_result(None)
        await under_way
        assert leases.released == [("t-0", 3), ("t-1", 1), ("t-2", 5)]
        assert leases.asked == [["t-0", "t-1", "t-2"]]

    asyncio.run(run())


def test_what_was_not_granted_is_asked_for_while_the_rest_is_under_way() -> None:
    async def run() -> None:
        producer, leases = FakeProducer(), FakeLeases([("t-1", 0)], [("t-0", 4), ("t-2", 0)])
        task = sending(producer, leases, task=1)
        task.take([encoded(each, 1) for each in range(3)])
        finishing = asyncio.create_task(task.finish())
        await turns()
        assert leases.asked == [["t-1", "t-2", "t-0"], ["t-2", "t-0"]]
        assert leases.left_after is None
        for each in producer.deliveries:
            each.set_result(None)
        await finishing
        assert sorted(leases.released) == [("t-0", 1), ("t-1", 1), ("t-2", 1)]
        assert leases.left_after == 3

    asyncio.run(run())


def test_lost_batch_keeps_its_lease_and_fails_the_task() -> None:
    async def run() -> None:
        producer, leases = FakeProducer(), FakeLeases([("t-0", 0), ("t-1", 0)])
        task = sending(producer, leases)
        task.take([encoded(0, 1), encoded(1, 1)])
        under_way = asyncio.create_task(task.finish())
        await turns()
        producer.deliveries[0].set_exception(OSError("the disk is full"))
        with pytest.raises(OSError, match="the disk is full"):
            await under_way
        assert (leases.released, leases.left_after) == ([], None)

    asyncio.run(run())


def test_failed_write_ends_the_sending() -> None:
    async def run() -> None:
        leases = FakeLeases(LeaseError("the write has to be run again"))
        task = sending(FakeProducer(), leases)
        task.take([encoded(0, 1)])
        with pytest.raises(LeaseError, match="run again"):
            await task.finish()

    asyncio.run(run())
