"""Logs the exceptions of tasks that no coroutine awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from logging import Logger
from typing import Any


def logs_failure(logger: Logger, what: str) -> Callable[[asyncio.Task[Any]], None]:
    """A done-callback that logs `what` with the traceback when the task has failed; cancellation is not a failure."""

    def look_at(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.error(what, exc_info=task.exception())

    return look_at
