"""What a mutant is shown to: unit tests that execute its line, then seeds of the simulator that do."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.mutation.coverage_map import LineTrace, Observed, Recorder

OPTIONS: Final = ("-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=1")
FIRST_SEED: Final = 1


class _Selection:
    """A pytest plugin that keeps certain tests only, in a certain order."""

    def __init__(self, names: Sequence[str]) -> None:
        self._place = {name: index for index, name in enumerate(names)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._place), key=self._of)

    def _of(self, item: pytest.Item) -> int:
        return self._place[item.nodeid]


def record_tests(root: Path, files: Sequence[str], result: Path) -> int:
    """Run the tests of `files` once and write what each executes, beside tests of other files; 0 if it was possible."""
    with LineTrace(root, "src/odradek") as trace:
        recorder = Recorder(trace)
        status = pytest.main([*OPTIONS, "--timeout=600", *files], plugins=[recorder])
    known, imported = pickle.loads(result.read_bytes())[:2] if result.exists() else ([], frozenset())
    known = [test for test in known if test[0].partition("::")[0] not in files]
    known += [tuple(test) for test in recorder.tests()]
    result.write_bytes(pickle.dumps((known, imported | recorder.imported(), recorder.failed_files)))
    return 0 if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) else 1


def run_tests(names: Sequence[str]) -> int:
    """1 if one of the tests fails."""
    files = list(dict.fromkeys(name.partition("::")[0] for name in names))
    status = pytest.main([*OPTIONS, "-x", "--timeout=120", *files], plugins=[_Selection(names)])
    if status in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise ValueError(f"pytest ran no test: {status!r}")
    return 0 if status == pytest.ExitCode.OK else 1


def record_seeds(root: Path, result: Path) -> int:
    """Run one seed of every profile and write which lines each executes."""
    from odradek.sim.faults.nemesis import PROFILES
    from odradek.sim.run import run_seed

    seconds: dict[str, float] = {}
    with LineTrace(root, "src/odradek") as trace:
        for profile in sorted(PROFILES):
            trace.begin(profile)
            outcome = run_seed(FIRST_SEED, profile)
            seconds[profile] = outcome.real_seconds
            print(profile, outcome.real_seconds, outcome.violation, flush=True)
    lines = trace.lines()
    result.write_bytes(pickle.dumps({name: (taken, lines[name]) for name, taken in seconds.items()}))
    return 0


def read_seeds(result: Path) -> dict[str, Observed]:
    """What `record_seeds` wrote, by profile."""
    return {name: Observed(name, *fields) for name, fields in pickle.loads(result.read_bytes()).items()}


def run_seeds(seeds: Sequence[tuple[int, str]]) -> int:
    """1 if one of the seeds finds a violation."""
    from odradek.sim.run import run_seed

    os.environ["PYTHONHASHSEED"] = "0"
    for seed, profile in seeds:
        outcome = run_seed(seed, profile)
        if outcome.violation:
            print(f"{profile}-{seed}: {outcome.violation}: {outcome.story}", flush=True)
            return 1
    return 0
