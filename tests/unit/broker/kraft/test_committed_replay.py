"""The replayed part of the metadata log: all committed records in their order, and none that may be cut off."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.kraft.committed_replay import CommittedReplay
from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint, read_checkpoint
from odradek.kraft.metadata_log import encode_metadata_batch
from odradek.log.environment import LogEnvironment
from odradek.metadata.features import BROKER_METADATA, METADATA_VERSION
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.wire.messages import cluster_metadata as md
from tests.unit.broker.kraft.quorum_double import topic, versioned


def open_log(directory: Path) -> DurableMetadataLog:
    return DurableMetadataLog.open(str(directory), LogEnvironment(SystemDisk(), SystemClock()))


def replay_of(log: DurableMetadataLog, bytes_between: int = 1 << 30) -> CommittedReplay:
    clock = SystemClock()
    return CommittedReplay(log, clock, MetadataSnapshots(clock, bytes_between, 0), "cluster")


def names(first: int, count: int) -> list[str]:
    return [f"t{number}" for number in range(first, first + count)]


def batch_of(first: int, topics: list[str]) -> bytes:
    records: list[Any] = [topic(name) for name in topics]
    return encode_metadata_batch(versioned(records), base_offset=first, leader_epoch=1, timestamp_ms=0)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(1, 5), min_size=1, max_size=3)),
        st.tuples(st.just("truncate"), st.integers(0, 10)),
        st.tuples(st.just("commit"), st.integers(0, 10)),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_exactly_the_committed_records_are_replayed(
    tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, Any]]
) -> None:
    log = open_log(tmp_path_factory.mktemp("log"))
    replay = replay_of(log)
    batches: list[list[str]] = []
    committed = made = 0

    async def scenario() -> None:
        nonlocal committed, made
        await replay.load()
        for action, value in actions:
            end = sum(map(len, batches))
            if action == "append":
                added = b""
                for count in value:
                    batches.append(names(made, count))
                    made += count
                    added += batch_of(end, batches[-1])
                    end += count
                replay.appended(added)
            elif action == "truncate":
                while batches and value > 0 and sum(map(len, batches[:-1])) >= committed:
                    batches.pop()
                    value -= 1
                replay.truncated(sum(map(len, batches)))
            else:
                committed = min(end, committed + value)
                await replay.replay_to(committed)
            every = [name for batch in batches for name in batch]
            assert list(replay.image.topics) == every[:committed]
            assert [record.name for record in replay.waiting_records()] == every[replay.end_offset :]
        assert replay.end_offset == committed or not committed

    asyncio.run(scenario())
    log.close()


@pytest.mark.parametrize("size", [700, 3])
def test_long_replay_gives_other_tasks_their_turn(tmp_path: Path, size: int) -> None:
    """Some 500 records are replayed at a time, however long the batches are."""
    log = open_log(tmp_path)
    replay = replay_of(log)
    seen: list[int] = []

    async def watch() -> None:
        while True:
            if not seen or replay.end_offset != seen[-1]:
                seen.append(replay.end_offset)
            await asyncio.sleep(0)

    async def scenario() -> None:
        for first in range(0, 2100, size):
            replay.appended(batch_of(first, names(first, size)))
        watching = asyncio.create_task(watch())
        await asyncio.sleep(0)
        await replay.replay_to(2100)
        watching.cancel()

    asyncio.run(scenario())
    assert replay.end_offset == 2100
    pauses = [after - before for before, after in zip(seen, [*seen[1:], 2100], strict=True)]
    assert 3 <= len(seen) <= 10
    assert max(pauses) <= 600
    log.close()


def test_snapshot_that_arrives_in_between_ends_the_replay(tmp_path: Path) -> None:
    """The records of the replaced log are not replayed on top of the snapshot."""
    log = open_log(tmp_path)
    replay = replay_of(log)
    found = CheckpointId(2000, 1)
    records: list[Any] = [topic("of the snapshot")]
    data = encode_checkpoint(found, versioned(records), timestamp_ms=0, last_timestamp_ms=0)

    async def scenario() -> None:
        content = read_checkpoint(data)
        replay.appended(batch_of(0, names(0, 1500)))
        replaying = asyncio.create_task(replay.replay_to(1500))
        await asyncio.sleep(0)
        assert 0 < replay.end_offset < 1500
        replay.installed(content, 2000)
        await replaying
        assert list(replay.image.topics) == ["of the snapshot"]
        assert replay.end_offset == 2000
        replay.appended(batch_of(2000, ["later"]))
        await replay.replay_to(2001)
        assert list(replay.image.topics) == ["of the snapshot", "later"]

    asyncio.run(scenario())
    log.close()


def test_snapshot_that_lacks_a_descriptor_is_written_after_further_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log is complete without it. Another failure of the disk ends the node."""

    async def scenario() -> None:
        log = open_log(tmp_path)
        replay = replay_of(log, bytes_between=1)
        await replay.load()
        save = log.save_snapshot
        for first, failure in enumerate((errno.EMFILE, errno.EIO, 0)):
            record: Any = md.FeatureLevelRecord(METADATA_VERSION, BROKER_METADATA.max_level - first)
            batch = encode_metadata_batch(versioned([record]), base_offset=first, leader_epoch=1, timestamp_ms=0)
            log.append(batch)
            replay.appended(batch)
            await replay.replay_to(first + 1)

            def fails(*_: object, failure: int = failure) -> None:
                raise OSError(failure, os.strerror(failure))

            monkeypatch.setattr(log, "save_snapshot", fails if failure else save)
            if failure == errno.EIO:
                with pytest.raises(OSError, match="Input/output"):
                    await replay.write_snapshot_if_due()
            else:
                assert await replay.write_snapshot_if_due() == (None if failure else CheckpointId(3, 1))
        log.close()

    asyncio.run(scenario())
    (line,) = caplog.messages
    assert "Too many open files" in line
