"""Opening logs that a crash, or a careless hand, has left in any state."""

from __future__ import annotations

import errno
import os
import shutil
import struct
from pathlib import Path

import pytest

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.environment import LogEnvironment
from odradek.log.partition_log import PartitionLog
from odradek.ports.disk import SystemDisk, SystemFile
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import (
    NOW,
    LackingDisk,
    StandingClock,
    batch,
    fetched,
    log_environment,
    marker,
    open_log,
    produced,
    put,
)

SMALL = LogConfig(segment_bytes=1200, index_interval_bytes=200, file_delete_delay_ms=0)


def files(log: PartitionLog, suffix: str) -> list[Path]:
    return sorted(Path(log.directory).glob("*" + suffix))


def reopen(
    directory: object, *, recovery_point: int = 0, clean: bool = False, config: LogConfig = SMALL
) -> PartitionLog:
    return open_log(directory, config, recovery_point=recovery_point, clean=clean)


def test_truncated_at_every_byte_of_the_last_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path / "whole")
    for count in (2, 1, 3):
        put(log, batch(count))
    log.release()
    ends = [(2, 0), (3, 0), (6, 0)]
    positions = [0]
    for _, header in ((found.position, found.header) for found in log.segments[0].scan(0)):
        positions.append(positions[-1] + header.size)
    ends = list(zip((0, 2, 3, 6), positions, strict=True))
    source = Path(log.segments[0].path)
    whole = source.read_bytes()
    for size in range(len(whole) + 1):
        directory = tmp_path / f"cut-{size}" / "topic-0"
        directory.mkdir(parents=True)
        (directory / source.name).write_bytes(whole[:size])
        recovered = reopen(directory.parent)
        expected, position = max(end for end in ends if end[1] <= size)
        assert recovered.end_offset == expected
        assert os.path.getsize(recovered.segments[0].path) == position
        assert put(recovered, batch()).first_offset == expected
        recovered.release()
        shutil.rmtree(directory.parent)


def test_a_flipped_bit_anywhere_past_the_recovery_point_cuts_the_log_there(tmp_path: Path) -> None:
    log = open_log(tmp_path / "whole")
    for _ in range(3):
        put(log, batch(value=b"x" * 20))
    log.release()
    source = Path(log.segments[0].path)
    whole = source.read_bytes()
    size = len(whole) // 3
    for position in range(len(whole)):
        if position % size in range(12, 16):
            continue  # the leader epoch is not covered by the CRC
        directory = tmp_path / f"flip-{position}" / "topic-0"
        directory.mkdir(parents=True)
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        (directory / source.name).write_bytes(damaged)
        recovered = reopen(directory.parent)
        at = position // size
        within = position % size
        if within < 8 and recovered.end_offset > at:
            # Base offsets are not under the CRC: a later one is a legal gap, and what follows it is then out of order.
            assert recovered.end_offset > 3 or recovered.end_offset == at
        else:
            assert recovered.end_offset == at
        recovered.release()
        shutil.rmtree(directory.parent)


