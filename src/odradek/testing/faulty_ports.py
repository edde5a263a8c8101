"""A disk that fails and a clock that is wrong, on command: the ports of a broker under test."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar

from odradek.ports.clock import Clock
from odradek.ports.disk import Bytes, DirectoryLock, Disk, DiskError, File

P = ParamSpec("P")
T = TypeVar("T")

WRITES: Final = frozenset(("create", "write", "sync"))
READS: Final = frozenset(("read",))


class DiskFaults:
    """The faults from now on: one object for all files of a broker."""

    __slots__ = ("directory", "error", "operations", "sync_seconds")

    def __init__(self) -> None:
        self.error = 0
        """The `errno` of each operation in `operations`; 0 for none."""
        self.operations: frozenset[str] = frozenset()
        """Some of "create", "write", "sync", "read"."""
        self.directory = ""
        """Only paths that begin with it fail."""
        self.sync_seconds = 0.0
        """How much longer each sync takes."""

    def check(self, operation: str, path: str) -> None:
        """Raise DiskError if the operation fails on the path."""
        if self.error and operation in self.operations and path.startswith(self.directory):
            raise DiskError(self.error, os.strerror(self.error), path)


class FaultyFile:
    """A file of a FaultyDisk."""

    __slots__ = ("_faults", "_file", "path")

    def __init__(self, file: File, path: str, faults: DiskFaults) -> None:
        self._file = file
        self.path = path
        self._faults = faults

    def fileno(self) -> int:
        """The file descriptor."""
        return self._file.fileno()

    def size(self) -> int:
        """Bytes in the file."""
        return self._file.size()

    def append(self, parts: Sequence[Bytes]) -> int:
        """As `File.append`. Raises DiskError."""
        self._faults.check("write", self.path)
        return self._file.append(parts)

    def write_at(self, position: int, data: Bytes) -> None:
        """As `File.write_at`. Raises DiskError."""
        self._faults.check("write", self.path)
        self._file.write_at(position, data)

    def read(self, position: int, size: int) -> bytes:
        """As `File.read`. Raises DiskError."""
        self._faults.check("read", self.path)
        return self._file.read(position, size)

    def is_cached(self, position: int, size: int) -> bool:
        """As `File.is_cached`."""
        return self._file.is_cached(position, size)

    def truncate(self, size: int) -> None:
        """As `File.truncate`. Raises DiskError."""
        self._faults.check("write", self.path)
        self._file.truncate(size)

    def sync(self) -> None:
        """As `File.sync`, after the delay. Raises DiskError."""
        if self._faults.sync_seconds:
            time.sleep(self._faults.sync_seconds)
        self._faults.check("sync", self.path)
        self._file.sync()

    def close(self) -> None:
        """Close it."""
        self._file.close()


class FaultyDisk:
    """A disk whose operations fail as `faults` says."""

    __slots__ = ("_disk", "faults")

    def __init__(self, disk: Disk, faults: DiskFaults) -> None:
        self._disk = disk
        self.faults = faults

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        """As `Disk.open`."""
        if create and not self._disk.exists(path):
            self.faults.check("create", path)
        return FaultyFile(self._disk.open(path, create=create), path, self.faults)

    def read_file(self, path: str, most: int | None = None) -> bytes:
        """As `Disk.read_file`."""
        self.faults.check("read", path)
        return self._disk.read_file(path, most)

    def write_atomic(self, path: str, data: Bytes, *, sync: bool = True) -> None:
        """As `Disk.write_atomic`."""
        self.faults.check("create", path)
        self._disk.write_atomic(path, data, sync=sync)

    def rename(self, source: str, target: str) -> None:
        """As `Disk.rename`."""
        self.faults.check("create", target)
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        """As `Disk.remove`."""
        self.faults.check("create", path)
        self._disk.remove(path)

    def remove_tree(self, path: str) -> None:
        """As `Disk.remove_tree`."""
        self.faults.check("create", path)
        self._disk.remove_tree(path)

    def make_directories(self, path: str) -> None:
        """As `Disk.make_directories`."""
        self.faults.check("create", path)
        self._disk.make_directories(path)

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        self.faults.check("read", path)
        return self._disk.list(path)

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""
        return self._disk.exists(path)

    def is_directory(self, path: str) -> bool:
        """Whether there is a directory."""
        return self._disk.is_directory(path)

    def absolute(self, path: str) -> str:
        """The path from the root."""
        return self._disk.absolute(path)

    def size(self, path: str) -> int:
        """Bytes in a file."""
        return self._disk.size(path)

    def modified_ms(self, path: str) -> int:
        """Time of the last change."""
        return self._disk.modified_ms(path)

    def sync_directory(self, path: str) -> None:
        """As `Disk.sync_directory`."""
        self.faults.check("sync", path)
        self._disk.sync_directory(path)

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(free, total) bytes."""
        return self._disk.free_bytes(path)

    def lock(self, path: str) -> DirectoryLock:
        """As `Disk.lock`."""
        return self._disk.lock(path)

    async def run(self, lane: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `Disk.run`."""
        return await self._disk.run(lane, function, *args, **kwargs)

    def wait(self, lane: str) -> None:
        """As `Disk.wait`."""
        self._disk.wait(lane)

    def keeps_up(self) -> bool:
        """As `Disk.keeps_up`; False while syncs are delayed."""
        return not self.faults.sync_seconds and self._disk.keeps_up()

    def boot_id(self) -> str:
        """As `Disk.boot_id`."""
        return self._disk.boot_id()


class ShiftedClock:
    """The wall clock, off by `shift_ms`; monotonic time is right."""

    __slots__ = ("_clock", "monotonic", "shift_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.monotonic = clock.monotonic
        self.shift_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._clock.now_ms() + self.shift_ms
