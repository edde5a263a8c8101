"""The metadata log on a simulated disk that loses power or whose process dies at any step."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.metadata_log import encode_metadata_batch
from odradek.kraft.metadata_observer import BEGINNING, LogEnd
from odradek.kraft.metadata_records import VersionedRecord
from odradek.log.environment import LogEnvironment
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.metadata.kraft.quorum_state_file import load_quorum_state, save_quorum_state
from odradek.sim.world.disk import SimulatedDisk, Volume
from odradek.sim.world.hosts import SimulatedClock
from odradek.sim.world.loop import Process, ProcessKilled, new_loop
from odradek.wire.messages.cluster_metadata import NoOpRecord
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.log.support import StandingClock

RECORD = VersionedRecord(NoOpRecord(), 0)


def disk_of(volume: Volume) -> SimulatedDisk:
    loop = new_loop("1")
    disk = SimulatedDisk(volume, Process("p", "h"), loop, SimulatedClock(loop), Random(1))
    disk.make_directories("/data")
    disk.sync_directory("/")
    return disk


def opened(disk: SimulatedDisk) -> DurableMetadataLog:
    return DurableMetadataLog.open("/data", LogEnvironment(disk, StandingClock()), segment_bytes=400)


@dataclass
class Replica:
    """A log that follows a leader, and what of it must survive: the records that a `sync` has covered."""

    rng: Random
    volume: Volume = field(default_factory=Volume)
    synced: LogEnd = BEGINNING
    """The last end that a sync has returned, lowered by later truncations."""
    start: LogEnd = BEGINNING
    """The end of the last snapshot that was durable."""
    epoch: int = 1

    def open(self) -> DurableMetadataLog:
        return opened(disk_of(self.volume))

    def step(self, log: DurableMetadataLog) -> None:
        """One change; what it promises counts once it has returned."""
        chosen = self.rng.choice(("append", "append", "append", "sync", "truncate", "save", "install"))
        end, start = log.log_end, log.start
        if chosen == "append":
            self.epoch += self.rng.random() < 0.2
            log.append(encoded(end.offset, self.epoch))
        elif chosen == "sync":
            self.synced = log.sync()
        elif chosen == "truncate":
            offset = self.rng.randint(max(start.offset, end.offset - 3), end.offset)
            # A crash meanwhile leaves the log with or without the records.
            self.synced = min(self.synced, LogEnd(offset, 0))
            self.epoch += 1
            log.truncate_to(offset)
        elif chosen == "save" and self.synced.offset > start.offset:
            offset = self.rng.randint(start.offset + 1, self.synced.offset)
            epoch = next(each for each, first in reversed(log.epochs) if first < offset)
            log.save_snapshot(CheckpointId(offset, epoch), checkpoint(CheckpointId(offset, epoch)))
            self.start = log.start
        elif chosen == "install" and self.rng.random() < 0.3:
            self.epoch += 1
            found = CheckpointId(end.offset + self.rng.randint(1, 5), self.epoch)
            log.write_snapshot(found, 0, checkpoint(found))
            log.install_snapshot(found)
            self.start = self.synced = LogEnd(*found)

    def check(self, log: DurableMetadataLog) -> None:
        """After a start."""
        assert log.start.offset >= self.start.offset
        assert log.log_end.offset >= max(self.synced.offset, log.start.offset)
        assert log.epochs == sorted(set(log.epochs))
        log.read(log.start.offset, 1 << 20)
        snapshot = log.load_snapshot()
        assert (snapshot is None) == (log.start == BEGINNING)
        self.start, self.synced, self.epoch = log.start, log.log_end, max(self.epoch, log.log_end.epoch)


def encoded(offset: int, epoch: int) -> bytes:
    return encode_metadata_batch([RECORD], base_offset=offset, leader_epoch=epoch, timestamp_ms=0)


def checkpoint(found: CheckpointId) -> bytes:
    return encode_checkpoint(found, [RECORD], timestamp_ms=0, last_timestamp_ms=0)


@pytest.mark.parametrize("loses_power", [False, True])
def test_synced_metadata_survives_a_stop_at_any_step(loses_power: bool) -> None:
    stopped = 0
    for seed in range(40):
        rng = Random(seed)
        replica = Replica(rng)
        for _ in range(4):
            replica.volume.faults.crash_in = rng.randint(1, 120)
            try:
                log = replica.open()
                replica.check(log)
                for _ in range(30):
                    replica.step(log)
            except ProcessKilled:
                stopped += 1
            replica.volume.faults.crash_in = 0
            if loses_power:
                replica.volume.power_loss(rng)
        replica.check(replica.open())
    assert stopped > 40


def test_vote_in_a_new_directory_survives_a_loss_of_power() -> None:
    for seed in range(40):
        volume = Volume()
        disk = disk_of(volume)
        directory = opened(disk).directory
        save_quorum_state(disk, directory, QuorumStateData(leader_epoch=7, voted_id=2), version=1)
        volume.power_loss(Random(seed))
        found = load_quorum_state(disk, directory)
        assert found is not None
        assert found.voted_id == 2
