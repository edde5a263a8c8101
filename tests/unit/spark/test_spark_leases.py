"""Leases: who may write to a partition, and what makes a micro-batch fail."""

import asyncio
import os
from collections.abc import Iterator
from itertools import pairwise

import pytest

from odradek.spark.leases import Address, Batch, LeaseClient, LeaseError, LeaseServer


def test_a_lease_has_one_holder_and_passes_the_sequence_on() -> None:
    batch, one, two = Batch(), object(), object()
    assert batch.acquire(one, 1, ["t-0", "t-1"]) == ("t-0", 0)
    assert batch.acquire(two, 2, ["t-0", "t-1"]) == ("t-1", 0)
    assert batch.acquire(two, 2, ["t-0"]) is None
    batch.release(one, "t-0", 17)
    assert batch.acquire(two, 2, ["t-0"]) == ("t-0", 17)


def test_a_task_may_start_again_only_before_it_wrote() -> None:
    batch = Batch()
    batch.join(1, "first")
    batch.join(1, "second")
    batch.acquire(object(), 1, ["t-0"])
    batch.join(1, "second")
    with pytest.raises(LeaseError, match="task 1 was started again"):
        batch.join(1, "third")
    with pytest.raises(LeaseError):
        batch.acquire(object(), 2, ["t-1"])


def test_a_holder_that_leaves_fails_the_batch() -> None:
    batch, holder = Batch(), object()
    batch.acquire(holder, 1, ["t-0"])
    batch.leave(object())
    batch.check()
    batch.leave(holder)
    with pytest.raises(LeaseError, match="lost while it wrote to t-0"):
        batch.check()


@pytest.mark.parametrize(("holds", "following"), [(False, 5), (True, 3)])
def test_a_wrong_release_fails_the_batch(holds: bool, following: int) -> None:
    batch, holder = Batch(), object()
    batch.acquire(holder, 1, ["t-0"])
    batch.release(holder, "t-0", 4)
    batch.acquire(holder, 1, ["t-0"])
    batch.release(holder if holds else object(), "t-0", following)
    with pytest.raises(LeaseError, match="handed back"):
        batch.check()


@pytest.fixture(scope="module")
def server() -> Iterator[LeaseServer]:
    made = LeaseServer("127.0.0.1", os.getpid())
    yield made
    made.close()


def test_tasks_take_turns_over_the_network(server: LeaseServer) -> None:
    address = server.open_batch()

    async def task(number: int) -> list[tuple[int, int]]:
        client = await LeaseClient.join(address, number)
        spans = []
        for _ in range(20):
            name, first = await client.acquire(["t-0"])
            await asyncio.sleep(0)
            client.release(name, first + number)
            spans.append((first, first + number))
        client.close()
        return spans

    async def run() -> list[tuple[int, int]]:
        return sorted(span for spans in await asyncio.gather(*map(task, (1, 2, 3))) for span in spans)

    spans = asyncio.run(run())
    assert spans[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert spans[-1][1] == 20 * 6


def test_a_task_hands_back_while_it_waits(server: LeaseServer) -> None:
    address = server.open_batch()

    async def run() -> None:
        one, two = await LeaseClient.join(address, 1), await LeaseClient.join(address, 2)
        assert await one.acquire(["t-0"]) == ("t-0", 0)
        assert await two.acquire(["t-1"]) == ("t-1", 0)
        waiting = [asyncio.create_task(one.acquire(["t-1"])), asyncio.create_task(two.acquire(["t-0"]))]
        await asyncio.sleep(0)
        one.release("t-0", 5)
        two.release("t-1", 7)
        assert await asyncio.gather(*waiting) == [("t-1", 7), ("t-0", 5)]
        one.release("t-1", 9)
        two.release("t-0", 9)
        one.close()
        two.close()

    asyncio.run(run())


def test_a_lost_task_fails_those_who_wait(server: LeaseServer) -> None:
    address = server.open_batch()

    async def run() -> None:
        first, second = await LeaseClient.join(address, 1), await LeaseClient.join(address, 2)
        await first.acquire(["t-0"])
        waiting = asyncio.create_task(second.acquire(["t-0"]))
        await asyncio.sleep(0)
        first.close()
        with pytest.raises(LeaseError, match="was lost while it wrote"):
            await waiting
        second.close()

    asyncio.run(run())


def test_a_later_batch_voids_the_earlier_one(server: LeaseServer) -> None:
    address = server.open_batch()

    async def run() -> None:
        client = await LeaseClient.join(address, 1)
        later = server.open_batch()
        with pytest.raises(LeaseError, match="later micro-batch"):
            await client.acquire(["t-0"])
        client.close()
        with pytest.raises(LeaseError, match="not the micro-batch"):
            await LeaseClient.join(address, 1)
        with pytest.raises(LeaseError, match="not the micro-batch"):
            await LeaseClient.join(Address(later.host, later.port, "guessed"), 1)
        (await LeaseClient.join(later, 1)).close()

    asyncio.run(run())
