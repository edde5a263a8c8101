"""The examples of the commands' help texts and of the reference, run in order against a broker."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from odradek.cli.arguments.examples import examples_of
from odradek.cli.catalog import load, parser_of
from odradek.cli.main import kcat_parser, main
from tests.conftest import MakeBroker

COMMANDS = (
    "topics", "produce", "kcat", "consume", "groups", "configs", "offsets", "dlq", "delete-records", "cluster",
    "profile", "plan", "acls", "roles", "top", "debug",
)  # fmt: skip
NOT_HERE = ("--watch", "-G family", "restart --rolling", "groups --delete")
"""What does not end or waits for new records, what needs several brokers, and what the other examples still need."""

ADDRESS = "127.0.0.1:9092"


def examples(command: str) -> list[str]:
    parser = kcat_parser() if command == "kcat" else parser_of(command, load(command))
    lines = [each for each in examples_of(parser) if not each.startswith("#")]
    return sorted(
        [each for each in lines if not any(part in each for part in NOT_HERE)], key=lambda each: "--create" not in each
    )


def steps(line: str) -> list[list[str]]:
    """The commands of a pipeline."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            found.append([])
        else:
            found[-1].append(word)
    return found


class Shell:
    """Runs pipelines with `odradek` in this process."""

    def __init__(self, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
        self._captured = capfdbinary
        self._monkeypatch = monkeypatch

    def run(self, line: str) -> None:
        """Fails for a command whose exit status is not 0."""
        data = b""
        for step in steps(line):
            words = step
            if "<" in words:
                at = words.index("<")
                data, words = Path(words[at + 1]).read_bytes(), words[:at]
            if words[0] != "odradek":
                if shutil.which(words[0]) is None:
                    pytest.skip(f"no {words[0]} here")
                data = subprocess.run(words, input=data, capture_output=True, check=True, timeout=60).stdout
                continue
            status, data, errors = self._main(words[1:], data)
            assert status == 0, f"{line}: {errors.decode()}"

    def _main(self, words: list[str], data: bytes) -> tuple[int, bytes, bytes]:
        read, write = os.pipe()
        os.write(write, data)
        os.close(write)
        with os.fdopen(read) as reader:
            self._monkeypatch.setattr(sys, "stdin", reader)
            status = main(words)
        captured = self._captured.readouterr()
        return status, captured.out, captured.err


def test_pipelines_are_split_into_their_commands():
    assert steps("printf 'a|b' | odradek produce t < f") == [["printf", "a|b"], ["odradek", "produce", "t", "<", "f"]]


@pytest.mark.timeout(120)
def test_examples_work(
    make_broker: MakeBroker,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
):
    authorizer = {"authorizer.class.name": "odradek", "super.users": "User:ANONYMOUS"}
    broker = make_broker({"group.initial.rebalance.delay.ms": 0, **authorizer})
    broker.start()
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", broker.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    partitions = [{"topic": "greetings", "partition": 1, "offset": 0}]
    (tmp_path / "offsets.json").write_text(json.dumps({"partitions": partitions, "version": 1}))
    (tmp_path / "letters.txt").write_text("".join(f"{number}\n" for number in range(100)))
    fields = [{"name": "total", "type": "int"}]
    (tmp_path / "order.avsc").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    parquet.write_table(pa.table({"carrier": ["UA"], "origin": ["JFK"], "delay": [4]}), tmp_path / "flights.parquet")
    shell = Shell(capfdbinary, monkeypatch)
    try:
        for command in COMMANDS:
            for name in ("copies", "orders", "payments-dlq", "test-a", "test-b"):
                shell.run(f"odradek topics --create --topic {name} --partitions 1 --if-not-exists")
            if command != "topics":
                shell.run("odradek produce greetings -p 0 < letters.txt")
            for line in examples(command):
                shell.run(line.replace(ADDRESS, broker.bootstrap))
        shell.run("odradek groups --delete --group family")
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
