"""Who can read what a broker, a cluster and an import create: attacks by another user of the machine."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.wire.messages import metadata

MakeBroker = Callable[..., Any]
Connect = Callable[[str], Any]


@pytest.fixture
def no_umask() -> Iterator[None]:
    """The most permissive one that a process can be started with."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> tuple[set[int], set[int]]:
    """Modes of all files and pipes, and of all directories, in a folder that the test itself has made."""
    files: set[int] = set()
    directories: set[int] = set()
    for path in folder.rglob("*"):
        (directories if path.is_dir() else files).add(stat.S_IMODE(path.lstat().st_mode))
    return files, directories


def create_topic(client: Any, name: str) -> None:
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    assert client.call(asked, 12).topics[0].error_code == 0


@pytest.mark.usefixtures("no_umask")
def test_only_the_owner_reads_what_a_broker_creates(make_broker: MakeBroker, connect: Connect) -> None:
    broker = make_broker().start()
    create_topic(connect(broker.bootstrap), "private")
    assert modes(broker.data_dir) == ({0o600}, {0o700}), "of a broker that runs"
    broker.stop()
    assert modes(broker.data_dir) == ({0o600}, {0o700}), "of one that has stopped"


@pytest.mark.usefixtures("no_umask")
def test_group_reads_what_a_broker_creates_when_allowed(make_broker: MakeBroker, connect: Connect) -> None:
    broker = make_broker({"odradek.group.access": "true"}).start()
    create_topic(connect(broker.bootstrap), "shared")
    broker.stop()
    assert modes(broker.data_dir) == ({0o640}, {0o750})


def test_planted_temporary_files_are_not_written_through(make_broker: MakeBroker, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    broker = make_broker()
    broker.data_dir.mkdir(exist_ok=True)
    for name in ("meta.properties", "replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (broker.data_dir / f"{name}.tmp").symlink_to(victim)
    broker.start()
    broker.stop()
    assert victim.read_text() == "precious"
    assert (broker.data_dir / "meta.properties").lstat().st_mode & 0o777 == 0o600
