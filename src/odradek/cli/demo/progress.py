"""How the demo's query gets on: its phase, its finished micro-batches, and a new start where a worker came too late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from odradek.cli.arguments.errors import CommandError

RESTARTS_MAX: Final = 20
_LATE_WORKER: Final = "Python worker failed to connect back"
"""Spark waits ten seconds for a Python process and has no setting for that: on a busy machine it takes longer."""


class QueryProgress:
    """Follows a query that a background thread starts, so that the caller can show what happens meanwhile.

    A query that ended because a Python process came too late is started again from its checkpoint: every micro-batch
    is written exactly once all the same.
    """

    def __init__(
        self, start: Callable[[Callable[[str], None]], Any], in_background: Callable[[Callable[[], None]], object]
    ) -> None:
        """`start(enter)` returns the running query; `in_background` calls a function on another thread."""
        self.processed = 0
        """Flights in the micro-batches that have ended."""
        self.batches = 0
        self.batch_seconds = 0.0
        """How long these micro-batches took."""
        self.phase = "starting the JVM"
        self.restarts = 0
        self._begin = start
        self._in_background = in_background
        self._query: Any = None
        self._failure: Exception | None = None
        self._seen_batch = -1
        in_background(self._start)

    def _start(self) -> None:
        try:
            self._query = self._begin(self._enter)
        except Exception as error:  # noqa: BLE001 - `look` raises it on the main thread
            self._failure = error
        else:
            self.phase = "streaming" if self.batches else "the first micro-batch"

    def _enter(self, phase: str) -> None:
        again = f", again: a Python process came too late ({self.restarts})" if self.restarts else ""
        self.phase = f"{phase}{again}"

    def look(self, finished: Callable[[int, float], None]) -> object:
        """Read Spark's reports; call `finished(processed, seconds)` for each micro-batch that has ended.

        Returns a value that changes when the query progresses. Raises CommandError if it failed.
        """
        if self._failure is not None:
            self._fail_or_restart(self._failure, "Spark did not start")
        if self._query is None:
            return self.phase
        for each in self._query.recentProgress:
            if each["batchId"] > self._seen_batch and each["numInputRows"]:
                seconds = each["durationMs"]["triggerExecution"] / 1000
                self._seen_batch = each["batchId"]
                self.processed += each["numInputRows"]
                self.batches += 1
                self.batch_seconds += seconds
                self.phase = "streaming"
                finished(self.processed, seconds)
        if (error := self._query.exception()) is not None:
            self._fail_or_restart(error, "the query failed")
            return self.phase
        return self.phase, self.batches, self._query.status["message"]

    def _fail_or_restart(self, error: Exception, what: str) -> None:
        if _LATE_WORKER not in str(error) or self.restarts == RESTARTS_MAX:
            lines = str(error).strip().splitlines() or [repr(error)]
            raise CommandError(f"{what}: {lines[0]}")
        self.restarts += 1
        self._query = self._failure = None
        self._enter("starting the query")
        self._in_background(self._start)
