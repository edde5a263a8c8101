"""The mark that brokers are deposed: it stays until each of them has ended, and no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.broker.cluster.controller_store import ControllerStore
from odradek.broker.cluster.deposed_mark import CLEAR_SECONDS, DeposedMark
from odradek.metadata.image import Broker, ClusterImage
from odradek.metadata.nodes import CONTROLLER_EPOCH, ControllerEpochNode
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.store import Create

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
