"""Which lines each test executes, observed once: a mutant is shown only to the tests that reach it."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Self

import pytest


class Observed(NamedTuple):
    """One test of the suite, as it ran without any mutant."""

    name: str
    """Its node id."""
    seconds: float
    lines: frozenset[tuple[str, int]]
    """Those it executed: paths below the root, line numbers from 1."""


class LineTrace:
    """Collects the lines below a directory that run while it is `observing`."""

    def __init__(self, root: Path, below: str) -> None:
        self._root = str(root) + "/"
        self._below = str(root / below) + "/"
        self._seen: set[tuple[str, int]] = set()

    def __enter__(self) -> Self:
        threading.settrace(self._call)
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._below):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._seen.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def take(self) -> frozenset[tuple[str, int]]:
        """The lines seen since the last call."""
        seen, self._seen = self._seen, set()
        length = len(self._root)
        return frozenset((name[length:], line) for name, line in seen)


class Recorder:
    """A pytest plugin that notes the lines of each test that passes."""

    def __init__(self, trace: LineTrace) -> None:
        self._trace = trace
        self._failed: set[str] = set()
        self.tests: list[Observed] = []

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._trace.take()
        begun = time.perf_counter()
        with self._trace:
            yield
        seconds = time.perf_counter() - begun
        lines = self._trace.take()
        if lines and item.nodeid not in self._failed:
            self.tests.append(Observed(item.nodeid, seconds, lines))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid)


class CoverageMap:
    """The tests by line. A line that runs at import counts for every test that executes its module."""

    def __init__(self, tests: list[Observed]) -> None:
        self.tests = tests
        self._by_line: dict[tuple[str, int], list[int]] = defaultdict(list)
        self._by_path: dict[str, set[int]] = defaultdict(set)
        for index, test in enumerate(tests):
            for path, line in test.lines:
                self._by_line[path, line].append(index)
                self._by_path[path].add(index)

    def tests_of(self, path: str, lines: range) -> list[Observed]:
        """Those that execute one of the lines, the fastest first; if no test does, those of the module."""
        found = {index for line in lines for index in self._by_line.get((path, line), ())}
        found = found or self._by_path.get(path, set())
        return sorted((self.tests[index] for index in found), key=lambda test: test.seconds)
