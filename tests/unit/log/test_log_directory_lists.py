"""Which logs of a broker's directories are open, and which are not."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

from odradek.log.config import LogConfig
from odradek.log.directories.log_directories import LogDirectories
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from tests.unit.log.support import StandingClock, batch, put


def start(*paths: Path) -> LogDirectories:
    for path in paths:
        path.mkdir(exist_ok=True)
    made = LogDirectories(SystemDisk(), StandingClock(), SeededRandom("lists"), [str(path) for path in paths])
    made.startup.load(cluster_id="c", node_id=1)
    return made


def test_unopened_logs_are_those_of_working_directories(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    directories = start(first, second)
    for topic in ("a", "b"):
        for index in range(2):
            put(directories.open(topic, index, topic.encode() * 16, LogConfig()), batch())
    assert list(directories.unopened()) == []
    assert len(directories.opened()) == 4
    asyncio.run(directories.close(clean=True))
    again = start(first, second)
    paths = {(topic, index): path for topic, index, path, _ in again.unopened()}
    assert set(paths) == {("a", 0), ("a", 1), ("b", 0), ("b", 1)}
    assert {path.rpartition("/")[0] for path in paths.values()} == {str(first), str(second)}
    again.open("a", 0, b"a" * 16, LogConfig())
    assert ("a", 0) not in {(topic, index) for topic, index, _, _ in again.unopened()}
    assert len(list(again.unopened())) == 3
    again.events.subscribe_failures(lambda _path: None)
    failed = paths["b", 1].rpartition("/")[0]
    again._places.failed(failed, OSError(errno.EIO, "failed"))
    assert all(not path.startswith(failed) for _, _, path, _ in again.unopened())


def test_unopened_logs_may_be_opened_while_they_are_listed(tmp_path: Path) -> None:
    directories = start(tmp_path / "data")
    for index in range(3):
        put(directories.open("a", index, b"a" * 16, LogConfig()), batch())
    asyncio.run(directories.close(clean=True))
    again = start(tmp_path / "data")
    listed = again.unopened()
    _, first, _, _ = next(listed)
    second, third = sorted({0, 1, 2} - {first})
    again.open("a", second, b"a" * 16, LogConfig())
    assert [index for _, index, _, _ in listed] == [third]
