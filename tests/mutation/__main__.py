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
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.mutation import trials
from tests.mutation.coverage_map import ENOUGH_SECONDS, CoverageMap, Observed
from tests.mutation.operators import MORE_PACKAGES, PACKAGES, Identity, Mutant, mutants_of
from tests.mutation.recorded import RecordedTests
from tests.mutation.server import NOT_REPLACED, Trial, serve
from tests.mutation.workplace import BROKEN, ROOT, SURVIVED, Workplace, kill_children

_MORE_TESTS: Final = (
    "authorization",
    "cli",
    "client",
    "console",
    "kraft",
    "metadata",
    "metrics",
    "ports",
    "quotas",
    "records",
    "security",
    "testing",
    "wire",
)
_TESTS: Final = (*(f"tests/unit/{package}" for package in (*PACKAGES, *_MORE_TESTS)), "tests/sim/scenarios")
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.json")
_PATIENCE_SECONDS: Final = 6.0
_PATIENCE: Final = 10.0
"""How many times as long as without a mutant the tests may take; then they hang, which counts as noticed."""
_IMPORT_SECONDS: Final = 60.0


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
    tests: Sequence[str] = _TESTS
    """Files and directories of tests."""
    enough: float = ENOUGH_SECONDS
    """Seconds of tests for one mutant."""


class Worker:
    """A copy, and a server that has imported it."""

    def __init__(self, copy: Workplace, directories: Sequence[str]) -> None:
        self.copy = copy
        self._directories = directories
        self._connection: Connection | None = None

    def fails(self, trial: Trial, *, is_imported: bool = False) -> bool:
        """Whether the tests or seeds notice the mutant, or do not end.

        `is_imported`: the changed line runs at import, so a process must import the module with the change, too."""
        outcome = self._ask(trial)
        if outcome == NOT_REPLACED or (is_imported and not _is_failure(outcome, trial)):
            outcome = self._run_imported(trial)
        return _is_failure(outcome, trial)

    def _run_imported(self, trial: Trial) -> int:
        work = partial(trials.run_seeds, trial.seeds) if trial.seeds else partial(trials.run_tests, trial.tests)
        with self.copy.mutated(trial.mutant):
            return self.copy.run(work, trial.seconds + _IMPORT_SECONDS, trial.output)

    def _ask(self, trial: Trial) -> int:
        if self._connection is None:
            here, there = Pipe()
            self._connection = here
            work = partial(serve, there, self.copy.root, self._directories)
            self.copy.start(work, self.copy.root.parent / "server.txt")
            there.close()
            self._connection.recv()
        self._connection.send(trial)
        return int(self._connection.recv())


def _is_failure(outcome: int, trial: Trial) -> bool:
    if outcome == BROKEN:
        raise RuntimeError(f"no verdict about {trial.mutant}; see {trial.output}")
    return outcome != SURVIVED


class Run:
    """One run: the copies, what the tests and the simulator execute, and the mutants."""

    def __init__(self, options: Options) -> None:
        self._options = options
        entries = json.loads(_EQUIVALENT.read_text())
        self._equivalent = {tuple(entry["mutant"]) for entry in entries if "mutant" in entry}
        self._tuning = {tuple(entry["constant"]) for entry in entries if "constant" in entry}
        self._coverage = CoverageMap([])
        self._profiles: dict[str, Observed] = {}
        self._free: list[Worker] = []

    def prepare(self) -> str:
        """Observe the tests and the simulator without a mutant. Returns what is wrong, or nothing."""
        home = self._options.home
        directories = [name for name in self._options.tests if (ROOT / name).exists()]
        copies = [Workplace(home / f"worker-{index}") for index in range(self._options.jobs)]
        self._free = [Worker(copy, directories) for copy in copies]
        recorded, files = RecordedTests(home, ROOT, _product()), _test_files(directories)
        if changed := recorded.outdated(files):
            work = partial(trials.record_tests, copies[0].root, changed, recorded.lines)
            if copies[0].run(work, 3600, home / "tests.txt"):
                return f"the tests could not be run; see {home / 'tests.txt'}"
            for file in recorded.note(changed):
                print(f"{file}: a test failed, mutants are not shown to it; see {home / 'tests.txt'}", flush=True)
        self._coverage = recorded.coverage(files)
        if not self._options.seeds:
            return ""
        work = partial(trials.record_seeds, copies[0].root, home / "seeds.pickle")
        if _known(home / "seeds.json", digest := _digest()) != {"recorded": True}:
            if copies[0].run(work, 3600, home / "seeds.txt"):
                return f"the simulator could not be run; see {home / 'seeds.txt'}"
            (home / "seeds.json").write_text(json.dumps({"product": digest, "files": {"recorded": True}}))
        self._profiles = trials.read_seeds(home / "seeds.pickle")
        return ""

    def judge(self, mutant: Mutant) -> Verdict:
        """Show the mutant to the tests, then to the simulator."""
        if mutant.identity in self._equivalent or (mutant.path, mutant.constant) in self._tuning:
            return Verdict(mutant, "equivalent", reached=True)
        lines = range(mutant.line, mutant.line + mutant.before.count("\n") + 1)
        at_import = mutant.runs_at_import
        tests = self._coverage.tests_of(mutant.path, lines, self._options.enough, runs_at_import=at_import)
        worker = self._free.pop()
        output = worker.copy.root.parent / "output.txt"
        try:
            if tests:
                trial = Trial(mutant, tuple(t.name for t in tests), (), _limit(sum(t.seconds for t in tests)), output)
                imported = at_import or any((mutant.path, line) in self._coverage.imported for line in lines)
                if worker.fails(trial, is_imported=imported):
                    return Verdict(mutant, "unit", reached=True)
            if seeds := self._seeds_of(mutant, lines):
                limit = _limit(sum(self._profiles[profile].seconds for _, profile in seeds))
                if worker.fails(Trial(mutant, (), tuple(seeds), limit, output)):
                    return Verdict(mutant, "simulator", bool(tests))
        finally:
            self._free.append(worker)
        return Verdict(mutant, "survived", bool(tests))

    def _seeds_of(self, mutant: Mutant, lines: range) -> list[tuple[int, str]]:
        """The first seeds of every profile that executes the line, in turn."""
        wanted = {(mutant.path, line) for line in lines}
        profiles = [name for name, run in sorted(self._profiles.items()) if wanted & run.lines]
        rounds = ((seed, profile) for seed in itertools.count(trials.FIRST_SEED) for profile in profiles)
        return list(itertools.islice(rounds, self._options.seeds)) if profiles else []


