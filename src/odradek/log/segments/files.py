"""Names of a log's files, and a bounded cache of open ones (LogFileUtils).

An idle partition holds no open file: a reader asks the cache by path. A file that falls out of the cache
closes itself when the last range that points into it has been sent.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from odradek.log.segments.late_file import LateFile
from odradek.ports.disk import Disk, File

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETE_DIRECTORY: Final = "-delete"
FUTURE_DIRECTORY: Final = "-future"
STRAY_DIRECTORY: Final = "-stray"

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

DEFAULT_OPEN_FILES: Final = 1024
_UNLIMITED: Final = 1 << 20
"""What Linux allows a process by default (`fs.nr_open`)."""
_GIVEN_BACK: Final = 16
_MARK: Final = ""


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """`DIRECTORY/00000000000000000000.log` and its companions."""
    return f"{directory}/{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The offset that a segment's or snapshot's file name begins with; None for other files."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdecimal() else None


def most_kept_open(allowed: int) -> int:
    """The limit of the cache of a broker whose process may have that number of files and sockets open.

    Half of them are for connections. With fewer files than partitions that are written to in turn, each append opens
    and closes one. RLIM_INFINITY, which is -1, is no number.
    """
    return max(DEFAULT_OPEN_FILES, (allowed if allowed >= 0 else _UNLIMITED) // 2)


class FileCache:
    """Open files by path; the least recently used one goes first."""

    __slots__ = ("_disk", "_files", "_folders", "_limit")

    def __init__(self, disk: Disk, limit: int = DEFAULT_OPEN_FILES) -> None:
        self._disk = disk
        self._limit = limit
        # In the order of their last use; what stands before the mark was not used since the last sweep.
        self._files: OrderedDict[str, File | None] = OrderedDict()
        # The paths of open files by directory: with tens of thousands of files a search takes long.
        self._folders: dict[str, tuple[str, ...]] = {}

    def __len__(self) -> int:
        return len(self._files) - (_MARK in self._files)

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file; FileNotFoundError unless it exists or `create` is set.

        Where the process may open no more, the longest unused are given back for it.
        """
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        try:
            file = self._disk.open(path, create=create)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._files:
                raise
            for _ in range(min(_GIVEN_BACK, len(self._files))):
                self._drop_first()
            file = self._disk.open(path, create=create)
        self.put(path, file)
        return file

    def put(self, path: str, file: File) -> None:
        """Answer `get` with this file from now on; none is open there."""
        self._files[path] = file
        folder = path.rpartition("/")[0]
        self._folders[folder] = (*self._folders.get(folder, ()), path)
        if len(self._files) > self._limit:
            self._drop_first()

    def _drop_first(self) -> str:
        """Drop the longest unused file, or the mark; its path. One that is still to be made stays."""
        path, file = self._files.popitem(last=False)
        if isinstance(file, LateFile) and not file.is_made:
            self._files[path] = file
        else:
            self._unlist(path)
        return path

    def _unlist(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        rest = tuple(each for each in self._folders.get(folder, ()) if each != path)
        if rest:
            self._folders[folder] = rest
        else:
            self._folders.pop(folder, None)

    def sweep(self) -> Iterator[str]:
        """Close the files that were not used since the last sweep, one after the other; their paths.

        Idle partitions hold none open in this way.
        """
        files = self._files
        # Files that are opened between two of them may push out the mark, too.
        while _MARK in files and (path := self._drop_first()) != _MARK:
            yield path
        files[_MARK] = None

    def forget(self, path: str) -> None:
        """Drop a file that is renamed, replaced or removed."""
        if self._files.pop(path, None) is not None:
            self._unlist(path)

    def forget_others(self, path: str, file: File) -> None:
        """Drop what is open there, unless it is this, which exists now."""
        if self._files.get(path) is not file:
            self.forget(path)
        else:
            self.make(path)

    def make(self, path: str) -> None:
        """Make the file that is open there, if its first use has not. Raises OSError."""
        file = self._files.get(path)
        if isinstance(file, LateFile):
            self._files[path] = file.made()

    def has_late(self, directory: str) -> bool:
        """Whether the first use of a file in the directory is still to make it."""
        files = (self._files[path] for path in self._folders.get(directory, ()))
        return any(isinstance(file, LateFile) and not file.is_made for file in files)

    def forget_directory(self, directory: str) -> None:
        """Drop all open files of the directory."""
        for path in self._folders.pop(directory, ()):
            del self._files[path]
