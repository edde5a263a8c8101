"""Brokers that no longer reach the controller, and controllers that too few of them reach."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from odradek.broker.cluster import membership
from odradek.broker.cluster.controller_store import REIGN, REIGNS, YIELDED, ControllerStore, election, yielding
from odradek.controller.topics import NewTopic
from odradek.metadata.image import NO_LEADER, PartitionState
from odradek.metadata.nodes import CONTROLLER, BrokerNode, PartitionNode
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.store import Create, MetadataStore, Operation, StoreUnavailable
from odradek.wire.errors import KafkaError
from tests.unit.broker.cluster.cluster_members import Cluster, DyingStore, run

SETTINGS = {"broker.session.timeout.ms": "300", "min.insync.replicas": "2"}


class Bounded(MemoryStore):
    """Says until when it keeps a session at least."""

    def renew_session(self) -> float | None:  # type: ignore[override]
        return 1e9


class FailingStore(DyingStore):
    """Fails at the next write of the partition."""

    fails = False

    async def apply(self, operations: Sequence[Operation]) -> None:
        if self.fails and any(operation.path == PartitionNode.path("t", 0) for operation in operations):
            self.fails = False
            raise StoreUnavailable("the request was lost")
        await self.inner.apply(operations)


class Renewals:
    """Asks every controller for leases on behalf of all members that reach it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cut: set[frozenset[int]] = set()

    def part(self, one: int, *others: int) -> None:
        self.cut |= {frozenset((one, other)) for other in others}

    async def go_on(self) -> None:
        while True:
            members = self.cluster.members.values()
            for controller in [each for each in members if each.alive and each.controller.is_active]:
                for member in members:
                    if frozenset((controller.id, member.id)) not in self.cut:
                        try:
                            await controller.controller.lease(member.id, member.view.broker_epoch)
                        except KafkaError:
                            continue
            await asyncio.sleep(0.01)


def with_renewals(test: Callable[[Cluster, Renewals], Awaitable[None]]) -> None:
    """Three brokers with a topic of three partitions; the first one is the controller."""

    async def main(cluster: Cluster) -> None:
        renewals = Renewals(cluster)
        for member in await cluster.of(1, 2, 3):
            member.controller.fencing.watch_yield(member.membership.step_down)
        task = asyncio.create_task(renewals.go_on())
        await cluster.reigning.create_topics([NewTopic("t", 3, 3)])
        try:
            await test(cluster, renewals)
        finally:
            task.cancel()

    run(main, SETTINGS)


def states(cluster: Cluster) -> tuple[PartitionState, ...]:
    controller = cluster.controller
    return () if controller is None or "t" not in controller.image.topics else controller.image.topics["t"].partitions


def test_silent_broker_loses_leadership_and_leaves_isrs() -> None:
    async def test(cluster: Cluster, renewals: Renewals) -> None:
        assert {state.leader for state in states(cluster)} == {1, 2, 3}
        renewals.part(1, 3)
        await cluster.until(lambda: all(set(state.isr) == {1, 2} for state in states(cluster)))
        assert {state.leader for state in states(cluster)} <= {1, 2}
        assert cluster.reigning.image.brokers[3].fenced
        assert cluster.members[3].membership.broker_epoch == cluster.reigning.image.brokers[3].epoch

    with_renewals(test)


def test_broker_that_does_not_answer_is_fenced_although_it_asks() -> None:
    """Its incoming paths alone are cut: its followers cannot copy."""

    async def test(cluster: Cluster, renewals: Renewals) -> None:
        cluster.members[3].unreachable = True
        await cluster.until(lambda: all(set(state.isr) == {1, 2} for state in states(cluster)))
        assert cluster.reigning.image.brokers[3].fenced
        grant = await cluster.reigning.lease(3, cluster.members[3].epoch)
        assert grant.seconds == 0.0
        assert grant.is_ending
        cluster.members[3].unreachable = False
        await cluster.until(lambda: not cluster.reigning.image.brokers[3].fenced)

    with_renewals(test)


