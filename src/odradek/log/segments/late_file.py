"""A file that its first use makes, in whichever thread that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek.ports.disk import Bytes, Disk, File


class LateFile:
    """The `.log` file of a new segment while the disk does not keep up: `make` creates it with what belongs to it.

    The first use is the write of a queued batch, in the thread of the write queue, so that the event loop does not wait
    for the file system. It may fail, and then the next use makes the file.
    """

    __slots__ = ("_file", "_make", "path")

    def __init__(self, path: str, make: Callable[[], File]) -> None:
        """`make` creates and opens the file. Raises OSError."""
        self.path = path
        self._make = make
        self._file: File | None = None

    @property
    def is_made(self) -> bool:
        """Whether the file was used already."""
        return self._file is not None

    def made(self) -> File:
        """Return the file itself, which exists. Raises OSError."""
        if self._file is None:
            self._file = self._make()
        return self._file

    def fileno(self) -> int:
        """Implements File."""
        return self.made().fileno()

    def size(self) -> int:
        """Implements File."""
        return self.made().size()

    def append(self, parts: Sequence[Bytes]) -> int:
        """Implements File."""
        return self.made().append(parts)

    def write_at(self, position: int, data: Bytes) -> None:
        """Implements File."""
        self.made().write_at(position, data)

    def read(self, position: int, size: int) -> bytes:
        """Implements File."""
        return self.made().read(position, size)

    def is_cached(self, position: int, size: int) -> bool:
        """Implements File."""
        return self.made().is_cached(position, size)

    def truncate(self, size: int) -> None:
        """Implements File."""
        self.made().truncate(size)

    def sync(self) -> None:
        """Implements File."""
        self.made().sync()

    def close(self) -> None:
        """Implements File."""
        if self._file is not None:
            self._file.close()


class NewSnapshot(NamedTuple):
    """A snapshot of the producers that is to be written."""

    path: str
    producers: bytes
    replaced: str
    """Path of an older one that is removed then; "" for none."""

    def write(self, disk: Disk) -> None:
        """Do it. Raises OSError."""
        disk.write_atomic(self.path, self.producers, sync=False)
        if self.replaced:
            disk.remove(self.replaced)


def make_segment(disk: Disk, log: str, indexes: Sequence[str], snapshot: NewSnapshot | None) -> File:
    """Create the empty files of a segment, and the snapshot of the producers as of its beginning; the `.log` file.

    Any thread may. What exists keeps its content: an index may have entries already. Raises OSError.
    """
    for path in indexes:
        disk.open(path, create=True)
    if snapshot is not None:
        snapshot.write(disk)
    return disk.open(log, create=True)
