"""What logs leave for later: files to remove when their delay is over, rolled segments and new names to sync."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Final

from odradek.log.directories.events import DirectoryEvents
from odradek.log.disk_errors import is_transient
from odradek.log.segments.files import DELETE_DIRECTORY, PARTITION_METADATA
from odradek.log.writing.flush_plan import RolledLog
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk

_AGAIN_MS: Final = 1000
"""After want of descriptors."""


class PendingWork:
    """Reports to the events when something became due."""

    __slots__ = (
        "_again_ms",
        "_clock",
        "_deletions",
        "_disk",
        "_events",
        "_sequence",
        "_to_flush",
        "_unsynced_ids",
    )

    def __init__(self, disk: Disk, clock: Clock, events: DirectoryEvents) -> None:
        self._disk = disk
        self._clock = clock
        self._deletions: list[tuple[int, int, tuple[str, ...]]] = []
        self._sequence = 0
        self._to_flush: dict[int, RolledLog] = {}
        self._unsynced_ids: list[str] = []
        self._again_ms: int | None = None
        self._events = events

    def delete_later(self, paths: Sequence[str], delay_ms: int) -> None:
        """Remove the files, or the directories that end with `-delete`, after the delay."""
        if not paths:
            return
        self._sequence += 1
        heapq.heappush(self._deletions, (self._clock.now_ms() + delay_ms, self._sequence, tuple(paths)))
        self._events.work_is_due()

    def flush_later(self, log: RolledLog) -> None:
        """Sync what lies before the log's active segment."""
        self._to_flush[id(log)] = log
        self._events.work_is_due()

    def flush_again(self, log: RolledLog) -> None:
        """As `flush_later`, but in a while: it has just failed."""
        self._to_flush[id(log)] = log
        self._again_ms = self._clock.now_ms() + _AGAIN_MS

    def forget(self, log: RolledLog) -> None:
        """Drop the flush of a log that is deleted or replaced."""
        self._to_flush.pop(id(log), None)

    def take_flushes(self) -> list[RolledLog]:
        """The logs that are to be synced; they do not come again."""
        self._again_ms = None
        due, self._to_flush = self._to_flush, {}
        return list(due.values())

    def sync_id_later(self, path: str) -> None:
        """Sync which topic the new directory of a partition is of."""
        self._unsynced_ids.append(path)
        self._events.work_is_due()

    def sync_id_again(self, path: str) -> None:
        """As `sync_id_later`, but in a while: it has just failed."""
        self._unsynced_ids.append(path)
        self._again_ms = self._clock.now_ms() + _AGAIN_MS

    def take_unsynced_ids(self) -> list[str]:
        """Return the directories whose topic id is to be synced, and clear the list."""
        due, self._unsynced_ids = self._unsynced_ids, []
        return due

    def sync_id(self, path: str) -> None:
        """Sync the directory's identity, in any thread. Raises OSError."""
        file = self._disk.open(f"{path}/{PARTITION_METADATA}")
        try:
            file.sync()
        finally:
            file.close()
        self._disk.sync_directory(path)

    def due(self, now_ms: int) -> tuple[str, ...] | None:
        """The next paths whose delay is over."""
        if self._deletions and self._deletions[0][0] <= now_ms:
            return heapq.heappop(self._deletions)[2]
        return None

    @property
    def next_ms(self) -> int | None:
        """When the next deletion is due, or what has failed comes again; None without any."""
        deletion_ms = self._deletions[0][0] if self._deletions else None
        if deletion_ms is None or self._again_ms is None:
            return self._again_ms if deletion_ms is None else deletion_ms
        return min(deletion_ms, self._again_ms)

    def remove(self, paths: tuple[str, ...]) -> list[str]:
        """Remove them, in any thread; failures are reported. Answers those for which there was no descriptor."""
        left = []
        for path in paths:
            try:
                if path.endswith(DELETE_DIRECTORY):
                    self._disk.remove_tree(path)
                else:
                    self._disk.remove(path)
            except OSError as error:
                if is_transient(error):
                    left.append(path)
                else:
                    self._events.report(f"could not remove {path}: {error}; it stays on the disk until a restart")
        return left

    def remove_again(self, paths: Sequence[str]) -> None:
        """As `delete_later`, but in a while: it has just failed."""
        if paths:
            self.delete_later(paths, _AGAIN_MS)
