"""The README's five minutes: its own commands and programs, in its order, against the broker that it starts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.newcomer.environments import Newcomer
from tests.newcomer.pages import Page
from tests.unit.house.sources import ROOT

PAGE = Page("README.md")
ADDRESS = "127.0.0.1:9092"
SPARK = [each.code for each in PAGE.programs() if "SparkSession" in each.code]
OTHERS = [each.code for each in PAGE.programs() if "SparkSession" not in each.code]


def serving_block(option: str) -> list[str]:
    """The commands of the first block that begins with `odradek serve` and this option; they get free ports."""
    block = next(each for each in PAGE.blocks("Five minutes") if re.match(rf"odradek serve.* {option}", each))
    return re.sub(rf"{re.escape(ADDRESS)}|127\.0\.0\.1:(9644|8080)", "127.0.0.1:0", block).splitlines()


def test_commands_of_the_first_five_minutes_work(newcomer: Newcomer) -> None:
    clients = [each for each in PAGE.blocks("Five minutes") if "greetings" in each]
    assert len(clients) == 2
    with newcomer.serving(serving_block("--data-dir ./data")[0]) as bootstrap:
        newcomer.variables["ODRADEK_BOOTSTRAP_SERVER"] = bootstrap
        shown = newcomer.run(clients[0].replace(ADDRESS, bootstrap))
        assert "Gregor\thello\n" in shown
        assert "Grete\thallo\n" in shown
        assert '{"topic": "greetings"}' in shown
        assert "Gregor hello\n" in newcomer.run(clients[1])
        assert "hallo" in newcomer.run("odradek consume --topic copies --offset start:end -o json")
        for program in OTHERS:
            newcomer.program(program.replace(ADDRESS, bootstrap))
        assert "good evening" in newcomer.run("odradek consume --topic greetings --offset start:end")


def test_broker_with_metrics_and_console_starts(newcomer: Newcomer) -> None:
    (command,) = serving_block(".*--console")
    with newcomer.serving(command) as bootstrap:
        assert newcomer.run("odradek topics", ODRADEK_BOOTSTRAP_SERVER=bootstrap) == ""


def test_completion_of_the_readme_names_topics(newcomer: Newcomer) -> None:
    (line,) = re.findall(r'`(eval "\$\(odradek completion bash\)")`', PAGE.text)
    assert "complete" in newcomer.run(f"{line}\ncomplete -p odradek")


def test_commands_for_three_brokers_work(newcomer: Newcomer) -> None:
    start, *commands = serving_block("--brokers 3")
    with newcomer.serving(start) as bootstrap:
        assert len(bootstrap.split(",")) == 3
        newcomer.variables["ODRADEK_BOOTSTRAP_SERVER"] = bootstrap
        for command in commands:
            shown = newcomer.run(command)
            if command == "odradek cluster status":
                assert len(re.findall(r"^ *[123] +127\.0\.0\.1:\d+", shown, re.MULTILINE)) == 3


@pytest.mark.long
def test_install_command_works_in_a_clone(tmp_path: Path) -> None:
    """The other tests install the wheel without a package index; this one does what the page says."""
    (command,) = PAGE.commands("Install")
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache"))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    installed = subprocess.run([tmp_path / "venv" / "bin" / command.split()[0], *command.split()[1:]], cwd=clone)
    assert installed.returncode == 0
    person = Newcomer(tmp_path / "venv" / "bin", tmp_path)
    with person.serving(serving_block("--data-dir ./data")[0]) as bootstrap:
        assert person.run("odradek topics", ODRADEK_BOOTSTRAP_SERVER=bootstrap) == ""


@pytest.mark.long
def test_spark_program_reads_the_topic(tmp_path: Path) -> None:
    """Spark comes from the development environment: it is large, and the README names an extra for it."""
    (program,) = SPARK
    read = 'query = rows.writeStream.format("memory").queryName("found").trigger(availableNow=True).start()\n'
    read += 'query.awaitTermination()\nprint("found", spark.table("found").count())\n'
    person = Newcomer(Path(sys.executable).parent, tmp_path)
    with person.serving(serving_block("--data-dir ./data")[0]) as bootstrap:
        person.run("printf 'a\\nb\\n' | odradek produce --topic greetings", ODRADEK_BOOTSTRAP_SERVER=bootstrap)
        assert "found 2" in person.program(program.replace(ADDRESS, bootstrap) + read)
