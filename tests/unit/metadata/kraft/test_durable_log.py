"""The metadata log on disk: appends, truncation, snapshots, and what a stop between two steps leaves."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from odradek.kraft.checkpoints import CheckpointId, encode_checkpoint
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import encode_metadata_batch, read_entries
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.metadata_records import VersionedRecord
from odradek.log.environment import LogEnvironment
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.metadata.kraft.quorum_state_file import load_quorum_state, save_quorum_state
from odradek.ports.disk import SystemDisk
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.cluster_metadata import NoOpRecord
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.kraft.golden_files import GOLDEN
from tests.unit.log.support import LackingDisk, StandingClock

RECORD = VersionedRecord(NoOpRecord(), 0)


def batch(offset: int, epoch: int, count: int = 1) -> bytes:
    return encode_metadata_batch([RECORD] * count, base_offset=offset, leader_epoch=epoch, timestamp_ms=0)


def snapshot(found: CheckpointId, records: int = 3) -> bytes:
    return encode_checkpoint(found, [RECORD] * records, timestamp_ms=0, last_timestamp_ms=7)


def opened(path: Path, segment_bytes: int = 1 << 20) -> DurableMetadataLog:
    environment = LogEnvironment(SystemDisk(), StandingClock())
    return DurableMetadataLog.open(str(path), environment, segment_bytes=segment_bytes)


def filled(path: Path, segment_bytes: int = 1 << 20) -> DurableMetadataLog:
    """Offsets 0 to 9 of epoch 1, 10 to 19 of epoch 3, in batches of one record."""
    log = opened(path, segment_bytes)
    for offset in range(20):
        log.append(batch(offset, 1 if offset < 10 else 3))
    return log


def offsets(data: bytes) -> list[int]:
    return [each.offset for each in read_entries(data, whole=True)]


def files(log: DurableMetadataLog, ending: str) -> list[str]:
    return sorted(each.name for each in Path(log.directory).iterdir() if each.name.endswith(ending))


def install(log: DurableMetadataLog, found: CheckpointId) -> None:
    data = snapshot(found)
    log.write_snapshot(found, 0, data[:50])
    log.write_snapshot(found, 50, data[50:])
    log.install_snapshot(found)


def test_new_metadata_log_is_empty(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert (log.start, log.log_end, log.epochs, log.snapshots) == (LogEnd(0, 0), LogEnd(0, 0), [], [])
    assert log.load_snapshot() is None
    assert log.directory == f"{tmp_path}/__cluster_metadata-0"


def test_appended_batches_and_epochs_are_there_without_a_close(tmp_path: Path) -> None:
    filled(tmp_path).sync()
    log = opened(tmp_path)
    assert log.log_end == LogEnd(20, 3)
    assert log.epochs == [(1, 0), (3, 10)]
    assert offsets(log.read(0, 1 << 20)) == list(range(20))


def test_several_batches_are_appended_at_once(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.append(memoryview(batch(0, 1, 4) + batch(4, 2, 3))) == LogEnd(7, 2)
    assert log.epochs == [(1, 0), (2, 4)]


def test_append_is_rejected_where_it_does_not_follow_the_end(tmp_path: Path) -> None:
    log = filled(tmp_path)
    with pytest.raises(KafkaError):
        log.append(batch(19, 3))
    assert log.log_end == LogEnd(20, 3)


def test_append_leaves_the_callers_bytes_alone(tmp_path: Path) -> None:
    data = bytearray(batch(0, 1))
    before = bytes(data)
    opened(tmp_path).append(memoryview(data))
    assert data == before


def test_read_is_limited_by_bytes_and_by_an_offset(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert offsets(log.read(3, 1)) == [3]
    assert offsets(log.read(17, 1 << 20, below=19)) == [17, 18]
    assert log.read(20, 1 << 20) == b""


def test_truncation_removes_records_and_epochs(tmp_path: Path) -> None:
    log = filled(tmp_path)
    assert log.truncate_to(8) == LogEnd(8, 1)
    log.append(batch(8, 5))
    log.sync()
    log = opened(tmp_path)
    assert (log.log_end, log.epochs) == (LogEnd(9, 5), [(1, 0), (5, 8)])


def test_torn_batch_is_cut_off_at_the_start(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.sync()
    with open(f"{log.directory}/00000000000000000000.log", "ab") as file:
        file.write(batch(20, 3)[:-5])
    assert opened(tmp_path).log_end == LogEnd(20, 3)


def test_saved_snapshot_moves_the_start_and_deletes_segments(tmp_path: Path) -> None:
    log = filled(tmp_path, segment_bytes=300)
    before = len(files(log, ".log"))
    log.save_snapshot(CheckpointId(15, 3), snapshot(CheckpointId(15, 3)))
    assert len(files(log, ".log")) < before
    for each in (log, opened(tmp_path, segment_bytes=300)):
        assert (each.start, each.log_end, each.epochs) == (LogEnd(15, 3), LogEnd(20, 3), [(3, 15)])
        assert offsets(each.read(15, 1 << 20)) == [15, 16, 17, 18, 19]
        with pytest.raises(KafkaError, match="not 14"):
            each.read(14, 1)


def test_log_continues_after_a_snapshot_of_all_its_records(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.save_snapshot(CheckpointId(20, 3), snapshot(CheckpointId(20, 3)))
    assert (log.log_end, log.epochs) == (LogEnd(20, 3), [])
    log.append(batch(20, 3))
    log.sync()
    log = opened(tmp_path)
    assert (log.log_end, log.epochs) == (LogEnd(21, 3), [(3, 20)])


@pytest.mark.parametrize("found", [CheckpointId(21, 3), CheckpointId(10, 3), CheckpointId(11, 1), CheckpointId(0, 0)])
def test_snapshot_of_other_records_is_not_saved(tmp_path: Path, found: CheckpointId) -> None:
    log = filled(tmp_path)
    with pytest.raises(ValueError, match="does not end in the log"):
        log.save_snapshot(found, snapshot(found))
    assert log.snapshots == []


def test_installed_snapshot_replaces_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path)
    install(log, CheckpointId(100, 4))
    assert (log.start, log.log_end, log.epochs) == (LogEnd(100, 4), LogEnd(100, 4), [])
    log.append(batch(100, 4))
    log.sync()
    log = opened(tmp_path)
    assert (log.log_end, log.epochs) == (LogEnd(101, 4), [(4, 100)])
    content = log.load_snapshot()
    assert content is not None
    assert (content.last_timestamp_ms, len(list(content.entries))) == (7, 3)


def test_stop_before_the_log_is_replaced_is_completed_at_the_start(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.sync()
    found = CheckpointId(100, 4)
    (Path(log.directory) / found.file_name).write_bytes(snapshot(found))
    log = opened(tmp_path)
    assert (log.start, log.log_end) == (LogEnd(100, 4), LogEnd(100, 4))


def test_log_that_contradicts_its_snapshot_is_replaced_at_the_start(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.sync()
    found = CheckpointId(15, 4)  # the log has offset 14 of epoch 3
    (Path(log.directory) / found.file_name).write_bytes(snapshot(found))
    assert opened(tmp_path).log_end == LogEnd(15, 4)


def test_log_whose_disk_has_failed_closes(tmp_path: Path) -> None:
    """A node with a full disk ended with a traceback, and with what its other parts had left undone."""
    disk = LackingDisk()
    log = DurableMetadataLog.open(str(tmp_path), LogEnvironment(disk, StandingClock()), segment_bytes=1 << 20)
    log.append(batch(0, 1, count=30))
    log.sync()
    disk.left, disk.errno = 0, errno.ENOSPC
    with pytest.raises(KafkaError, match="STORAGE"):
        log.close()
    log.close()
    assert opened(tmp_path).log_end == LogEnd(30, 1)


def test_part_of_a_snapshot_is_removed_at_the_start(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.write_snapshot(CheckpointId(100, 4), 0, b"begin")
    log.close()
    log = opened(tmp_path)
    assert (files(log, ".part"), log.snapshots, log.log_end) == ([], [], LogEnd(20, 3))


def test_damaged_snapshot_is_not_installed(tmp_path: Path) -> None:
    log = filled(tmp_path)
    found = CheckpointId(100, 4)
    log.write_snapshot(found, 0, snapshot(found)[:-1])
    with pytest.raises(CorruptMetadata, match=r"0000000004\.checkpoint\.part"):
        log.install_snapshot(found)
    assert (log.log_end, log.snapshots, files(log, ".part")) == (LogEnd(20, 3), [], [])


def test_part_of_a_snapshot_must_follow_the_one_before(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.write_snapshot(CheckpointId(100, 4), 0, b"begin")
    for found, position in ((CheckpointId(100, 4), 6), (CheckpointId(101, 4), 5)):
        with pytest.raises(ValueError, match="is not the next one"):
            log.write_snapshot(found, position, b"more")


def test_two_newest_snapshots_are_kept(tmp_path: Path) -> None:
    log = filled(tmp_path)
    ids = [CheckpointId(end, 3) for end in (12, 14, 16)]
    for found in ids:
        log.save_snapshot(found, snapshot(found))
    assert log.snapshots == ids[1:]
    assert files(log, ".checkpoint") == [each.file_name for each in ids[1:]]


def test_snapshot_is_read_in_parts(tmp_path: Path) -> None:
    log, found = filled(tmp_path), CheckpointId(12, 3)
    data = snapshot(found)
    log.save_snapshot(found, data)
    assert log.read_snapshot(found, 10, 20) == (data[10:30], len(data))
    assert log.read_snapshot(found, len(data) - 1, 20) == (data[-1:], len(data))


@pytest.mark.parametrize(
    ("found", "position", "error"),
    [
        (CheckpointId(13, 3), 0, ErrorCode.SNAPSHOT_NOT_FOUND),
        (CheckpointId(12, 3), 1 << 20, ErrorCode.POSITION_OUT_OF_RANGE),
        (CheckpointId(12, 3), -1, ErrorCode.POSITION_OUT_OF_RANGE),
    ],
)
def test_snapshot_is_not_read_where_there_is_none(
    tmp_path: Path, found: CheckpointId, position: int, error: ErrorCode
) -> None:
    log = filled(tmp_path)
    log.save_snapshot(CheckpointId(12, 3), snapshot(CheckpointId(12, 3)))
    with pytest.raises(KafkaError) as raised:
        log.read_snapshot(found, position, 10)
    assert raised.value.code is error


def test_log_is_not_truncated_below_its_snapshot(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.save_snapshot(CheckpointId(12, 3), snapshot(CheckpointId(12, 3)))
    with pytest.raises(ValueError, match="begins at 12"):
        log.truncate_to(11)


def test_log_without_the_snapshot_before_it_is_refused(tmp_path: Path) -> None:
    log = opened(tmp_path)
    install(log, CheckpointId(100, 4))
    log.append(batch(100, 4))
    log.close()
    (Path(log.directory) / CheckpointId(100, 4).file_name).unlink()
    with pytest.raises(CorruptMetadata, match="no snapshot holds the records"):
        opened(tmp_path)


def test_directory_of_apache_kafka_begins_at_its_newest_snapshot(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "apache", tmp_path / "__cluster_metadata-0")
    everything = list(read_entries((GOLDEN / "apache" / "00000000000000000000.log").read_bytes(), whole=False))
    log = opened(tmp_path)
    assert log.snapshots == [CheckpointId(54, 2), CheckpointId(106, 3)]
    assert log.start == LogEnd(106, 3)
    assert log.log_end == LogEnd(everything[-1].offset + 1, everything[-1].leader_epoch)
    assert offsets(log.read(106, 1 << 20)) == [each.offset for each in everything if each.offset >= 106]
    content = log.load_snapshot()
    assert content is not None
    assert list(content.entries)


@pytest.mark.parametrize("version", [0, 1])
def test_quorum_state_is_kept(tmp_path: Path, version: int) -> None:
    disk = SystemDisk()
    assert load_quorum_state(disk, str(tmp_path)) is None
    state = QuorumStateData(leader_id=-1, leader_epoch=7, voted_id=2)
    save_quorum_state(disk, str(tmp_path), state, version=version)
    found = load_quorum_state(disk, str(tmp_path))
    assert found is not None
    assert (found.leader_id, found.leader_epoch, found.voted_id) == (-1, 7, 2)


def test_damaged_quorum_state_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "quorum-state").write_text("{")
    with pytest.raises(CorruptMetadata, match=str(tmp_path)):
        load_quorum_state(SystemDisk(), str(tmp_path))
