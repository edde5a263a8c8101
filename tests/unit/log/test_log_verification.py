"""What `verify` finds in damaged files, and what opening the same files makes of them: never a broken batch served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.inspection.verification import (
    Finding,
    log_directories,
    partition_directories,
    read_batches,
    verify_checkpoints,
    verify_partition,
)
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.indexes import OFFSET_ENTRY
from odradek.log.segments.transaction_index import ENTRY_SIZE
from odradek.ports.disk import SystemDisk
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.log.support import batch, log_environment, marker, open_log, produced, put

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=300)


def written(root: Path, *, clean: bool = True) -> Path:
    log = open_log(root, CONFIG, log_environment())
    for number in range(30):
        put(log, batch(2, value=b"%d" % number * 8, codec=number % 5))
        put(log, produced(1, number, transactional=True))
        if number % 10 == 9:
            put(log, marker(1, commit=number == 9), origin=Origin.COORDINATOR)
    if clean:
        log.close()
    else:
        log.release()
    return Path(log.directory)


def findings(directory: Path) -> list[Finding]:
    return list(verify_partition(SystemDisk(), str(directory)))


def read_everything(log: PartitionLog) -> list[bytes]:
    return [bytes(found) for found in log.reader.read_batches(log.log_start_offset, log.end_offset)]


def test_nothing_wrong(tmp_path: Path) -> None:
    assert findings(written(tmp_path)) == []


def test_last_index_entry_may_end_with_a_zero_byte(tmp_path: Path) -> None:
    """Apache Kafka fills an active segment's index with zeros; zeros of the last entry itself are not filling."""
    log = open_log(tmp_path, LogConfig(index_interval_bytes=0))
    first = next(found for size in range(600) if not len(found := batch(257, key=b"k" * size)) % 256)
    put(log, first)
    put(log, batch())
    segment = log.segments[0]
    assert (len(segment.offsets()), segment.offsets().floor(1 << 30, 1 << 30)) == (1, len(first))
    log.close()
    assert findings(Path(log.directory)) == []


def test_index_entry_may_stand_for_several_batches(tmp_path: Path) -> None:
    """Before 4.1 Apache Kafka indexes the last offset of an append, and where it begins: a follower appends several."""
    directory = written(tmp_path)
    path = min(directory.glob("*.index"))
    found = read_batches("", memoryview(path.with_suffix(".log").read_bytes()), 0, None, is_last=False).found
    (position, header), (_, last) = found[2], found[4]
    path.write_bytes(OFFSET_ENTRY.pack(last.last_offset, position))
    assert findings(directory) == []
    log = open_log(tmp_path, CONFIG, log_environment(), clean=True)
    for offset in range(header.base_offset, last.last_offset + 2):
        at = log.segments[0].locate(offset)
        assert at is not None
        assert at.header.base_offset <= offset <= at.header.last_offset
    log.release()
    for entry in ((header.base_offset - 1, position), (found[-1][1].next_offset, position)):
        path.write_bytes(OFFSET_ENTRY.pack(*entry))
        (finding,) = findings(directory)
        assert "is said to be at byte" in finding.problem


def flip(name: str, position: int) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        path = sorted(directory.glob(name))[1]
        data = bytearray(path.read_bytes())
        data[position] ^= 0x10
        path.write_bytes(data)

    return damage


def cut(name: str, left: int) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        path = max(directory.glob(name))
        path.write_bytes(path.read_bytes()[:left])

    return damage


def lose(name: str) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob(name):
            path.unlink()

    return damage


def overwrite(name: str, data: bytes) -> Callable[[Path], None]:
    def damage(directory: Path) -> None:
        for path in directory.glob(name):
            path.write_bytes(data)

    return damage


