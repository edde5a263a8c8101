"""Warnings of failures that repeat: the first at once, later ones at growing intervals, and the end of the failure."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

_FIRST_INTERVAL_S: Final = 1.0
_LONGEST_INTERVAL_S: Final = 60.0


class _Failure:
    """One failure that lasts."""

    __slots__ = ("attempts", "interval_s", "logged", "next_at", "since")

    def __init__(self, now: float, quiet_s: float) -> None:
        self.since = now
        self.attempts = 0
        self.logged = False
        self.next_at = now + quiet_s
        self.interval_s = _FIRST_INTERVAL_S


class FailureLog:
    """Counts failed attempts by what failed, and decides which of them are logged.

    A client that retries ten times a second would otherwise be silent or deafening. `time` is the loop's, in seconds.
    """

    __slots__ = ("_failures", "_fields", "_logger", "_time")

    def __init__(self, logger: logging.Logger, time: Callable[[], float], fields: dict[str, Any]) -> None:
        """`fields` become attributes of every log record (`logging`'s `extra`)."""
        self._logger = logger
        self._time = time
        self._fields = fields
        self._failures: dict[str, _Failure] = {}

    def __bool__(self) -> bool:
        """Whether any attempt has failed since it last succeeded."""
        return bool(self._failures)

    def forget(self, what: str) -> None:
        """The attempts end without success: the next failure is a new one."""
        self._failures.pop(what, None)

    def failed(self, what: str, why: object, then: str, *, quiet_s: float = 0.0) -> None:
        """One more attempt failed: `what` names the attempt, `then` what the client does next.

        Failures that end within `quiet_s` seconds are normal, and never logged.
        """
        now = self._time()
        failure = self._failures.get(what)
        if failure is None:
            failure = self._failures[what] = _Failure(now, quiet_s)
        failure.attempts += 1
        if now < failure.next_at:
            self._logger.debug("%s failed: %s", what, why, extra=self._fields)
            return
        lasting = f" ({failure.attempts} attempts in {now - failure.since:.1f} s)" if failure.attempts > 1 else ""
        self._logger.warning("%s failed%s: %s; %s", what, lasting, why, then, extra=self._fields)
        failure.logged = True
        failure.next_at = now + failure.interval_s
        failure.interval_s = min(2 * failure.interval_s, _LONGEST_INTERVAL_S)

    def succeeded(self, what: str) -> None:
        """The attempt succeeded: the next failure is a new one."""
        failure = self._failures.pop(what, None)
        if failure is not None and failure.logged:
            lasted_s = self._time() - failure.since
            self._logger.info(
                "%s succeeded after %d failed attempts in %.1f s", what, failure.attempts, lasted_s, extra=self._fields
            )
