"""A Parquet file that cannot be completed leaves no part of it."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from odradek.cli.arguments.errors import CommandError
from odradek.cli.records.parquet_files import ParquetOutput

ROWS = pa.table({"value": ["a", "b"]})


def test_part_is_removed_when_the_file_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    output = ParquetOutput(str(tmp_path / "rows.parquet"))
    output.write(ROWS)
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CommandError, match=r"rows\.parquet: No space left"):
        output.finish(ROWS.schema)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("most", [sys.maxsize, 5_000])
def test_part_is_removed_without_a_trace_when_a_full_disk_takes_no_more(tmp_path: Path, most: int) -> None:
    """A limit for files is a full disk to the process. The writer closed a file that was closed already."""
    program = (
        "import os, resource, sys\n"
        "import pyarrow as pa\n"
        "from odradek.cli.arguments.errors import CommandError\n"
        "from odradek.cli.records.parquet_files import ParquetOutput\n"
        "output = ParquetOutput(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))\n"
        "try:\n"
        "    for _ in range(20):\n"
        "        output.write(pa.table({'value': [os.urandom(2_000)]}))\n"
        "except CommandError as error:\n"
        "    print(error)\n"
        "output.abandon()\n"
    )
    path = tmp_path / "rows.parquet"
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), str(most)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("" if most == sys.maxsize else f"{path}.part: File too large\n")
    assert list(tmp_path.iterdir()) == []