@pytest.mark.parametrize("position", [0, 10, 16, 25, 70, 500, 1100])
def test_flipped_bits_in_a_segment(tmp_path: Path, position: int) -> None:
    directory = written(tmp_path)
    whole = read_everything(open_log(tmp_path, CONFIG, log_environment(), clean=True))
    flip("*.log", position)(directory)
    path = sorted(directory.glob("*.log"))[1]
    (found, *others) = [finding for finding in findings(directory) if finding.path == str(path)]
    assert not others
    assert 0 <= found.position <= position
    assert found.offset >= int(path.stem)
    assert "are whole" in found.remedy
    assert "so is what follows" in found.remedy
    log = open_log(tmp_path, CONFIG, log_environment(), clean=True)
    with pytest.raises(KafkaError) as caught:
        read_everything(log)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert str(path) in caught.value.message
    recovered = open_log(tmp_path, CONFIG, log_environment(), clean=False)
    assert read_everything(recovered) == whole[: len(read_everything(recovered))]
    assert recovered.end_offset <= found.offset


@pytest.mark.parametrize("leader_epoch", [0, 2, 0x0202])
@pytest.mark.parametrize("stray", [b"?", b"\x02", b"?" * 70])
def test_whole_batches_are_found_after_bytes_of_none(tmp_path: Path, leader_epoch: int, stray: bytes) -> None:
    """Bytes of the leader epoch, before the magic byte, may look like one."""
    log = open_log(tmp_path)
    for _ in range(3):
        put(log, batch(), epoch=leader_epoch)
    log.close()
    path = Path(log.directory) / f"{0:020d}.log"
    data, size = path.read_bytes(), len(batch())
    found = read_batches(str(path), memoryview(data[:size] + stray + data[size:]), 0, None, is_last=True)
    assert [position for position, _ in found.found] == [0, size + len(stray), 2 * size + len(stray)]
    (finding,) = found.findings
    assert (finding.position, finding.offset) == (size, 1)
    assert f"from offset 1 at byte {size + len(stray)}; {len(stray)} bytes in between are lost" in finding.remedy


REPAIRABLE = {
    "torn tail": cut("*.log", 700),
    "zero-length last segment": cut("*.log", 0),
    "lost indexes": lose("*index"),
    "truncated offset index": cut("*.index", 12),
    "odd offset index": cut("*.index", 5),
    "empty time index": overwrite("*.timeindex", b""),
    "lost snapshots": lose("*.snapshot"),
    "broken snapshots": overwrite("*.snapshot", b"\0\1nothing of the kind"),
    "lost leader epochs": lose("leader-epoch-checkpoint"),
    "broken leader epochs": overwrite("leader-epoch-checkpoint", b"0\n9\n"),
}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", REPAIRABLE)
def test_repairs(tmp_path: Path, name: str, clean: bool) -> None:
    directory = written(tmp_path)
    log = open_log(tmp_path, CONFIG, log_environment(), clean=True)
    whole, aborted = read_everything(log), log.reader.aborted_transactions(0, log.end_offset)
    REPAIRABLE[name](directory)
    found = findings(directory)
    if "lost leader" not in name and "snapshots" not in name.removeprefix("broken ") and "zero" not in name:
        assert found, "it is noticed"
    log = open_log(tmp_path, CONFIG, log_environment(), clean=clean)
    kept = read_everything(log)
    if "tail" in name or "zero" in name:
        assert kept == whole[: len(kept)]
        assert 0 < len(kept) < len(whole)
    else:
        assert kept == whole
    if not clean and len(kept) == len(whole):
        assert log.reader.aborted_transactions(0, log.end_offset) == aborted
        assert log.history.leader_epochs.entries() == [(0, 0)]
    for offset in range(log.log_start_offset, log.end_offset):
        assert log.reader.read(offset, 1, upper_offset=log.end_offset).size
    put(log, batch(1))
    log.close()
    problems = [f for f in findings(directory) if "index" not in f.path]
    assert not problems


@given(position=st.integers(0, 5000), bit=st.integers(0, 7), clean=st.booleans())
def test_no_flipped_bit_is_mistaken_for_data(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int, clean: bool
) -> None:
    """Whatever a reader of batches gets was written so: all that the CRC covers, and in the order of the offsets."""
    root = tmp_path_factory.mktemp("flip")
    directory = written(root)
    whole = {found[16:] for found in read_everything(open_log(root, CONFIG, log_environment(), clean=True))}
    files = sorted(directory.glob("*.log"))
    for path in files:
        if position < path.stat().st_size:
            data = bytearray(path.read_bytes())
            data[position] ^= 1 << bit
            path.write_bytes(data)
            break
        position -= path.stat().st_size
    problem = ""
    try:
        log = open_log(root, CONFIG, log_environment(), clean=clean)
        offsets = []
        for found in log.reader.read_batches(log.log_start_offset, log.end_offset):
            assert bytes(found[16:]) in whole
            offsets.append(int.from_bytes(found[:8], "big"))
        assert offsets == sorted(set(offsets))
    except KafkaError as error:
        problem = error.message
    assert not problem or str(directory) in problem


