"""Following the metadata log: what of it becomes the broker's image, and what a restart finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.broker.kraft.controllers import Controllers
from odradek.broker.kraft.metadata_follower import MetadataFollower
from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_observer import MetadataObserver, ObserverIdentity
from odradek.log.environment import LogEnvironment
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.wire.messages import cluster_metadata as md
from tests.unit.broker.kraft.quorum_double import LEADER, ALeader, topic


@asynccontextmanager
async def following(
    leader: ALeader, directory: Path, *, bytes_between: int = 1 << 30
) -> AsyncIterator[MetadataFollower]:
    clock = SystemClock()
    log = DurableMetadataLog.open(str(directory), LogEnvironment(SystemDisk(), clock))
    identity = ObserverIdentity("cluster", 7, bytes(16))
    end = log.log_end.offset
    observer = MetadataObserver(identity, [LEADER], start=log.start, epochs=log.epochs, end_offset=end, retry_ms=1)
    snapshots = MetadataSnapshots(clock, bytes_between, 0)
    follower = MetadataFollower(log, observer, cast(Controllers, leader), clock, snapshots, "cluster", 1000)
    await follower.start()
    try:
        yield follower
    finally:
        await follower.close()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.001)


def run(scenario: Any) -> None:
    asyncio.run(scenario)


def test_committed_records_become_the_image(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = ALeader()
        leader.append(topic("a"))
        leader.append(topic("b"), commit=False)
        async with following(leader, tmp_path) as follower:
            assert await follower.wait_until_caught_up(30)
            await until(lambda: len(leader.asked_offsets) > 3)
            assert (set(follower.image.topics), follower.end_offset) == ({"a"}, 1)
            assert follower.image.cluster_id == "cluster"
            assert leader.active == LEADER
            leader.committed = 2
            await until(lambda: set(follower.image.topics) == {"a", "b"})

    run(scenario())


def test_records_that_the_leader_lacks_are_never_replayed(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = ALeader()
        leader.append(topic("a"))
        leader.append(topic("uncommitted"), commit=False)
        async with following(leader, tmp_path) as follower:
            await until(lambda: 2 in leader.asked_offsets)
            leader.batches.pop()
            leader.end, leader.epoch, leader.diverging = 1, 6, (5, 1)
            leader.append(topic("c"))
            await until(lambda: set(follower.image.topics) == {"a", "c"})

    run(scenario())


def test_restart_continues_with_what_the_disk_has(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = ALeader()
        leader.append(topic("a"), topic("b"))
        async with following(leader, tmp_path) as follower:
            assert await follower.wait_until_caught_up(30)
        leader.asked_offsets.clear()
        async with following(leader, tmp_path) as follower:
            assert await follower.wait_until_caught_up(30)
            assert set(follower.image.topics) == {"a", "b"}
        assert set(leader.asked_offsets) == {2}

    run(scenario())


def test_snapshot_of_the_leader_replaces_the_image(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = ALeader()
        leader.append(topic("old"))
        async with following(leader, tmp_path) as follower:
            await until(lambda: set(follower.image.topics) == {"old"})
            leader.append(topic("b"))
            leader.batches.clear()
            leader.append(topic("c"))
            leader.replace_by_snapshot(topic("b"), topic("c"))
            leader.append(topic("d"))
            await until(lambda: set(follower.image.topics) == {"b", "c", "d"})
        async with following(leader, tmp_path) as follower:
            assert await follower.wait_until_caught_up(30)
            assert set(follower.image.topics) == {"b", "c", "d"}

    run(scenario())


@pytest.mark.parametrize("level", [30, 7])
def test_long_log_is_replaced_by_a_snapshot_of_its_own(tmp_path: Path, level: int) -> None:
    async def scenario() -> None:
        leader = ALeader()
        leader.append(md.FeatureLevelRecord("metadata.version", level))
        async with following(leader, tmp_path, bytes_between=500) as follower:
            for number in range(30):
                leader.append(topic(f"t{number}"))
                await until(lambda number=number: f"t{number}" in follower.image.topics)  # type: ignore[misc]
        files = [each.name for each in (tmp_path / "__cluster_metadata-0").iterdir()]
        assert any(name.endswith(".checkpoint") for name in files)
        log = DurableMetadataLog.open(str(tmp_path), LogEnvironment(SystemDisk(), SystemClock()))
        assert log.start.offset > 10
        log.close()
        async with following(leader, tmp_path) as follower:
            assert await follower.wait_until_caught_up(30)
            assert len(follower.image.topics) == 30
            assert (follower.image.features or {})["metadata.version"] == level

    run(scenario())


def test_no_snapshot_is_written_that_would_lose_anything(tmp_path: Path) -> None:
    """Records at a metadata version that this one does not know may have fields that it does not know."""

    async def scenario() -> None:
        leader = ALeader()
        leader.append(md.FeatureLevelRecord("metadata.version", 31))
        async with following(leader, tmp_path, bytes_between=100) as follower:
            for number in range(10):
                leader.append(topic(f"t{number}"))
            await until(lambda: len(follower.image.topics) == 10)
        assert not [each for each in (tmp_path / "__cluster_metadata-0").iterdir() if each.suffix == ".checkpoint"]

    run(scenario())


def test_broker_has_not_caught_up_while_no_controller_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader = ALeader()
        leader.is_away = True
        async with following(leader, tmp_path) as follower:
            assert not await follower.wait_until_caught_up(0.05)
            assert "connection refused" in follower.problem
            leader.is_away = False
            leader.append(topic("a"))
            assert await follower.wait_until_caught_up(30)
            assert not follower.problem

    run(scenario())


def test_images_are_passed_on_with_their_offsets(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader, seen = ALeader(), list[tuple[set[str], int]]()
        leader.append(topic("a"))

        async def take(image: ClusterImage, end_offset: int) -> None:
            seen.append((set(image.topics), end_offset))

        async with following(leader, tmp_path) as follower:
            assert await follower.wait_until_caught_up(30)
            follower.follow(take, lambda _error: None)
            await until(lambda: bool(seen))
            leader.append(topic("b"))
            await until(lambda: len(seen) == 2)
        assert seen == [({"a"}, 1), ({"a", "b"}, 2)]

    run(scenario())


def test_leader_that_contradicts_committed_records_ends_the_following(tmp_path: Path) -> None:
    async def scenario() -> None:
        leader, failures = ALeader(), list[BaseException]()

        async def take(_image: ClusterImage, _end_offset: int) -> None:
            return

        leader.append(topic("a"), topic("b"))
        async with following(leader, tmp_path) as follower:
            follower.follow(take, failures.append)
            await until(lambda: follower.end_offset == 2)
            leader.epoch, leader.diverging = 6, (5, 1)
            await until(lambda: bool(failures))
        assert isinstance(failures[0], CorruptMetadata)

    run(scenario())


def test_fetches_that_keep_failing_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator learns why a broker does not follow the cluster; a moment without a leader is no news."""

    async def scenario() -> None:
        leader = ALeader()
        asked: list[Any] = []
        fetch = leader.fetch

        async def noted(*request: Any) -> Any:
            asked.append(request)
            if len(asked) == 8:
                assert caplog.messages == []
            return await fetch(*request)

        monkeypatch.setattr(leader, "fetch", noted)
        leader.is_away = True
        async with following(leader, tmp_path):
            await until(lambda: len(asked) > 20)

    run(scenario())
    assert caplog.messages == [
        "cannot fetch the metadata log: controller:9093: connection refused; retrying",
    ]
