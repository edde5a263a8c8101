"""Which lines each test executes, observed once: a mutant is shown only to the tests that reach it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Self

import coverage
import pytest

ENOUGH_SECONDS: Final = 30.0
"""Tests that take longer together are not all shown to a mutant: hundreds execute a line that every request does."""

_SCENARIOS: Final = "tests/sim/scenarios/"
_MOST_SCENARIOS: Final = 4
"""Scenarios of whole brokers look at more than the fast tests of a line that every request executes: these many of them
are shown to a mutant in any case."""


class Observed(NamedTuple):
    """One test of the suite, as it ran without any mutant."""

    name: str
    """Its node id."""
    seconds: float
    lines: frozenset[tuple[str, int]]
    """Those it executed: paths below the root, line numbers from 1."""


class LineTrace:
    """Collects the lines below a directory that run, by the name under which they were collected."""

    def __init__(self, root: Path, below: str) -> None:
        self._root = root
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=[f"{root / below}/*"])

    def __enter__(self) -> Self:
        self._coverage.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._coverage.stop()

    def begin(self, name: str) -> None:
        """The lines that run from now on belong to `name`."""
        self._coverage.switch_context(name)

    def lines(self) -> dict[str, frozenset[tuple[str, int]]]:
        """The lines of each name."""
        data = self._coverage.get_data()
        found: dict[str, set[tuple[str, int]]] = defaultdict(set)
        for path in data.measured_files():
            relative = str(Path(path).relative_to(self._root))
            for line, names in data.contexts_by_lineno(path).items():
                for name in names:
                    found[name].add((relative, line))
        return {name: frozenset(lines) for name, lines in found.items()}


class Recorder:
    """A pytest plugin that notes the lines of each test that passes."""

    def __init__(self, trace: LineTrace) -> None:
        self._trace = trace
        self._without_lines: set[str] = set()
        self.failed_files: set[str] = set()
        """Those with a test that failed."""
        self._seconds: dict[str, float] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._trace.begin(item.nodeid)
        begun = time.perf_counter()
        yield
        self._seconds[item.nodeid] = time.perf_counter() - begun

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._without_lines.add(report.nodeid)
        if report.failed:
            self.failed_files.add(report.nodeid.partition("::")[0])

    def tests(self) -> list[Observed]:
        """Those that passed, with the lines that they executed."""
        lines = self._trace.lines()
        return [
            Observed(name, seconds, lines[name])
            for name, seconds in self._seconds.items()
            if name in lines and name not in self._without_lines
        ]

    def imported(self) -> frozenset[tuple[str, int]]:
        """The lines that ran before the first test, when modules were imported."""
        return self._trace.lines().get("", frozenset())


class CoverageMap:
    """The tests by line. A line that runs at import counts for every test that executes its module."""

    def __init__(self, tests: list[Observed], imported: frozenset[tuple[str, int]] = frozenset()) -> None:
        self.tests = tests
        self.imported = imported
        """The lines that run when modules are imported."""
        self._by_line: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._by_path: dict[str, set[int]] = defaultdict(set)
        for index, test in enumerate(tests):
            for path, line in test.lines:
                self._by_line[path, line].append(index)
                self._by_path[path].add(index)

    def tests_of(
        self, path: str, lines: range, enough: float = ENOUGH_SECONDS, *, runs_at_import: bool = False
    ) -> list[Observed]:
        """Those that execute one of the lines, the fastest first, as far as there is time, and some scenarios.

        If no test executes them, or if they run at import, those of the module's directory, then those that execute
        anything of the module: the test that was the first to import it has executed its definitions, and every other
        one may depend on them. A test that reads a constant or a default executes no line of its module."""
        found = {index for line in lines for index in self._by_line.get((path, line), ())}
        near: set[int] = set()
        if runs_at_import or not found:
            near = self._beside(path)
            found |= self._by_path.get(path, set()) | near
        order = sorted(found, key=lambda index: (index not in near, self.tests[index].seconds))
        ordered = [self.tests[index] for index in order]
        chosen: list[Observed] = []
        seconds = 0.0
        for test in ordered:
            seconds += test.seconds
            if chosen and seconds > enough:
                break
            chosen.append(test)
        scenarios = [test for test in ordered[len(chosen) :] if test.name.startswith(_SCENARIOS)]
        return chosen + scenarios[:_MOST_SCENARIOS]

    def _beside(self, path: str) -> set[int]:
        """The tests in the directory of the tests of this module's package, or of the package above it."""
        folder = path.rpartition("/")[0].replace("src/odradek", "tests/unit")
        while folder.count("/") > 1:
            if found := {index for index, test in enumerate(self.tests) if test.name.startswith(f"{folder}/")}:
                return found
            folder = folder.rpartition("/")[0]
        return set()