def test_a_wrong_base_offset_is_found_by_its_neighbours(tmp_path: Path) -> None:
    directory = written(tmp_path)
    whole = read_everything(open_log(tmp_path, CONFIG, log_environment(), clean=True))
    path = max(directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    first = int.from_bytes(data[8:12], "big") + 12
    data[first + 5] ^= 1
    path.write_bytes(data)
    log = open_log(tmp_path, CONFIG, log_environment(), clean=False)
    assert read_everything(log) == whole[: len(read_everything(log))]
    assert log.segments[-1].size == first, "cut off before the batch that is wrong, not after it"


REBUILT = "rebuilt when the log is opened"
SNAPSHOT_REMEDY = "an older snapshot and the log take its place"
OVERWRITTEN = {
    "odd offset index": (cut("*.index", 5), [(".index", 5, "5 bytes are no multiple of 8", REBUILT)]),
    "offset index that jumps back": (
        overwrite("00000000000000000000.index", bytes(8) + bytes(3) + b"\1" + bytes(4) + bytes(3) + b"\1" + b"\1" * 4),
        [(".index", 16, "offset 1 after 1", REBUILT)],
    ),
    "odd time index": (cut("*.timeindex", 7), [(".timeindex", 7, "7 bytes are no multiple of 12", REBUILT)]),
    "broken snapshots": (overwrite("*.snapshot", b"nothing"), [(".snapshot", 0, "", SNAPSHOT_REMEDY)]),
    "broken leader epochs": (
        overwrite("leader-epoch-checkpoint", b"9\n"),
        [("leader-epoch-checkpoint", 0, "", REBUILT)],
    ),
    "torn aborted transactions": (
        overwrite("*.txnindex", bytes(35)),
        [
            (".txnindex", 0, "", "rebuilt from the markers after an unclean stop"),
            (".txnindex", 34, "cut off", "ignored"),
        ],
    ),
}


def test_zeros_in_a_transaction_index_are_no_aborted_transaction(tmp_path: Path) -> None:
    """What was not synced a power loss may leave as zeros, which would hide records of the producer with id 0."""
    directory = written(tmp_path)
    path = directory / "00000000000000000000.txnindex"
    path.write_bytes(bytes(ENTRY_SIZE))
    assert findings(directory) == [
        Finding(str(path), 0, -1, "no aborted transaction", "rebuilt from the markers after an unclean stop")
    ]


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_finding_says_where_what_and_what_becomes_of_it(tmp_path: Path, name: str) -> None:
    directory = written(tmp_path)
    damage, expected = OVERWRITTEN[name]
    damage(directory)
    found = findings(directory)
    kinds = [
        next(
            (each for each in expected if finding.path.endswith(each[0]) and finding.position == each[1]),
            (finding.path, finding.position, finding.problem, finding.remedy),
        )
        for finding in found
    ]
    assert set(kinds) == set(expected)
    for finding, (_, _, problem, remedy) in zip(found, kinds, strict=True):
        assert problem in finding.problem
        assert (finding.offset, finding.remedy) == (-1, remedy)


def test_missing_index_is_found_at_the_start_of_its_file(tmp_path: Path) -> None:
    directory = written(tmp_path)
    lose("00000000000000000000.*index")(directory)
    stem = str(directory / "00000000000000000000")
    assert findings(directory) == [
        Finding(f"{stem}.index", 0, -1, "missing", REBUILT),
        Finding(f"{stem}.timeindex", 0, -1, "missing", REBUILT),
    ]


@pytest.mark.parametrize("number", [0, 1, 3])
def test_next_whole_batch_after_damage_is_the_next_one(tmp_path: Path, number: int) -> None:
    path = min(written(tmp_path).glob("*.log"))
    data = bytearray(path.read_bytes())
    whole = read_batches(str(path), memoryview(bytes(data)), 0, None, is_last=False).found
    position, header = whole[number]
    data[position + 21] ^= 1
    batches = read_batches(str(path), memoryview(data), 0, None, is_last=False)
    (finding,) = batches.findings
    after, following = whole[number + 1]
    assert (finding.position, finding.offset) == (position, header.base_offset)
    assert f"from offset {following.base_offset} at byte {after}; {after - position} bytes in between" in finding.remedy
    assert [each[0] for each in batches.found] == [at for at, _ in whole if at != position]


def test_end_of_a_segment_that_is_lost_is_cut_off_in_the_last_one_only(tmp_path: Path) -> None:
    path = min(written(tmp_path).glob("*.log"))
    data = path.read_bytes()
    position, header = read_batches(str(path), memoryview(data), 0, None, is_last=False).found[-1]
    torn = memoryview(data)[: position + 30]
    remedy = f"offsets below {header.base_offset} are whole; the last 30 bytes are lost"
    (finding,) = read_batches(str(path), torn, 0, None, is_last=False).findings
    assert finding.remedy == remedy
    (finding,) = read_batches(str(path), torn, 0, None, is_last=True).findings
    assert finding.remedy == f"{remedy} and are cut off when the log is opened after an unclean stop"


def test_batch_beyond_the_next_segment_is_damage(tmp_path: Path) -> None:
    path = min(written(tmp_path).glob("*.log"))
    data = memoryview(path.read_bytes())
    position, header = read_batches(str(path), data, 0, None, is_last=False).found[2]
    batches = read_batches(str(path), data, 0, header.base_offset, is_last=False)
    assert [each[0] for each in batches.found][-1] < position
    assert batches.findings[0].position == position
    assert not read_batches(str(path), data[: position + header.size], 0, header.next_offset, is_last=False).findings


def test_log_directories_and_partitions_are_found(tmp_path: Path) -> None:
    disk = SystemDisk()
    partition = written(tmp_path / "one")
    assert list(partition_directories(disk, str(partition))) == [str(partition)]
    root = str(partition.parent)
    assert list(partition_directories(disk, root)) == [str(partition)]
    assert log_directories(disk, root) == [root]
    (partition.parent / "empty-0").mkdir()
    assert list(partition_directories(disk, root)) == [str(partition)]
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "meta.properties").write_text("version=0\n")
    (tmp_path / "three").mkdir()
    assert log_directories(disk, str(tmp_path)) == [str(tmp_path / "two")]


