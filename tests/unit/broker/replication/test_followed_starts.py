"""Followers report their log start offset once it is on the disk, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from odradek.broker.replication import followed_starts
from odradek.broker.replication.followed_starts import FollowedStarts
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError


class Follower:
    """A partition that notes what is written of it."""

    topic = "t"

    def __init__(self, index: int) -> None:
        self.index = index
        self.written = 0
        self.log = SimpleNamespace(is_offline=False)
        self.replicated = SimpleNamespace(start_persisted=self.start_persisted)

    def start_persisted(self, offset: int) -> None:
        self.written = offset


class World:
    """A disk that writes on request, and a recorder of reports to the leader."""

    def __init__(self) -> None:
        self.writes: list[Mapping[tuple[str, int], int]] = []
        self.may_write = asyncio.Semaphore(0)
        self.failures: list[KafkaError] = []
        self.reported: list[int] = []
        self.starts = FollowedStarts(self.write, lambda partition: self.reported.append(partition.index))

    async def write(self, starts: Mapping[tuple[str, int], int], then: Callable[[], None]) -> None:
        await self.may_write.acquire()
        if self.failures:
            raise self.failures.pop()
        self.writes.append(dict(starts))
        then()

    def persist_start(self, follower: Follower, offset: int) -> None:
        self.starts.persist(cast(Partition, follower), offset)

    async def written(self) -> None:
        expected = len(self.writes) + 1
        self.may_write.release()
        async with asyncio.timeout(60):
            while len(self.writes) < expected:
                await asyncio.sleep(0)


def test_durable_log_start_is_reported_to_the_leader() -> None:
    async def test() -> None:
        world = World()
        first, second = Follower(0), Follower(1)
        world.persist_start(first, 5)
        await asyncio.sleep(0)
        # While that is being written.
        world.persist_start(first, 6)
        world.persist_start(first, 7)
        world.persist_start(second, 3)
        assert (first.written, world.reported) == (0, [])
        await world.written()
        assert (first.written, second.written, world.reported) == (5, 0, [0])
        await world.written()
        assert (first.written, second.written, world.reported) == (7, 3, [0, 0, 1])
        assert world.writes == [{("t", 0): 5}, {("t", 0): 7, ("t", 1): 3}]

    asyncio.run(test())


def test_what_cannot_be_written_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_starts, "_RETRY_SECONDS", 0.0)

    async def test() -> None:
        world = World()
        follower = Follower(0)
        world.failures.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no descriptor is left"))
        world.persist_start(follower, 5)
        world.may_write.release()
        await world.written()
        assert follower.written == 5
        world.starts.close()

    asyncio.run(test())


def test_deletion_before_the_first_write_does_not_affect_the_next_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_starts, "_RETRY_SECONDS", 0.0)

    async def test() -> None:
        world = World()
        deleted, other = Follower(0), Follower(1)
        world.failures.append(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no descriptor is left"))
        world.persist_start(deleted, 5)
        world.persist_start(other, 3)
        await asyncio.sleep(0)
        deleted.log.is_offline = True
        world.may_write.release()
        await world.written()
        assert world.writes == [{("t", 1): 3}]
        world.starts.close()

    asyncio.run(test())
