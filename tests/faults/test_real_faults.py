"""Real brokers, one and three, under every kind of fault; `./dev faults` does it for as long as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.deployment import Shape
from tests.faults.nemesis import ALONE, CLUSTER, ZOOKEEPER
from tests.faults.run import Outcome, Plan, run

QUICK_ALONE = ("kill", "lose answers", "few files")
QUICK_CLUSTER = ("kill a leader", "kill the controller", "cut brokers")


def check(outcome: Outcome, least: int) -> None:
    figures = outcome.figures
    assert not outcome.problems, "\n".join(outcome.problems)
    assert (figures.lost, figures.duplicated, figures.aborted_visible, figures.out_of_order) == (0, 0, 0, 0)
    assert figures.acked >= least
    assert figures.committed


def test_one_broker(tmp_path: Path) -> None:
    plan = Plan(events=len(QUICK_ALONE), kinds=QUICK_ALONE, pace=0.3, rest_seconds=0.2)
    check(run(tmp_path, Shape(1, volume=False), plan, seed=1, groups=False), 100)


def test_three_brokers(tmp_path: Path) -> None:
    plan = Plan(events=len(QUICK_CLUSTER), kinds=QUICK_CLUSTER, pace=0.3, rest_seconds=0.2)
    check(run(tmp_path, Shape(3, volume=False), plan, seed=1, groups=False), 100)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        (Shape(1), tuple(ALONE)),
        (Shape(3), tuple(CLUSTER)),
        (
            Shape(3, zookeepers=3),
            (*ZOOKEEPER, "kill a leader", "kill the controller", "SIGSTOP, long", "isolate a leader"),
        ),
    ],
    ids=["one", "three", "zookeeper"],
)
def test_every_fault(tmp_path: Path, shape: Shape, kinds: tuple[str, ...], seed: int) -> None:
    outcome = run(tmp_path, shape, Plan(events=len(kinds), kinds=kinds), seed)
    check(outcome, 1000)
    done = {event.kind for event in outcome.events}
    assert done == set(kinds) - {reason.partition(":")[0] for reason in outcome.missing}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_kill_9_two_hundred_times(tmp_path: Path) -> None:
    check(run(tmp_path, Shape(1), Plan(events=200, kinds=("kill",), rest_seconds=0.5), seed=3), 10_000)
