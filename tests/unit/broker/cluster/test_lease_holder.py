"""This broker's side of leases: what it asks the controller and other brokers, and when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.cluster.lease_holder import LeaseHolder
from odradek.broker.cluster.peers import Purpose
from odradek.client.errors import Disconnected
from odradek.controller.lease_table import NO_GRANT, Grant
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.replication.leadership import Leadership
from odradek.wire.messages.leadership_promise import LeadershipPromiseRequest, LeadershipPromiseResponse

ID = b"t" * 16
BROKERS = {i: Broker(i, 10 + i, None, {}) for i in (1, 2)}
LED = ClusterImage("c").with_brokers(BROKERS).with_topics([Topic("t", ID, (PartitionState(1, 4, (1, 2), (1, 2)),))])
TAKEN_IN: list[int] = []
"""Partitions whose followers may join the ISR, as often as that was looked at."""


def partition(index: int) -> Any:
    return SimpleNamespace(
        topic="t", topic_id=ID, index=index, leader_epoch=4, is_leader=True, replicas=(1, 2), isr=(1, 2), min_isr=2,
        counted_replicas=(1, 2), commit_waiters=[], may_lead=True,
        followers=SimpleNamespace(take_in=lambda: TAKEN_IN.append(index)),
    )  # fmt: skip


PARTITION = partition(0)


class World:
    """The controller and broker 2, as broker 1 reaches them."""

    def __init__(self) -> None:
        self.grant = NO_GRANT
        self.asked = 0
        self.promises: list[LeadershipPromiseRequest] = []
        self.purposes: set[object] = set()
        self.gate: asyncio.Event | None = None
        self.promises_are_lost = False
        self.node_id = 1
        self.leadership = Leadership(1, self.monotonic)
        config: Any = SimpleNamespace(number=lambda name: {"odradek.leadership.lease.ms": 2000}.get(name, 200))
        view: Any = SimpleNamespace(image=LED)
        owner: Any = self
        self.opened = [PARTITION]
        self.holder = LeaseHolder(config, owner, self.leadership, view, owner, owner, lambda: self.opened)

    def monotonic(self) -> float:
        return 100.0

    async def lease(self, _timeout_ms: float) -> Grant:
        self.asked += 1
        grant = self.grant
        if self.gate is not None:
            await self.gate.wait()
        return grant

    async def request(
        self, purpose: object, _broker_id: int, request: LeadershipPromiseRequest, *_: object
    ) -> LeadershipPromiseResponse:
        self.promises.append(request)
        self.purposes.add(purpose)
        if self.promises_are_lost:
            raise Disconnected("lost")
        return LeadershipPromiseResponse()

    async def until_asked(self, times: int) -> None:
        while self.asked < times:
            await asyncio.sleep(0)


@pytest.fixture
def world() -> World:
    TAKEN_IN.clear()
    return World()


def run(world: World, test: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            await test()
        world.holder.close()

    asyncio.run(main())


def test_grant_begins_the_partitions_that_waited(world: World) -> None:
    async def test() -> None:
        world.grant = Grant(2.0, may_begin=True)
        world.holder.registered()
        world.holder.follow(ClusterImage("c"), LED)
        while not world.leadership.may_lead(PARTITION):
            await asyncio.sleep(0)
        assert world.leadership.lease_until == 101.8, "the margin is deducted"

    run(world, test)


def test_partitions_that_begin_are_logged_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        world.grant = Grant(2.0, may_begin=True)
        world.holder.registered()
        world.holder.follow(ClusterImage("c"), LED)
        await world.until_asked(1)
        world.holder.wake()
        await world.until_asked(2)

    with caplog.at_level("INFO", "odradek.broker.cluster.lease_holder"):
        run(world, test)
    assert [record.getMessage() for record in caplog.records] == ["began to lead 1 partitions: t-0"]


def test_followers_may_join_the_isr_when_their_leader_begins(world: World) -> None:
    """They caught up while it waited, and may have no reason to fetch again."""

    async def test() -> None:
        world.opened.append(partition(1))
        world.grant = Grant(2.0, may_begin=False)
        world.holder.registered()
        world.holder.follow(ClusterImage("c"), LED)
        await world.until_asked(1)
        assert not TAKEN_IN
        world.grant = Grant(2.0, may_begin=True)
        while world.leadership.has_pending:
            await asyncio.sleep(0)
        await world.until_asked(world.asked + 1)
        assert TAKEN_IN == [0], "once, and no partition that has not just begun"

    run(world, test)


def test_lease_is_asked_for_under_a_registration_only(world: World) -> None:
    async def test() -> None:
        world.grant = Grant(2.0, may_begin=True)
        world.holder.follow(ClusterImage("c"), LED)
        while not world.promises:
            await asyncio.sleep(0)
        assert world.asked == 0
        world.holder.registered()
        await world.until_asked(1)
        world.holder.surrender()
        world.holder.wake()
        await asyncio.sleep(0.05)
        assert world.asked == 1

    run(world, test)


def test_answer_to_a_surrendered_registration_does_not_count(world: World) -> None:
    async def test() -> None:
        world.gate = asyncio.Event()
        world.grant = Grant(2.0, may_begin=True)
        world.holder.registered()
        await world.until_asked(1)
        world.holder.surrender()
        world.holder.registered()
        world.grant = NO_GRANT
        world.gate.set()
        await world.until_asked(2)
        assert world.leadership.lease_until < 0

    run(world, test)


def test_promises_have_a_connection_of_their_own(world: World) -> None:
    """The controller may be a replica, too, and answers requests for a lease late while its store is silent."""

    async def test() -> None:
        world.holder.registered()
        while not world.promises:
            await asyncio.sleep(0)
        assert world.purposes == {Purpose.PROMISES}

    run(world, test)


def test_replicas_promise_where_the_controller_grants_nothing(world: World) -> None:
    async def test() -> None:
        world.holder.registered()
        while not world.leadership.may_lead(PARTITION):
            await asyncio.sleep(0)
        (topic,) = world.promises[0].topics
        assert [(p.partition_index, p.leader_epoch) for p in topic.partitions] == [(0, 4)]

    run(world, test)


def test_lost_promise_does_not_count(world: World) -> None:
    async def test() -> None:
        world.promises_are_lost = True
        world.holder.registered()
        while not world.promises:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not world.leadership.may_lead(PARTITION)

    run(world, test)


def test_writes_of_clients_are_released_where_nothing_is_granted(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    released = asyncio.Event()
    monkeypatch.setattr(PARTITION, "commit_waiters", [(0, 1, released.set, True)])
    monkeypatch.setattr(PARTITION, "may_lead", False)

    async def test() -> None:
        world.promises_are_lost = True
        world.holder.registered()
        await released.wait()

    run(world, test)


def test_no_promises_are_asked_for_when_the_controller_lets_the_lease_end(world: World) -> None:
    """Its successors would have to wait for their own promises."""

    async def test() -> None:
        world.grant = Grant(0.3, may_begin=True, is_ending=True)
        world.holder.registered()
        await world.until_asked(1)
        world.grant = NO_GRANT._replace(is_ending=True)
        world.holder.wake()
        await world.until_asked(2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not world.promises
        world.grant = NO_GRANT
        world.holder.wake()
        while not world.promises:
            await asyncio.sleep(0)

    run(world, test)
