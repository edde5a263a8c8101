"""How a mutant is judged: which tests see it, and what counts as noticed."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.coverage_map import CoverageMap, LineTrace, Observed
from tests.mutation.operators import mutants_of
from tests.mutation.recorded import RecordedTests
from tests.mutation.replacement import functions_below, replace_functions
from tests.mutation.trials import OPTIONS
from tests.mutation.workplace import ROOT, SURVIVED, TIMED_OUT, Workplace

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


def test_trace_notes_the_lines_of_each_name(tmp_path: Path) -> None:
    path = tmp_path / "src" / "sample.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    names: dict[str, object] = {}
    exec(compile(SOURCE, str(path), "exec"), names)
    larger = names["larger"]
    assert callable(larger)
    trace = LineTrace(tmp_path, "src")
    with trace:
        trace.begin("larger")
        larger(2, 1)
        trace.begin("smaller")
        larger(1, 2)
    assert trace.lines() == {
        "larger": {("src/sample.py", 2), ("src/sample.py", 3)},
        "smaller": {("src/sample.py", 2), ("src/sample.py", 4)},
    }


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


def test_line_that_runs_at_import_has_all_tests_that_may_depend_on_it() -> None:
    first = Observed("first", 2.0, frozenset({("a.py", 1), ("a.py", 5)}))
    other = Observed("other", 1.0, frozenset({("a.py", 5)}))
    coverage = CoverageMap([first, other])
    assert coverage.tests_of("a.py", range(1, 2)) == [first]
    assert coverage.tests_of("a.py", range(1, 2), runs_at_import=True) == [other, first]


def test_scenarios_of_a_line_are_shown_when_others_take_enough() -> None:
    line = frozenset({("a.py", 1)})
    fast = Observed("tests/unit/test_a.py::test_a", 3.0, line)
    scenarios = [Observed(f"tests/sim/scenarios/test_b.py::test_{number}", 5.0 + number, line) for number in range(5)]
    chosen = CoverageMap([*scenarios, fast]).tests_of("a.py", range(1, 2), enough=3)
    assert chosen == [fast, *scenarios[:4]]


def test_constant_is_shown_to_the_tests_beside_its_module_first() -> None:
    """A test that compares a constant executes no line of the module that defines it."""
    beside = Observed("tests/unit/groups/test_settings.py::test", 2.0, frozenset())
    elsewhere = Observed("tests/unit/api/test_other.py::test", 1.0, frozenset())
    user = Observed("tests/unit/api/test_user.py::test", 1.0, frozenset({("src/odradek/groups/classic/a.py", 9)}))
    coverage = CoverageMap([elsewhere, user, beside])
    assert coverage.tests_of("src/odradek/groups/classic/a.py", range(1, 2), runs_at_import=True) == [beside, user]
    assert coverage.tests_of("src/odradek/groups/settings.py", range(1, 2)) == [beside]


def test_tests_of_a_line_take_no_longer_than_enough() -> None:
    tests = [Observed(f"test {n}", 10.0, frozenset({("a.py", 1)})) for n in range(5)]
    assert CoverageMap(tests).tests_of("a.py", range(1, 2)) == tests[:3]
    assert CoverageMap(tests).tests_of("a.py", range(1, 2), enough=15) == tests[:1]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in ("a.py", "b.py", "test_a.py", "test_b.py"):
        (tmp_path / name).write_text("")
    return tmp_path


def recorded_tests(repository: Path) -> RecordedTests:
    return RecordedTests(repository, repository, ["a.py", "b.py"])


def test_recorded_tests_are_outdated_only_by_what_they_execute(repository: Path) -> None:
    files = ["test_a.py", "test_b.py"]
    recorded = recorded_tests(repository)
    assert recorded.outdated(files) == files
    lines = [(f"test_{name}.py::test", 1.0, frozenset({(f"{name}.py", 1)})) for name in ("a", "b")]
    recorded.lines.write_bytes(pickle.dumps((lines, frozenset(), set())))
    recorded.note(files)
    assert recorded_tests(repository).outdated(files) == []
    (repository / "a.py").write_text("x = 1\n")
    assert recorded_tests(repository).outdated(files) == ["test_a.py"]
    (repository / "test_b.py").write_text("x = 1\n")
    assert recorded_tests(repository).outdated(files) == files
    assert [test.name for test in recorded_tests(repository).coverage(["test_b.py"]).tests] == ["test_b.py::test"]


def test_change_outside_the_selected_tests_is_remembered(repository: Path) -> None:
    files = ["test_a.py", "test_b.py"]
    recorded = recorded_tests(repository)
    recorded.outdated(files)
    lines = [(f"test_{name}.py::test", 1.0, frozenset({("a.py", 1)})) for name in ("a", "b")]
    recorded.lines.write_bytes(pickle.dumps((lines, frozenset(), set())))
    recorded.note(files)
    (repository / "a.py").write_text("x = 1\n")
    changed = recorded_tests(repository)
    assert changed.outdated(["test_a.py"]) == ["test_a.py"]
    changed.note(["test_a.py"])
    assert recorded_tests(repository).outdated(files) == ["test_b.py"]


def test_file_with_a_failed_test_is_recorded_again(repository: Path) -> None:
    files = ["test_a.py", "test_b.py"]
    recorded = recorded_tests(repository)
    recorded.outdated(files)
    recorded.lines.write_bytes(pickle.dumps(([], frozenset(), {"test_b.py"})))
    assert recorded.note(files) == ["test_b.py"]
    assert recorded_tests(repository).outdated(files) == ["test_b.py"]


SERVED = """
def outer(a):
    def inner(b):
        return a + b
    return inner

class Sample:
    limit = 3

    def get(self):
        return 1
"""


@pytest.fixture
def served(tmp_path: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(SERVED, str(tmp_path / "served.py"), "exec", dont_inherit=True), names)
    return names


def replaced(tmp_path: Path, before: str, after: str) -> bool:
    path = str(tmp_path / "served.py")
    functions = functions_below(str(tmp_path)).get(path, [])
    return replace_functions(functions, path, SERVED.encode(), SERVED.replace(before, after).encode())


def test_imported_method_gets_the_changed_code(served: dict[str, Any], tmp_path: Path) -> None:
    sample = served["Sample"]()
    assert replaced(tmp_path, "return 1", "return 2")
    assert sample.get() == 2


def test_closure_that_exists_gets_the_changed_code(served: dict[str, Any], tmp_path: Path) -> None:
    inner = served["outer"](5)
    assert replaced(tmp_path, "a + b", "a - b")
    assert inner(1) == 4
    assert served["outer"](7)(1) == 6


def test_change_outside_functions_is_not_replaced(served: dict[str, Any], tmp_path: Path) -> None:
    assert not replaced(tmp_path, "limit = 3", "limit = 4")
    assert served["Sample"].limit == 3


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


def test_grouped_tests_are_collected_with_the_options_of_a_trial() -> None:
    with_a_shared_fixture = "tests/unit/broker/observability/test_connection_metrics.py"
    command = [sys.executable, "-m", "pytest", *OPTIONS, "--collect-only", with_a_shared_fixture]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert collected.returncode == 0, collected.stdout
