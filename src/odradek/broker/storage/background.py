"""Jobs that run by themselves: checkpoints, flushes, retention, deletions. Each has its interval in the configuration.

An idle broker does nothing between them: every job is one timer, and the removal of deleted files is asked for when
there is something to remove.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.storage.compaction import CompactionJob
from odradek.broker.storage.partitions import Partitions
from odradek.log.cleaner.log_cleaner import Cleaner
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.survey import Survey, survey
from odradek.log.turns import in_turns
from odradek.log.writing.flush_plan import FlushSchedule
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.records.topic_partition import PartitionKey
from odradek.replication.partition import Partition
from odradek.wire.errors import KafkaError

logger = logging.getLogger("odradek.background")

Job = Callable[[], Awaitable[None]]

_LONGEST_MS = 24 * 60 * 60 * 1000
"""Longer intervals mean never; a shorter one that is set meanwhile is noticed after this."""

_LOOK_AGAIN_MS = 60_000
"""A `flush.ms` that a topic gets later is noticed after this."""

LANE = "retention"
"""The lane of `Disk.run` that looks at the files of unopened partitions."""


class BackgroundJobs:
    """The broker's periodic work on its logs."""

    __slots__ = (
        "_clock",
        "_compaction",
        "_config",
        "_directories",
        "_disk",
        "_flushes",
        "_partitions",
        "_tasks",
        "_work_wanted",
    )

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        directories: LogDirectories,
        cleaner: Cleaner,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._directories = directories
        self._disk = disk
        self._flushes = FlushSchedule()
        self._clock = clock
        self._compaction = CompactionJob(config, partitions, cleaner, clock)
        self._tasks: list[asyncio.Task[None]] = []
        self._work_wanted = asyncio.Event()
        directories.events.subscribe_work(self._work_wanted.set)

    def start(self) -> None:
        """Begin with all jobs in tasks of their own."""
        jobs: tuple[tuple[str, Job], ...] = (
            ("log.flush.offset.checkpoint.interval.ms", self.checkpoint),
            ("log.retention.check.interval.ms", self.delete_old_segments),
            ("odradek.idle.check.interval.ms", self.tidy_idle),
        )
        for name, job in jobs:
            self._tasks.append(asyncio.create_task(self._every(name, job), name=name))
        self._tasks.append(asyncio.create_task(self._work(), name="log work"))
        self._tasks.append(asyncio.create_task(self._flush(), name="flush.ms"))
        self._compaction.start()

    async def _every(self, interval_config: str, job: Job) -> None:
        while True:
            interval_ms = self._config.number(interval_config)
            await asyncio.sleep(min(interval_ms, _LONGEST_MS) / 1000)
            if interval_ms > _LONGEST_MS:
                continue
            await self._run(interval_config, job)

    async def _run(self, name: str, job: Job) -> None:
        try:
            await job()
        except Exception:
            # The log directory that failed has gone offline by itself; the job comes again for the others. So it does
            # after a mistake of ours: without retention or checkpoints for good, disks fill up and restarts are long.
            logger.exception("the job of %s failed", name)

    async def checkpoint(self) -> None:
        """Recovery points, log starts and high watermarks, so that a restart reads only what is new."""
        checkpoints = self._directories.checkpoints
        async for several in in_turns(self._partitions.opened()):
            checkpoints.note_watermarks(self._high_watermarks(several))
        await checkpoints.persist_all()

    def high_watermarks(self) -> dict[PartitionKey, int]:
        """High watermarks of all open partitions."""
        return self._high_watermarks(self._partitions.opened())

    def _high_watermarks(self, partitions: Iterable[Partition]) -> dict[PartitionKey, int]:
        """Without those that have been deleted meanwhile: their names may be those of new ones by now."""
        current = self._partitions.opened_partition
        return {(p.topic, p.index): p.high_watermark for p in partitions if current(p.topic, p.index) is p}

    async def _flush(self) -> None:
        """As often as the smallest `flush.ms` asks for. Apache Kafka looks only every scheduler interval: never."""
        while True:
            smallest_ms = min((p.log.config.flush_ms for p in self._partitions.opened()), default=_LONGEST_MS)
            scheduled_ms = self._config.number("log.flush.scheduler.interval.ms")
            await asyncio.sleep(max(10, min(smallest_ms, scheduled_ms, _LOOK_AGAIN_MS)) / 1000)
            await self._run("flush.ms", self.flush_due)

    async def flush_due(self) -> None:
        """Sync logs that have had something new for `flush.ms`."""
        # The wall clock may jump back, and nothing would be synced until it has caught up.
        now_ms = int(self._clock.monotonic() * 1000)
        async for several in in_turns(self._partitions.opened()):
            for partition in several:
                opened = partition.log
                dirty = opened.durability.is_dirty and not opened.is_offline
                key = (partition.topic, partition.index)
                if self._flushes.is_due(key, is_dirty=dirty, flush_ms=opened.config.flush_ms, now_ms=now_ms):
                    await self._directories.flusher.flush(opened.durability, opened.end_offset)

    async def tidy_idle(self) -> None:
        """Sync what has been written and is idle now, so that no restart reads it; then give back memory and files.

        A log in use is left alone: syncing it would hold up who writes to it.
        """
        async for _ in in_turns(self._directories.files.sweep()):
            pass
        for opened in self._directories.opened():
            if opened.release_if_idle() and opened.durability.is_dirty and not opened.is_offline:
                await self._directories.flusher.flush(opened.durability, opened.end_offset)
            await asyncio.sleep(0)

    async def delete_old_segments(self) -> None:
        """Retention by time and size, and producers that have been silent for `producer.id.expiration.ms`."""
        await self._open_what_is_due()
        for partition in self._partitions.opened():
            if partition.log.is_offline:
                continue
            now_ms = self._clock.now_ms()
            expiration_ms = self._config.number("producer.id.expiration.ms")
            partition.log.history.producers.remove_expired(now_ms, expiration_ms)
            is_done = False
            while not is_done:
                is_done = not _delete_some_segments(partition, now_ms)
                await asyncio.sleep(0)

    async def _open_what_is_due(self) -> None:
        """Open those untouched partitions that retention or compaction has something to do for."""
        wanted = [
            Survey(topic, partition, path, settings, cleaned_to)
            async for several in in_turns(self._directories.unopened())
            for topic, partition, path, cleaned_to in several
            if (settings := self._partitions.settings_of(topic)) is not None
        ]
        due = await self._disk.run(LANE, survey, self._disk, wanted, self._clock.now_ms())
        for topic, partition in due:
            try:
                self._partitions.find(topic, partition)
            except KafkaError as error:
                logger.info("cannot open %s-%d for retention: %s; retrying later", topic, partition, error.message)
            await asyncio.sleep(0)

    async def _work(self) -> None:
        while True:
            due_ms = None
            self._work_wanted.clear()
            try:
                due_ms = await self._directories.flusher.work(self._clock.now_ms())
            except (KafkaError, OSError):
                logger.exception("cannot flush or remove files; retrying")
            wait = None if due_ms is None else max(0.0, (due_ms - self._clock.now_ms()) / 1000)
            try:
                async with asyncio.timeout(wait):
                    await self._work_wanted.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """End all jobs."""
        await self._compaction.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


def _delete_some_segments(partition: Partition, now_ms: int) -> int:
    """The number of segments deleted; 0 when retention keeps the others, or after an error, which is logged."""
    try:
        return partition.log.delete_old_segments(now_ms, partition.high_watermark)
    except KafkaError as error:
        # One that is damaged does not keep the others.
        name = f"{partition.topic}-{partition.index}"
        logger.warning("cannot delete old segments of %s: %s; retrying later", name, error.message)
        return 0
