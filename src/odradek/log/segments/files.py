"""Names of a log's files, and a bounded cache of open ones (LogFileUtils).

An idle partition holds no open file: a reader asks the cache by path. A file that falls out of the cache
closes itself when the last range that points into it has been sent.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from typing import Final

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
_GIVEN_BACK: Final = 16
_MARK: Final = ""


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    """`DIRECTORY/00000000000000000000.log` and its companions."""
    return f"{directory}/{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int | None:
    """The offset that a segment's or snapshot's file name begins with; None for other files."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isdecimal() else None


class FileCache:
    """Open files by path; the least recently used one goes first."""

    __slots__ = ("_disk", "_files", "_limit")

    def __init__(self, disk: Disk, limit: int = DEFAULT_OPEN_FILES) -> None:
        self._disk = disk
        self._limit = limit
        # In the order of their last use; what stands before the mark was not used since the last sweep.
        self._files: OrderedDict[str, File | None] = OrderedDict()

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
                self._files.popitem(last=False)
            file = self._disk.open(path, create=create)
        self._files[path] = file
        if len(self._files) > self._limit:
            self._files.popitem(last=False)
        return file

    def sweep(self) -> None:
        """Close the files that were not used since the last call: idle partitions hold none open."""
        files = self._files
        if _MARK in files:
            while files.popitem(last=False)[0] != _MARK:
                pass
        files[_MARK] = None

    def forget(self, path: str) -> None:
        """Drop a file that is renamed, replaced or removed."""
        self._files.pop(path, None)

    def forget_others(self, path: str, file: File) -> None:
        """Drop what is open there, unless it is this."""
        if self._files.get(path) is not file:
            self._files.pop(path, None)

    def forget_directory(self, directory: str) -> None:
        """Drop all open files below the directory."""
        prefix = directory + "/"
        for path in [path for path in self._files if path.startswith(prefix)]:
            del self._files[path]