def test_broken_checkpoints_are_found_with_their_remedies(tmp_path: Path) -> None:
    (tmp_path / "recovery-point-offset-checkpoint").write_text("9\n")
    (tmp_path / "meta.properties").write_text("version=9\n")
    (tmp_path / "other").write_text("nothing")
    remedies = {
        Path(each.path).name: (each.position, each.remedy) for each in verify_checkpoints(SystemDisk(), str(tmp_path))
    }
    assert remedies == {
        "recovery-point-offset-checkpoint": (0, "ignored at the next start, which reads more"),
        "meta.properties": (0, "the broker does not start"),
    }


def test_batch_after_one_stray_byte_is_found(tmp_path: Path) -> None:
    path = min(written(tmp_path).glob("*.log"))
    data = path.read_bytes()
    first, second = read_batches(str(path), memoryview(data), 0, None, is_last=False).found[:2]
    damaged = memoryview(data[: second[0]] + b"\1" + data[second[0] : second[0] + second[1].size])
    batches = read_batches(str(path), damaged, 0, None, is_last=True)
    assert [at for at, _ in batches.found] == [first[0], second[0] + 1]
    assert [each.position for each in batches.findings] == [second[0]]


def test_findings_about_other_files_name_no_offset(tmp_path: Path) -> None:
    directory = written(tmp_path)
    max(directory.glob("*.log")).rename(directory / "kept")
    min(directory.glob("*.index")).write_bytes(b"\1" * 12)
    (directory / f"{0:020d}.log.swap").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_bytes(b"0\n9\n")
    found = {finding.problem: finding.offset for finding in findings(directory)}
    assert "an index without its segment" in found
    assert "12 bytes are no multiple of 8" in found
    assert len(found) >= 4
    assert set(found.values()) == {-1}
