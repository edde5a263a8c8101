"""A quorum in simulated worlds: known seeds hold, and planted bugs are found."""

from __future__ import annotations

import pytest

from odradek.sim.planted.broker_bugs import Planted, search
from odradek.sim.planted.quorum_bugs import QUORUM_BUGS
from odradek.sim.quorum.run import QUORUM_PROFILES, run_quorum

BUGS = [Planted(*row) for row in QUORUM_BUGS]
MOST_SEEDS = 100
LATE = {"removed voter does not stand"}
"""Bugs that are found after many seeds."""


@pytest.mark.parametrize("profile", sorted(QUORUM_PROFILES))
def test_quorum_holds_its_invariants(profile: str) -> None:
    for seed in range(1, 6):
        outcome = run_quorum(seed, profile)
        assert not outcome.violation, f"{profile}-{seed}: {outcome.violation}: {outcome.story}"
        assert outcome.acked > 0


def test_quorum_repeats_a_seed_exactly() -> None:
    first, second = run_quorum(7, "quorum"), run_quorum(7, "quorum")
    assert first.trace == second.trace


def test_quorum_has_twenty_planted_bugs() -> None:
    assert len(BUGS) >= 20


@pytest.mark.parametrize(
    "bug", [pytest.param(each, id=each.name, marks=[pytest.mark.long] * (each.name in LATE)) for each in BUGS]
)
def test_quorum_finds_the_planted_bug(bug: Planted) -> None:
    assert search(bug, MOST_SEEDS).violation