class Results:
    """The sample and what became of each mutant, in a file from which an interrupted run resumes."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: dict[Identity, str] = {}
        if path is not None and path.exists():
            self._rows = {tuple(row[:-1]): row[-1] for row in json.loads(path.read_text())}

    def draw(self, sample: Sequence[Mutant]) -> list[Mutant]:
        """The sample: the one in the file if there is one, as far as the product still has its lines."""
        if not self._rows:
            self._rows = dict.fromkeys((mutant.identity for mutant in sample), "")
            self._write()
            return list(sample)
        paths = sorted({identity[0] for identity in self._rows})
        found = {mutant.identity: mutant for path in paths for mutant in _of_file(path)}
        if gone := [identity for identity in self._rows if identity not in found]:
            print(f"{len(gone)} of {len(self._rows)} mutants are of lines that have changed since", flush=True)
        return [found[identity] for identity in self._rows if identity in found]

    def outcome(self, mutant: Mutant) -> str:
        """What became of the mutant, or nothing."""
        return self._rows.get(mutant.identity, "")

    def note(self, verdict: Verdict) -> None:
        """Remember what became of the mutant."""
        self._rows[verdict.mutant.identity] = verdict.outcome
        self._write()

    def _write(self) -> None:
        if self._path is not None:
            rows = (json.dumps([*identity, outcome]) for identity, outcome in self._rows.items())
            self._path.write_text("[\n" + ",\n".join(rows) + "\n]\n")


def _of_file(path: str) -> list[Mutant]:
    return mutants_of(path, (ROOT / path).read_bytes()) if (ROOT / path).exists() else []


def _limit(expected_seconds: float) -> float:
    return _PATIENCE_SECONDS + _PATIENCE * expected_seconds


def _product() -> list[str]:
    """The modules that may be changed."""
    folders = [ROOT / "src" / "odradek" / package for package in (*PACKAGES, *MORE_PACKAGES)]
    return [str(path.relative_to(ROOT)) for folder in folders for path in sorted(folder.rglob("*.py"))]


def _digest() -> str:
    """Of the sources that are changed: which of their lines a seed executes was recorded for these."""
    digest = hashlib.sha256()
    for path in _product():
        digest.update(path.encode() + (ROOT / path).read_bytes())
    return digest.hexdigest()


def _test_files(directories: Sequence[str]) -> list[str]:
    found = [ROOT / name for name in directories]
    paths = [path for each in found for path in ([each] if each.is_file() else each.rglob("test_*.py"))]
    return [str(path.relative_to(ROOT)) for path in sorted(set(paths))]


def _known(path: Path, product: str) -> dict[str, Any]:
    """What was recorded of the same product, or nothing."""
    found = json.loads(path.read_text()) if path.exists() else {}
    return dict(found["files"]) if found.get("product") == product else {}


def _mutants(packages: Sequence[str]) -> list[Mutant]:
    found = []
    for package in packages:
        for path in sorted((ROOT / "src" / "odradek" / package).rglob("*.py")):
            found += mutants_of(str(path.relative_to(ROOT)), path.read_bytes())
    return found


def _report(outcomes: dict[Mutant, str], seed: int, total: int, seconds: float) -> None:
    print("\nsurvivors:")
    for mutant, outcome in sorted(outcomes.items()):
        if outcome == "survived":
            print(f"  {mutant}")
    print(f"\n{'package':14} {'mutants':>8} {'unit':>6} {'simulator':>10} {'equivalent':>11} {'survived':>9}")
    for package in (*PACKAGES, *MORE_PACKAGES):
        by = Counter(outcome for mutant, outcome in outcomes.items() if mutant.path.split("/")[2] == package)
        if by:
            counts = f"{by['unit']:6} {by['simulator']:10} {by['equivalent']:11} {by['survived']:9}"
            print(f"{package:14} {by.total():8} {counts}")
    by = Counter(outcomes.values())
    judged, killed = by.total() - by["equivalent"], by["unit"] + by["simulator"]
    share = 100 * killed / judged if judged else 100.0
    print(
        f"seed {seed}: {by.total()} of {total} mutants in {seconds / 60:.1f} minutes: {killed} of {judged} killed "
        f"({share:.1f} %), {by['unit']} by unit tests, {by['simulator']} by the simulator"
    )


def main() -> int:
    """Run the command line; 1 if a mutant survived."""
    parser = argparse.ArgumentParser(prog="./dev mutants", description=__doc__)
    parser.add_argument(
        "packages",
        nargs="*",
        metavar="PACKAGE",
        help=f"packages to change ({', '.join(PACKAGES)}; if named also {', '.join(MORE_PACKAGES)})",
    )
    parser.add_argument("--sample", type=int, default=100, metavar="N", help="number of mutants to draw (100)")
    parser.add_argument("--seed", type=int, help="decides which mutants are drawn (random)")
    parser.add_argument("--seeds", type=int, default=6, help="seeds of the simulator for a mutant (6; 0 for none)")
    parser.add_argument("--match", help="draw only mutants whose description contains this text")
    parser.add_argument(
        "--tests",
        action="append",
        metavar="PATH",
        help="show mutants to the tests of this file or directory (repeatable)",
    )
    parser.add_argument(
        "--enough",
        type=float,
        default=ENOUGH_SECONDS,
        metavar="SECONDS",
        help=f"seconds of tests for a mutant, the fastest first ({ENOUGH_SECONDS:.0f})",
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and change nothing")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="mutants to judge at the same time (2)")
    parser.add_argument("--results", type=Path, help="file of the sample and its outcomes; a run resumes from it")
    parser.add_argument("--again", action="store_true", help="judge the survivors in the results again")
    parser.add_argument("--home", type=Path, help="where copies and outputs stay (a temporary directory)")
    options = parser.parse_args()
    if unknown := sorted(set(options.packages) - {*PACKAGES, *MORE_PACKAGES}):
        parser.error(f"unknown package {unknown[0]}; there are {', '.join((*PACKAGES, *MORE_PACKAGES))}")
    if missing := [path for path in options.tests or () if not (ROOT / path).exists()]:
        parser.error(f"there is no {missing[0]}; paths of tests are relative to the repository")
    seed = random.randrange(1_000_000) if options.seed is None else options.seed
    every = _mutants(options.packages or PACKAGES)
    mutants = [mutant for mutant in every if not options.match or options.match in str(mutant)]
    results = Results(options.results)
    if options.sample < len(mutants):
        mutants = random.Random(seed).sample(mutants, options.sample)
    mutants = results.draw(mutants)
    if options.list:
        print(*mutants, sep="\n")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _judge(mutants, results, options, seed, len(every))
    finally:
        kill_children()


def _judge(mutants: list[Mutant], results: Results, options: argparse.Namespace, seed: int, total: int) -> int:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="odradek-mutants-") as scratch:
        run = Run(
            Options(
                options.seeds,
                options.jobs,
                options.home or Path(scratch),
                [path.rstrip("/") for path in options.tests or _TESTS],
                options.enough,
            )
        )
        if problem := run.prepare():
            print(f"dev mutants: {problem}", file=sys.stderr)
            return 1
        print(f"observed tests and simulator in {time.monotonic() - begun:.0f} s", flush=True)
        open_outcomes = ("", "survived") if options.again else ("",)
        waiting = [mutant for mutant in mutants if results.outcome(mutant) in open_outcomes]
        with ThreadPoolExecutor(options.jobs) as pool:
            try:
                judged = as_completed([pool.submit(run.judge, mutant) for mutant in waiting])
                for number, verdict in enumerate((future.result() for future in judged), 1):
                    results.note(verdict)
                    print(f"{number:5} {verdict.outcome:10} {verdict.mutant}", flush=True)
            except BaseException:  # also an interrupt: the mutants that wait are not judged
                pool.shutdown(wait=False, cancel_futures=True)
                kill_children()
                raise
    outcomes = {mutant: results.outcome(mutant) for mutant in mutants}
    _report(outcomes, seed, total, time.monotonic() - begun)
    return int("survived" in outcomes.values())


if __name__ == "__main__":
    sys.exit(main())
