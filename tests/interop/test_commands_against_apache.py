"""Our commands for clusters on Apache Kafka 4.3 and on our own broker, and plans exchanged with Apache's tool."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from odradek.cli.main import main
from tests.integration.waiting import until

Run = Callable[..., Any]


@pytest.fixture
def run(server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line that must end with `status`; the JSON document that it prints with `-o json`, or the text."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", server)

    def call(line: str, status: int = 0) -> Any:
        found = main(line.split())
        printed = capsys.readouterr()
        assert found == status, printed
        return json.loads(printed.out) if "-o json" in line else printed.out

    return call


@pytest.fixture
def topic(run: Run) -> str:
    name = f"commands-{uuid4().hex[:8]}"
    run(f"topics --create --topic {name} --partitions 2 --replication-factor 1")
    return name


def test_reassignment_goes_from_plan_to_verified(run: Run, topic: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    found = run(f"reassign generate --topic {topic} --write {plan} -o json")
    assert found["current"] == found["proposed"]
    run(f"reassign execute {plan} --throttle 1000000 --wait")
    assert [each["state"] for each in run(f"reassign verify {plan} -o json")] == ["completed", "completed"]
    assert run("reassign list -o json") == []
    assert "None of the specified" in run(f"reassign cancel {plan}")


def test_election_that_is_not_needed_is_reported(run: Run, topic: str) -> None:
    assert run(f"elect preferred {topic}:0") == f"Valid replica already elected for partitions {topic}-0\n"
    (failed,) = run(f"elect unclean --topic {topic} --partition 7 --yes -o json", status=1)
    assert failed["reason"].startswith("UNKNOWN_TOPIC_OR_PARTITION")


def test_log_directories_hold_the_topics_replicas(run: Run, topic: str) -> None:
    def replicas() -> list[tuple[str, int, bool]]:
        found = run(f"log-dirs --topic-list {topic} --replicas -o json")
        return [(each["topic"], each["partition"], each["is_future"]) for each in found]

    # Apache's broker makes the logs of a new topic after the answer to its creation.
    until(lambda: replicas() == [(topic, 0, False), (topic, 1, False)], "each replica has a log")


def test_transactions_and_features_are_described(run: Run, topic: str) -> None:
    assert run(f"transactions list --transactional-id-pattern {topic} -o json") == []
    assert run(f"transactions find-hanging --topic {topic} -o json") == []
    assert run(f"transactions describe-producers --topic {topic} --partition 0 -o json") == []
    levels = {each["feature"]: each["level"] for each in run("features -o json")}
    assert levels["transaction.version"] == 2
    run("features upgrade --feature transaction.version=99 --dry-run", status=1)


def test_performance_tests_run(run: Run, topic: str) -> None:
    assert run(f"perf-test produce --topic {topic} --num-records 500 -o json")["records"] == 500
    assert run(f"perf-test consume --topic {topic} --num-records 500 -o json")["records"] >= 500
    assert run(f"perf-test end-to-end --topic {topic} --num-records 20 -o json")["records"] == 20


@pytest.mark.parametrize("server", ["odradek"], indirect=True)
def test_plan_is_exchanged_with_apaches_tool(
    run: Run, topic: str, server: str, java_tools: Any, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    run(f"reassign generate --topic {topic} --write {plan}")
    printed = java_tools.run(
        "reassign-partitions", "--bootstrap-server", server, "--execute", "--reassignment-json-file", str(plan)
    )
    assert "Successfully started partition reassignments" in printed
    plan.write_text(printed.partition("Current partition replica assignment")[2].split("\n\n")[1].strip())
    run(f"reassign execute {plan} --wait")
