"""What `verify` finds in damaged files, and what opening the same files makes of them: never a broken batch served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.inspection.verification import Finding, verify_partition
from odradek.log.partition_log import PartitionLog
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
