"""What every log of a broker shares: ports, open files, and where failures and later work are reported."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.log.files import FileCache
from odradek.log.producer_state import DEFAULT_EXPIRATION_MS
from odradek.log.write_queue import DirectWrites, Writer
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random

if TYPE_CHECKING:
    from odradek.log.partition_log import PartitionLog

_TRANSIENT: Final = (errno.EMFILE, errno.ENFILE, errno.EINTR)
"""Failures that say nothing about the disk: the call fails, its log directory stays in use."""


def passes(error: BaseException | None) -> bool:
    """Whether what failed will be possible later, as its log directory stays in use."""
    return isinstance(error, OSError) and error.errno in _TRANSIENT


class LogEnvironment:
    """Ports and hooks of logs. The hooks do the work at once until someone, as LogDirectories does, defers it."""

    __slots__ = (
        "clock",
        "delete_later",
        "disk",
        "failed",
        "files",
        "flush_later",
        "log_start_lowered",
        "producer_id_expiration_ms",
        "random",
        "recovered",
        "recovery_point_lowered",
        "writer_of",
    )

    def __init__(self, disk: Disk, clock: Clock, random: Random | None = None, open_files: int = 1024) -> None:
        self.disk = disk
        self.clock = clock
        self.random = random
        self.files = FileCache(disk, open_files)
        self.producer_id_expiration_ms = DEFAULT_EXPIRATION_MS
        self.delete_later: Callable[[Sequence[str], int], None] = self._delete_now
        """Remove these renamed files after so many milliseconds."""
        self.flush_later: Callable[[PartitionLog], None] = _flush_now
        """A segment was rolled: make it durable soon."""
        self.failed: Callable[[str, OSError], None] = _ignore
        """A write in the log directory failed."""
        self.recovery_point_lowered: Callable[[str], None] = _ignore_text
        """A truncation of the log in that directory went below its recovery point: the checkpoint on the disk must not
        say more than is true. Raises OSError if it does."""
        self.log_start_lowered: Callable[[str], None] = _ignore_text
        """A truncation went below the log's start: what is written from there on is no deleted record after a crash.
        Raises OSError if it would be."""
        self.recovered: Callable[[str], None] = _ignore_text
        """Something was repaired; the text says what."""
        self.writer_of: Callable[[str], Writer] = self._direct
        """What the log in that directory writes through."""

    def _direct(self, _: str) -> Writer:
        return DirectWrites(self.disk)

    def _delete_now(self, paths: Sequence[str], _: int) -> None:
        for path in paths:
            self.disk.remove(path)


def _flush_now(log: PartitionLog) -> None:
    log.flush(log.active_base_offset)


def _ignore(_: str, __: OSError) -> None:
    return


def _ignore_text(_: str) -> None:
    return
