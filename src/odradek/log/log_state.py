"""What the parts of one log share: where it begins and ends, and whether its directory can still be used."""

from __future__ import annotations

import errno

from odradek.log.disk_errors import is_transient
from odradek.log.environment import LogOwner
from odradek.log.writing.written_waiters import WrittenWaiters
from odradek.wire.errors import ErrorCode, KafkaError


class LogState:
    """Offsets and failure of one log. Only the log and its parts change it."""

    __slots__ = (
        "_owner",
        "directory",
        "end_offset",
        "failure",
        "log_start_offset",
        "name",
        "next_offset",
        "truncations",
        "waiters",
    )

    def __init__(self, name: str, directory: str, owner: LogOwner, log_start_offset: int, end_offset: int) -> None:
        self.name = name
        """`TOPIC-PARTITION`, for messages."""
        self.directory = directory
        """Path of the log's directory."""
        self.log_start_offset = log_start_offset
        """The first offset that readers may ask for."""
        self.end_offset = end_offset
        """The end of the written batches: everything below it can be read."""
        self.next_offset = end_offset
        """The base offset of the next batch: above `end_offset` by the batches in the write queue."""
        self.truncations = 0
        """The number of truncations since the log was opened."""
        self.failure: str | None = None
        """Why the log is offline; None while it is online."""
        self.waiters = WrittenWaiters()
        """Callbacks that wait until `end_offset` passes an offset, or the log fails."""
        self._owner = owner

    def check_online(self) -> None:
        """Raise KafkaError KAFKA_STORAGE_ERROR if the log is offline."""
        if self.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure)

    def fail(self, reason: str) -> None:
        """Take the log offline: every later call raises KAFKA_STORAGE_ERROR with the first reason."""
        if self.failure is None:
            self.failure = reason
            self.waiters.release_all()

    def storage_error(self, error: OSError, *, after_write: bool = False) -> KafkaError:
        """Return what to raise for a failure of the disk, and take the log offline unless the failure is transient.

        After a write, or a part of a truncation (`after_write`), the files differ from what the log has in memory, so
        even a transient failure takes the log directory offline.
        """
        if is_transient(error):
            if not after_write:
                return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory}: {error}")
            # The owner ignores transient errors. The cause is transient, but the log's files stay incomplete.
            error = OSError(errno.EIO, f"a change of the files stopped halfway: {error}")
        reason = f"{self.directory} is offline: {error}"
        self.fail(reason)
        self._owner.disk_failed(self.directory, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self.failure or reason)

    def move_log_start(self, offset: int) -> None:
        """Let the log start at the offset; the owner rewrites its checkpoint if that is lower. Raises OSError."""
        old, self.log_start_offset = self.log_start_offset, offset
        if offset < old:
            self._owner.log_start_lowered(self.directory)
