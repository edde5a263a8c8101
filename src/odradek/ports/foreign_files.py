"""Data of another program that does not run: held against its start, linked and copied, never written.

Apache Kafka locks `.lock` with `fcntl` (Java's FileChannel), Odradek with `flock`; on Linux these do not see each
other, so both kinds are taken.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import Final, Self

_FLOCK: Final = "hhqqi4x"
"""`struct flock` of 64-bit Linux: type, whence, start, length (0: to the end), process (0 for locks of open files)."""
_BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""
_COPY_BYTES: Final = 1 << 20
_HELD: Final = frozenset({errno.EACCES, errno.EAGAIN})


def lock_open_file(fd: int, *, shared: bool = False) -> None:
    """Take both kinds of lock on an open file. Raises BlockingIOError when another process holds one.

    The second kind belongs to the open file and not to the process (`F_OFD_SETLK`), so that closing another descriptor
    of the file does not give it up. Platforms without it take the first kind only.
    """
    fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    command: int | None = getattr(fcntl, "F_OFD_SETLK", None)
    if command is None:
        return
    kind = fcntl.F_RDLCK if shared else fcntl.F_WRLCK
    try:
        fcntl.fcntl(fd, command, struct.pack(_FLOCK, kind, os.SEEK_SET, 0, 0, 0))
    except OSError as error:
        if error.errno in _HELD:
            raise BlockingIOError(error.errno, error.strerror) from error
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOLCK):
            raise


class HeldFolder:
    """Keeps other programs from starting on a folder until `release`; made by `hold` and `Disk.lock`."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Give the folder back."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def hold(path: str) -> HeldFolder | None:
    """Hold the folder by its lock file, which is opened for reading only; None when there is no such file.

    Raises BlockingIOError when a program uses the folder, OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        lock_open_file(fd, shared=True)
    except OSError:
        os.close(fd)
        raise
    return HeldFolder(fd)


class ForeignFile:
    """A file of another program, open for reading only. `close` it, or use it in a `with`."""

    __slots__ = ("_fd", "size")

    def __init__(self, path: str) -> None:
        """Open the file. Raises OSError."""
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._fd).st_size
        """Bytes in the file when it was opened."""

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file. Raises OSError."""
        return os.pread(self._fd, size, position)

    def close(self) -> None:
        """Close the file; further calls have no effect."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def real_path(path: str) -> str:
    """The path from the root, without symbolic links; what does not exist stays as it is."""
    return os.path.realpath(path)


def are_on_one_disk(source: str, target: str) -> bool:
    """Whether both directories are on one file system, within which files may have two names. Raises OSError."""
    return os.stat(source).st_dev == os.stat(target).st_dev


def link(source: str, target: str) -> bool:
    """Give the file a second name; False where the file system cannot, as between two of them. Raises OSError."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            return False
        raise
    return True


def occupied_bytes(path: str) -> int:
    """Bytes of the file without its holes, as far as the file system knows. Raises OSError."""
    found = os.stat(path)
    return min(found.st_size, found.st_blocks * _BLOCK_BYTES)


def copy(source: str, target: str) -> None:
    """Copy content and times, and sync the copy, which only its owner can read. Long runs of zeros become holes.

    Raises OSError; FileExistsError when the target exists.
    """
    made_by_us = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(source, "rb") as original, open(os.open(target, made_by_us, 0o600), "wb") as made:
        size = 0
        while chunk := original.read(_COPY_BYTES):
            size += len(chunk)
            if chunk.count(0) == len(chunk):
                made.seek(size)
            else:
                made.write(chunk)
        made.truncate(size)
        made.flush()
        found = os.fstat(original.fileno())
        os.utime(made.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
        os.fsync(made.fileno())
