"""What a log's files contain, in the lines of Apache's DumpLogSegments; real files of both are compared elsewhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.inspection.dump import DumpOptions, UnknownFile, as_text, dump
from odradek.ports.disk import SystemDisk, SystemFile
from odradek.records.errors import CorruptRecords
from tests.unit.log.support import NOW, batch, log_environment, marker, open_log, produced, put

EVERYTHING = DumpOptions(
    records=True, decoder=as_text, skip_record_metadata=False, check_indexes=False, max_bytes=1 << 20
)
CONFIG = LogConfig(index_interval_bytes=1)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A plain batch, two records of a transaction that is aborted, and its marker."""
    log = open_log(tmp_path, CONFIG, log_environment())
    put(log, batch(value=b"plain"))
    put(log, produced(7, 0, 2, transactional=True))
    put(log, marker(7, commit=False, coordinator_epoch=4), origin=Origin.COORDINATOR)
    put(log, batch(value=b"last"))
    log.close()
    return tmp_path / "topic-0"


def lines(directory: Path, ending: str, options: DumpOptions = EVERYTHING) -> list[str]:
    return list(dump(SystemDisk(), str(next(directory.glob(f"*{ending}"))), options))


def test_batches_are_shown_with_their_positions(directory: Path) -> None:
    found = lines(directory, ".log", EVERYTHING._replace(records=False, decoder=None))
    assert found[0] == "Log starting offset: 0"
    assert [line.split(" count:")[0] for line in found[1:]] == [
        "baseOffset: 0 lastOffset: 0",
        "baseOffset: 1 lastOffset: 2",
        "baseOffset: 3 lastOffset: 3",
        "baseOffset: 4 lastOffset: 4",
    ]
    assert "baseSequence: 0 lastSequence: 1 producerId: 7 producerEpoch: 0 partitionLeaderEpoch: 0" in found[2]
    assert "isTransactional: true isControl: false deleteHorizonMs: OptionalLong.empty position: " in found[2]
    assert "isControl: true" in found[3]
    assert all(line.endswith("isvalid: true") for line in found[1:])


def test_records_are_shown_with_their_sequences_and_content(directory: Path) -> None:
    found = [line for line in lines(directory, ".log") if line.startswith("|")]
    plain = f"| offset: 0 CreateTime: {NOW} keySize: 3 valueSize: 5 sequence: -1 headerKeys: [] key: key payload: plain"
    assert found[0] == plain
    assert [line.split("sequence: ")[1].split()[0] for line in found] == ["-1", "0", "1", "-1", "-1"]
    assert found[3].endswith("endTxnMarker: ABORT coordinatorEpoch: 4")


def test_record_without_its_metadata_is_its_content(directory: Path) -> None:
    found = lines(directory, ".log", EVERYTHING._replace(skip_record_metadata=True))
    assert "| key: key payload: plain" in found
    assert "| endTxnMarker: ABORT coordinatorEpoch: 4" in found


def test_indexes_are_shown_with_their_offsets(directory: Path) -> None:
    offsets = lines(directory, ".index")
    assert [line.split()[1] for line in offsets] == ["2", "3", "4"]
    assert [int(line.split()[3]) for line in offsets] == sorted({int(line.split()[3]) for line in offsets})
    assert all(line.startswith(f"timestamp: {NOW} offset: ") for line in lines(directory, ".timeindex"))
    assert lines(directory, ".txnindex") == [
        "version: 0 producerId: 7 firstOffset: 1 lastOffset: 3 lastStableOffset: 4"
    ]
    (snapshot,) = lines(directory, ".snapshot")
    assert snapshot == (
        f"producerId: 7 producerEpoch: 0 coordinatorEpoch: 4 currentTxnFirstOffset: OptionalLong.empty "
        f"lastTimestamp: {NOW} firstSequence: 0 lastSequence: 1 lastOffset: 2 offsetDelta: 1 timestamp: {NOW}"
    )


def test_sanity_of_indexes_is_checked(directory: Path) -> None:
    checks = EVERYTHING._replace(check_indexes=True)
    path = next(directory.glob("*.index"))
    assert lines(directory, ".index", checks) == [f"{path} passed sanity check."]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"^byte \d+: \d+ bytes are no multiple of 8$"):
        lines(directory, ".index", checks)


def test_empty_index_is_said_to_be_empty(directory: Path) -> None:
    path = next(directory.glob("*.index"))
    path.write_bytes(bytes(16))
    assert lines(directory, ".index") == [f"{path} is empty."]


def test_flipped_bit_makes_its_batch_invalid(directory: Path) -> None:
    path = next(directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[62] ^= 1
    path.write_bytes(data)
    dumped = dump(SystemDisk(), str(path), EVERYTHING)
    found = [next(dumped), next(dumped), next(dumped)]
    assert found[1].endswith("isvalid: false")
    assert found[2].endswith("isvalid: true"), "and its records are not shown"
    with pytest.raises(CorruptRecords, match=r"^1 batches are damaged, the first one at byte 0$"):
        list(dumped)


def test_segment_is_read_where_it_cannot_be_written(directory: Path) -> None:
    class ReadOnlyDisk(SystemDisk):
        def open(self, path: str, *, create: bool = False) -> SystemFile:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    path = next(directory.glob("*.log"))
    assert len(list(dump(ReadOnlyDisk(), str(path), EVERYTHING))) > 1


def test_torn_end_is_an_error_unless_only_the_head_is_read(directory: Path) -> None:
    path = next(directory.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptRecords, match="are no batch"):
        lines(directory, ".log")
    assert len(lines(directory, ".log", EVERYTHING._replace(max_bytes=path.stat().st_size))) > 1


def test_other_files_are_not_shown(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("")
    with pytest.raises(UnknownFile):
        lines(tmp_path, ".txt")
