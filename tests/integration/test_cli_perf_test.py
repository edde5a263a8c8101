"""`odradek perf-test` on a running broker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from uuid import uuid4

import pytest

from bench.peers.broker import BrokerProcess
from odradek.cli.main import main

Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run(odradek_broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", odradek_broker.bootstrap)

    def call(line: str) -> tuple[int, str, str]:
        status = main(line.split())
        return status, *capsys.readouterr()

    return call


@pytest.fixture
def topic(run: Run) -> str:
    name = f"perf-{uuid4().hex[:8]}"
    assert run(f"topics --create --topic {name} --partitions 2")[0] == 0
    return name


def test_what_a_producer_sends_a_consumer_reads(run: Run, topic: str) -> None:
    status, printed, _ = run(f"perf-test produce --topic {topic} --num-records 3000 --record-size 50")
    assert status == 0
    assert re.fullmatch(r"3000 records sent, .* ms 99\.9th\.\n", printed)
    status, printed, _ = run(f"perf-test consume --topic {topic} --num-records 3000")
    assert status == 0
    header, row = (line.split(", ") for line in printed.splitlines())
    assert dict(zip(header, row, strict=True))["data.consumed.in.nMsg"] == "3000"


def test_rate_and_warm_up_of_a_producer_are_kept(run: Run, topic: str) -> None:
    line = f"perf-test produce --topic {topic} --num-records 300 --warmup-records 100 --throughput 1000 -o json"
    status, printed, _ = run(line)
    found = json.loads(printed)
    assert (status, found["records"], found["failed"]) == (0, 200, 0)
    assert found["records_per_second"] <= 1010


def test_consumer_that_misses_records_says_so_after_its_timeout(run: Run, topic: str) -> None:
    status, printed, errors = run(f"perf-test consume --topic {topic} --num-records 5 --timeout 100 -o json")
    assert status == 1
    assert json.loads(printed)["records"] == 0
    assert errors == "odradek perf-test: 0 of 5 records arrived; none came for 0.1 s (--timeout)\n"


def test_latency_from_producer_to_consumer_is_printed(run: Run, topic: str) -> None:
    status, printed, _ = run(f"perf-test end-to-end --topic {topic} --num-records 20")
    assert status == 0
    assert re.search(r"Avg latency: \d+\.\d{4} ms\n\nPercentiles: 50th = [\d.]+, 99th = [\d.]+, 99\.9th", printed)


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("perf-test produce --num-records 5", 2, "--topic"),
        ("perf-test produce --topic t", 2, "--num-records"),
        ("perf-test produce --topic t --num-records 5 --warmup-records 5", 2, "--warmup-records 5"),
        ("perf-test produce --topic t --num-records 5 --group g", 2, "consume"),
        ("perf-test consume --topic no-such-topic --num-records 5", 1, "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_mistakes_are_one_line(run: Run, line: str, status: int, message: str) -> None:
    found, _, errors = run(line)
    assert found == status
    assert message in errors
    assert len(errors.splitlines()) == 1
