"""How processes of one machine see each other live and die, and wake each other: lease files and named pipes.

A process keeps a lease file locked (the kernel lets go of the lock when it dies) and two named pipes beside it:
`PATH.life`, whose only writer it is, so that those who read it see the end of the file when it dies, at once and
without asking; and `PATH.wake`, into which others write a byte when it shall look for news. In the lease file stands
the monotonic time of its last renewal, for processes that are not dead but stopped or stuck.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Callable

_STAMP = struct.Struct("!d")
_WAKE_BYTES = 4096
_SUFFIXES = ("", ".life", ".wake")


def remove_lease(path: str) -> None:
    """The files of a lease; missing ones are no error."""
    for suffix in _SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + suffix)


def is_abandoned(path: str) -> bool:
    """Whether the lease is free: its process is dead, or the lease was never taken."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True


def renewed_at(path: str) -> float | None:
    """Seconds of the monotonic clock of the last renewal; None when there is no such lease."""
    try:
        with open(path, "rb") as file:
            return float(_STAMP.unpack(file.read(_STAMP.size))[0])
    except (FileNotFoundError, struct.error):
        return None


class Lease:
    """This process's own sign of life. Raises OSError without one (BlockingIOError: another process has it)."""

    __slots__ = ("_life", "_lock", "_loop", "_path", "_wake")

    def __init__(self, path: str, now: float) -> None:
        self._path = path
        self._loop: asyncio.AbstractEventLoop | None = None
        self._life = self._wake = -1
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.renew(now)
            self._life = self._pipe(path + ".life")
            self._wake = self._pipe(path + ".wake")
        except BaseException:
            self.abandon()
            raise

    @staticmethod
    def _pipe(path: str) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        # Both ends: a pipe that is only read would be at its end whenever it has no writer.
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)

    def renew(self, now: float) -> None:
        """Write the time into the lease, so that other processes see that this one is not suspended."""
        os.pwrite(self._lock, _STAMP.pack(now), 0)

    def listen(self, loop: asyncio.AbstractEventLoop, woken: Callable[[], None]) -> None:
        """Call back on the loop after others woke this process."""

        def readable() -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, _WAKE_BYTES)
            woken()

        self._loop = loop
        loop.add_reader(self._wake, readable)

    def abandon(self) -> None:
        """What the kernel does when the process dies."""
        if self._loop is not None:
            self._loop.remove_reader(self._wake)
            self._loop = None
        for fd in (self._lock, self._life, self._wake):
            if fd >= 0:
                os.close(fd)
        self._lock = self._life = self._wake = -1

    def end(self) -> None:
        """Remove the lease: the process ends its session by itself."""
        remove_lease(self._path)
        self.abandon()


class Peer:
    """Another process's sign of life, as seen from here. Raises ProcessLookupError when it is dead already."""

    __slots__ = ("_life", "_loop", "_path", "_wake", "since", "stamp")

    def __init__(self, path: str, now: float) -> None:
        self._path = path
        self._loop: asyncio.AbstractEventLoop | None = None
        self._life = self._wake = -1
        self.stamp = renewed_at(path)
        self.since = now
        """When this very stamp was first seen here."""
        try:
            self._life = os.open(path + ".life", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            # Without a reader this fails with ENXIO.
            self._wake = os.open(path + ".wake", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if self._has_ended():
                raise ProcessLookupError(path)
        except OSError as error:
            self.close()
            if error.errno in (errno.ENOENT, errno.ENXIO):
                raise ProcessLookupError(path) from error
            raise

    def _has_ended(self) -> bool:
        try:
            return os.read(self._life, 1) == b""
        except BlockingIOError:
            return False

    def watch(self, loop: asyncio.AbstractEventLoop, died: Callable[[], None]) -> None:
        """Call back on the loop once when the process dies or ends its lease."""

        def readable() -> None:
            self.unwatch()
            died()

        self._loop = loop
        loop.add_reader(self._life, readable)

    def unwatch(self) -> None:
        """Call back no longer."""
        if self._loop is not None:
            self._loop.remove_reader(self._life)
            self._loop = None

    def wake(self) -> None:
        """Wake the other process: there is news in the store."""
        # A full pipe wakes, too, and one without a reader needs no waking.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._wake, b"\0")

    def look(self, now: float) -> None:
        """See whether the lease was renewed. Who has no file descriptor left to look with has seen no silence."""
        try:
            stamp = renewed_at(self._path)
        except OSError:
            self.since = now
            return
        if stamp != self.stamp:
            self.stamp, self.since = stamp, now

    def close(self) -> None:
        """Give up the descriptors."""
        self.unwatch()
        for fd in (self._life, self._wake):
            if fd >= 0:
                os.close(fd)
        self._life = self._wake = -1
