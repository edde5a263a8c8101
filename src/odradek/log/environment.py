"""What every log of a broker shares: ports, open files, and the owner to which it reports and hands later work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from odradek.log.segments.files import FileCache
from odradek.log.writing.flush_plan import RolledLog
from odradek.log.writing.write_queue import DirectWrites, Writer
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random


class LogOwner(Protocol):
    """What a log reports failures to and hands later work to. Paths are those of files or directories of the log."""

    def writer_of(self, directory: str, /) -> Writer:
        """Return the writer through which the log in that directory appends."""
        ...

    def delete_later(self, paths: Sequence[str], delay_ms: int, /) -> None:
        """Remove these renamed files after the delay."""
        ...

    def segment_closed(self, log: RolledLog, end_offset: int, /) -> None:
        """Sync the segment that ends before the offset soon: the log rolled, and appends no more batches to it.

        Its last batches may still be in the write queue.
        """
        ...

    def disk_failed(self, path: str, error: OSError, /) -> None:
        """Take the log directory that holds the path out of use, unless the error is transient."""
        ...

    def recovery_point_lowered(self, directory: str, /) -> None:
        """Rewrite the checkpoint: a truncation went below the recovery point that it states. Raises OSError."""
        ...

    def log_start_lowered(self, directory: str, /) -> None:
        """Rewrite the checkpoint: a truncation went below the log start that it states, and a crash would otherwise
        treat new records as deleted. Raises OSError.
        """
        ...

    def repaired(self, text: str, /) -> None:
        """Report a repair of the log in words."""
        ...


class StandaloneOwner:
    """Does later work at once: for a log outside of `log.dirs`, as in recovery, moves between directories and tools."""

    __slots__ = ("_disk", "_report")

    def __init__(self, disk: Disk, report: Callable[[str], None] | None = None) -> None:
        self._disk = disk
        self._report = report

    def writer_of(self, _directory: str) -> Writer:
        """See `LogOwner`."""
        return DirectWrites(self._disk)

    def delete_later(self, paths: Sequence[str], _delay_ms: int) -> None:
        """See `LogOwner`."""
        for path in paths:
            self._disk.remove(path)

    def segment_closed(self, log: RolledLog, end_offset: int) -> None:
        """See `LogOwner`."""
        log.flush(end_offset)

    def disk_failed(self, _path: str, _error: OSError) -> None:
        """See `LogOwner`: the log itself raises KAFKA_STORAGE_ERROR from then on, which is all there is to do."""

    def recovery_point_lowered(self, _directory: str) -> None:
        """See `LogOwner`: there is no checkpoint."""

    def log_start_lowered(self, _directory: str) -> None:
        """See `LogOwner`: there is no checkpoint."""

    def repaired(self, text: str) -> None:
        """See `LogOwner`."""
        if self._report is not None:
            self._report(text)


class LogEnvironment:
    """Ports, the cache of open files, and the owner of the logs."""

    __slots__ = ("clock", "disk", "files", "owner", "random")

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        random: Random | None = None,
        open_files: int = 1024,
        *,
        owner: LogOwner | None = None,
    ) -> None:
        """Without an owner a StandaloneOwner of that disk serves the logs."""
        self.disk = disk
        self.clock = clock
        self.random = random
        self.files = FileCache(disk, open_files)
        self.owner: LogOwner = StandaloneOwner(disk) if owner is None else owner
