"""Files and directories, as handed to the log and everything else that keeps data.

Calls are synchronous: most touch only the page cache. What may take long (fsync, large writes, recovery, warming of
cold ranges) is sent to `Disk.run`, which executes calls of one lane one after the other in a thread of that lane.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, ParamSpec, Protocol, TypeVar

from odradek.ports.foreign_files import HeldFolder, lock_open_file

P = ParamSpec("P")
T = TypeVar("T")
Bytes = bytes | bytearray | memoryview


class DiskError(OSError):
    """A file operation failed; the path is in `filename`."""


class File(Protocol):
    """An open file. It closes itself when the last reference goes, so a range that waits to be sent keeps it open."""

    path: str

    def fileno(self) -> int:
        """The descriptor for sendfile; a simulated file has none and raises OSError."""
        ...

    def size(self) -> int:
        """Bytes in the file."""
        ...

    def append(self, parts: Sequence[Bytes]) -> int:
        """Write all parts at the end and answer the position of the first byte.

        A write that fails half way (disk full) is cut off again before DiskError is raised.
        """
        ...

    def write_at(self, position: int, data: Bytes) -> None:
        """Write over the bytes from that position on."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to size bytes; fewer only at the end of the file."""
        ...

    def is_cached(self, position: int, size: int) -> bool:
        """Whether reading the range would not wait for the device; True where the platform does not report it."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to that size."""
        ...

    def sync(self) -> None:
        """Make the written bytes durable (fdatasync)."""
        ...

    def close(self) -> None:
        """Close the descriptor now."""
        ...


class FileRange(NamedTuple):
    """Bytes that lie in a file and leave through sendfile without entering the process."""

    file: File
    position: int
    size: int


class DirectoryLock(Protocol):
    """A lock file that is held."""

    def release(self) -> None:
        """Give up the lock."""
        ...


class Disk(Protocol):
    """A file system. Paths are strings; errors are DiskError (an OSError with errno and filename)."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or create is set.

        With create, a symbolic link is an error (ELOOP).
        """
        ...

    def read_file(self, path: str, most: int | None = None) -> bytes:
        """The content, or its first `most` bytes; also of a file that this process may not write."""
        ...

    def write_atomic(self, path: str, data: Bytes, *, sync: bool = True) -> None:
        """Replace the file as a whole: temporary file, fsync, rename, fsync of the directory."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory; an existing target file is replaced."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing one is not an error."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and all below it."""
        ...

    def make_directories(self, path: str) -> None:
        """Create a directory and its missing parents."""
        ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        ...

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""
        ...

    def absolute(self, path: str) -> str:
        """The path from the root."""
        ...

    def size(self, path: str) -> int:
        """Bytes in a file."""
        ...

    def modified_ms(self, path: str) -> int:
        """Time of the last change, in milliseconds since the epoch."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make names in the directory durable (fsync)."""
        ...

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(free, total) bytes of the file system that holds the path."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Take an exclusive lock file; BlockingIOError when another process, also one of Apache Kafka, holds it."""
        ...

    async def run(self, lane: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call that may block, after the earlier ones of its lane (a log directory)."""
        ...

    def wait(self, lane: str) -> None:
        """Block until all calls of the lane have been executed; their awaiting tasks resume later."""
        ...

    def keeps_up(self) -> bool:
        """Whether writers do not have to wait for devices. True where the platform does not report it."""
        ...

    def boot_id(self) -> str:
        """Another one after each start of the machine, which loses what was not synced; "" where that is not known."""
        ...


def _raise(error: OSError, path: str) -> DiskError:
    return DiskError(error.errno, error.strerror, path)


OWNER_ONLY = 0o600
"""Mode of the files that this program creates: records, credentials and identities are for its own user."""
_GROUP_FILE = 0o640
_OWNER_DIRECTORY = 0o700
_GROUP_DIRECTORY = 0o750
_IOV_MAX = 1024
_COPY_BYTES = 1024 * 1024
_PIECE_BYTES = 1024 * 1024
"""A larger write makes the kernel take pages of the cache in blocks of 2 MB, which a virtual machine may have to get
back from its host: a write of 10 MB then costs seven times as much as ten of 1 MB."""


def _open_new(path: str, mode: int) -> int:
    """Create the file of a name that others can predict; what lies there is removed, a link never followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, mode)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, mode)


class SystemFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "_mode", "_size", "path")

    def __init__(self, path: str, fd: int, mode: int = OWNER_ONLY) -> None:
        self.path = path
        self._fd = fd
        self._mode = mode
        self._size = os.fstat(fd).st_size

    def fileno(self) -> int:
        """Implements File."""
        return self._fd

    def size(self) -> int:
        """Implements File."""
        return self._size

    def append(self, parts: Sequence[Bytes]) -> int:
        """Implements File."""
        start = self._size
        count = len(parts)
        total = len(parts[0]) if count == 1 else sum(map(len, parts))
        try:
            if count == 1:
                written = os.pwrite(self._fd, parts[0], start)
            else:
                written = os.pwritev(self._fd, parts, start) if count <= _IOV_MAX else 0
            if written != total:
                self._append_rest(b"".join(parts), start, written)
        except OSError as error:
            # A torn batch at the end would be mistaken for a crash at the next start: cut it off while we know where it
            # began.
            os.ftruncate(self._fd, start)
            raise _raise(error, self.path) from error
        self._size = start + total
        return start

    def _append_rest(self, data: bytes, start: int, written: int) -> None:
        view = memoryview(data)
        while written < len(data):
            written += os.pwrite(self._fd, view[written:], start + written)

    def write_at(self, position: int, data: Bytes) -> None:
        """Implements File."""
        view = memoryview(data)
        done = 0
        try:
            while done < len(view):
                done += os.pwrite(self._fd, view[done : done + _PIECE_BYTES], position + done)
        except OSError as error:
            raise _raise(error, self.path) from error
        self._size = max(self._size, position + done)

    def read(self, position: int, size: int) -> bytes:
        """Implements File."""
        try:
            data = os.pread(self._fd, size, position)
            while len(data) < size:
                more = os.pread(self._fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise _raise(error, self.path) from error
        return data

    def is_cached(self, position: int, size: int) -> bool:
        """Implements File."""
        if not _CAN_PROBE:
            return True
        # One byte of the first and of the last page: ranges are read in order, so the middle follows the ends.
        for at in (position, position + max(0, size - 1)):
            try:
                os.preadv(self._fd, [bytearray(1)], at, os.RWF_NOWAIT)
            except BlockingIOError:
                return False
            except OSError:
                return True
        return True

    def truncate(self, size: int) -> None:
        """Implements File."""
        try:
            # The other name of a file is that of the folder it was imported from: that one keeps what it has.
            if os.fstat(self._fd).st_nlink > 1:
                self._part_from_links(size)
            else:
                os.ftruncate(self._fd, size)
        except OSError as error:
            raise _raise(error, self.path) from error
        self._size = size

    def _part_from_links(self, size: int) -> None:
        """Replace the file, under the same descriptor, by a copy of its first `size` bytes that has one name only."""
        temporary = self.path + ".tmp"
        # First: without a descriptor for the sync of the new name nothing has changed.
        directory = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fd = _open_new(temporary, self._mode)
        except OSError:
            os.close(directory)
            raise
        try:
            at = 0
            while at < size and (chunk := os.pread(self._fd, min(_COPY_BYTES, size - at), at)):
                at += os.pwrite(fd, chunk, at)
            os.ftruncate(fd, size)
            os.fsync(fd)
            os.replace(temporary, self.path)
            os.dup2(fd, self._fd, inheritable=False)
            os.fsync(directory)
        finally:
            os.close(fd)
            os.close(directory)

    def sync(self) -> None:
        """Implements File."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise _raise(error, self.path) from error

    def close(self) -> None:
        """Implements File."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            os.close(fd)


_CAN_PROBE = hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT")


_VMSTAT = "/proc/vmstat"
_VMSTAT_BYTES = 16 * 1024


def _number(text: bytes, name: bytes) -> int:
    """The number behind a name in /proc/vmstat. ValueError without one."""
    start = text.index(name) + len(name)
    return int(text[start : text.index(b"\n", start)])


def _nothing() -> None:
    return


class SystemDisk:
    """The operating system's files. What it creates only the process's user can read, or its group as well."""

    __slots__ = ("_directory_mode", "_file_mode", "_lanes", "_vmstat")

    def __init__(self, *, group_reads: bool = False) -> None:
        self._file_mode = _GROUP_FILE if group_reads else OWNER_ONLY
        self._directory_mode = _GROUP_DIRECTORY if group_reads else _OWNER_DIRECTORY
        self._lanes: dict[str, ThreadPoolExecutor] = {}
        self._vmstat = -1

    def open(self, path: str, *, create: bool = False) -> SystemFile:
        """Implements Disk."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_NOFOLLOW if create else 0)
        return SystemFile(path, os.open(path, flags, self._file_mode), self._file_mode)

    def read_file(self, path: str, most: int | None = None) -> bytes:
        """Implements Disk."""
        with open(path, "rb") as file:
            # A buffer of `most` bytes would be made, however small the file is.
            return file.read() if most is None else file.read(min(most, os.fstat(file.fileno()).st_size))

    def write_atomic(self, path: str, data: Bytes, *, sync: bool = True) -> None:
        """Implements Disk."""
        temporary = path + ".tmp"
        try:
            with open(_open_new(temporary, self._file_mode), "wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
            if sync:
                self.sync_directory(os.path.dirname(path) or ".")
        except OSError as error:
            raise _raise(error, path) from error

    def rename(self, source: str, target: str) -> None:
        """Implements Disk."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Implements Disk."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return

    def remove_tree(self, path: str) -> None:
        """Implements Disk."""
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return

    def make_directories(self, path: str) -> None:
        """Implements Disk."""
        # os.makedirs gives its mode to the last directory only.
        try:
            os.mkdir(path, self._directory_mode)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        except FileNotFoundError:
            parent = os.path.dirname(path.rstrip("/"))
            if not parent or parent == path:
                raise
            self.make_directories(parent)
            self.make_directories(path)

    def list(self, path: str) -> list[str]:
        """Implements Disk."""
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        """Implements Disk."""
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        """Implements Disk."""
        return os.path.isdir(path)

    def absolute(self, path: str) -> str:
        """Implements Disk."""
        return os.path.abspath(path)

    def size(self, path: str) -> int:
        """Implements Disk."""
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        """Implements Disk."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def sync_directory(self, path: str) -> None:
        """Implements Disk."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Implements Disk."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def lock(self, path: str) -> HeldFolder:
        """Implements Disk."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, self._file_mode)
        try:
            lock_open_file(fd)
        except OSError:
            os.close(fd)
            raise
        return HeldFolder(fd)

    async def run(self, lane: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Implements Disk."""
        pool = self._lanes.get(lane)
        if pool is None:
            pool = self._lanes[lane] = ThreadPoolExecutor(1, thread_name_prefix="disk")
        return await asyncio.wrap_future(pool.submit(function, *args, **kwargs))

    def wait(self, lane: str) -> None:
        """Implements Disk."""
        pool = self._lanes.get(lane)
        if pool is not None:
            pool.submit(_nothing).result()

    def boot_id(self) -> str:
        """Implements Disk."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def keeps_up(self) -> bool:
        """Implements Disk."""
        # Linux makes writers wait from halfway between its two limits of dirty pages on (balance_dirty_pages).
        try:
            if self._vmstat < 0:
                self._vmstat = os.open(_VMSTAT, os.O_RDONLY | os.O_CLOEXEC)
            text = os.pread(self._vmstat, _VMSTAT_BYTES, 0)
            dirty = _number(text, b"\nnr_dirty ") + _number(text, b"\nnr_writeback ")
            limits = _number(text, b"\nnr_dirty_threshold ") + _number(text, b"\nnr_dirty_background_threshold ")
        except (OSError, ValueError):
            return True
        return dirty < limits // 2

    def close(self) -> None:
        """Wait for every lane and end its thread."""
        vmstat, self._vmstat = self._vmstat, -1
        if vmstat >= 0:
            os.close(vmstat)
        for pool in self._lanes.values():
            pool.shutdown(wait=True)
        self._lanes.clear()
