"""A thread of one task, for drivers that block and whose connections belong to one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerThread:
    """Runs functions one after another in one thread. It starts with the first call."""

    __slots__ = ("_executor",)

    def __init__(self, name: str) -> None:
        """`name` shows in stack dumps."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """The function's result. Cancelling the caller does not interrupt the function."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(function, *arguments))

    async def close(self) -> None:
        """Wait for the function that is under way, without holding the event loop."""
        await asyncio.to_thread(self._executor.shutdown)
