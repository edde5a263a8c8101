"""How long a broker of a KRaft cluster may lead after the answers to its heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from odradek.broker.kraft.heartbeat_lease import HeartbeatLease
from odradek.replication.leadership import Leadership

SETTINGS = {
    "broker.session.timeout.ms": 9000,
    "odradek.self.fence.margin.ms": 500,
    "controller.quorum.fetch.timeout.ms": 2000,
}
LEASE = 7.5


class World:
    """A broker that asks at 100 s to be unfenced."""

    def __init__(self) -> None:
        self.now = 100.0
        self.leadership = Leadership(1, lambda: self.now)
        self.questions: list[asyncio.Future[None]] = []
        config: Any = SimpleNamespace(number=SETTINGS.__getitem__)
        self.lease = HeartbeatLease(config, self.leadership, lambda: self.now, self._catch_up, list)
        self.lease.begin()

    async def _catch_up(self) -> None:
        question = asyncio.get_running_loop().create_future()
        self.questions.append(question)
        await question

    @property
    def has_lease(self) -> bool:
        return self.now < self.leadership.lease_until

    async def unfenced(self, asked_at: float) -> None:
        self.lease.unfenced(asked_at)
        await asyncio.sleep(0)

    async def has_caught_up(self) -> None:
        self.questions[-1].set_result(None)
        await asyncio.sleep(0)


def run(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        world = World()
        try:
            await scenario(world)
        finally:
            world.lease.close()

    asyncio.run(main())


def test_lease_counts_from_the_heartbeat() -> None:
    async def scenario(world: World) -> None:
        assert not world.has_lease
        world.now = 101.0
        await world.unfenced(100.5)
        assert world.leadership.lease_until == 100.5 + LEASE
        assert not world.questions

    run(scenario)


def test_answer_while_the_lease_lasts_renews_it() -> None:
    async def scenario(world: World) -> None:
        await world.unfenced(100.0)
        world.now = 107.4
        await world.unfenced(102.0)
        assert world.leadership.lease_until == 102.0 + LEASE
        assert not world.questions

    run(scenario)


def test_answer_after_a_gap_waits_for_the_news() -> None:
    """It may have been fenced meanwhile, and unfenced by this heartbeat: others lead then, which it does not know."""

    async def scenario(world: World) -> None:
        await world.unfenced(100.0)
        world.now = 108.0
        await world.unfenced(107.9)
        assert not world.has_lease
        world.now = 109.0
        await world.unfenced(108.9)
        assert not world.has_lease
        assert len(world.questions) == 1
        await world.has_caught_up()
        assert world.leadership.lease_until == 108.9 + LEASE
        world.now = 110.0
        await world.unfenced(109.9)
        assert world.leadership.lease_until == 109.9 + LEASE

    run(scenario)


def test_first_answer_that_comes_late_waits_for_the_news() -> None:
    async def scenario(world: World) -> None:
        world.now = 108.0
        await world.unfenced(107.9)
        assert not world.has_lease
        await world.has_caught_up()
        assert world.has_lease

    run(scenario)


def test_news_that_take_a_session_begin_no_lease() -> None:
    """The broker may have been fenced again since."""

    async def scenario(world: World) -> None:
        world.now = 108.0
        await world.unfenced(107.9)
        world.now = 115.5
        await world.has_caught_up()
        world.now = 115.6
        await world.unfenced(115.5)
        assert not world.has_lease
        assert len(world.questions) == 2
        await world.has_caught_up()
        assert world.has_lease

    run(scenario)


def test_second_gap_asks_for_the_news_again() -> None:
    async def scenario(world: World) -> None:
        world.now = 108.0
        await world.unfenced(107.9)
        world.now = 115.6
        await world.unfenced(115.5)
        await asyncio.sleep(0)
        assert world.questions[0].cancelled()
        assert len(world.questions) == 2

    run(scenario)


def test_next_answer_asks_again_after_a_failure() -> None:
    async def scenario(world: World) -> None:
        world.now = 108.0
        await world.unfenced(107.9)
        world.questions[-1].set_exception(RuntimeError("unexpected"))
        for _ in range(3):
            await asyncio.sleep(0)
        world.now = 109.0
        await world.unfenced(108.9)
        assert len(world.questions) == 2
        await world.has_caught_up()
        assert world.leadership.lease_until == 108.9 + LEASE

    run(scenario)


def test_closed_lease_does_not_begin_again() -> None:
    async def scenario(world: World) -> None:
        world.now = 108.0
        await world.unfenced(107.9)
        world.lease.close()
        await asyncio.sleep(0)
        assert world.questions[0].cancelled()
        assert not world.has_lease

    run(scenario)


class ALedPartition:
    """A client waits for its high watermark."""

    def __init__(self, leadership: Leadership, answered: asyncio.Event) -> None:
        self._leadership = leadership
        self.commit_waiters = [(0, 1, answered.set, True)]

    @property
    def may_lead(self) -> bool:
        return asyncio.get_running_loop().time() < self._leadership.lease_until


def test_waiting_clients_are_answered_when_the_lease_ends() -> None:
    """They waited until their requests timed out, while another broker led."""

    async def scenario() -> None:
        now = asyncio.get_running_loop().time
        leadership, answered = Leadership(1, now), asyncio.Event()
        partitions: Any = [ALedPartition(leadership, answered)]
        settings = dict.fromkeys(SETTINGS, 0) | {"broker.session.timeout.ms": 50}
        config: Any = SimpleNamespace(number=settings.__getitem__)
        unasked: Any = None
        lease = HeartbeatLease(config, leadership, now, unasked, lambda: partitions)
        lease.begin()
        for _ in range(3):
            lease.unfenced(now())
            await asyncio.sleep(0.01)
        async with asyncio.timeout(20):
            await answered.wait()
        assert now() >= leadership.lease_until
        lease.close()

    asyncio.run(scenario())