def test_controller_without_answers_from_most_brokers_yields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "AWAY_SECONDS", 0.2)

    async def test(cluster: Cluster, renewals: Renewals) -> None:
        epoch = cluster.members[1].epoch
        cluster.members[2].unreachable = cluster.members[3].unreachable = True
        await cluster.until(lambda: cluster.tree.find(YIELDED) is not None)
        cluster.members[2].unreachable = cluster.members[3].unreachable = False
        await cluster.until(lambda: cluster.members[1].epoch > epoch and cluster.controller is not None)

    with_renewals(test)


def test_broker_that_is_no_longer_silent_is_no_longer_fenced() -> None:
    async def test(cluster: Cluster, renewals: Renewals) -> None:
        renewals.part(1, 3)
        await cluster.until(lambda: cluster.reigning.image.brokers[3].fenced)
        renewals.cut.clear()
        await cluster.until(lambda: not cluster.reigning.image.brokers[3].fenced)

    with_renewals(test)


def test_broker_is_released_again_after_the_store_failed() -> None:
    """The release elects the broker, which is the last replica of a partition that is alive."""

    async def main(cluster: Cluster) -> None:
        renewals = Renewals(cluster)
        store = FailingStore(MemoryStore(cluster.tree))
        await cluster.add(1, store=cast(MetadataStore, store))
        await cluster.of(2, 3)
        task = asyncio.create_task(renewals.go_on())
        await cluster.reigning.create_topics([NewTopic("t", assignments=[(0, (3, 2))])])
        renewals.part(1, 3)
        await cluster.until(lambda: states(cluster)[0].isr == (2,))
        await cluster.members[2].die(session_ends=True)
        await cluster.until(lambda: states(cluster)[0].leader == NO_LEADER)
        store.fails = True
        renewals.cut.clear()
        await cluster.until(lambda: states(cluster)[0].leader == 3)
        assert not store.fails
        task.cancel()

    run(main, SETTINGS)


def test_broker_that_shuts_down_stays_fenced_although_it_asks() -> None:
    async def test(cluster: Cluster, renewals: Renewals) -> None:
        renewals.part(1, 3)
        await cluster.until(lambda: cluster.reigning.image.brokers[3].fenced)
        await cluster.reigning.controlled_shutdown(3, cluster.members[3].epoch)
        renewals.cut.clear()
        renewals.part(1, 2)
        # The fence of broker 2 shows that brokers have been looked at since.
        await cluster.until(lambda: cluster.reigning.image.brokers[2].fenced)
        assert cluster.reigning.image.brokers[3].fenced

    with_renewals(test)


def test_late_shutdown_of_the_process_before_keeps_no_broker_fenced() -> None:
    async def test(cluster: Cluster, renewals: Renewals) -> None:
        renewals.part(1, 3)
        await cluster.until(lambda: cluster.reigning.image.brokers[3].fenced)
        with pytest.raises(KafkaError, match="STALE_BROKER_EPOCH"):
            await cluster.reigning.controlled_shutdown(3, cluster.members[3].epoch - 1)
        renewals.cut.clear()
        await cluster.until(lambda: not cluster.reigning.image.brokers[3].fenced)

    with_renewals(test)


def test_controller_that_too_few_reach_yields_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "AWAY_SECONDS", 0.2)

    async def test(cluster: Cluster, renewals: Renewals) -> None:
        epoch = cluster.members[1].epoch
        renewals.part(1, 2, 3)
        await cluster.until(lambda: cluster.controller not in (None, cluster.members[1].controller))
        await cluster.until(lambda: {state.leader for state in states(cluster)} == {2, 3})
        assert all(set(state.isr) <= {2, 3} for state in states(cluster))
        node = cluster.tree.find(YIELDED)
        assert node is not None
        assert node.data == b"1 %d" % epoch
        await cluster.until(lambda: cluster.tree.find(BrokerNode.path(1)) is not None)
        await cluster.until(lambda: cluster.members[1].epoch > epoch)

    with_renewals(test)


