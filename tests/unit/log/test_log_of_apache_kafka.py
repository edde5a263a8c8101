"""A directory that Apache Kafka 4.3.0 wrote and closed: six transactions of three records, every other one aborted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from tests.unit.log.support import batch, fetched, open_log, put

THEIRS = Path(__file__).parent / "partition_by_kafka_4_3_0"


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def opened(tmp_path: Path, *, clean: bool, only_log: bool = False) -> PartitionLog:
    shutil.copytree(THEIRS, tmp_path / "topic-0")
    if only_log:
        for path in (tmp_path / "topic-0").iterdir():
            if path.suffix != ".log":
                path.unlink()
    # The tests' clock stands before the records' time, so that no producer has expired.
    config = LogConfig(index_interval_bytes=150)
    return open_log(tmp_path, config, clean=clean, recovery_point=24 if clean else 0)


@pytest.mark.parametrize(("clean", "only_log"), [(True, False), (False, False), (False, True)])
def test_it_is_served(tmp_path: Path, clean: bool, only_log: bool) -> None:
    log = opened(tmp_path, clean=clean, only_log=only_log)
    assert (log.log_start_offset, log.end_offset) == (0, 24)
    assert [first for _, first in log.reader.aborted_transactions(0, 24)] == [4, 12, 20]
    assert log.history.first_unstable_offset is None
    assert len(log.history.producers.producers) == 1
    assert set(fetched(log, 5)) >= {4, 7, 23}
    assert put(log, batch(), epoch=1).first_offset == 24


@pytest.mark.parametrize("only_log", [False, True])
def test_what_is_rebuilt_is_byte_for_byte_what_apache_kafka_wrote(tmp_path: Path, only_log: bool) -> None:
    log = opened(tmp_path, clean=False, only_log=only_log)
    log.close()
    ours = contents(tmp_path / "topic-0")
    theirs = contents(THEIRS)
    theirs.pop("partition.metadata")
    ours.pop("partition.metadata", None)
    assert {Path(name).suffix for name in theirs} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ""}
    assert ours == theirs
