"""What a broker reports of itself and of the partitions of the cluster."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.observability.health import CLOCK_STEP_MS, Health, Lifecycle, Severity
from odradek.metadata.image import NO_BROKER, NO_LEADER, ClusterImage, PartitionState, Topic


class Clock:
    wall_ms = 1_000_000.0
    seconds = 5.0

    def now_ms(self) -> float:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds


class Observed:
    """A broker whose cluster has these partitions, with `free` of 100 bytes of its disk."""

    def __init__(self, *states: PartitionState, controller: int = 1, free: int = 50, least_free: float = 0.05) -> None:
        self.clock = Clock()
        self.lifecycle = Lifecycle()
        self.lifecycle.set_ready(True)
        image = ClusterImage().with_controller(controller, 1).with_topics([Topic("t", b"t" * 16, states)])
        partitions: Any = SimpleNamespace(settings_of=lambda name: SimpleNamespace(min_insync_replicas=2))
        writers = SimpleNamespace(by_path=dict)
        directories: Any = SimpleNamespace(directories=[SimpleNamespace(path="/data", offline=None)], writers=writers)
        disk: Any = SimpleNamespace(free_bytes=lambda path: (free, 100))
        clock: Any = self.clock
        self.health = Health(self.lifecycle, lambda: image, partitions, directories, disk, clock, lambda: least_free)

    def problems(self) -> dict[str, tuple[Severity, int, tuple[str, ...]]]:
        found = asyncio.run(self.health.problems())
        return {each.check: (each.severity, each.number, each.examples) for each in found}


def state(leader: int, *isr: int) -> PartitionState:
    return PartitionState(leader, 5, (1, 2, 3), isr)


def test_broker_whose_partitions_are_all_in_sync_has_no_problem() -> None:
    assert Observed(state(1, 1, 2, 3), state(2, 2, 3, 1)).problems() == {}


@pytest.mark.parametrize(
    ("found", "severity"),
    [
        (state(NO_LEADER, 1, 2), Severity.CRITICAL),
        (state(1, 1), Severity.CRITICAL),
        (state(1, 1, 2), Severity.WARNING),
    ],
)
def test_partition_in_trouble_is_named_once(found: PartitionState, severity: Severity) -> None:
    problems = Observed(state(1, 1, 2, 3), found).problems()
    assert list(problems.values()) == [(severity, 1, ("t-1",))]


def test_broker_that_serves_no_clients_is_a_critical_problem() -> None:
    observed = Observed()
    observed.lifecycle.set_ready(False)
    assert observed.problems()["serving"][0] is Severity.CRITICAL


def test_missing_controller_is_a_critical_problem() -> None:
    assert Observed(controller=NO_BROKER).problems()["controller"][0] is Severity.CRITICAL


@pytest.mark.parametrize("step_ms", [CLOCK_STEP_MS, -CLOCK_STEP_MS])
def test_wall_clock_that_was_set_is_a_problem(step_ms: float) -> None:
    observed = Observed()
    observed.clock.seconds += 100
    observed.clock.wall_ms += 100_000
    assert "clock" not in observed.problems()
    observed.clock.wall_ms += step_ms
    assert observed.problems()["clock"][0] is Severity.WARNING


@pytest.mark.parametrize(
    ("free", "least_free", "found"),
    [
        (4, 0.05, {"disk space": (Severity.WARNING, 1, ("/data",))}),
        (5, 0.05, {}),
        (0, 0.0, {}),
        (19, 0.2, {"disk space": (Severity.WARNING, 1, ("/data",))}),
    ],
)
def test_directory_with_less_free_space_than_the_setting_is_a_problem(
    free: int, least_free: float, found: dict[str, Any]
) -> None:
    assert Observed(state(1, 1, 2, 3), free=free, least_free=least_free).problems() == found
