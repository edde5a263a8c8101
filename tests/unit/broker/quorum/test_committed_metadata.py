"""What of the metadata log becomes a controller's image: committed records, each once, and none that were truncated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.broker.quorum.committed_metadata import CommittedMetadata
from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.metadata_log import encode_metadata_batch
from odradek.kraft.metadata_records import VersionedRecord
from odradek.log.environment import LogEnvironment
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.wire.messages import cluster_metadata as md
from tests.unit.broker.kraft.quorum_double import topic
from tests.unit.broker.quorum.controllers_in_process import until


def batch(base: int, epoch: int, *names: str) -> bytes:
    """A batch with a record for each topic."""
    records = [VersionedRecord(topic(name), 0) for name in names]
    return encode_metadata_batch(records, base_offset=base, leader_epoch=epoch, timestamp_ms=0)


class Fixture:
    def __init__(self, directory: Path, bytes_between: int = 1 << 30) -> None:
        self.written: list[CheckpointId] = []
        self.failures: list[BaseException] = []
        clock = SystemClock()
        self.log = DurableMetadataLog.open(str(directory), LogEnvironment(SystemDisk(), clock))
        snapshots = MetadataSnapshots(clock, bytes_between, 0)
        self.metadata = CommittedMetadata(
            self.log, clock, snapshots, "cluster", lambda found, _size: self.written.append(found), self.failures.append
        )

    @property
    def names(self) -> set[str]:
        return set(self.metadata.image.topics)

    def append(self, data: bytes) -> None:
        self.log.append(data)
        self.metadata.appended(data)


def run(directory: Path, scenario: Callable[[Fixture], Awaitable[None]], *before: bytes) -> None:
    """Load the log, with these batches in it, and run a scenario."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            fixture = Fixture(directory)
            for data in before:
                fixture.log.append(data)
            await fixture.metadata.load()
            await scenario(fixture)
            await fixture.metadata.close()
            assert fixture.failures == []

    asyncio.run(bounded())


def test_records_count_once_they_are_committed(tmp_path: Path) -> None:
    async def scenario(fixture: Fixture) -> None:
        fixture.append(batch(0, 1, "a") + batch(1, 1, "b"))
        fixture.metadata.committed(1)
        await fixture.metadata.wait_until_replayed(1)
        assert fixture.names == {"a"}
        fixture.metadata.committed(2)
        await fixture.metadata.wait_until_replayed(2)
        assert fixture.names == {"a", "b"}

    run(tmp_path, scenario)


def test_part_of_a_batch_may_be_committed_first(tmp_path: Path) -> None:
    async def scenario(fixture: Fixture) -> None:
        fixture.append(batch(0, 1, "a", "b"))
        fixture.metadata.committed(1)
        await fixture.metadata.wait_until_replayed(1)
        assert fixture.names == {"a"}
        fixture.metadata.committed(2)
        await fixture.metadata.wait_until_replayed(2)
        assert fixture.names == {"a", "b"}

    run(tmp_path, scenario)


def test_truncation_removes_batches_that_a_restart_has_found(tmp_path: Path) -> None:
    """A controller that restarts reads many batches at once, of which another leader may have only the first."""

    async def scenario(fixture: Fixture) -> None:
        fixture.log.truncate_to(1)
        fixture.metadata.truncated(1)
        fixture.append(batch(1, 2, "new"))
        fixture.metadata.committed(2)
        await fixture.metadata.wait_until_replayed(2)
        assert fixture.names == {"kept", "new"}

    run(tmp_path, scenario, batch(0, 1, "kept"), batch(1, 1, "lost"))


def test_metadata_transaction_counts_from_its_end(tmp_path: Path) -> None:
    records: list[Any] = [md.BeginTransactionRecord(), topic("a")]
    data = encode_metadata_batch(
        [VersionedRecord(each, type(each).MAX_VERSION) for each in records],
        base_offset=0, leader_epoch=1, timestamp_ms=0,
    )  # fmt: skip

    async def scenario(fixture: Fixture) -> None:
        fixture.append(data)
        fixture.metadata.committed(len(records))
        await fixture.metadata.wait_until_replayed(len(records))
        assert fixture.metadata.is_in_transaction
        assert fixture.names == set()

    run(tmp_path, scenario)


def test_damaged_log_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        fixture = Fixture(tmp_path)
        await fixture.metadata.load()
        record = VersionedRecord(md.RemoveTopicRecord(bytes(16)), 0)
        fixture.append(encode_metadata_batch([record], base_offset=0, leader_epoch=1, timestamp_ms=0))
        fixture.metadata.committed(1)
        await until(lambda: bool(fixture.failures))

    asyncio.run(scenario())


def test_records_of_earlier_processes_count_for_the_next_snapshot(tmp_path: Path) -> None:
    """A controller that is restarted often would never write one."""

    async def scenario() -> None:
        fixture = Fixture(tmp_path, bytes_between=100)
        level = VersionedRecord(md.FeatureLevelRecord("metadata.version", 30), 0)
        fixture.log.append(encode_metadata_batch([level], base_offset=0, leader_epoch=1, timestamp_ms=0))
        for number in (1, 2):
            fixture.log.append(batch(number, 1, f"t{number}"))
        await fixture.metadata.load()
        fixture.metadata.committed(3)
        await until(lambda: fixture.written == [CheckpointId(3, 1)])
        await fixture.metadata.close()
        assert fixture.failures == []

    asyncio.run(scenario())


def test_snapshot_of_the_leader_replaces_one_that_is_being_written(tmp_path: Path) -> None:
    """A follower that stood still meanwhile: the leader's log begins after the end of its own."""
    level = VersionedRecord(md.FeatureLevelRecord("metadata.version", 30), 0)
    newest = CheckpointId(9, 2)
    records = [level, VersionedRecord(topic("new"), 0)]
    content = encode_checkpoint(newest, records, timestamp_ms=0, last_timestamp_ms=0)

    async def scenario() -> None:
        fixture = Fixture(tmp_path, bytes_between=100)
        await fixture.metadata.load()
        fixture.append(encode_metadata_batch([level], base_offset=0, leader_epoch=1, timestamp_ms=0))
        fixture.append(batch(1, 1, "a") + batch(2, 1, "b"))
        fixture.metadata.committed(3)
        await fixture.metadata.wait_until_replayed(3)
        fixture.log.write_snapshot(newest, 0, content)
        fixture.metadata.installed(fixture.log.install_snapshot(newest), newest.end_offset)
        fixture.append(batch(9, 2, "newer"))
        fixture.metadata.committed(10)
        await until(lambda: fixture.names == {"new", "newer"} or bool(fixture.failures))
        await fixture.metadata.close()
        assert fixture.failures == []
        assert fixture.log.snapshots == [newest]

    asyncio.run(scenario())
