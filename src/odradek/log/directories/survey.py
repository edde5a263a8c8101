"""Whether retention or compaction may have work in logs that are not open, from the names and sizes of their files.

Runs in a thread and opens no file. It may report needless work, since it does not know the timestamps; never
the reverse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.log.config import LogConfig
from odradek.log.segments.files import LOG, TIME_INDEX, base_offset_of
from odradek.log.segments.indexes import TIME_ENTRY
from odradek.ports.disk import Disk
from odradek.records.topic_partition import PartitionKey


class Survey(NamedTuple):
    """A log to look at; `cleaned_to` is where its last compaction ended, None if there was none."""

    topic: str
    partition: int
    path: str
    config: LogConfig
    cleaned_to: int | None


class _File(NamedTuple):
    base_offset: int
    size: int
    path: str


def survey(disk: Disk, logs: Iterable[Survey], now_ms: int) -> list[PartitionKey]:
    """(topic, partition) of those that have to be opened."""
    found = []
    for log in logs:
        try:
            files = _segments(disk, log.path)
            if files and (_is_deletable(disk, files, log.config, now_ms) or _is_dirty(files, log)):
                found.append((log.topic, log.partition))
        except OSError:
            # Deleted or moved meanwhile; a broken disk is found out by who uses it.
            continue
    return found


def _segments(disk: Disk, path: str) -> list[_File]:
    files = []
    for name in disk.list(path):
        base = base_offset_of(name)
        if base is not None and name.endswith(LOG):
            full = f"{path}/{name}"
            files.append(_File(base, disk.size(full), full))
    return sorted(files)


def _is_deletable(disk: Disk, files: list[_File], config: LogConfig, now_ms: int) -> bool:
    total = sum(file.size for file in files)
    if not config.delete or not total:
        return False
    if 0 <= config.retention_bytes <= total - files[0].size:
        return True
    return config.retention_ms >= 0 and now_ms - _age(disk, files[0]) > config.retention_ms


def _age(disk: Disk, file: _File) -> int:
    """The time index's last timestamp, or when the file was written: whichever is older."""
    modified_ms = disk.modified_ms(file.path)
    try:
        index = disk.read_file(file.path.removesuffix(LOG) + TIME_INDEX)
    except FileNotFoundError:
        return modified_ms
    if len(index) < TIME_ENTRY.size:
        return modified_ms
    timestamp: int = TIME_ENTRY.unpack_from(index, (len(index) // TIME_ENTRY.size - 1) * TIME_ENTRY.size)[0]
    return min(modified_ms, timestamp)


def _is_dirty(files: list[_File], log: Survey) -> bool:
    if not log.config.compact or len(files) < 2:
        return False
    return log.cleaned_to is None or log.cleaned_to < files[-1].base_offset
