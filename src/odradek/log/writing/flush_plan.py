"""What has to be synced to make a log durable, as a plan that another thread may execute."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from odradek.ports.disk import Disk, File
from odradek.records.topic_partition import PartitionKey


class FlushPlan(NamedTuple):
    """Makes everything below the offset durable once it is synced; see LogDurability.plan_flush and finish_flush."""

    offset: int
    files: list[File]
    directories: list[str]
    """Directories whose names have to be durable, too."""
    generation: int
    """The number of truncations before it: one in between makes it void."""

    def sync(self, disk: Disk) -> None:
        """Do it. Touches nothing but the files, so any thread may. Raises OSError."""
        for file in self.files:
            file.sync()
        for directory in self.directories:
            disk.sync_directory(directory)


class RolledLog(Protocol):
    """A log whose closed segments wait to be synced."""

    @property
    def directory(self) -> str:
        """Path of the log's directory."""
        ...

    @property
    def has_queued(self) -> bool:
        """Whether appended batches are still on their way to the file."""
        ...

    @property
    def active_base_offset(self) -> int:
        """The first offset of the active segment."""
        ...

    @property
    def is_offline(self) -> bool:
        """Whether its log directory is out of use."""
        ...

    def flush(self, offset: int | None = None, *, snapshot: bool = True) -> None:
        """Make all below the offset durable, in this thread. Raises KafkaError KAFKA_STORAGE_ERROR."""
        ...

    def plan_flush(
        self, offset: int | None = None, *, snapshot: bool = True, most_segments: int = 0
    ) -> FlushPlan | None:
        """Write out what is in memory and name the files to sync. Raises KafkaError KAFKA_STORAGE_ERROR."""
        ...

    def encode_snapshot(self) -> bool:
        """Do a piece of the work that the next plan would have to do at once; whether there is more."""
        ...

    def finish_flush(self, plan: FlushPlan) -> None:
        """Move the recovery point: the plan is synced."""
        ...


class FlushSchedule:
    """Since when each log has had something that is not synced, for `flush.ms`."""

    __slots__ = ("_dirty_since",)

    def __init__(self) -> None:
        self._dirty_since: dict[PartitionKey, int] = {}

    def is_due(self, key: PartitionKey, *, is_dirty: bool, flush_ms: int, now_ms: int) -> bool:
        """To be asked regularly: a log counts as dirty from the first time that it is found so."""
        if not is_dirty:
            self._dirty_since.pop(key, None)
            return False
        return now_ms - self._dirty_since.setdefault(key, now_ms) >= flush_ms
