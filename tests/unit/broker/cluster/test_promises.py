"""Promises not to begin to lead, which the next process of a broker keeps as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.cluster.promises import Promises
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.replication.leadership import Leadership
from odradek.wire.errors import KafkaError

ID = b"t" * 16
OTHER = ClusterImage("c").with_topics([Topic("t", ID, (PartitionState(2, 4, (1, 2), (1, 2)),))])
LED = OTHER.with_topics([Topic("t", ID, (PartitionState(1, 5, (1, 2), (1, 2)),))])


class World:
    """A broker whose clock the test moves, with two log directories, of which the first is offline."""

    def __init__(self, promised_until: float = -inf) -> None:
        self.now = 100.0
        self.is_full = False
        self.notes: list[tuple[str, bytes]] = []
        self.leadership = Leadership(1, self.monotonic)
        config: Any = SimpleNamespace(number={"odradek.leadership.lease.ms": 2000}.__getitem__)
        directories: Any = SimpleNamespace(
            directories=[SimpleNamespace(path="/a", offline="failed"), SimpleNamespace(path="/b", offline=None)],
            startup=SimpleNamespace(promised_until=promised_until),
        )
        own: Any = self
        self.promises = Promises(config, own, own, directories, self.leadership)

    def monotonic(self) -> float:
        return self.now

    async def run(self, _lane: str, function: Callable[..., bool], *args: Any) -> bool:
        await asyncio.sleep(0)
        return function(*args)

    def write_atomic(self, path: str, data: bytes, *, sync: bool) -> None:
        assert not sync
        if self.is_full:
            raise OSError("full")
        self.notes.append((path, data))

    def give(self, *indices: int) -> None:
        asyncio.run(self.promises.give([(ID, index) for index in indices], 2.0))

    @property
    def begins(self) -> bool:
        self.leadership.begin(self.leadership.sequence)
        return not self.leadership.has_pending


def test_promise_is_noted_and_kept() -> None:
    world = World()
    world.give(0)
    assert world.notes == [("/b/.odradek_promise", b"104.000")]
    world.leadership.follow(OTHER, LED)
    assert not world.begins
    world.now = 102.0
    assert world.begins


def test_note_covers_the_next_promise() -> None:
    world = World()
    for world.now in (100.0, 102.0, 102.1):
        world.give(0)
    assert [data for _, data in world.notes] == [b"104.000", b"106.100"]


def test_promises_at_the_same_time_need_one_note() -> None:
    world = World()

    async def give() -> None:
        await asyncio.gather(*(world.promises.give([(ID, index)], 2.0) for index in range(3)))

    asyncio.run(give())
    assert len(world.notes) == 1


def test_no_promise_needs_no_note() -> None:
    world = World()
    world.give()
    assert not world.notes


def test_promise_without_a_note_is_not_given() -> None:
    world = World()
    world.is_full = True
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        world.give(0)
    world.is_full = False
    world.give(0)
    assert len(world.notes) == 1


@pytest.mark.parametrize(
    ("noted", "now", "begins"),
    [
        (-inf, 100.0, True),
        (99.0, 100.0, True),
        (101.5, 101.4, False),
        (101.5, 101.5, True),
        (103.0, 101.9, False),
        (103.0, 102.0, True),
        (inf, 101.9, False),
        (inf, 102.0, True),
    ],
)
def test_promises_of_the_process_before_are_kept_for_a_lease(noted: float, now: float, begins: bool) -> None:
    world = World(noted)
    world.leadership.follow(ClusterImage("c"), LED)
    world.now = now
    assert world.begins is begins