@pytest.mark.parametrize("took_effect", [True, False])
def test_controller_needs_another_registration_after_a_lost_answer(took_effect: bool) -> None:
    """The next controller may have read that it has no lease."""

    async def test(cluster: Cluster) -> None:
        store = DyingStore(MemoryStore(cluster.tree))
        member = await cluster.add(1, store=cast(MetadataStore, store))
        epoch = member.epoch
        store.after = took_effect
        store.failures = [StoreUnavailable("the answer was lost")]
        member.membership.step_down()
        await cluster.until(lambda: member.epoch > epoch and member.controller.is_active)
        node = cluster.tree.find(YIELDED)
        assert (node is not None) is took_effect

    run(test)


def test_controller_that_was_replaced_does_not_yield() -> None:
    async def test(cluster: Cluster) -> None:
        (member,) = await cluster.of(1)
        broker = member.image.brokers[1]
        assert await yielding(member.store, broker, member.controller.epoch + 1) == []
        assert cluster.tree.find(CONTROLLER) is not None

    run(test)


def test_mark_of_another_version_is_ignored() -> None:
    async def test() -> None:
        store = MemoryStore(MemoryTree())
        await store.apply([Create(YIELDED, b'{"broker": 1}')])
        assert await ControllerStore(store).read_yielded() is None

    asyncio.run(test())


@pytest.mark.parametrize("way", ["session ends", "another session", "lasts", "unbounded", "in between"])
def test_former_controller_is_known_to_have_ended_only_with_its_session(way: str) -> None:
    async def test() -> None:
        tree = MemoryTree()
        former, store = Bounded(tree), Bounded(tree)
        await former.apply(await election(former, 6, 1))
        later = 7
        if way in ("session ends", "another session"):
            former.expire()
        if way == "another session":
            await former.reopen()
        if way == "in between":
            former.expire()
            later = 8
        if way == "unbounded":
            former.expire()
            assert await election(MemoryStore(tree), later, 2) == []
        else:
            await store.apply(await election(store, later, 2))
        found = await ControllerStore(store).read_ended(later)
        assert found == ((6, 1) if way in ("session ends", "another session") else None)

    asyncio.run(test())


def test_notes_of_another_version_say_nothing_of_the_former_controller() -> None:
    async def test() -> None:
        store = MemoryStore(MemoryTree())
        assert await ControllerStore(store).read_ended(7) is None
        await store.apply([Create(REIGN, b"7 2 6")])
        assert await ControllerStore(store).read_ended(7) is None

    asyncio.run(test())


def test_controller_that_takes_over_notes_its_election() -> None:
    async def test(cluster: Cluster) -> None:
        store = Bounded(cluster.tree)
        member = await cluster.add(1, store=store)
        node = cluster.tree.find(REIGN)
        assert node is not None
        assert node.data == b"%d 1 -1 -1" % member.controller.epoch
        assert cluster.tree.find(f"{REIGNS}/{member.controller.epoch}") is not None
        store.expire()
        await cluster.until(lambda: member.controller.epoch > 1 and member.controller.is_active)
        node = cluster.tree.find(REIGN)
        assert node is not None
        assert node.data == b"2 1 1 1"
        assert cluster.tree.find(f"{REIGNS}/1") is None

    run(test)


def test_controller_that_yields_stays_unregistered_for_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """Meanwhile the next controller moves its leadership."""

    async def test(cluster: Cluster) -> None:
        member = await cluster.add(1)
        member.membership.step_down()
        await cluster.until(lambda: "yielded as the controller" in caplog.text)

    run(test)
    assert "registering again after 1 s" in caplog.text
