"""./dev mutants: change the product in one place at a time; tests or the simulator must notice.

Every comparison, condition, operator, constant and dropped call of the packages is a mutant. A sample of them is shown,
one at a time in a temporary copy, to the unit tests that execute the changed line, and then to seeds of the simulator
whose profile executes it. Those that neither notices are listed.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.mutation import trials
from tests.mutation.coverage_map import CoverageMap, Observed
from tests.mutation.operators import Mutant, mutants_of
from tests.mutation.workplace import ROOT, SURVIVED, Workplace, kill_children

PACKAGES: Final = ("replication", "log", "transactions", "groups", "controller", "broker", "api")
_TESTS: Final = (*PACKAGES, "metadata", "quotas", "records")
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.json")
_PATIENCE_SECONDS: Final = 20.0
_PATIENCE: Final = 10.0
"""How many times as long as without a mutant the tests may take; then they hang, which counts as noticed."""


class Verdict(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    outcome: str
    """"unit", "simulator", "equivalent" or "survived"."""
    reached: bool
    """Whether a unit test executes the line."""


class Options(NamedTuple):
    """How much is shown to a mutant."""

    seeds: int
    jobs: int
    home: Path


class Run:
    """One run: the copies, what the tests and the simulator execute, and the mutants."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._equivalent = {tuple(entry["mutant"]) for entry in json.loads(_EQUIVALENT.read_text())}
        self._coverage = CoverageMap([])
        self._profiles: dict[str, Observed] = {}
        self._free: list[Workplace] = []

    def prepare(self) -> str:
        """Observe the tests and the simulator without a mutant. Returns what is wrong, or nothing."""
        home = self._options.home
        self._free = [Workplace(home / f"worker-{index}") for index in range(self._options.jobs)]
        copy = self._free[0]
        sources = _sources_digest()
        known = home / "observed.txt"
        if known.exists() and known.read_text() == f"{sources} {self._options.seeds > 0}":
            self._read()
            return ""
        directories = [name for name in (f"tests/unit/{package}" for package in _TESTS) if (ROOT / name).is_dir()]
        work = partial(trials.record_tests, copy.root, directories, home / "tests.pickle")
        if copy.run(work, 3600, home / "tests.txt"):
            return f"the tests could not be run; see {home / 'tests.txt'}"
        work = partial(trials.record_seeds, copy.root, home / "seeds.pickle")
        if self._options.seeds and copy.run(work, 3600, home / "seeds.txt"):
            return f"the simulator could not be run; see {home / 'seeds.txt'}"
        self._read()
        known.write_text(f"{sources} {self._options.seeds > 0}")
        return ""

    def _read(self) -> None:
        home = self._options.home
        self._coverage = trials.read_tests(home / "tests.pickle")
        if self._options.seeds:
            self._profiles = trials.read_seeds(home / "seeds.pickle")

    def judge(self, mutant: Mutant) -> Verdict:
        """Show the mutant to the tests, then to the simulator."""
        if mutant.identity in self._equivalent:
            return Verdict(mutant, "equivalent", reached=True)
        lines = range(mutant.line, mutant.line + mutant.before.count("\n") + 1)
        tests = self._coverage.tests_of(mutant.path, lines)
        copy = self._free.pop()
        try:
            with copy.mutated(mutant):
                if tests and self._fails(copy, partial(trials.run_tests, tests), sum(t.seconds for t in tests)):
                    return Verdict(mutant, "unit", reached=True)
                seeds = self._seeds_of(mutant, lines)
                expected = sum(self._profiles[profile].seconds for _, profile in seeds)
                if seeds and self._fails(copy, partial(trials.run_seeds, seeds), expected):
                    return Verdict(mutant, "simulator", bool(tests))
        finally:
            self._free.append(copy)
        return Verdict(mutant, "survived", bool(tests))

    def _fails(self, copy: Workplace, work: partial[int], expected_seconds: float) -> bool:
        output = copy.root.parent / "output.txt"
        return copy.run(work, _PATIENCE_SECONDS + _PATIENCE * expected_seconds, output) != SURVIVED

    def _seeds_of(self, mutant: Mutant, lines: range) -> list[tuple[int, str]]:
        """The first seeds of every profile that executes the line, in turn."""
        wanted = {(mutant.path, line) for line in lines}
        profiles = [name for name, run in sorted(self._profiles.items()) if wanted & run.lines]
        rounds = ((seed, profile) for seed in itertools.count(trials.FIRST_SEED) for profile in profiles)
        return list(itertools.islice(rounds, self._options.seeds)) if profiles else []


