"""The mark that brokers are deposed: it stays until each of them has ended, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from odradek.broker.cluster.controller_store import DEPOSED, ControllerStore
from odradek.broker.cluster.deposed_mark import CLEAR_SECONDS, DeposedMark
from odradek.controller.topics import NewTopic
from odradek.metadata.image import Broker, ClusterImage
from odradek.metadata.nodes import CONTROLLER_EPOCH, ControllerEpochNode
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.store import Create, MetadataStore, Operation, StoreUnavailable
from tests.unit.broker.cluster.cluster_members import Cluster, DyingStore, run

OWN = 1


class Controller:
    """Its store, its leases, and events that run when the test lets time pass."""

    def __init__(self) -> None:
        self.is_deposed_marked = True
        self.is_quiet = False
        self.cleared = 0
        self.timers: dict[str, tuple[float, Callable[[], None]]] = {}
        this: Any = self
        self.mark = DeposedMark(OWN, this, this, this)

    def soon(self, event: Callable[[], Awaitable[object]]) -> None:
        async def run() -> None:
            await event()

        asyncio.run(run())

    def later(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        self.timers.setdefault(name, (seconds, then))

    def mark_deposed(self) -> list[Any]:
        return ["operation"]

    async def clear_deposed(self) -> None:
        self.is_deposed_marked = False
        self.cleared += 1

    def let_pass(self) -> float:
        """Run the next timer; the seconds it waited for."""
        ((seconds, then),) = self.timers.values()
        self.timers.clear()
        then()
        return seconds


def test_mark_is_removed_once_all_deposed_brokers_have_ended() -> None:
    controller = Controller()
    controller.mark.clear_later()
    for _ in range(5):
        assert controller.let_pass() == CLEAR_SECONDS
        assert controller.is_deposed_marked, "one of them may still act as leader"
    controller.is_quiet = True
    controller.let_pass()
    assert (controller.cleared, controller.timers) == (1, {})


def test_mark_that_is_not_set_is_not_removed() -> None:
    controller = Controller()
    controller.is_deposed_marked, controller.is_quiet = False, True
    controller.mark.clear_later()
    controller.let_pass()
    assert (controller.cleared, controller.timers) == (0, {})


@pytest.mark.parametrize(
    ("deposed", "brokers", "is_marked"),
    [({OWN: 4}, [OWN], False), ({OWN: 4}, [], False), ({OWN: 4}, [OWN, 2], True), ({2: 4}, [OWN], True)],
)
def test_mark_is_set_unless_the_only_broker_deposes_itself(
    deposed: dict[int, int], brokers: list[int], is_marked: bool
) -> None:
    image = ClusterImage().with_brokers({each: Broker(each, 4, None, {}) for each in brokers})
    assert bool(Controller().mark.operations(deposed, image)) is is_marked


def test_mark_is_read_by_the_next_controller_until_it_is_removed() -> None:
    """A next controller that missed it would elect leaders beside those that may still act."""

    async def scenario() -> None:
        memory = MemoryStore(MemoryTree())
        await memory.apply([Create(CONTROLLER_EPOCH, ControllerEpochNode.encode(1))])
        store, following = ControllerStore(memory), ControllerStore(memory)
        assert not await following.read_deposed()
        for _ in range(2):
            await store.apply(store.mark_deposed())
            store.deposed_marked()
            assert store.mark_deposed() == []
            assert await following.read_deposed()
            assert following.is_deposed_marked
            await store.clear_deposed()
            assert not await following.read_deposed()
            assert not following.is_deposed_marked

    asyncio.run(scenario())


class LosingStore(DyingStore):
    """Loses the answer to the next write of the mark."""

    max_transaction_bytes = 0
    loses = False

    async def apply(self, operations: Sequence[Operation]) -> None:
        await self.inner.apply(operations)
        if self.loses and any(operation.path == DEPOSED for operation in operations):
            self.loses = False
            raise StoreUnavailable("the answer was lost")


def with_losing_store(test: Callable[[Cluster, LosingStore], Awaitable[None]]) -> None:
    """Three brokers with a topic of three partitions; the first one is the controller, and loses an answer."""

    async def main(cluster: Cluster) -> None:
        store = LosingStore(MemoryStore(cluster.tree))
        await cluster.add(1, store=cast(MetadataStore, store))
        await cluster.of(2, 3)
        await cluster.reigning.create_topics([NewTopic("t", 3, 3)])
        await test(cluster, store)

    run(main)


def leaders(cluster: Cluster) -> set[int]:
    return {state.leader for state in cluster.reigning.image.topics["t"].partitions}


def mark_of(cluster: Cluster) -> bytes:
    node = cluster.tree.find(DEPOSED)
    return b"" if node is None else node.data


def test_leaders_are_elected_after_the_answer_to_a_new_mark_was_lost() -> None:
    """The controller tried to create the mark again with each decision, and the store rejected them all."""

    async def test(cluster: Cluster, store: LosingStore) -> None:
        store.loses = True
        await cluster.members[2].die(session_ends=True)
        await cluster.until(lambda: leaders(cluster) == {1, 3})
        assert not store.loses
        await cluster.members[3].die(session_ends=True)
        await cluster.until(lambda: leaders(cluster) == {1})

    with_losing_store(test)


def test_mark_is_set_again_after_the_answer_to_its_removal_was_lost() -> None:
    async def test(cluster: Cluster, store: LosingStore) -> None:
        await cluster.members[2].die(session_ends=True)
        await cluster.until(lambda: mark_of(cluster) == b"1")
        store.loses = True
        await cluster.until(lambda: not store.loses)
        assert mark_of(cluster) == b"0"
        await cluster.until(lambda: not cluster.members[1].controller._store.is_deposed_marked)
        store.loses = True
        await cluster.members[3].die(session_ends=True)
        await cluster.until(lambda: leaders(cluster) == {1})
        assert not store.loses, "the mark was written with the change"

    with_losing_store(test)
