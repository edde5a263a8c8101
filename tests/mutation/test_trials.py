"""How a mutant is judged: which tests see it, and what counts as noticed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.mutation.coverage_map import CoverageMap, LineTrace, Observed
from tests.mutation.operators import mutants_of
from tests.mutation.workplace import SURVIVED, TIMED_OUT, Workplace

SOURCE = "def larger(a, b):\n    if a > b:\n        return a\n    return b\n"


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    product = tmp_path / "repository" / "src" / "odradek"
    product.mkdir(parents=True)
    (product / "sample.py").write_text(SOURCE)
    return Workplace(tmp_path / "home", tmp_path / "repository")


def use_sample() -> int:
    from odradek import sample  # type: ignore[attr-defined]

    return int(sample.larger(2, 1) != 2)


def test_process_imports_the_mutated_module(workplace: Workplace, tmp_path: Path) -> None:
    results = []
    for mutant in mutants_of("src/odradek/sample.py", SOURCE.encode()):
        with workplace.mutated(mutant):
            results.append((mutant.text, workplace.run(use_sample, 60, tmp_path / "output")))
    assert sorted(results) == [("(a <= b)", 1), ("(a >= b)", SURVIVED)]
    assert workplace.run(use_sample, 60, tmp_path / "output") == SURVIVED


def test_process_that_does_not_end_is_stopped(workplace: Workplace, tmp_path: Path) -> None:
    def wait() -> int:
        while True:
            time.sleep(1)

    assert workplace.run(wait, 0.01, tmp_path / "output") == TIMED_OUT


def test_failure_of_the_work_is_not_survival(workplace: Workplace, tmp_path: Path) -> None:
    def fail() -> int:
        raise ValueError("seen in the output")

    assert workplace.run(fail, 60, tmp_path / "output") not in (SURVIVED, TIMED_OUT)
    assert "seen in the output" in (tmp_path / "output").read_text()


def test_trace_notes_the_lines_that_ran(tmp_path: Path) -> None:
    path = tmp_path / "src" / "sample.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    names: dict[str, object] = {}
    exec(compile(SOURCE, str(path), "exec"), names)
    larger = names["larger"]
    assert callable(larger)
    before = sys.gettrace()
    trace = LineTrace(tmp_path, "src")
    with trace:
        larger(2, 1)
    sys.settrace(before)
    assert trace.take() == {("src/sample.py", 2), ("src/sample.py", 3)}
    assert trace.take() == frozenset()


def test_fastest_test_of_a_line_comes_first() -> None:
    slow = Observed("slow", 2.0, frozenset({("a.py", 1), ("a.py", 2)}))
    fast = Observed("fast", 1.0, frozenset({("a.py", 2)}))
    coverage = CoverageMap([slow, fast])
    assert coverage.tests_of("a.py", range(2, 3)) == [fast, slow]
    assert coverage.tests_of("a.py", range(1, 2)) == [slow]


def test_line_that_runs_at_import_has_all_tests_of_its_module() -> None:
    test = Observed("test", 1.0, frozenset({("a.py", 5)}))
    assert CoverageMap([test]).tests_of("a.py", range(1, 2)) == [test]
    assert CoverageMap([test]).tests_of("b.py", range(1, 2)) == []


def test_interrupted_wait_leaves_no_process(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []

    def sleep() -> int:
        time.sleep(600)
        return 0

    def interrupt(child: int, _: float) -> int:
        started.append(child)
        raise KeyboardInterrupt

    monkeypatch.setattr("tests.mutation.workplace._wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        workplace.run(sleep, 60, tmp_path / "output")
    _, status = os.waitpid(started[0], 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