def _sources_digest() -> str:
    """Of all that decides what the tests and the simulator execute."""
    digest = hashlib.sha256()
    for directory in ("src/odradek", "tests/unit"):
        for path in sorted((ROOT / directory).rglob("*.py")):
            digest.update(str(path).encode() + path.read_bytes())
    return digest.hexdigest()


def _mutants(packages: Sequence[str]) -> list[Mutant]:
    found = []
    for package in packages:
        for path in sorted((ROOT / "src" / "odradek" / package).rglob("*.py")):
            found += mutants_of(str(path.relative_to(ROOT)), path.read_bytes())
    return found


def _report(verdicts: list[Verdict], seed: int, total: int, seconds: float) -> None:
    outcomes = Counter(verdict.outcome for verdict in verdicts)
    judged = len(verdicts) - outcomes["equivalent"]
    killed = outcomes["unit"] + outcomes["simulator"]
    print("\nsurvivors:")
    for verdict in sorted(verdicts):
        if verdict.outcome == "survived":
            print(f"  {verdict.mutant}{'' if verdict.reached else '   (no unit test executes its module)'}")
    print(f"\n{'package':14} {'mutants':>8} {'unit':>6} {'simulator':>10} {'equivalent':>11} {'survived':>9}")
    for package in PACKAGES:
        rows = [verdict for verdict in verdicts if verdict.mutant.path.startswith(f"src/odradek/{package}/")]
        by = Counter(verdict.outcome for verdict in rows)
        if rows:
            counts = f"{by['unit']:6} {by['simulator']:10} {by['equivalent']:11} {by['survived']:9}"
            print(f"{package:14} {len(rows):8} {counts}")
    share = 100 * killed / judged if judged else 100.0
    print(
        f"seed {seed}: {len(verdicts)} of {total} mutants in {seconds / 60:.1f} minutes: {killed} of {judged} killed "
        f"({share:.1f} %), {outcomes['unit']} by unit tests, {outcomes['simulator']} by the simulator"
    )


def main() -> int:
    """Run the command line; 1 if a mutant survived."""
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__)
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help=f"packages to change ({', '.join(PACKAGES)})")
    parser.add_argument("--sample", type=int, default=100, metavar="N", help="number of mutants to draw (100)")
    parser.add_argument("--seed", type=int, help="decides which mutants are drawn (random)")
    parser.add_argument("--seeds", type=int, default=6, help="seeds of the simulator for a mutant (6; 0 for none)")
    parser.add_argument("--match", help="draw only mutants whose description contains this text")
    parser.add_argument("--list", action="store_true", help="print the mutants and change nothing")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="mutants to judge at the same time (2)")
    parser.add_argument("--home", type=Path, help="where copies and outputs stay (a temporary directory)")
    options = parser.parse_args()
    if unknown := sorted(set(options.packages) - set(PACKAGES)):
        parser.error(f"unknown package {unknown[0]}; there are {', '.join(PACKAGES)}")
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    every = _mutants(options.packages or PACKAGES)
    mutants = [mutant for mutant in every if not options.match or options.match in str(mutant)]
    mutants = random.Random(seed).sample(mutants, min(options.sample, len(mutants)))
    if options.list:
        print(*mutants, sep="\n")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _judge(mutants, options, seed, len(every))
    finally:
        kill_children()


def _judge(mutants: list[Mutant], options: argparse.Namespace, seed: int, total: int) -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odradek-mutants-") as scratch:
        run = Run(Options(options.seeds, options.jobs, options.home or Path(scratch)))
        if problem := run.prepare():
            print(f"dev mutants: {problem}", file=sys.stderr)
            return 1
        print(f"observed tests and simulator in {time.monotonic() - begun:.0f} s", flush=True)
        verdicts = []
        with ThreadPoolExecutor(options.jobs) as pool:
            try:
                for verdict in pool.map(run.judge, mutants):
                    verdicts.append(verdict)
                    print(f"{len(verdicts):5} {verdict.outcome:10} {verdict.mutant}", flush=True)
            except BaseException:  # also an interrupt: the mutants that wait are not judged
                pool.shutdown(wait=False, cancel_futures=True)
                kill_children()
                raise
    _report(verdicts, seed, total, time.monotonic() - begun)
    return int(any(verdict.outcome == "survived" for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
