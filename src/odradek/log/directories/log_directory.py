"""One of `log.dirs`: what it holds and how it is doing (LogManager)."""

from __future__ import annotations

from typing import Final

from odradek.log.directories.checkpoint_file import CheckpointFile
from odradek.log.directories.checkpoint_formats import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
)
from odradek.ports.disk import DirectoryLock
from odradek.records.topic_partition import PartitionKey

OFFSET_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)


class LogDirectoryError(Exception):
    """A log directory cannot be used as it is configured; says which and why."""


class LogDirectory:
    """One of `log.dirs`."""

    __slots__ = (
        "after_crash",
        "beyond_recovery",
        "checkpoints",
        "cleaner_offsets",
        "directory_id",
        "known",
        "lock",
        "log_starts",
        "offline",
        "path",
        "recovery_points",
        "unrecovered",
        "was_read",
        "watermarks",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.directory_id = b""
        self.lock: DirectoryLock | None = None
        self.offline: str | None = None
        """Why it is out of use; None while it is online."""
        self.was_read = False
        """Whether it is known which partitions it holds."""
        self.unrecovered: set[PartitionKey] = set()
        """Partitions that an unclean stop left and that are not checked yet."""
        self.beyond_recovery: dict[PartitionKey, str] = {}
        """Why recovery of some of them failed, by partition."""
        self.after_crash = False
        """Whether it was not closed cleanly before this start."""
        self.known = 0
        """Partitions that it holds."""
        self.recovery_points: dict[PartitionKey, int] = {}
        self.log_starts: dict[PartitionKey, int] = {}
        self.watermarks: dict[PartitionKey, int] = {}
        self.cleaner_offsets: dict[PartitionKey, int] = {}
        """Up to where each compacted log is clean."""
        self.checkpoints: dict[str, CheckpointFile] = {}
        """The files of the four above, by name."""

    def offsets(self, name: str) -> dict[PartitionKey, int]:
        """What the checkpoint file of that name holds."""
        if name == RECOVERY_POINTS:
            return self.recovery_points
        if name == LOG_START_OFFSETS:
            return self.log_starts
        return self.watermarks if name == HIGH_WATERMARKS else self.cleaner_offsets

    def bound_watermarks(self) -> None:
        """Take no record for committed that may not be the one that was: what is not synced may be gone.

        A loss of power may bring back records that were truncated, at the offsets of committed ones.
        """
        for key, offset in self.watermarks.items():
            self.watermarks[key] = min(offset, self.recovery_points.get(key, 0))

    def is_named(self, key: PartitionKey) -> bool:
        """Whether a checkpoint on the disk names the partition, which was here when it was written."""
        return any(key in each.named for each in self.checkpoints.values())

    def forget(self, key: PartitionKey) -> None:
        """The partition left the directory."""
        self.known -= 1
        self.unrecovered.discard(key)
        self.beyond_recovery.pop(key, None)
        for name in OFFSET_CHECKPOINTS:
            self.offsets(name).pop(key, None)
