"""Wait for a store that is away: the batch in hand stays in hand, the query pauses, and resumes when the store is back.

Spark asks for the next micro-batch only when the writing of this one has returned, so waiting inside of the write *is*
the pause: no offset moves, no row is dropped, and the source's records wait in their topic.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

AWAY = (ConnectionError, TimeoutError)
"""What a store that cannot be reached raises in general."""


class StoppedWaiting(RuntimeError):
    """The query was stopped while its store was away; the batch was not written and will be run again."""


class Patience(NamedTuple):
    """How to wait: pauses double from `first_s` to `most_s` (each up to a fifth shorter, so that not all come at once).

    After `give_up_s` the last error is raised and the query fails, which is safe, too; None waits for ever. A store
    that has never been reached may be at another address: there the limit is `first_contact_s`, if that is less.
    """

    first_s: float = 0.5
    most_s: float = 30.0
    give_up_s: float | None = None
    first_contact_s: float | None = 60.0

    def run(
        self,
        work: Callable[[], T],
        *,
        away: Callable[[Exception], bool],
        wanted: Callable[[], bool] = lambda: True,
        reached: Callable[[], bool] = lambda: True,
        sleep: Callable[[float], None] = time.sleep,
    ) -> T:
        """The result of `work`, tried again while it fails in a way that is `away`.

        `reached` says whether the store was reached at any time. Raises what else it fails with, and StoppedWaiting
        once it is no longer `wanted`.
        """
        began = time.monotonic()
        pause_s = self.first_s
        failures = 0
        while True:
            try:
                result = work()
            except Exception as error:
                if not away(error):
                    raise
                if time.monotonic() - began + pause_s > self._limit_s(has_been_reached=reached()):
                    raise
                failures += 1
                logger.warning("the store is away (%s); next attempt in %.1f s", first_line(error), pause_s)
                sleep(pause_s * random.uniform(0.8, 1.0))
                pause_s = min(self.most_s, pause_s * 2)
                if not wanted():
                    raise StoppedWaiting(
                        f"the query was stopped while its store was away: {first_line(error)}"
                    ) from error
            else:
                if failures:
                    logger.warning("the store is back after %.1f s", time.monotonic() - began)
                return result

    def _limit_s(self, *, has_been_reached: bool) -> float:
        limits = [self.give_up_s, None if has_been_reached else self.first_contact_s]
        return min((each for each in limits if each is not None), default=math.inf)


def first_line(error: Exception) -> str:
    """An error's class and message, without further lines."""
    return f"{type(error).__name__}: {error}".strip().split("\n", 1)[0]


def still_runs(frame: Any) -> Callable[[], bool]:
    """Whether the streaming query that this batch belongs to still runs, without a request to stop.

    Spark's stop() waits for the batch's function to return, so a function that waits has to ask. Always true where
    it cannot be asked: outside of a query, or with Spark Connect.
    """
    session = frame.sparkSession
    context = getattr(session, "_sc", None)
    found = None if context is None else context.getLocalProperty("sql.streaming.queryId")
    if context is None or found is None:
        return lambda: True
    # The batch has a session of its own, whose own manager of queries knows none; this map is that of all sessions.
    queries = session._jsparkSession.sharedState().activeStreamingQueries()
    query = queries.get(context._jvm.java.util.UUID.fromString(found))
    return lambda: bool(query.isActive())


class Patient:
    """A `foreachBatch` function that waits while what it writes to is away.

        .foreachBatch(Patient(write, away=(requests.ConnectionError,)))

    The function is called again with the same frame, which is computed again; so it has to be idempotent, and it suits
    queries without state. The sinks of this package have their own patience, which computes nothing twice.
    """

    def __init__(
        self,
        write: Callable[[Any, int], Any],
        *,
        away: tuple[type[Exception], ...] = AWAY,
        patience: Patience = Patience(),  # noqa: B008 - immutable
    ) -> None:
        self._write = write
        self._away = away
        self._patience = patience
        self._reached = False

    def __call__(self, frame: Any, batch_id: int) -> Any:
        result = self._patience.run(
            lambda: self._write(frame, batch_id),
            away=lambda error: isinstance(error, self._away),
            wanted=still_runs(frame),
            reached=lambda: self._reached,
        )
        self._reached = True
        return result
