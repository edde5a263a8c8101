"""Checkpoints of many logs: others are served meanwhile, and what changes meanwhile is in the file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from odradek.log import turns
from odradek.log.config import LogConfig
from odradek.log.directories.checkpoint_formats import RECOVERY_POINTS, parse_offsets
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.partition_log import PartitionLog
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from tests.unit.log.flushing import flush_all
from tests.unit.log.support import StandingClock, batch, put

OLD, NEW = b"o" * 16, b"n" * 16
PARTITIONS = 10
CONFIG = LogConfig()


def start(path: Path) -> LogDirectories:
    directories = LogDirectories(SystemDisk(), StandingClock(), SeededRandom("checkpoints"), [str(path)])
    directories.startup.load(cluster_id="c", node_id=1)
    return directories


def opened(directories: LogDirectories, partition: int, topic_id: bytes = OLD) -> PartitionLog:
    log = directories.open("a-topic", partition, topic_id, CONFIG)
    put(log, batch(4))
    return log


def in_file(path: Path) -> dict[int, int]:
    return {index: offset for (_, index), offset in parse_offsets((path / RECOVERY_POINTS).read_bytes()).items()}


def test_others_are_served_while_many_offsets_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 2)
    directories = start(tmp_path)
    for partition in range(PARTITIONS):
        opened(directories, partition)
    asyncio.run(flush_all(directories))
    noted = directories.directories[0].recovery_points
    seen = []

    async def run() -> None:
        writing = asyncio.create_task(directories.checkpoints.persist(RECOVERY_POINTS))
        while len(noted) < PARTITIONS:
            await asyncio.sleep(0)
            seen.append(len(noted))
        await writing

    asyncio.run(run())
    assert seen == [2, 4, 6, 8, 10]
    assert in_file(tmp_path) == dict.fromkeys(range(PARTITIONS), 4)


def test_log_truncated_meanwhile_has_the_lower_offset_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows the truncation is not synced: a start must examine it."""
    monkeypatch.setattr(turns, "AT_ONCE", 1)
    directories = start(tmp_path)
    logs = [opened(directories, partition) for partition in range(3)]
    put(logs[0], batch(4))
    asyncio.run(flush_all(directories))
    noted = directories.directories[0].recovery_points

    async def run() -> None:
        writing = asyncio.create_task(directories.checkpoints.persist(RECOVERY_POINTS))
        await asyncio.sleep(0)
        assert noted == {("a-topic", 0): 8}
        logs[0].truncate_to(4)
        put(logs[0], batch(4))
        await writing

    asyncio.run(run())
    assert in_file(tmp_path) == {0: 4, 1: 4, 2: 4}


def test_partition_recreated_while_offsets_are_noted_has_its_own_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "AT_ONCE", 1)
    directories = start(tmp_path)
    for partition in range(3):
        opened(directories, partition)
    asyncio.run(flush_all(directories))

    async def run() -> None:
        writing = asyncio.create_task(directories.checkpoints.persist(RECOVERY_POINTS))
        await asyncio.sleep(0)
        for partition in (0, 2):
            directories.delete("a-topic", partition, 0)
        opened(directories, 2, NEW)
        await writing

    asyncio.run(run())
    assert in_file(tmp_path) == {1: 4, 2: 0}
