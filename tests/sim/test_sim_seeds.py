"""Whole simulated worlds: fixed seeds, the seeds that once failed, and proof that one seed is one run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection
from typing import Any

import pytest

from odradek.sim import __main__
from odradek.sim.faults.nemesis import PROFILES
from odradek.sim.marks import SITUATIONS, counted
from odradek.sim.regressions import ONCE_FAILED, parse
from odradek.sim.run import run_seed

SEEDS = [(each.name, seed) for each in sorted(PROFILES.values()) if each.brokers == 1 for seed in (1, 2)]


@pytest.mark.parametrize(("profile", "seed"), SEEDS)
def test_fixed_seeds(profile: str, seed: int) -> None:
    outcome = run_seed(seed, profile)
    assert not outcome.violation, f"{outcome.seed}: {outcome.violation}: {outcome.story}"
    # A query of Spark's makes few batches, and each counts once.
    assert outcome.acked > (5 if profile == "spark" else 50)
    assert outcome.faults


@pytest.mark.parametrize("profile", ["acls", "cluster", "disks", "late", "upkeep"])
def test_a_cluster(profile: str) -> None:
    outcome = run_seed(2, profile, safety_seconds=12)
    assert not outcome.violation, f"{outcome.seed}: {outcome.violation}: {outcome.story}"
    assert outcome.acked > 50
    assert outcome.marks["all replicas in sync"]


def test_counting_situations_changes_nothing() -> None:
    without = run_seed(5, "txn", safety_seconds=12)
    counted_too = run_seed(5, "txn", safety_seconds=12, observe=counted)
    assert counted_too.digest == without.digest
    names = {situation.name for situation in SITUATIONS}
    assert names & set(counted_too.marks)
    assert not names & set(without.marks)


def some_now(names: Collection[str], every: int) -> list[Any]:
    """One in `every` of the names, the others with the mark `long`: `./dev sim --ci` runs all of them."""
    return [
        pytest.param(name, marks=[pytest.mark.long] if (len(names) - number) % every else [])
        for number, name in enumerate(names, 1)
    ]


@pytest.mark.parametrize("name", some_now(ONCE_FAILED, every=12))
def test_seeds_that_once_failed(name: str) -> None:
    outcome = run_seed(*parse(name))
    assert not outcome.violation, f"{outcome.violation}: {outcome.story} (once: {ONCE_FAILED[name]})"


_TRACE = """
from odradek.sim.run import run_seed
for profile in ("all", "store"):
    outcome = run_seed(3, profile, safety_seconds=12)
    print(outcome.digest, outcome.steps, outcome.violation)
"""


def test_one_seed_is_one_run_whatever_the_hash_seed() -> None:
    def trace(hash_seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        return subprocess.run([sys.executable, "-c", _TRACE], env=environment, capture_output=True, check=True).stdout

    first = trace("1")
    assert first.count(b"\n") == 2
    assert trace("4242") == first


def test_several_processes_share_the_seeds() -> None:
    command = [sys.executable, "-m", "odradek.sim", "--profile", "network", "--seeds", "2", "--seconds", "5", "-j", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 seeds, 0 failed" in done.stdout


def test_continuous_integration_runs_known_seeds_and_fresh_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(__main__, "ONCE_FAILED", dict.fromkeys(["txn-1", "crash-2"], "once"))
    assert __main__.main(["--ci", "--fixed", "3", "--seconds", "3", "--minutes", "0.05", "-j", "2"]) == 0
    printed = capsys.readouterr().out
    assert "5 known seeds, then fresh ones from" in printed
    assert int(printed.partition(" seeds, 0 failed")[0].split()[-1]) >= 5
