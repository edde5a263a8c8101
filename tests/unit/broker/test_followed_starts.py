"""Log starts that leaders tell: taken over once they are on the disk, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

import pytest

from odradek.broker import followed_starts
from odradek.broker.followed_starts import FollowedStarts
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError


class Follower:
    """A partition that notes where its log begins."""

    topic = "t"

    def __init__(self, index: int) -> None:
        self.index = index
        self.start = 0
        self.failure: KafkaError | None = None

    def follow_start(self, offset: int) -> bool:
        if self.failure is not None:
            raise self.failure
        moved, self.start = offset > self.start, max(self.start, offset)
        return moved


class World:
    """A disk that writes when it is let, and whoever tells the leader."""

    def __init__(self) -> None:
        self.written: list[Mapping[tuple[str, int], int]] = []
        self.may_write = asyncio.Semaphore(0)
        self.failures: list[KafkaError] = []
        self.changed: list[int] = []
        self.starts = FollowedStarts(self.advance, lambda partition: self.changed.append(partition.index))

    async def advance(self, starts: Mapping[tuple[str, int], int], then: Callable[[], None]) -> None:
        await self.may_write.acquire()
        if self.failures:
            raise self.failures.pop()
        self.written.append(dict(starts))
        then()

    def told(self, follower: Follower, offset: int) -> None:
        self.starts.told(cast(Partition, follower), offset)

    async def writes(self, count: int) -> None:
        expected = len(self.written) + count
        for _ in range(count):
            self.may_write.release()
        async with asyncio.timeout(10):
            while len(self.written) < expected:
                await asyncio.sleep(0)


def test_a_start_is_seen_once_it_is_written() -> None:
    async def test() -> None:
        world = World()
        first, second = Follower(0), Follower(1)
        world.told(first, 5)
        await asyncio.sleep(0)
        # Told again with every answer, and of others, while the first is being written.
        world.told(first, 5)
        world.told(first, 7)
        world.told(second, 3)
        assert (first.start, world.changed) == (0, [])
        await world.writes(1)
        assert (first.start, second.start, world.changed) == (5, 0, [0])
        await world.writes(1)
        assert (first.start, second.start, world.changed) == (7, 3, [0, 0, 1])
        assert world.written == [{("t", 0): 5}, {("t", 0): 7, ("t", 1): 3}]

    asyncio.run(test())


def test_a_start_that_cannot_be_written_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_starts, "_RETRY_SECONDS", 0.0)

    async def test() -> None:
        world = World()
        follower = Follower(0)
        world.failures.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no descriptor is left"))
        world.told(follower, 5)
        world.may_write.release()
        await world.writes(1)
        assert follower.start == 5

    asyncio.run(test())


def test_a_log_that_has_failed_keeps_no_other_from_its_start() -> None:
    async def test() -> None:
        world = World()
        failed, sound = Follower(0), Follower(1)
        failed.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        world.told(failed, 5)
        world.told(sound, 5)
        await world.writes(1)
        assert (failed.start, sound.start, world.changed) == (0, 5, [1])
        world.starts.close()

    asyncio.run(test())
