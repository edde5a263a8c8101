"""Queued writes, syncs and removals on their way to the disks, behind the Disk port, so that no request waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import Final

from odradek.log.directories.placed_logs import PlacedLogs
from odradek.log.disk_errors import is_transient
from odradek.log.partition_log import PartitionLog
from odradek.log.writing.flush_plan import FlushPlan, RolledLog
from odradek.metrics.histogram import Histogram
from odradek.wire.errors import KafkaError

_MOST_SEGMENTS: Final = 32
"""Segments whose files are synced together: naming them all takes some 30 µs each on the event loop."""


class LogFlusher:
    """Syncs logs behind the Disk port. Owned by the event loop."""

    __slots__ = ("_places", "sync_times")

    def __init__(self, places: PlacedLogs) -> None:
        self._places = places
        self.sync_times = Histogram()
        """Seconds until a log's files were synced, with the wait for earlier syncs of its directory."""

    async def flush(self, log: RolledLog, offset: int) -> bool:
        """Sync the log up to the offset; False after a transient failure. Another takes its directory out of use."""
        while not log.is_offline:
            if log.encode_snapshot():
                await asyncio.sleep(0)
                continue
            try:
                plan = log.plan_flush(offset, most_segments=_MOST_SEGMENTS)
            except KafkaError as error:
                self._places.report(f"could not flush {log.directory}: {error.message}")
                return not is_transient(error.__cause__)
            if plan is None:
                break
            if not await self._sync(log, plan, self._places.lane(log.directory)):
                return False
            if plan.offset >= offset:
                break
        return True

    async def close(self, logs: Iterable[PartitionLog], threads: int) -> None:
        """Sync all of them, with the indexes and the snapshots that a clean stop leaves.

        Uses `threads` threads for each log directory: a file system's journal writes concurrent syncs at once, and
        each of a log's files waits for the journal.
        """
        lanes: dict[str, list[PartitionLog]] = {}
        for log in logs:
            lanes.setdefault(self._places.lane(log.directory), []).append(log)
        async with asyncio.TaskGroup() as group:
            for lane, found in lanes.items():
                waiting = iter(found)
                for number in range(min(threads, len(found))):
                    group.create_task(self._close_each(waiting, f"{lane} {number}" if number else lane))

    async def _close_each(self, logs: Iterator[PartitionLog], lane: str) -> None:
        for log in logs:
            if log.is_offline:
                continue
            try:
                plan = log.prepare_close()
            except KafkaError as error:
                self._places.report(f"could not close {log.directory}: {error.message}; the next start checks it")
                continue
            if plan is not None:
                await self._sync(log.durability, plan, lane)

    async def _sync(self, log: RolledLog, plan: FlushPlan, lane: str) -> bool:
        now = self._places.environment.clock.monotonic
        started = now()
        try:
            await self._places.disk.run(lane, plan.sync, self._places.disk)
        except OSError as error:
            if not log.is_offline:
                self._places.failed(log.directory, error)
            return not is_transient(error)
        self.sync_times.observe(now() - started)
        log.finish_flush(plan)
        return True

    async def work(self, now_ms: int) -> int | None:
        """Do what is due: sync rolled segments, remove what was deleted. When to come again, in ms; None for not before
        `DirectoryEvents.work_is_due`.
        """
        for log in self._places.pending.take_flushes():
            if log.has_queued:
                await self._places.writer_of(log.directory).drained()
            if not await self.flush(log, log.active_base_offset):
                self._places.pending.flush_again(log)
        for path in self._places.pending.take_unsynced_ids():
            try:
                await self._places.disk.run(self._places.lane(path), self._places.pending.sync_id, path)
            except FileNotFoundError:
                continue  # deleted meanwhile
            except OSError as error:
                self._places.failed(path, error)
                if is_transient(error):
                    self._places.pending.sync_id_again(path)
        removed, left = False, []
        while (paths := self._places.pending.due(now_ms)) is not None:
            left += await self._places.disk.run(self._places.lane(paths[0]), self._places.pending.remove, paths)
            removed = True
        self._places.pending.remove_again(left)
        if removed:
            await self._places.sync_all_ends()
        return self._places.pending.next_ms
