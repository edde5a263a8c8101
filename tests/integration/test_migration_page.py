"""The commands of docs/MIGRATION.md, in their order, on a folder in Apache Kafka's formats."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.peers.broker import BrokerProcess
from tests.integration.test_import import COUNTS, fill, make_apache_folder, read
from tests.integration.test_lifecycle import serve
from tests.unit.house.sources import ROOT
from tests.unit.log.test_log_ownership import contents

MakeBroker = Callable[..., BrokerProcess]
PAGE = (ROOT / "docs" / "MIGRATION.md").read_text()
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def commands(section: str) -> list[str]:
    """The command lines of a section of the page: those that are indented by more than a list's text."""
    (text,) = re.findall(rf"^## {section}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    lines = [textwrap.dedent(line) for line in text.splitlines() if line.startswith("    ")]
    assert lines
    return lines


def run(command: str, variables: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-euc", command], env={**ENVIRONMENT, **variables}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@contextmanager
def serving(command: str, variables: dict[str, str]) -> Iterator[None]:
    with subprocess.Popen(
        ["sh", "-euc", f"exec {command}"], env={**ENVIRONMENT, **variables}, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("odradek ready"), command
            yield
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def kafka(make_broker: MakeBroker, tmp_path: Path) -> Path:
    """A folder as Apache Kafka leaves it, with 400 records of which group `g` has read 200."""
    settings = {
        "offsets.topic.num.partitions": COUNTS["__consumer_offsets"],
        "transaction.state.log.num.partitions": COUNTS["__transaction_state"],
    }
    broker = make_broker(settings, name="old").start()
    fill(broker.bootstrap)
    assert broker.stop() == 0
    make_apache_folder(broker.data_dir, tmp_path / "kafka")
    return tmp_path / "kafka"


def test_steps_of_the_page_move_a_broker(kafka: Path, tmp_path: Path) -> None:
    report, imports, verify, start, *looks = commands("Step by step")
    variables = {"KAFKA": str(kafka), "ODRADEK": str(tmp_path / "new"), "ADDRESS": free_address()}
    before = contents(kafka)
    assert "would be imported" in run(report, variables)
    assert not (tmp_path / "new").exists()
    assert "next: odradek serve" in run(imports, variables)
    assert "no problems found" in run(verify, variables)
    with serving(start, variables):
        assert "orders" in run(looks[0], variables)
        lag = next(
            line.split() for line in run(looks[1], variables).splitlines() if line.split()[:2] == ["g", "orders"]
        )
        assert "200" in lag
        assert len(looks) == 2
        assert read(variables["ADDRESS"], "g", 200)[0][0] == 200
    assert contents(kafka) == before
    refused = serve("--data-dir", str(kafka), "--listen", "127.0.0.1:0")
    assert refused.returncode == 2, "the page says that a start on the old folder is refused"


def test_records_are_mirrored_as_the_page_says(make_broker: MakeBroker, tmp_path: Path) -> None:
    brokers = [make_broker({"num.partitions": 1}, name=name).start() for name in ("old", "new")]
    old, new = (broker.bootstrap for broker in brokers)
    for bootstrap in (old, new):
        run(f"odradek topics --create --topic copied --bootstrap-server {bootstrap}", {})
    run(f"printf 'a\\tone\\nb\\ttwo\\n' | odradek produce copied -b {old} -K '\\t' -H origin=test", {})
    variables = {"OLD": old, "ADDRESS": new, "TOPIC": "copied", "RECORDS": str(tmp_path / "records")}
    run("\n".join(commands("Without stopping")), variables)
    shown = [
        run(f"odradek consume copied -b {each} --offset earliest -e -q -f '%k %v %h %T\\n'", {}) for each in (old, new)
    ]
    assert shown[0] == shown[1]
    assert shown[0].startswith("a one origin=test")
