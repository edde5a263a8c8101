"""Jobs that are told to stop while they are given work."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.background import BackgroundJobs


class Directories:
    """Log directories without a log, whose work wakes the job that does it."""

    def __init__(self) -> None:
        self.worked = 0
        self.on_work: Any = None

    async def work(self, now_ms: int) -> int:
        self.worked += 1
        return now_ms + 3_600_000


def jobs_of(directories: Directories) -> BackgroundJobs:
    config = SimpleNamespace(number=lambda _: 3_600_000, flag=lambda _: False, on_change=lambda *_: None)
    partitions = SimpleNamespace(opened=lambda: ())
    clock = SimpleNamespace(now_ms=lambda: 1_000)
    return BackgroundJobs(
        cast("Any", config), cast("Any", partitions), cast("Any", directories), cast("Any", None), cast("Any", clock)
    )


@pytest.mark.parametrize("turns", range(6))
def test_work_that_comes_with_the_end_does_not_outlive_it(turns: int) -> None:
    """Found by the simulator (txn-500073): the cancellation was lost with the wake-up, and the broker never stopped."""

    async def scenario() -> None:
        directories = Directories()
        jobs = jobs_of(directories)
        jobs.start()
        while not directories.worked:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        directories.on_work()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(2):
            await jobs.stop()

    asyncio.run(scenario())
