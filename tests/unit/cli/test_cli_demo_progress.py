"""The demo follows its query, and starts it again where a busy machine made a Python process late."""

import types
from collections.abc import Callable
from typing import Any

import pytest

from odradek.cli.arguments.errors import CommandError
from odradek.cli.demo.progress import RESTARTS_MAX, QueryProgress

LATE = RuntimeError("Python worker failed to connect back.\n=== Streaming Query ===\nIdentifier: x")


def report(batch: int, rows: int) -> dict[str, Any]:
    return {"batchId": batch, "numInputRows": rows, "durationMs": {"triggerExecution": 1500}}


def query(*reports: dict[str, Any], error: Exception | None = None) -> types.SimpleNamespace:
    return types.SimpleNamespace(recentProgress=reports, exception=lambda: error, status={"message": "working"})


def at_once(work: Callable[[], None]) -> None:
    work()


def starting(*runs: Any) -> Callable[[Callable[[str], None]], Any]:
    """Each start returns the next of these queries, or raises it."""
    left = list(runs)

    def start(enter: Callable[[str], None]) -> Any:
        run = left.pop(0)
        if isinstance(run, Exception):
            raise run
        return run

    return start


def ignore(processed: int, seconds: float) -> None:
    return


def test_finished_micro_batches_are_counted_once():
    progress = QueryProgress(starting(query(report(0, 5_000), report(1, 0), report(2, 7_000))), at_once)
    seen: list[tuple[int, float]] = []
    for _ in range(3):
        progress.look(lambda processed, seconds: seen.append((processed, seconds)))
    assert seen == [(5_000, 1.5), (12_000, 1.5)]
    assert (progress.processed, progress.batches, progress.batch_seconds) == (12_000, 2, 3.0)
    assert progress.phase == "streaming"


def test_query_starts_again_when_a_python_process_came_too_late():
    progress = QueryProgress(
        starting(LATE, query(report(0, 5), error=LATE), query(report(0, 5), report(1, 6))), at_once
    )
    for _ in range(4):
        progress.look(ignore)
    assert (progress.restarts, progress.processed, progress.batches) == (2, 11, 2)


def test_phase_says_that_the_query_starts_again():
    waiting: list[Callable[[], None]] = []
    progress = QueryProgress(starting(LATE, query()), waiting.append)
    waiting.pop()()
    progress.look(ignore)
    assert progress.phase == "starting the query, again: a Python process came too late (1)"


def test_late_python_processes_are_an_error_when_they_never_end():
    progress = QueryProgress(starting(*[LATE] * (RESTARTS_MAX + 1)), at_once)
    for _ in range(RESTARTS_MAX):
        progress.look(ignore)
    with pytest.raises(CommandError, match=r"^Spark did not start: Python worker failed to connect back\.$"):
        progress.look(ignore)
    assert progress.restarts == RESTARTS_MAX


BROKEN = query(error=ValueError("division by zero\nat line 2"))


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (ValueError("no such jar\nat line 1"), "Spark did not start: no such jar"),
        (BROKEN, "the query failed: division by zero"),
    ],
)
def test_other_failures_are_one_line_and_final(run: Any, message: str):
    progress = QueryProgress(starting(run), at_once)
    with pytest.raises(CommandError) as caught:
        progress.look(ignore)
    assert str(caught.value) == message
