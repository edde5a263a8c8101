"""Standard output and standard error whose reader goes away, buffered and not."""

import io
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from odradek.cli.commands.consume import Printer
from odradek.cli.records.record_format import RawRecord
from odradek.cli.terminal.streams import output_without_reader_dropped, write_bytes
from odradek.client.model import CREATE_TIME, ConsumerRecord

RECORDS: list[ConsumerRecord] = [
    ConsumerRecord("t", 0, each, 1000, CREATE_TIME, None, b"0123456789", [], 7) for each in range(3)
]


class Output(io.RawIOBase):
    """What standard output writes to with PYTHONUNBUFFERED: it takes 7 bytes at a time, and `most` in all."""

    def __init__(self, most: int) -> None:
        self.taken = b""
        self._most = most

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        part = bytes(data)[: min(7, self._most - len(self.taken))]  # type: ignore[call-overload]
        if not part:
            raise BrokenPipeError
        self.taken += part
        return len(part)


@pytest.fixture
def unbuffered(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Output]:
    """Replaces standard output by one that takes that many bytes."""

    def replace(most: int) -> Output:
        output = Output(most)
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, write_through=True))  # type: ignore[type-var]
        return output

    return replace


def test_all_bytes_are_written_to_an_unbuffered_output(unbuffered: Callable[[int], Output]) -> None:
    output = unbuffered(1000)
    write_bytes(bytes(range(100)))
    assert output.taken == bytes(range(100))


def test_records_count_as_printed_only_when_all_bytes_are_written(unbuffered: Callable[[int], Output]) -> None:
    unbuffered(25)
    printer = Printer(lambda record: record.value or b"", skip=False)
    with pytest.raises(BrokenPipeError):
        printer.write(RECORDS)
    assert printer.count == 0


def test_records_before_a_bad_one_count_as_printed(unbuffered: Callable[[int], Output]) -> None:
    def form(record: RawRecord) -> bytes:
        if record.offset == 1:
            raise ValueError("no text for it")
        return record.value or b""

    output = unbuffered(15)
    printer = Printer(form, skip=True)
    with pytest.raises(BrokenPipeError):
        printer.write(RECORDS)
    assert printer.count == 2
    assert output.taken == b"012345678901234"


def test_work_is_completed_when_its_output_has_no_reader() -> None:
    """The status is that of the work."""
    program = (
        "import sys\n"
        "from odradek.cli.terminal.streams import output_without_reader_dropped\n"
        "with output_without_reader_dropped():\n"
        "    for each in range(100_000):\n"
        "        print(each, flush=each % 1000 == 0)\n"
        "sys.exit(7)\n"
    )
    reader, writer = os.pipe()
    os.close(reader)
    for unbuffered in ("", "1"):
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, env=environment, timeout=60
        )
        assert (done.returncode, done.stderr) == (7, b"")
    os.close(writer)


def test_output_with_a_reader_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    with output_without_reader_dropped():
        print("a line", flush=True)
    assert capsys.readouterr().out == "a line\n"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("line", "status"), [("topcs", 2), ("configs", 2), ("topics --bootstrap-server 127.0.0.1:1 --connect-timeout 1", 1)]
)
def test_status_of_a_failure_does_not_depend_on_a_reader(line: str, status: int, unbuffered: str) -> None:
    """Python itself ends with status 120 where it cannot write what standard error buffers."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", *line.split()],
        stdout=writer,
        stderr=writer,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        timeout=60,
    )
    os.close(writer)
    assert done.returncode == status
