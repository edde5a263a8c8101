"""Leases: who may write to a partition, and what makes a micro-batch fail."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from odradek.spark import lease_connections
from odradek.spark.lease_connections import Connections
from odradek.spark.leases import Address, Batch, Following, LeaseError, LeaseServer

SECONDS = 30
Result = TypeVar("Result")


def joined(batch: Batch, *tasks: int) -> list[object]:
    holders = [object() for _ in tasks]
    for holder, task in zip(holders, tasks, strict=True):
        batch.join(holder, task)
    return holders


def test_a_lease_has_one_holder_and_passes_the_sequence_on() -> None:
    batch = Batch()
    one, two = joined(batch, 1, 2)
    assert batch.acquire(one, 1, ["t-0"]) == [("t-0", 0)]
    assert batch.acquire(two, 2, ["t-0", "t-1"]) == [("t-1", 0)]
    assert batch.acquire(two, 2, ["t-0"]) == []
    batch.release(one, "t-0", 17)
    assert batch.acquire(two, 2, ["t-0"]) == [("t-0", 17)]


def test_all_free_leases_are_granted_at_once_in_the_order_wanted() -> None:
    batch = Batch()
    one, two = joined(batch, 1, 2)
    assert batch.acquire(one, 1, ["t-1"]) == [("t-1", 0)]
    assert batch.acquire(two, 2, ["t-2", "t-1", "t-0"]) == [("t-2", 0), ("t-0", 0)]
    for name, records in (("t-2", 3), ("t-0", 4)):
        batch.release(two, name, records)
    assert batch.acquire(one, 1, ["t-0", "t-1", "t-2"]) == [("t-0", 4), ("t-2", 3)]


def test_sequences_begin_again_after_the_largest() -> None:
    batch = Batch()
    (one,) = joined(batch, 1)
    for first in (0, 0x7FFFFFFF - 5, 7):
        assert batch.acquire(one, 1, ["t-0"]) == [("t-0", first)]
        batch.release(one, "t-0", 0x7FFFFFFF - 5 if first == 0 else 13)


def test_a_task_may_start_again_only_before_it_wrote() -> None:
    batch = Batch()
    _, second = joined(batch, 1, 1)
    batch.acquire(second, 1, ["t-0"])
    batch.join(second, 1)
    with pytest.raises(LeaseError, match="task 1 was started again"):
        batch.join(object(), 1)
    with pytest.raises(LeaseError):
        batch.acquire(object(), 2, ["t-1"])


def test_of_two_attempts_only_the_later_writes() -> None:
    """As with speculation, or after an executor was given up that still lives."""
    batch = Batch()
    first, second = joined(batch, 1, 1)
    with pytest.raises(LeaseError, match="another attempt of task 1"):
        batch.acquire(first, 1, ["t-0"])
    assert batch.acquire(second, 1, ["t-0"]) == [("t-0", 0)]


def test_written_batches_are_reported_once_no_task_can_write() -> None:
    batch = Batch()
    one, two = joined(batch, 1, 2)
    batch.acquire(one, 1, ["t-0"])
    batch.release(one, "t-0", 5)
    batch.acquire(two, 2, ["t-0"])
    batch.release(two, "t-0", 3)
    assert batch.complete() == {"t-0": 8}
    with pytest.raises(LeaseError, match="is being committed"):
        batch.acquire(one, 1, ["t-0"])
    with pytest.raises(LeaseError, match="is being committed"):
        batch.join(object(), 3)


def test_nothing_is_completed_while_a_task_writes() -> None:
    batch = Batch()
    (one,) = joined(batch, 1)
    batch.acquire(one, 1, ["t-0"])
    with pytest.raises(LeaseError, match="still writes to t-0"):
        batch.complete()


def test_a_holder_that_leaves_fails_the_batch() -> None:
    batch = Batch()
    (holder,) = joined(batch, 1)
    batch.acquire(holder, 1, ["t-0"])
    batch.leave(object())
    batch.check()
    batch.leave(holder)
    with pytest.raises(LeaseError, match="lost while it wrote to t-0"):
        batch.check()


@pytest.mark.parametrize(("holds", "records"), [(False, 5), (True, -1)])
def test_a_wrong_release_fails_the_batch(holds: bool, records: int) -> None:
    batch = Batch()
    (holder,) = joined(batch, 1)
    batch.acquire(holder, 1, ["t-0"])
    batch.release(holder if holds else object(), "t-0", records)
    with pytest.raises(LeaseError, match="handed back"):
        batch.check()


class WaitingTask:
    """A task whose turns are the same object every time, as those of a connection are."""

    def __init__(self) -> None:
        self.waits = False
        self.got: list[tuple[str, int]] = []
        self.failures: list[str] = []

    def done(self) -> bool:
        return not self.waits

    def set_result(self, lease: tuple[str, int], /) -> None:
        self.waits = False
        self.got.append(lease)

    def set_exception(self, error: LeaseError, /) -> None:
        self.waits = False
        self.failures.append(str(error))

    def wait(self, batch: Batch, task: int, *wanted: str) -> None:
        assert batch.acquire(self, task, [*wanted]) == []
        self.waits = True
        batch.wait(self, task, [*wanted], self)


def waiting_tasks(batch: Batch, *tasks: int) -> list[WaitingTask]:
    made = [WaitingTask() for _ in tasks]
    for each, task in zip(made, tasks, strict=True):
        batch.join(each, task)
    return made


def test_release_wakes_the_first_that_waits_for_the_lease_alone() -> None:
    batch = Batch()
    (holder,) = joined(batch, 0)
    for name in ("t-0", "t-1"):
        batch.acquire(holder, 0, [name])
    other, first, second = waiting_tasks(batch, 1, 2, 3)
    other.wait(batch, 1, "t-1")
    first.wait(batch, 2, "t-0", "t-1")
    second.wait(batch, 3, "t-0")
    batch.release(holder, "t-0", 5)
    assert (other.got, first.got, second.got) == ([], [("t-0", 5)], [])
    batch.release(first, "t-0", 2)
    assert second.got == [("t-0", 7)]


def test_lease_that_is_no_longer_wanted_is_not_given() -> None:
    """A task that waited for two leases stands in the queue of the second when it has got the first."""
    batch = Batch()
    (holder,) = joined(batch, 0)
    for name in ("t-0", "t-1", "t-2"):
        batch.acquire(holder, 0, [name])
    task, other = waiting_tasks(batch, 1, 2)
    task.wait(batch, 1, "t-0", "t-1")
    other.wait(batch, 2, "t-1")
    batch.release(holder, "t-0", 5)
    task.wait(batch, 1, "t-2")
    batch.release(holder, "t-1", 3)
    assert (task.got, other.got) == ([("t-0", 5)], [("t-1", 3)])


def test_task_that_is_gone_is_not_given_a_lease() -> None:
    batch = Batch()
    (holder,) = joined(batch, 0)
    batch.acquire(holder, 0, ["t-0"])
    gone, other = waiting_tasks(batch, 1, 2)
    gone.wait(batch, 1, "t-0")
    other.wait(batch, 2, "t-0")
    batch.leave(gone)
    batch.release(holder, "t-0", 5)
    assert (gone.got, other.got) == ([], [("t-0", 5)])
    batch.check()


def test_those_who_wait_receive_the_failure() -> None:
    batch = Batch()
    (holder,) = joined(batch, 0)
    batch.acquire(holder, 0, ["t-0"])
    waiting, superseded = waiting_tasks(batch, 1, 2)
    waiting.wait(batch, 1, "t-0")
    superseded.wait(batch, 2, "t-0")
    batch.join(object(), 2)
    assert superseded.failures == ["another attempt of task 2 has begun, this one must not write"]
    batch.leave(holder)
    assert waiting.failures == ["the write has to be run again: a task was lost while it wrote to t-0"]


@pytest.fixture(scope="module")
def server() -> Iterator[LeaseServer]:
    made = LeaseServer("127.0.0.1", os.getpid())
    yield made
    made.close()


def conversing(body: Callable[[Connections], Coroutine[Any, Any, Result]]) -> Result:
    """What a coroutine with connections returns."""

    async def run() -> Result:
        with closing(Connections()) as connections:
            return await body(connections)

    return asyncio.run(asyncio.wait_for(run(), SECONDS))


def test_tasks_take_turns_over_the_network(server: LeaseServer) -> None:
    address, _ = server.open_batch("q")

    async def task(connections: Connections, number: int) -> list[tuple[int, int]]:
        client = await connections.join(address, number)
        spans = []
        for _ in range(20):
            ((name, first),) = await client.acquire(["t-0"])
            await asyncio.sleep(0)
            client.release(name, number)
            spans.append((first, first + number))
        client.close()
        return spans

    async def run(connections: Connections) -> list[tuple[int, int]]:
        found = await asyncio.gather(*(task(connections, each) for each in (1, 2, 3)))
        return sorted(span for spans in found for span in spans)

    spans = conversing(run)
    assert spans[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    assert spans[-1][1] == 20 * 6


def test_a_task_hands_back_while_it_waits(server: LeaseServer) -> None:
    address, _ = server.open_batch("q")

    async def run(connections: Connections) -> None:
        one, two = await connections.join(address, 1), await connections.join(address, 2)
        assert await one.acquire(["t-0"]) == [("t-0", 0)]
        assert await two.acquire(["t-1"]) == [("t-1", 0)]
        waiting = [asyncio.create_task(one.acquire(["t-1"])), asyncio.create_task(two.acquire(["t-0"]))]
        await asyncio.sleep(0)
        one.release("t-0", 5)
        two.release("t-1", 7)
        assert await asyncio.gather(*waiting) == [[("t-1", 7)], [("t-0", 5)]]
        one.release("t-1", 9)
        two.release("t-0", 9)
        await one.leave()
        await two.leave()
        assert await connections.complete(address) == {"t-0": 14, "t-1": 16}
        one.close()
        two.close()

    conversing(run)


def test_a_lost_task_fails_those_who_wait(server: LeaseServer) -> None:
    address, _ = server.open_batch("q")

    async def run(connections: Connections) -> None:
        first, second = await connections.join(address, 1), await connections.join(address, 2)
        await first.acquire(["t-0"])
        waiting = asyncio.create_task(second.acquire(["t-0"]))
        await asyncio.sleep(0)
        first.close()
        with pytest.raises(LeaseError, match="was lost while it wrote"):
            await waiting
        second.close()

    conversing(run)


def test_task_that_asks_for_two_leases_at_once_is_rejected(server: LeaseServer) -> None:
    address, _ = server.open_batch("q")

    async def run(connections: Connections) -> None:
        holder, greedy = await connections.join(address, 1), await connections.join(address, 2)
        await holder.acquire(["t-0"])
        first = asyncio.create_task(greedy.acquire(["t-0"]))
        await asyncio.sleep(0)
        greedy._send({"acquire": ["t-0"]})
        with pytest.raises(LeaseError, match="asks once at a time"):
            await first
        holder.close()
        greedy.close()

    conversing(run)


def test_a_later_batch_voids_the_earlier_one(server: LeaseServer) -> None:
    address, _ = server.open_batch("q")

    async def run(connections: Connections) -> None:
        client = await connections.join(address, 1)
        later, _ = server.open_batch("q")
        with pytest.raises(LeaseError, match="later transaction"):
            await client.acquire(["t-0"])
        client.close()
        with pytest.raises(LeaseError, match="no longer being written"):
            await connections.join(address, 1)
        with pytest.raises(LeaseError, match="no longer being written"):
            await connections.join(Address(later.host, later.port, "guessed"), 1)
        (await connections.join(later, 1)).close()

    conversing(run)


def test_queries_do_not_disturb_each_other(server: LeaseServer) -> None:
    address, _ = server.open_batch("one")

    async def run(connections: Connections) -> None:
        client = await connections.join(address, 1)
        other, _ = server.open_batch("two")
        assert await client.acquire(["t-0"]) == [("t-0", 0)]
        await connections.drop(other)
        with pytest.raises(LeaseError, match="no longer being written"):
            await connections.join(other, 1)
        client.release("t-0", 4)
        await client.leave()
        client.close()
        late = await connections.join(address, 2)
        assert await connections.complete(address) == {"t-0": 4}
        with pytest.raises(LeaseError, match="is being committed"):
            await late.acquire(["t-0"])
        late.close()
        with pytest.raises(LeaseError, match="no longer being written"):
            await connections.join(address, 3)

    conversing(run)


def test_a_batch_may_have_thousands_of_partitions(server: LeaseServer) -> None:
    names = [f"{'a-long-name-of-a-topic' * 3}-{number}" for number in range(1500)]

    async def body(connections: Connections) -> dict[str, int]:
        address, _ = server.open_batch("query")
        task = await connections.join(address, 1)
        for each in names:
            for lease, _ in await task.acquire([each]):
                task.release(lease, 1)
        # what has been released is free for this task as for any other
        for lease, following in await task.acquire(names):
            assert following == 1
            task.release(lease, 1)
        await task.leave()
        task.close()
        return await connections.complete(address)

    assert conversing(body) == dict.fromkeys(names, 2)


async def write_once(connections: Connections, address: Address, task: int = 1) -> None:
    client = await connections.join(address, task)
    for lease, _ in await client.acquire(["t-0"]):
        client.release(lease, 5)
    await client.leave()
    client.close()


def test_connection_serves_tasks_in_turn_and_the_end_of_the_write(server: LeaseServer) -> None:
    address, _ = server.open_batch("q")

    async def run(connections: Connections) -> None:
        await write_once(connections, address)
        ((kept, _),) = connections._kept.values()
        await write_once(connections, address, 2)
        assert await connections.complete(address) == {"t-0": 10}
        assert [each for each, _ in connections._kept.values()] == [kept]

    conversing(run)


def test_attempt_over_the_connection_of_the_one_before_is_another(server: LeaseServer) -> None:
    address, _ = server.open_batch("q")

    async def run(connections: Connections) -> None:
        await write_once(connections, address)
        with pytest.raises(LeaseError, match="task 1 was started again after it had written"):
            await connections.join(address, 1)

    conversing(run)


def test_kept_connection_that_has_ended_is_replaced(server: LeaseServer) -> None:
    first, _ = server.open_batch("q")

    async def run(connections: Connections) -> None:
        await write_once(connections, first)
        ((kept, _),) = connections._kept.values()
        kept.close()
        await write_once(connections, first, 2)
        assert await connections.complete(first) == {"t-0": 10}

    conversing(run)


def test_connection_that_was_not_used_for_long_is_closed(server: LeaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    address, _ = server.open_batch("q")

    async def run(connections: Connections) -> None:
        await write_once(connections, address)
        ((kept, _),) = connections._kept.values()
        monkeypatch.setattr(lease_connections, "KEPT_S", -1.0)
        await write_once(connections, address, 2)
        ((other, _),) = connections._kept.values()
        assert other is not kept
        assert kept._writer.is_closing()

    conversing(run)


LEFT = Following(7, 2, 11, "the-query")


def test_next_transaction_knows_what_the_commit_before_has_left(server: LeaseServer) -> None:
    first, _ = server.open_batch("series", follows=True)

    async def run(connections: Connections) -> None:
        await connections.complete(first)
        connections.committed(first, LEFT)
        await connections.drop(first._replace(token="guessed"))  # answered after it

    conversing(run)
    assert server.open_batch("series", follows=True)[1] == LEFT
    assert server.open_batch("series", follows=True)[1] is None


@pytest.mark.parametrize("completed", [False, True])
def test_transaction_that_was_not_completed_last_leaves_nothing(server: LeaseServer, completed: bool) -> None:
    first, _ = server.open_batch("series", follows=True)

    async def run(connections: Connections) -> None:
        await write_once(connections, first)
        if completed:
            await connections.complete(first)
            server.open_batch("series", follows=True)
        connections.committed(first, LEFT)
        await connections.drop(first._replace(token="guessed"))

    conversing(run)
    assert server.open_batch("series", follows=True)[1] is None


def test_write_that_no_other_follows_leaves_nothing(server: LeaseServer) -> None:
    first, _ = server.open_batch("single")

    async def run(connections: Connections) -> None:
        await connections.complete(first)
        connections.committed(first, LEFT)
        await connections.drop(first._replace(token="guessed"))

    conversing(run)
    assert server.open_batch("single")[1] is None
