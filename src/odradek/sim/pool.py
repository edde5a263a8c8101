"""Seeds on all the processors that are asked for: this process, or a pool of processes."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from typing import Final

from odradek.sim.run import SAFETY_SECONDS, Observe, SeedResult, run_seed

Job = tuple[int, str]
"""A seed and its profile."""

_RECYCLE: Final = 50
"""Seeds per worker process, so that no run is the victim of what an earlier one left behind."""


def outcomes(
    jobs: Iterator[Job], processes: int, *, safety_seconds: float = SAFETY_SECONDS, observe: Observe | None = None
) -> Iterator[SeedResult]:
    """Run the jobs, with more than one process out of order. A job is drawn when a process has room for it."""
    run = partial(run_seed, safety_seconds=safety_seconds, observe=observe)
    if processes <= 1:
        gc.freeze()
        for job in jobs:
            yield run(*job)
        return
    # What a worker has loaded stays; the collections after each seed need not look at it.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, gc.freeze, max_tasks_per_child=_RECYCLE) as pool:
        yield from _from_pool(pool, run, jobs, processes * 2)


def _from_pool(
    pool: ProcessPoolExecutor, run: Callable[..., SeedResult], jobs: Iterator[Job], most: int
) -> Iterator[SeedResult]:
    running: set[Future[SeedResult]] = set()
    is_exhausted = False
    while running or not is_exhausted:
        while not is_exhausted and len(running) < most:
            job = next(jobs, None)
            if job is None:
                is_exhausted = True
            else:
                running.add(pool.submit(run, *job))
        if running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for each in done:
                yield each.result()
