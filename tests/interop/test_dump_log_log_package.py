"""Apache's DumpLogSegments reads every kind of file that the log package writes, without a complaint."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.log.append import Origin
from odradek.log.config import LogConfig
from odradek.log.partition_log import PartitionLog
from tests.interop.conftest import KAFKA, JavaTools
from tests.unit.log.support import NOW, batch, log_environment, marker, open_log, produced, put


def fill(directory: Path) -> PartitionLog:
    config = LogConfig(segment_bytes=16_000, index_interval_bytes=1000)
    log = open_log(directory, config, log_environment())
    for number in range(200):
        codec = number % 5
        times = [NOW + number * 10 + delta for delta in (3, 0, 7)]
        put(log, batch(3, value=b"value %d " % number * 20, timestamps=times, codec=codec), epoch=number // 90)
        put(log, produced(1, number))
        put(log, produced(2, number, transactional=True))
        if number % 50 == 49:
            put(log, marker(2, commit=number == 99, coordinator_epoch=number), origin=Origin.COORDINATOR)
    return log


def dump(*paths: Path) -> str:
    """What DumpLogSegments prints; whatever it has to complain about goes to standard error, and the status stays 0."""
    names = ",".join(str(path) for path in paths)
    command = [sys.executable, str(KAFKA), "tool", "dump-log", "--deep-iteration", "--files", names]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    complaints = [line for line in done.stderr.splitlines() if "SLF4J" not in line and "WARN" not in line]
    # It takes the first record of every segment but the log's first for a gap, in Apache's own files as well.
    gaps = [line for line in complaints if line.startswith("Non-consecutive offsets in")]
    first_records = [
        f"  -1 is followed by {int(path.stem)}" for path in paths if path.suffix == ".log" and int(path.stem)
    ]
    assert sorted(line for line in complaints if line not in gaps) == sorted(first_records)
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


@pytest.mark.parametrize("ended", ["closed", "recovered", "open"])
def test_dump_log_reads_all_files(tmp_path: Path, ended: str, java_tools: JavaTools) -> None:
    log = fill(tmp_path)
    if ended == "closed":
        log.close()
    elif ended == "recovered":
        log.release()
        for path in (*Path(log.directory).glob("*.index"), *Path(log.directory).glob("*.timeindex")):
            path.unlink()
        with open(log.segments[-1].path, "ab") as file:
            file.write(b"torn")
        log = open_log(tmp_path, log.config, log_environment())
        log.close()
    directory = Path(log.directory)
    logs = sorted(directory.glob("*.log"))
    assert len(logs) > 3
    assert all(path.with_suffix(".index").exists() and path.with_suffix(".timeindex").exists() for path in logs)
    printed = dump(*sorted(directory.glob("0*")))
    assert len(re.findall(r"^\| offset: \d+", printed, re.MULTILINE)) == log.end_offset
    assert len(re.findall(r"isvalid: true", printed)) == len(list(log.reader.read_batches(0, log.end_offset)))
    assert "isvalid: false" not in printed
    assert len(re.findall(r"^offset: \d+ position: \d+", printed, re.MULTILINE)) > 50
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", printed, re.MULTILINE)) > 50
    assert len(re.findall(r"^version: 0 producerId: 2 .*lastStableOffset: \d+", printed, re.MULTILINE)) == 3
    assert len(re.findall(r"^producerId: 1 producerEpoch: 0 ", printed, re.MULTILINE)) >= 2
    assert re.search(r"endTxnMarker: ABORT coordinatorEpoch: 49", printed)
