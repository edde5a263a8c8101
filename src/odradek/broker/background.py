"""Jobs that run by themselves: checkpoints, flushes, retention, deletions. Each has its interval in the configuration.

An idle broker does nothing between them: every job is one timer, and the removal of deleted files is asked for when
there is something to remove.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from odradek.broker.config import BrokerConfig
from odradek.broker.partitions import Partitions
from odradek.log.directories import LogDirectories
from odradek.ports.clock import Clock
from odradek.wire.errors import KafkaError

log = logging.getLogger("odradek.background")

Job = Callable[[], Awaitable[None]]


class BackgroundJobs:
    """The broker's periodic work on its logs."""

    __slots__ = ("_clock", "_config", "_directories", "_partitions", "_tasks", "_work_wanted")

    def __init__(self, config: BrokerConfig, partitions: Partitions, directories: LogDirectories, clock: Clock) -> None:
        self._config = config
        self._partitions = partitions
        self._directories = directories
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._work_wanted = asyncio.Event()

    def start(self) -> None:
        self._directories.on_work = self._work_wanted.set
        jobs: tuple[tuple[str, Job], ...] = (
            ("log.flush.offset.checkpoint.interval.ms", self.checkpoint),
            ("log.retention.check.interval.ms", self.delete_old_segments),
        )
        for name, job in jobs:
            self._tasks.append(asyncio.create_task(self._every(name, job), name=name))
        self._tasks.append(asyncio.create_task(self._work(), name="log work"))

    async def _every(self, interval_config: str, job: Job) -> None:
        while True:
            await asyncio.sleep(self._config.number(interval_config) / 1000)
            await self._run(interval_config, job)

    async def _run(self, name: str, job: Job) -> None:
        try:
            await job()
        except (KafkaError, OSError):
            # The log directory that failed has gone offline by itself; the job comes again for the others.
            log.exception("the job of %s failed", name)

    async def checkpoint(self) -> None:
        """Recovery points, log starts and high watermarks, so that a restart reads only what is new."""
        await self._directories.checkpoint(self.high_watermarks())

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        return {(p.topic, p.index): p.high_watermark for p in self._partitions.opened()}

    async def delete_old_segments(self) -> None:
        """Retention by time and size, and producers that have been silent for `producer.id.expiration.ms`."""
        for partition in self._partitions.opened():
            if partition.log.is_offline:
                continue
            now_ms = self._clock.now_ms()
            partition.log.delete_old_segments(now_ms, partition.high_watermark)
            partition.log.remove_expired_producers(now_ms)
            await asyncio.sleep(0)

    async def _work(self) -> None:
        while True:
            due_ms = None
            self._work_wanted.clear()
            try:
                due_ms = await self._directories.work(self._clock.now_ms())
            except (KafkaError, OSError):
                log.exception("flushing or removing files failed")
            wait = None if due_ms is None else max(0.0, (due_ms - self._clock.now_ms()) / 1000)
            try:
                await asyncio.wait_for(self._work_wanted.wait(), wait)
            except TimeoutError:
                continue

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
