"""What `odradek cluster health` finds, of partitions and log directories."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.client.admin.log_dirs import LogDirDescription
from odradek.client.admin.topology import QuorumDescription, QuorumReplica
from odradek.client.network.metadata import PartitionInfo, TopicInfo
from odradek.client.reports.health import of_directories, of_partitions
from odradek.client.reports.health_problem import HealthProblem, Severity
from odradek.client.reports.quorum_health import find_quorum_problems, of_quorum
from odradek.wire.errors import ErrorCode, KafkaError


def found(
    leader: int, isr: tuple[int, ...], *, least: int = 2, live: tuple[int, ...] = (1, 2, 3)
) -> list[HealthProblem]:
    topic = TopicInfo("t", b"", False, [PartitionInfo(0, leader, 0, (1, 2, 3), isr, ())])
    return list(of_partitions([topic], {"t": least}, set(live)))


@pytest.mark.parametrize(
    ("leader", "isr", "check", "severity"),
    [
        (-1, (1,), "offline partitions", Severity.CRITICAL),
        (1, (1,), "under min.insync.replicas", Severity.CRITICAL),
        (1, (1, 2), "under-replicated partitions", Severity.WARNING),
    ],
)
def test_partition_is_reported_by_its_worst_problem(
    leader: int, isr: tuple[int, ...], check: str, severity: Severity
) -> None:
    (problem,) = found(leader, isr)
    assert (problem.check, problem.severity, problem.number, problem.examples) == (check, severity, 1, ("t-0",))


def test_sound_partition_is_not_reported() -> None:
    assert found(1, (1, 2, 3)) == []


def test_partition_is_offline_when_its_leader_is_not_alive() -> None:
    assert found(3, (1, 2, 3), live=(1, 2))[0].check == "offline partitions"


@pytest.mark.parametrize(
    ("directory", "check"),
    [
        (LogDirDescription(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), {}, None, None), "log directories"),
        (LogDirDescription(None, {}, 1000, 49), "disk space"),
        (LogDirDescription(None, {}, 1000, 51), None),
        (LogDirDescription(None, {}, None, None), None),
    ],
    ids=["failed", "full", "free", "unknown"],
)
def test_log_directory_is_reported(directory: LogDirDescription, check: str | None) -> None:
    problems = list(of_directories({1: {"/data": directory}}, {}))
    assert [problem.check for problem in problems] == ([] if check is None else [check])


@pytest.mark.parametrize(("least", "checks"), [(0.0, []), (0.10, ["disk space"])])
def test_broker_sets_how_much_of_its_log_directories_must_be_free(least: float, checks: list[str]) -> None:
    directory = LogDirDescription(None, {}, 1000, 99)
    problems = list(of_directories({1: {"/data": directory}}, {1: least, 2: 0.5}))
    assert [problem.check for problem in problems] == checks
    assert [problem.examples for problem in problems] == [("broker 1: /data: 9.9% free",)] * len(checks)


def test_voters_that_do_not_fetch_are_named() -> None:
    voters = [
        QuorumReplica(node, 5, fetched, None) for node, fetched in ((1, 90_000), (2, 89_500), (3, 70_000), (4, None))
    ]
    (problem,) = of_quorum(QuorumDescription(1, 3, 5, voters, []))
    assert (problem.severity, problem.examples) == (Severity.WARNING, ("controller 3", "controller 4"))
    assert list(of_quorum(QuorumDescription(1, 3, 5, voters[:2], []))) == []


@pytest.mark.parametrize(
    ("code", "checks"), [(ErrorCode.NOT_CONTROLLER, ["quorum"]), (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])]
)
def test_quorum_that_does_not_answer_is_a_problem(code: ErrorCode, checks: list[str]) -> None:
    class Failing:
        async def describe_quorum(self) -> QuorumDescription:
            raise KafkaError(code)

    admin: Any = Failing()
    assert [each.check for each in asyncio.run(find_quorum_problems(admin))] == checks
