"""The README's five minutes: its own commands and programs, in its order, against the broker that it starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.house.sources import ROOT

README = (ROOT / "README.md").read_text()
ADDRESS = "127.0.0.1:9092"
TIME_LIMIT_SECONDS = 120


def blocks() -> list[str]:
    """Indented blocks of commands; the lines of one belong together."""
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"(?:^    .*\n)+", prose, re.MULTILINE)
    return [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in found]


def programs() -> list[str]:
    """The Python examples."""
    return re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def environment(bootstrap: str) -> dict[str, str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "ODRADEK_BOOTSTRAP_SERVER": bootstrap}


def run(commands: str, bootstrap: str, directory: Path) -> str:
    """Standard output of a block of commands or a program, with the broker's address in place of the README's."""
    shell = ["bash", "-euo", "pipefail", "-c", commands.replace(ADDRESS, bootstrap)]
    done = subprocess.run(
        shell, cwd=directory, env=environment(bootstrap), capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS
    )
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def served(command: str, directory: Path) -> Iterator[str]:
    """What the README's `odradek serve` starts, on free ports; the bootstrap addresses."""
    words = command.replace(ADDRESS, "127.0.0.1:0").split()
    with (directory / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=directory, env=environment(""), stdout=subprocess.PIPE, stderr=log, text=True
        )
    assert process.stdout is not None
    try:
        ready = process.stdout.readline().split()
        assert ready[:2] == ["odradek", "ready"], (directory / "serve.log").read_text()
        yield ready[2].removeprefix("bootstrap=")
        process.terminate()
        assert process.wait(TIME_LIMIT_SECONDS) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def serving_block(option: str) -> list[str]:
    """The lines of the block whose first one is `odradek serve` with this option."""
    (block,) = [each for each in blocks() if re.match(rf"odradek serve.* {option}", each)]
    return block.splitlines()


def test_commands_of_the_first_five_minutes_work(tmp_path: Path) -> None:
    start = serving_block("--data-dir ./data")[0]
    blocks_of_clients = [each for each in blocks() if "greetings" in each]
    assert len(blocks_of_clients) == 2
    with served(start, tmp_path) as bootstrap:
        shown = run(blocks_of_clients[0], bootstrap, tmp_path)
        assert "Gregor\thello\n" in shown
        assert "Grete\thallo\n" in shown
        assert '{"topic": "greetings"}' in shown
        copied = run(blocks_of_clients[1], bootstrap, tmp_path)
        assert "Gregor hello\n" in copied
        copies = run("odradek consume --topic copies --offset start:end -o json", bootstrap, tmp_path)
        assert "hallo" in copies
        for program in programs():
            if "SparkSession" not in program:
                (tmp_path / "program.py").write_text(program.replace(ADDRESS, bootstrap))
                run(f"'{sys.executable}' program.py", bootstrap, tmp_path)
        assert "good evening" in run("odradek consume --topic greetings --offset start:end", bootstrap, tmp_path)


@pytest.mark.long
def test_spark_program_reads_the_topic(tmp_path: Path) -> None:
    (program,) = [each for each in programs() if "SparkSession" in each]
    read = 'query = rows.writeStream.format("memory").queryName("found").trigger(availableNow=True).start()\n'
    read += 'query.awaitTermination()\nprint("found", spark.table("found").count())\n'
    with served(serving_block("--data-dir ./data")[0], tmp_path) as bootstrap:
        run("printf 'a\\nb\\n' | odradek produce --topic greetings", bootstrap, tmp_path)
        (tmp_path / "program.py").write_text(program.replace(ADDRESS, bootstrap) + read)
        assert "found 2" in run(f"'{sys.executable}' program.py", bootstrap, tmp_path)


def test_commands_for_three_brokers_work(tmp_path: Path) -> None:
    start, *commands = serving_block("--brokers 3")
    with served(start, tmp_path) as bootstrap:
        assert len(bootstrap.split(",")) == 3
        for command in commands:
            shown = run(command, bootstrap, tmp_path)
            if command == "odradek cluster status":
                assert len(re.findall(r"^ *[123] +127\.0\.0\.1:\d+", shown, re.MULTILINE)) == 3
