"""The task of a query: starts it, waits, starts it again after failures, and stops it between two batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

from odradek.connect.connector_settings import ErrorPolicy
from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.queries.shared_session import SharedSession
from odradek.connect.retries import Retries
from odradek.connect.worker_thread import WorkerThread
from odradek.spark.stores.patience import first_line

logger = logging.getLogger(__name__)

T = TypeVar("T")

_WAIT_S: Final = 0.5
_LOOK_S: Final = 0.02
_STOP_S: Final = 5.0
"""How long the batch in hand may take until the query is interrupted; Spark runs such a batch again."""


class QueryTask:
    """Runs one query until it is asked to stop, in another session where Spark has ended."""

    def __init__(self, name: str, session: SharedSession, start: Callable[[Any], Any], policy: ErrorPolicy) -> None:
        """`start` makes the streaming query in a session that it is given."""
        self._name = name
        self._session = session
        self._start = start
        self._policy = policy
        self._thread = WorkerThread(f"connect-{name}")
        self._query: Any = None

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set. Raises ConnectError."""
        retries = Retries(self._policy)
        try:
            while not stopping.is_set():
                failure, progressed = await self._run_once(stopping)
                if failure is None:
                    return
                if progressed:
                    retries = Retries(self._policy)
                pause_s = retries.pause_s(failure)
                logger.warning("connector task %s: next attempt in %.1f s: %s", self._name, pause_s, failure)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await stopping.wait()
        finally:
            await self._thread.close()

    async def _run_once(self, stopping: asyncio.Event) -> tuple[TargetAway | None, bool]:
        """What the query failed with, and whether it had written a batch; None when it was stopped."""
        session = await self._session.get()
        failure: TargetAway | None = None
        first = last = -1
        try:
            query = await self._in_spark(self._begin, session)
            first = last = await self._in_spark(_batch, query)
            while not stopping.is_set() and failure is None:
                failure = await self._in_spark(self._wait, query)
                last = await self._in_spark(_batch, query)
        except TargetAway as error:
            failure = error
        finally:
            with contextlib.suppress(TargetAway):
                await self._in_spark(self._end)
        return failure, last > first

    async def _in_spark(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result. Raises TargetAway where the JVM has ended: the next session has another one."""
        try:
            return await self._thread.run(function, *arguments)
        except Exception as error:
            from odradek.spark.session import has_ended

            if not has_ended(error):
                raise
            raise TargetAway(f"Spark has ended: {first_line(error)}") from error

    # --- in the thread ---

    def _begin(self, session: Any) -> Any:
        from pyspark.errors import PySparkException

        try:
            self._query = self._start(session)
        except (PySparkException, ValueError) as error:
            raise ConnectError(f"Spark rejects the query: {first_line(error)}") from error
        return self._query

    def _end(self) -> None:
        """Stop the query, also one whose start the task no longer waited for."""
        query, self._query = self._query, None
        if query is not None:
            _stop(query)

    def _wait(self, query: Any) -> TargetAway | None:
        """What the query failed with, if it did within a moment."""
        from pyspark.errors import StreamingQueryException

        try:
            ended = query.awaitTermination(_WAIT_S)
        except StreamingQueryException as error:
            failure = TargetAway(f"the query failed: {first_line(error)}")
            failure.__cause__ = error
            return failure
        return TargetAway("the query was stopped by something else") if ended else None


def _batch(query: Any) -> int:
    """The number of the last batch that has ended; -1 before the first."""
    progress = query.lastProgress
    return -1 if progress is None else int(progress["batchId"])


def _stop(query: Any) -> None:
    """Stop between two batches, or after a while in the midst of one, which Spark then runs again."""
    deadline = time.monotonic() + _STOP_S
    before = _batch(query)
    while query.isActive and query.status["isTriggerActive"] and _batch(query) == before:
        if time.monotonic() > deadline:
            break
        time.sleep(_LOOK_S)
    query.stop()