def test_what_lies_below_the_recovery_point_is_not_read(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        put(log, batch(value=b"x" * 50))
    log.durability.flush()
    put(log, batch(value=b"y" * 50))
    log.release()
    source = Path(log.segments[0].path)
    damaged = bytearray(source.read_bytes())
    damaged[100] ^= 1
    source.write_bytes(damaged)
    recovered = reopen(tmp_path, recovery_point=4)
    assert recovered.end_offset == 5
    assert recovered.durability.recovery_point == 4
    with pytest.raises(KafkaError, match=r"00000000000000000000\.log.*byte 0") as caught:
        list(recovered.reader.read_batches(0, 5))
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(("byte", "bit"), [(22, 0x20), (16, 0x01)], ids=["seems to be a marker", "magic"])
def test_damage_below_the_recovery_point_keeps_a_producer_log_openable(tmp_path: Path, byte: int, bit: int) -> None:
    config = LogConfig(index_interval_bytes=200)
    log = open_log(tmp_path, config)
    for sequence in range(12):
        put(log, produced(7, sequence))
    log.durability.flush()
    put(log, produced(7, 12))
    log.release()
    for snapshot in files(log, ".snapshot"):
        snapshot.unlink()
    first = log.segments[0]
    damaged = bytearray(Path(first.path).read_bytes())
    position = list(first.scan(0))[1].position
    damaged[position + byte] ^= bit
    Path(first.path).write_bytes(damaged)
    reports: list[str] = []
    settings = log_environment(report=reports.append)
    recovered = open_log(tmp_path, config, settings, recovery_point=12, clean=False)
    assert recovered.end_offset == 13
    assert any(f"damaged at byte {position}" in text and "not known" in text for text in reports)
    with pytest.raises(KafkaError, match=f"byte {position}"):
        list(recovered.reader.read_batches(0, 13))
    assert put(recovered, produced(8, 0)).first_offset == 13


def test_segments_after_a_broken_one_are_removed(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    while len(log.segments) < 4:
        put(log, batch(value=b"x" * 200))
    log.release()
    second = log.segments[1]
    with open(second.path, "r+b") as file:
        file.truncate(second.size - 1)
    recovered = reopen(tmp_path)
    assert [segment.base_offset for segment in recovered.segments] == [0, second.base_offset]
    assert recovered.end_offset == log.segments[2].base_offset - 1
    assert len(files(recovered, ".log")) == 2


def test_a_segment_that_lost_whole_batches_takes_the_next_ones_along(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    while len(log.segments) < 4:
        put(log, batch(value=b"x" * 200))
    log.release()
    second = log.segments[1]
    last = list(second.scan(0))[-1]
    with open(second.path, "r+b") as file:
        file.truncate(last.position)
    reports: list[str] = []
    recovered = open_log(tmp_path, SMALL, log_environment(report=reports.append), recovery_point=0, clean=False)
    assert recovered.end_offset == last.header.base_offset
    assert [segment.base_offset for segment in recovered.segments] == [0, second.base_offset]
    next_base = log.segments[2].base_offset
    lost = f"{second.path}: ends at offset {recovered.end_offset}, but the next segment begins at {next_base}"
    assert reports[0] == lost, "why later records are lost"


def test_what_a_power_loss_brings_back_behind_a_cut_is_cut_again(tmp_path: Path) -> None:
    """A log cut off at its recovery point rolls there; the end that comes back lies below the recovery point."""
    log = open_log(tmp_path, SMALL)
    put(log, batch(value=b"kept"))
    kept = log.end_offset
    log.durability.flush()
    put(log, batch(value=b"lost" * 50))
    log.release()
    first = Path(log.segments[0].path)
    damaged = first.read_bytes()[:-1]
    first.write_bytes(damaged)
    log = reopen(tmp_path, recovery_point=kept)
    assert log.end_offset == kept
    put(log, batch(value=b"x" * 1110))
    put(log, batch(value=b"y" * 100))
    assert [segment.base_offset for segment in log.segments][:2] == [0, kept]
    end = log.end_offset
    plan = log.durability.plan_flush()
    assert plan is not None
    assert str(first) in {file.path for file in plan.files}, "the cut is made durable with what follows it"
    log.release()

    first.write_bytes(damaged)
    log = reopen(tmp_path, recovery_point=kept)
    assert log.end_offset == end
    assert fetched(log, 0) == list(range(end))
    log.release()


def test_recovery_makes_its_cuts_durable_before_the_log_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the simulator (flush-800093): a clean stop at the recovery point synced nothing, a power loss brought
    back a segment behind a hole, and what was written to it and acknowledged went with it at the next recovery.
    """
    log = open_log(tmp_path, SMALL)
    put(log, batch(value=b"kept"))
    kept = log.end_offset
    log.durability.flush()
    for _ in range(3):
        put(log, batch(value=b"lost" * 200))
    assert len(log.segments) > 2
    log.release()
    second = Path(log.segments[1].path)
    second.write_bytes(second.read_bytes()[:-1])
    synced: list[str] = []
    sync, sync_directory = SystemFile.sync, SystemDisk.sync_directory

    def note_file(self: SystemFile) -> None:
        synced.append(self.path)
        sync(self)

    def note_directory(self: SystemDisk, path: str) -> None:
        synced.append(path)
        sync_directory(self, path)

    monkeypatch.setattr(SystemFile, "sync", note_file)
    monkeypatch.setattr(SystemDisk, "sync_directory", note_directory)
    log = reopen(tmp_path, recovery_point=kept)
    assert len(log.segments) == 2
    assert synced == [str(second.parent), str(second)]
    log.release()


def test_gaps_of_compaction_are_no_losses(tmp_path: Path) -> None:
    compacted = LogConfig(segment_bytes=SMALL.segment_bytes, cleanup_policy=frozenset({"compact"}))
    log = open_log(tmp_path, compacted)
    while len(log.segments) < 4:
        put(log, batch(value=b"x" * 200))
    log.release()
    second = log.segments[1]
    with open(second.path, "r+b") as file:
        file.truncate(list(second.scan(0))[-1].position)
    assert reopen(tmp_path, config=compacted).end_offset == log.end_offset


def test_gaps_of_a_leader_are_no_losses(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    offset = 0
    while len(log.segments) < 4:
        log.append(batch(value=b"x" * 200, base_offset=offset), leader_epoch=-1, now_ms=NOW, origin=Origin.REPLICATION)
        offset += 10
    log.release()
    assert reopen(tmp_path).end_offset == log.end_offset


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["gone", "empty", "half an entry", "zeros", "beyond"])
@pytest.mark.parametrize("clean", [True, False])
def test_indexes_are_rebuilt_where_they_are_missing_or_broken(
    tmp_path: Path, suffix: str, damage: str, clean: bool
) -> None:
    log = open_log(tmp_path, SMALL)
    while len(log.segments) < 3:
        put(log, batch(value=b"x" * 80, timestamps=[NOW + log.end_offset]))
    log.close()
    before = {path.name: path.read_bytes() for path in files(log, suffix)}
    for path in files(log, suffix):
        content = path.read_bytes()
        if damage == "gone":
            path.unlink()
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "half an entry":
            path.write_bytes(content[:-1])
        elif damage == "zeros":
            path.write_bytes(content + bytes(24))
        else:
            path.write_bytes(content + b"\x7f" * 24)
    again = reopen(tmp_path, clean=clean, recovery_point=0)
    assert again.end_offset == log.end_offset
    for offset in range(again.end_offset):
        assert fetched(again, offset, 1) == [offset]
        found = again.reader.find_timestamp(NOW + offset, again.end_offset)
        assert found is not None
        assert found.offset == offset
    if not (suffix == ".timeindex" and damage == "beyond"):
        again.close()
        assert {path.name: path.read_bytes() for path in files(again, suffix)} == before


def test_lost_leader_epochs_are_read_from_the_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for epoch in (0, 0, 3, 7):
        put(log, batch(), epoch=epoch)
    entries = log.history.leader_epochs.entries()
    assert entries == [(0, 0), (3, 2), (7, 3)]
    log.close()
    checkpoint = Path(log.directory) / "leader-epoch-checkpoint"
    for content in (None, b"", b"0\n5\n0 0\n", b"nonsense"):
        if content is None:
            checkpoint.unlink()
        else:
            checkpoint.write_bytes(content)
        again = reopen(tmp_path, clean=True, config=LogConfig())
        assert again.history.leader_epochs.entries() == entries
        again.close()
        assert checkpoint.read_bytes() == b"0\n3\n0 0\n3 2\n7 3\n"


def test_lost_leader_epochs_are_rebuilt_from_all_batches(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    while len(log.segments) < 4:
        put(log, batch(value=b"x" * 200), epoch=log.end_offset // 2)
    entries = log.history.leader_epochs.entries()
    assert len(entries) > 4
    log.close()
    for recovery_point in range(log.end_offset + 1):
        (Path(log.directory) / "leader-epoch-checkpoint").write_bytes(b"")
        again = reopen(tmp_path, clean=False, recovery_point=recovery_point)
        assert again.history.leader_epochs.entries() == entries
        again.release()


def test_leader_epochs_that_the_batches_contradict_are_forgotten(tmp_path: Path) -> None:
    """Found by the simulator (blackout-330030): the end of a log was from before its truncation and rewriting."""
    log = open_log(tmp_path)
    for epoch in (0, 0, 0, 1, 1):
        put(log, batch(), epoch=epoch)
    assert log.history.leader_epochs.entries() == [(0, 0), (1, 3)]
    log.close()
    checkpoint = Path(log.directory) / "leader-epoch-checkpoint"
    for content, entries in (
        (b"0\n2\n0 0\n2 2\n", [(0, 0), (1, 3)]),
        (b"0\n1\n4 0\n", [(0, 0), (1, 3)]),
        # Who leads without having written says so where its first batch will be.
        (b"0\n3\n0 0\n1 3\n2 5\n", [(0, 0), (1, 3)]),
    ):
        checkpoint.write_bytes(content)
        again = reopen(tmp_path, clean=False, recovery_point=1)
        assert again.history.leader_epochs.entries() == entries
        again.release()


@pytest.mark.parametrize("count", [1, 6])
def test_epochs_below_a_log_start_that_was_lost_are_known(tmp_path: Path, count: int) -> None:
    """A follower takes over its leader's log start before that is on the disk, and may die in between."""
    log = open_log(tmp_path)
    put(log, batch(2))
    for _ in range(6 // count):
        put(log, batch(count), epoch=2)
    log.durability.flush()
    log.advance_log_start(5)
    assert log.history.leader_epochs.entries() == [(2, 5)]
    again = reopen(tmp_path, recovery_point=8)
    assert again.history.leader_epochs.entries() == [(0, 0), (2, 2)]
    again.close()
    assert reopen(tmp_path, clean=True).history.leader_epochs.entries() == [(0, 0), (2, 2)]


@pytest.mark.parametrize("clean", [True, False])
def test_log_without_records_remembers_the_epoch_of_the_last_one(tmp_path: Path, *, clean: bool) -> None:
    """Or its next leader, which may have other records below, would not see that their histories part."""
    log = open_log(tmp_path)
    put(log, batch(5), epoch=3)
    log.advance_log_start(5)
    log.close()
    again = open_log(tmp_path, clean=clean, log_start_offset=5)
    assert (again.log_start_offset, again.end_offset) == (5, 5)
    assert again.history.leader_epochs.entries() == [(3, 5)]


def fill_with_producers(log: PartitionLog) -> None:
    for sequence in range(6):
        put(log, produced(7, sequence))
        put(log, produced(8, sequence, transactional=True), origin=Origin.CLIENT)
    put(log, marker(8, commit=False), origin=Origin.COORDINATOR)
    put(log, produced(8, 6, transactional=True))
    put(log, marker(8, commit=True), origin=Origin.COORDINATOR)
    put(log, produced(9, 0, transactional=True))
    put(log, produced(7, 6))


@pytest.mark.parametrize("snapshots", ["kept", "lost", "broken"])
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("flushed", [True, False])
def test_producers_survive(tmp_path: Path, snapshots: str, clean: bool, flushed: bool) -> None:
    log = open_log(tmp_path, SMALL)
    fill_with_producers(log)
    if flushed:
        log.durability.flush()
    put(log, produced(7, 7))
    aborted = log.reader.aborted_transactions(0, log.end_offset)
    assert aborted == [(8, 1)]
    if clean:
        log.close()
    else:
        for segment in log.segments:
            segment.flush_indexes()
    for path in files(log, ".snapshot"):
        if snapshots == "lost":
            path.unlink()
        elif snapshots == "broken":
            path.write_bytes(path.read_bytes()[:-1] + b"?" if path.stat().st_size > 10 else b"\0\1")
    again = reopen(tmp_path, clean=clean, recovery_point=log.durability.recovery_point)
    if clean and snapshots == "lost":
        # As Kafka: no snapshot at all after a clean stop is a log of a version without producers.
        assert again.history.producers.producers == {}
        return
    assert again.reader.aborted_transactions(0, again.end_offset) == aborted
    assert again.history.first_unstable_offset == log.history.first_unstable_offset == 15
    assert put(again, produced(7, 7)).duplicate
    assert put(again, produced(7, 8)).first_offset == log.end_offset
    with pytest.raises(KafkaError) as caught:
        put(again, produced(7, 10))
    assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if not clean and (not flushed or snapshots != "kept"):
        # Replayed from the batches: all five last ones are known. A snapshot, as in Kafka, has the newest only.
        assert put(again, produced(7, 5)).duplicate


def test_recovery_writes_snapshots_where_the_last_segments_begin(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    fill_with_producers(log)
    log.roll()
    put(log, produced(7, 7))
    log.release()
    for path in files(log, ".snapshot"):
        path.unlink()
    again = reopen(tmp_path)
    assert [int(path.stem) for path in files(again, ".snapshot")][:2] == [
        segment.base_offset for segment in again.segments[-2:] if segment.base_offset
    ]
    again.release()


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("commit", [False, True])
def test_a_transaction_whose_end_was_deleted_is_not_open(tmp_path: Path, *, commit: bool, rolled: bool) -> None:
    """The snapshot has it open, and the marker lies below the log's start, or was deleted."""
    log = open_log(tmp_path, SMALL)
    put(log, produced(7, 0, 2, transactional=True))
    put(log, produced(8, 0, transactional=True))
    log.durability.flush()
    put(log, marker(7, commit=commit), origin=Origin.COORDINATOR)
    (snapshot,) = files(log, ".snapshot")
    state = snapshot.read_bytes()
    if rolled:
        log.roll()
    put(log, produced(8, 1, transactional=True))
    log.release()
    if rolled:
        for path in files(log, ""):
            if path.name.startswith(f"{0:020}."):
                path.unlink()
        snapshot.write_bytes(state)
    log = open_log(tmp_path, SMALL, recovery_point=3, log_start_offset=4, clean=False)
    assert (log.log_start_offset, log.end_offset) == (4, 5)
    assert not log.history.producers.has_open_transaction(7, 0)
    assert log.history.producers.has_open_transaction(8, 0)
    assert log.history.last_stable_offset(5) == 4
    put(log, marker(8, commit=True), origin=Origin.COORDINATOR)
    assert log.history.last_stable_offset(6) == 6
    log.release()


def test_a_lost_transaction_index_past_the_recovery_point_is_written_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill_with_producers(log)
    (index,) = files(log, ".txnindex")
    content = index.read_bytes()
    for damage in (b"", content[:-5], content + b"\0" * 34):
        index.write_bytes(damage)
        again = reopen(tmp_path, config=LogConfig())
        assert again.reader.aborted_transactions(0, again.end_offset) == [(8, 1)]
        again.release()
        assert index.read_bytes() == content


def test_entries_that_stay_in_a_transaction_index_are_not_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below the recovery point nothing would put it right after a loss of power."""
    log = open_log(tmp_path)
    for number in range(3):
        put(log, produced(8, number, transactional=True))
        put(log, marker(8, commit=False), origin=Origin.COORDINATOR)
    log.durability.flush(4)
    (index,) = files(log, ".txnindex")
    content = index.read_bytes()
    sizes: list[int] = []
    truncate = SystemFile.truncate

    def noted(file: SystemFile, size: int) -> None:
        if file.path.endswith(".txnindex"):
            sizes.append(size)
        truncate(file, size)

    monkeypatch.setattr(SystemFile, "truncate", noted)
    log.truncate_to(5)
    assert index.read_bytes() == content[: 2 * 34]
    log.release()
    index.write_bytes(content)
    again = reopen(tmp_path, config=LogConfig(), recovery_point=4)
    assert again.reader.aborted_transactions(0, 10) == [(8, 0), (8, 2)]
    assert sizes
    assert min(sizes) == 2 * 34


def test_leftovers_of_deletion_and_compaction(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    while len(log.segments) < 4:
        put(log, batch(value=b"x" * 200))
    log.close()
    directory = Path(log.directory)
    first, second, third = (segment.base_offset for segment in log.segments[:3])
    # The first two segments were merged into one under the first's name, and the rename of its parts had begun.
    merged = (directory / f"{first:020d}.log").read_bytes() + (directory / f"{second:020d}.log").read_bytes()
    (directory / f"{first:020d}.log.swap").write_bytes(merged)
    (directory / f"{first:020d}.log").unlink()
    (directory / f"{third:020d}.log.cleaned").write_bytes(b"half")
    (directory / f"{third:020d}.log.swap").write_bytes(b"half")
    (directory / "00000000000000000000.log.deleted").write_bytes(b"gone")
    (directory / "00000000000000009999.index").write_bytes(b"")
    again = reopen(tmp_path, clean=True)
    assert [segment.base_offset for segment in again.segments] == [first, third, log.segments[3].base_offset]
    assert fetched(again, 0) == list(range(log.end_offset))
    assert not [name for name in os.listdir(directory) if name.endswith((".deleted", ".cleaned", ".swap"))]
    assert not (directory / "00000000000000009999.index").exists()


def test_completed_swap_survives_leftovers_of_an_earlier_compaction(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    while len(log.segments) < 4:
        put(log, batch(value=b"x" * 200))
    log.close()
    directory = Path(log.directory)
    first, second = (segment.base_offset for segment in log.segments[:2])
    for suffix in ("log", "index", "timeindex"):
        name = f"{second:020d}.{suffix}"
        (directory / f"{name}.swap").write_bytes((directory / name).read_bytes())
        (directory / name).rename(directory / f"{name}.deleted")
    (directory / f"{first:020d}.log.cleaned").write_bytes(b"half")
    again = reopen(tmp_path, clean=True)
    assert fetched(again, 0) == list(range(log.end_offset))
    assert not [name for name in os.listdir(directory) if name.endswith((".deleted", ".cleaned", ".swap"))]


def test_finishing_two_swaps_removes_nothing_that_lies_between_them(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    while len(log.segments) < 4:
        put(log, batch(value=b"x" * 200))
    log.close()
    directory = Path(log.directory)
    for segment in (log.segments[0], log.segments[2]):
        Path(segment.path).rename(f"{segment.path}.swap")
    again = reopen(tmp_path, clean=True)
    assert fetched(again, 0) == list(range(log.end_offset))
    assert not list(directory.glob("*.swap"))


def test_undoing_a_swap_that_had_not_begun_can_stop_at_every_step(tmp_path: Path) -> None:
    """Half of it taken for a finished one would have lost its transaction index."""
    names = [f"{0:020d}.{suffix}" for suffix in ("log.swap", "index.swap", "timeindex.cleaned", "txnindex.cleaned")]

    class Stopped(Exception):
        pass

    class StoppingDisk(SystemDisk):
        left = 0

        def remove(self, path: str) -> None:
            if self.left == 0:
                raise Stopped
            self.left -= 1
            super().remove(path)

    for step in range(len(names)):
        log = open_log(tmp_path / str(step), SMALL)
        put(log, batch())
        log.close()
        directory = Path(log.directory)
        for name in names:
            (directory / name).write_bytes(b"")
        disk = StoppingDisk()
        disk.left = step
        with pytest.raises(Stopped):
            open_log(tmp_path / str(step), SMALL, LogEnvironment(disk, StandingClock()), clean=True)
        again = open_log(tmp_path / str(step), SMALL, clean=True)
        assert fetched(again, 0) == [0], step
        assert not [name for name in os.listdir(directory) if name.endswith((".cleaned", ".swap"))]


def test_log_that_ends_below_its_start_is_emptied_and_begins_there(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, batch(3))
    log.close()
    again = open_log(tmp_path, clean=True, log_start_offset=50)
    assert (again.log_start_offset, again.end_offset) == (50, 50)
    assert put(again, batch()).first_offset == 50


def test_zero_length_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    put(log, batch(3))
    log.roll()
    log.close()
    for clean in (True, False):
        again = reopen(tmp_path, clean=clean)
        assert again.end_offset == 3
        assert len(again.segments) == 2
        again.close()


def test_damage_inside_is_rejected_with_file_and_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for _ in range(5):
        put(log, batch())
    log.close()
    size = log.segments[0].size // 5
    path = Path(log.segments[0].path)
    content = bytearray(path.read_bytes())
    content[2 * size + 16] = 9  # the magic of the third batch
    path.write_bytes(content)
    reports: list[str] = []
    env = log_environment(report=reports.append)
    again = open_log(tmp_path, env=env, clean=True, recovery_point=5)
    assert again.end_offset == 2  # its last segment is checked when its end cannot be found
    assert any("cut off at byte" in text for text in reports)


def test_indexes_of_a_segment_from_the_recovery_point_on_are_not_trusted(tmp_path: Path) -> None:
    """A power loss may leave anything in them, such as an entry behind which everything seems to be checked."""
    log = open_log(tmp_path, LogConfig(index_interval_bytes=1))
    for _ in range(3):
        put(log, batch())
    log.release()
    segment = log.segments[0]
    size = segment.size // 3
    Path(segment.file_path(".index")).write_bytes(struct.pack(">iiii", -1, size, 2, 2 * size))
    content = bytearray(Path(segment.path).read_bytes())
    content[size - 1] ^= 1  # the last byte of the first batch
    Path(segment.path).write_bytes(content)
    again = open_log(tmp_path, clean=False, recovery_point=0)
    assert (again.end_offset, again.segments[0].size) == (0, 0)
    again.close()


def test_recovery_after_recovery_changes_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    fill_with_producers(log)
    log.release()
    first = reopen(tmp_path)
    first.release()
    content = {path.name: path.read_bytes() for path in Path(log.directory).iterdir()}
    second = reopen(tmp_path)
    second.release()
    assert {path.name: path.read_bytes() for path in Path(log.directory).iterdir()} == content


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_all_batches_in_flight_at_a_stop_are_known_afterwards(tmp_path: Path, *, clean: bool, rolled: bool) -> None:
    """Found by the simulator: a snapshot holds one batch of a producer, and the recovered log is opened by it (txn-14);
    the batches before it may lie in earlier segments (disk-40000).
    """
    log = open_log(tmp_path)
    firsts = []
    for sequence in (0, 2, 4, 6, 8, 10):
        if rolled and sequence >= 6:
            log.roll()
        firsts.append(put(log, produced(7, sequence, 2)).first_offset)
    if clean:
        log.close()
    else:
        log.release()
    again = open_log(tmp_path, clean=clean)
    if not clean:
        again.close()
        again = open_log(tmp_path, clean=True)
    for sequence, first in list(zip((0, 2, 4, 6, 8, 10), firsts, strict=True))[1:]:
        repeated = put(again, produced(7, sequence, 2))
        assert repeated.duplicate
        assert repeated.first_offset == first
    with pytest.raises(KafkaError) as refused:
        put(again, produced(7, 0, 2))
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_durable_leader_epochs_are_rewritten_only_with_a_new_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    path = Path(log.directory) / "leader-epoch-checkpoint"
    put(log, batch(), epoch=3)
    log.durability.flush()
    before = path.stat()
    put(log, batch(), epoch=3)
    log.durability.flush()
    # A file in its place that is not synced yet may be empty after a loss of power.
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    put(log, batch(), epoch=4)
    assert path.read_bytes() == b"0\n2\n3 0\n4 2\n"


def test_where_a_log_is_damaged_the_epochs_of_its_checked_end_are_known(tmp_path: Path) -> None:
    log = open_log(tmp_path, SMALL)
    while len(log.segments) < 4:
        put(log, batch(value=b"x" * 200), epoch=log.end_offset // 2)
    entries = log.history.leader_epochs.entries()
    recovery_point = log.segments[-1].base_offset + 1
    log.close()
    (Path(log.directory) / "leader-epoch-checkpoint").write_bytes(b"")
    with open(log.segments[1].path, "r+b") as file:
        file.write(bytes(61))
    again = reopen(tmp_path, clean=False, recovery_point=recovery_point)
    assert again.history.leader_epochs.entries()[0] == entries[0]
    assert again.history.leader_epochs.entries()[-1] == entries[-1]


@pytest.mark.parametrize("rolled", [False, True])
def test_a_hole_in_a_transaction_index_costs_nothing_of_what_is_before_it(tmp_path: Path, *, rolled: bool) -> None:
    """A power loss may keep a later write of two that were not synced: zeros lie where the earlier one was."""
    log = open_log(tmp_path)
    put(log, batch())
    if rolled:
        log.roll()
    for sequence in range(3):
        put(log, produced(8, sequence, transactional=True))
        put(log, marker(8, commit=False), origin=Origin.COORDINATOR)
        if not sequence:
            log.durability.flush()
    recovery_point = log.durability.recovery_point
    log.release()
    (index,) = files(log, ".txnindex")
    content = index.read_bytes()
    index.write_bytes(content[:34] + bytes(34) + content[68:])
    again = reopen(tmp_path, config=LogConfig(), recovery_point=recovery_point)
    assert again.reader.aborted_transactions(0, again.end_offset) == [(8, 1), (8, 3), (8, 5)]
    again.release()
    assert index.read_bytes() == content


def test_what_recovery_takes_out_of_a_transaction_index_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log ends at its recovery point, so that nothing else would sync it."""
    log = open_log(tmp_path)
    put(log, produced(8, 0, transactional=True))
    log.durability.flush()
    position = log.size_bytes
    put(log, marker(8, commit=False), origin=Origin.COORDINATOR)
    log.release()
    with open(log.segments[0].path, "r+b") as file:
        file.truncate(position)
    synced: list[str] = []
    sync = SystemFile.sync

    def noted(self: SystemFile) -> None:
        synced.append(self.path)
        sync(self)

    monkeypatch.setattr(SystemFile, "sync", noted)
    again = reopen(tmp_path, config=LogConfig(), recovery_point=1)
    assert again.history.first_unstable_offset == 0
    (index,) = files(log, ".txnindex")
    assert index.read_bytes() == b""
    assert synced == [str(index)]


@pytest.mark.parametrize("is_recreated", [False, True])
def test_what_a_truncation_took_away_does_not_come_back_after_a_clean_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_recreated: bool
) -> None:
    """The log ends at its recovery point then: with nothing to sync, a power loss would bring back what was cut off in
    a log that is marked as clean.
    """
    log = open_log(tmp_path)
    for sequence in range(3):
        put(log, produced(7, sequence))
    log.durability.flush()
    if is_recreated:
        log.truncate_fully_and_start_at(0)
    else:
        log.truncate_to(2)
    assert log.durability.is_dirty
    synced: set[str] = set()
    sync, sync_directory = SystemFile.sync, SystemDisk.sync_directory

    def note_file(self: SystemFile) -> None:
        synced.add(Path(self.path).name)
        sync(self)

    def note_directory(self: SystemDisk, path: str) -> None:
        synced.add(Path(path).name)
        sync_directory(self, path)

    monkeypatch.setattr(SystemFile, "sync", note_file)
    monkeypatch.setattr(SystemDisk, "sync_directory", note_directory)
    log.close()
    assert not log.durability.is_dirty
    wanted = {"topic-0", "leader-epoch-checkpoint", f"{log.end_offset:020}.snapshot"}
    if not is_recreated:
        wanted.add(f"{0:020}.log")
    assert wanted <= synced
    synced.clear()
    log.close()
    assert not synced


def test_producer_continues_when_its_last_batches_are_gone(tmp_path: Path) -> None:
    """A power loss took the end of the log, all of which had been deleted: what the snapshot knows is too old."""
    log = open_log(tmp_path)
    put(log, produced(7, 0))
    log.durability.flush()
    position = log.size_bytes
    put(log, produced(7, 1))
    log.release()
    with open(log.segments[0].path, "r+b") as file:
        file.truncate(position)
    again = open_log(tmp_path, recovery_point=1, log_start_offset=2, clean=False)
    assert (again.log_start_offset, again.end_offset) == (2, 2)
    assert put(again, produced(7, 2)).first_offset == 2


def test_leader_epochs_with_a_cut_last_line_are_rebuilt_from_batches(tmp_path: Path) -> None:
    """With all of its lines there, and digits of the last one missing, the file would say that all is of one epoch."""
    log = open_log(tmp_path, SMALL)
    while log.end_offset < 12:
        put(log, batch(value=b"x" * 200), epoch=log.end_offset)
    entries = log.history.leader_epochs.entries()
    log.close()
    checkpoint = Path(log.directory) / "leader-epoch-checkpoint"
    content = checkpoint.read_bytes()
    for size in range(len(content)):
        checkpoint.write_bytes(content[:size])
        again = reopen(tmp_path, recovery_point=11)
        assert again.history.leader_epochs.entries() == entries
        again.release()


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("offset", [0, 2])
def test_interrupted_truncation_keeps_a_prefix_of_the_log(tmp_path: Path, offset: int, policy: str) -> None:
    config = LogConfig(segment_bytes=100, cleanup_policy=frozenset({policy}))
    for calls in range(100):
        disk = LackingDisk()
        directory = tmp_path / f"{calls}"
        log = open_log(directory, config, log_environment(disk))
        for _ in range(5):
            put(log, batch())
        log.durability.flush()
        disk.left, disk.errno = calls, errno.EIO
        try:
            log.truncate_to(offset)
        except KafkaError:
            done = False
        else:
            done = True
        again = open_log(directory, config, recovery_point=5)
        assert again.log_start_offset == 0
        assert again.end_offset == offset if done else again.end_offset >= offset
        assert fetched(again, 0) == list(range(again.end_offset))
        if done:
            return
    pytest.fail("it never comes to its end")


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_recovery_that_is_broken_off_anywhere_leaves_no_hole(tmp_path: Path, policy: str) -> None:
    """Above all in a compacted log, in which missing records cannot be noticed afterwards."""
    config = LogConfig(segment_bytes=200, cleanup_policy=frozenset({policy}))
    for calls in range(100):
        directory = tmp_path / f"{calls}"
        log = open_log(directory, config)
        for _ in range(10):
            put(log, batch())
        log.release()
        assert len(log.segments) > 3
        torn = Path(log.segments[1].path)
        torn.write_bytes(torn.read_bytes()[:-1])
        disk = LackingDisk()
        disk.left, disk.errno = calls, errno.EIO
        try:
            open_log(directory, config, log_environment(disk))
        except (OSError, KafkaError):
            done = False
        else:
            done = True
        again = open_log(directory, config)
        assert fetched(again, 0) == list(range(again.end_offset))
        if done:
            assert again.end_offset == log.segments[2].base_offset - 1
            return
    pytest.fail("it never comes to its end")


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
def test_empty_segment_inside_the_one_before_is_removed(tmp_path: Path, clean: bool, is_last: bool) -> None:
    """Early versions left it when they lacked descriptors for a roll; the records behind it must not be lost."""
    log = open_log(tmp_path)
    for sequence in range(4):
        put(log, produced(1, sequence))
    if not is_last:
        log.roll()
        put(log, produced(1, 4))
    end = log.end_offset
    log.release()
    for suffix in ("log", "index", "timeindex"):
        Path(log.directory, f"{2:020d}.{suffix}").touch()
    again = reopen(tmp_path, clean=clean)
    assert again.end_offset == end
    assert [each for each in range(end) if each not in fetched(again, each)] == []
    assert not Path(log.directory, f"{2:020d}.log").exists()


def test_empty_segment_at_the_end_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    put(log, produced(1, 0))
    log.roll()
    log.release()
    again = reopen(tmp_path, clean=True)
    assert [segment.base_offset for segment in again.segments] == [0, 1]


def sequenced(value: bytes, sequence: int, *, transactional: bool = False) -> memoryview:
    return batch(value=value, producer_id=1, producer_epoch=0, base_sequence=sequence, is_transactional=transactional)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
@pytest.mark.parametrize("transactional", [True, False])
def test_crc_of_the_last_batches_decides_after_a_restart(
    tmp_path: Path, clean: bool, rolled: bool, transactional: bool
) -> None:
    """A repetition is answered with its offset; other records with its sequence are no repetition."""
    log = open_log(tmp_path, SMALL)
    for number in range(3):
        put(log, sequenced(b"%d" % number, number, transactional=transactional))
    if rolled:
        while len(log.segments) < 3:
            put(log, batch(value=b"x" * 400))
    if clean:
        log.close()
    else:
        log.release()
    log = reopen(tmp_path, recovery_point=log.end_offset if clean else 0, clean=clean)
    for number in range(3):
        found = put(log, sequenced(b"%d" % number, number, transactional=transactional))
        assert (found.first_offset, found.duplicate) == (number, True)
        with pytest.raises(KafkaError) as rejected:
            put(log, sequenced(b"other", number, transactional=transactional))
        assert rejected.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not put(log, sequenced(b"3", 3, transactional=transactional)).duplicate
    log.release()


@pytest.mark.parametrize("clean", [True, False])
def test_batch_of_an_ended_transaction_is_no_repetition_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path, SMALL)
    put(log, sequenced(b"same", 0, transactional=True))
    put(log, marker(1, commit=False), origin=Origin.COORDINATOR)
    if clean:
        log.close()
    else:
        log.release()
    log = reopen(tmp_path, recovery_point=log.end_offset if clean else 0, clean=clean)
    with pytest.raises(KafkaError) as rejected:
        put(log, sequenced(b"same", 0, transactional=True))
    assert rejected.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    log.release()


class CountingDisk(SystemDisk):
    """Counts the bytes that are read from segments."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes_read = 0

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        return CountingFile(self, path, create)


class CountingFile(SystemFile):
    def __init__(self, disk: CountingDisk, path: str, create: bool) -> None:
        plain = SystemDisk.open(disk, path, create=create)
        self._fd, plain._fd = plain._fd, -1
        self._size = plain._size
        self.path = path
        self.disk = disk

    def read(self, position: int, size: int) -> bytes:
        if self.path.endswith(".log"):
            self.disk.bytes_read += size
        return super().read(position, size)


@pytest.mark.parametrize("size", [100, 30_000, 700_000, 1_500_000])
def test_recovery_reads_a_large_log_about_once_and_keeps_all_of_it(tmp_path: Path, size: int) -> None:
    """Batches that do not end where a read ends are read again from their beginning, and no others are."""
    log = open_log(tmp_path, LogConfig(max_message_bytes=1 << 22))
    while log.segments[0].size < 3_500_000:
        number = log.end_offset
        value = b"%d" % number * (size // len(b"%d" % number) + number % 7)
        put(log, batch(max(1, 20_000 // size), value=value))
    written, end = log.segments[0].size, log.end_offset
    log.release()
    disk = CountingDisk()
    again = open_log(tmp_path, env=log_environment(disk), recovery_point=0, clean=False)
    assert (again.end_offset, again.segments[0].size) == (end, written)
    assert disk.bytes_read < 3 * written + (2 << 20)


@pytest.mark.parametrize("recovery_point", [0, 5, 9, 13, 20])
def test_recovered_log_knows_its_largest_timestamp(tmp_path: Path, recovery_point: int) -> None:
    """It may be of a record below the recovery point. Retention by time and ListOffsets ask for it."""
    log = open_log(tmp_path, LogConfig(index_interval_bytes=150))
    for number in range(20):
        put(log, batch(timestamps=[NOW - 50 * number]))
    log.segments[0].flush_indexes()
    log.release()
    again = reopen(tmp_path, recovery_point=recovery_point, config=LogConfig(index_interval_bytes=150))
    assert again.segments[0].load_max_timestamp() == (NOW, 0)
    found = again.reader.max_timestamp(20)
    assert found is not None
    assert (found.offset, found.timestamp) == (0, NOW)


def test_timestamp_of_a_batch_that_recovery_cuts_off_is_forgotten(tmp_path: Path) -> None:
    """The index reaches beyond the log, which has lost its end, and is made again from all that the log still has."""
    config = LogConfig(index_interval_bytes=100)
    log = open_log(tmp_path, config)
    for number in range(10):
        put(log, batch(timestamps=[NOW + 50 * number]))
    log.segments[0].flush_indexes()
    path, size = Path(log.segments[0].path), log.segments[0].size // 10
    log.release()
    data = bytearray(path.read_bytes()[: 8 * size])
    data[-1] ^= 1
    path.write_bytes(data)
    again = reopen(tmp_path, recovery_point=5, config=config)
    assert (again.end_offset, again.segments[0].size) == (7, 7 * size)
    assert again.segments[0].load_max_timestamp() == (NOW + 300, 6)
    assert again.reader.max_timestamp(7) == (6, NOW + 300, 0)


def test_log_that_retention_emptied_continues_its_offsets_after_a_crash(tmp_path: Path) -> None:
    config = LogConfig(retention_ms=1000, file_delete_delay_ms=0)
    log = open_log(tmp_path, config)
    for _ in range(5):
        put(log, batch())
    log.durability.flush()
    assert log.delete_old_segments(NOW + 5000, 5) == 1
    log.release()
    again = open_log(tmp_path, config, recovery_point=5, clean=False)
    assert (again.log_start_offset, again.end_offset) == (5, 5)
    assert put(again, batch()).first_offset == 5


@pytest.mark.parametrize("clean", [False, True])
def test_batch_of_old_records_is_not_written_twice_across_a_restart(tmp_path: Path, clean: bool) -> None:
    def old() -> memoryview:
        return batch(timestamps=[NOW - 365 * 86_400_000], producer_id=1, producer_epoch=0, base_sequence=0)

    log = reopen(tmp_path, clean=True)
    put(log, old())
    log.close()
    again = reopen(tmp_path, recovery_point=1, clean=clean)
    assert put(again, old()).duplicate
