"""One segment of a log: its `.log` file, its indexes, and the header scans that find batches in it (LogSegment)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Final, NamedTuple

from odradek.log.segments.files import (
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    FileCache,
    segment_path,
)
from odradek.log.segments.indexes import CorruptIndex, OffsetIndex, TimeIndex
from odradek.log.segments.late_file import LateFile, NewSnapshot, make_segment
from odradek.log.segments.transaction_index import TransactionIndex
from odradek.ports.disk import Disk, File
from odradek.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, verify_crc
from odradek.records.columns import EncodedColumns
from odradek.records.errors import CorruptRecords
from odradek.records.record import scan_columns
from odradek.wire.errors import ErrorCode, KafkaError

MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1
NO_TIMESTAMP: Final = -1
_CHUNK: Final = 8192
_MIN_BATCH: Final = HEADER_SIZE
_unpack = HEADER.unpack_from


class Located(NamedTuple):
    """A batch in a segment; the position is in bytes."""

    position: int
    header: BatchHeader


class Segment:
    """A run of a log in one file. Positions are bytes in it; `size` is what is valid of it."""

    __slots__ = (
        "_directory",
        "_ending",
        "_files",
        "_index_bytes",
        "_index_interval",
        "_max_timestamp",
        "_max_timestamp_offset",
        "_offsets",
        "_times",
        "base_offset",
        "bytes_since_index",
        "created_ms",
        "first_timestamp",
        "full",
        "limit",
        "path",
        "queued",
        "size",
        "transactions",
    )

    def __init__(
        self, files: FileCache, directory: str, base_offset: int, size: int, created_ms: int, ending: str = ""
    ) -> None:
        """`ending` goes after the names of all its files, as in `.cleaned`."""
        self._files = files
        self._directory = directory
        self._ending = ending
        self.base_offset = base_offset
        self.path = segment_path(directory, base_offset, LOG + ending)
        self.size = size
        self.queued = 0
        """Bytes that have their place behind `size` and are not written yet."""
        self.created_ms = created_ms
        self.first_timestamp = NO_TIMESTAMP
        """The largest timestamp of the first batch, from which the age of the segment counts."""
        self.bytes_since_index = 0
        self.full = False
        """Whether an index has reached `segment.index.bytes`."""
        self.limit: int | None = None
        """Where the next segment begins; None for the last one. Bounds the base offsets, which no CRC covers."""
        self.transactions = TransactionIndex(files, directory, base_offset, ending)
        """The aborted transactions whose markers lie in the segment."""
        self._index_interval = 4096
        self._index_bytes = 10 * 1024 * 1024
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._max_timestamp: int | None = NO_TIMESTAMP if not size else None
        self._max_timestamp_offset = base_offset

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size} bytes)"

    # --- making and unmaking ---

    def configure(self, index_interval_bytes: int, segment_index_bytes: int) -> None:
        """Set how many bytes lie between index entries, and the size limit of an index in bytes."""
        self._index_interval = index_interval_bytes
        self._index_bytes = segment_index_bytes

    def create(self) -> None:
        """Make the files of a new, empty segment; left-overs under its name are emptied."""
        for suffix in (LOG, OFFSET_INDEX, TIME_INDEX):
            file = self._files.get(self.file_path(suffix), create=True)
            if file.size():
                file.truncate(0)
            if suffix != LOG:
                self._files.forget(file.path)
        self.set_fresh_indexes()
        self.transactions.assume_empty()

    def set_fresh_indexes(self) -> None:
        """Begin with empty indexes."""
        self._offsets = OffsetIndex(self._files, self.file_path(OFFSET_INDEX), self.base_offset, fresh=True)
        self._times = TimeIndex(self._files, self.file_path(TIME_INDEX), self.base_offset, fresh=True)

    def file_path(self, suffix: str) -> str:
        """Return the path of the file with that suffix."""
        return segment_path(self._directory, self.base_offset, suffix + self._ending)

    def file_paths(self) -> list[str]:
        """Return the paths of all files that a segment may have."""
        return [self.file_path(suffix) for suffix in SEGMENT_SUFFIXES]

    def file(self) -> File:
        """Return the open log file. Raises OSError."""
        return self._files.get(self.path)

    # --- indexes ---

    def offsets(self) -> OffsetIndex:
        """The offset index, opened, or rebuilt when it is missing or broken."""
        if self._offsets is None:
            self._open_indexes()
            assert self._offsets is not None
        return self._offsets

    def times(self) -> TimeIndex:
        """The time index, opened, or rebuilt when it is missing or broken."""
        if self._times is None:
            self._open_indexes()
            assert self._times is not None
        return self._times

    @property
    def is_cold(self) -> bool:
        """Whether the next batch would find that something has to be opened."""
        return self._offsets is None or self._max_timestamp is None

    def warm(self) -> None:
        """Open what `note_batch` needs: that must not fail once the batch is written. Raises OSError."""
        self.load_max_timestamp()
        self.offsets()

    def _open_indexes(self) -> None:
        try:
            offsets = OffsetIndex(self._files, self.file_path(OFFSET_INDEX), self.base_offset)
            times = TimeIndex(self._files, self.file_path(TIME_INDEX), self.base_offset)
        except (FileNotFoundError, CorruptIndex):
            self.rebuild_indexes()
            return
        lost = (self.size and self._max_timestamp is None and not len(times)) or (
            self.size > 2 * self._index_interval and len(times) > 1 and not len(offsets)
        )
        if offsets.last_position() >= max(self.size, 1) or lost:
            # Entries past the end of the log, or not even the one that closing a segment adds: made by a crash.
            self.rebuild_indexes()
            return
        self._offsets = offsets
        self._times = times

    def reset_indexes(self) -> None:
        """Empty both index files."""
        for suffix in (OFFSET_INDEX, TIME_INDEX):
            self._files.get(self.file_path(suffix), create=True).truncate(0)
        self.set_fresh_indexes()
        self.bytes_since_index = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = self.base_offset

    def rebuild_indexes(self) -> None:
        """Rebuild both indexes from the batches' headers."""
        self.reset_indexes()
        for position, header in self.scan(0):
            self.note_batch(position, header[0] + header[6], header[8], header[1] + LOG_OVERHEAD)
        self.finish_indexes()

    def note_batch(self, position: int, last_offset: int, max_timestamp: int, size: int) -> None:
        """A batch was added at the position: keep the largest timestamp and, now and then, index it."""
        if self._max_timestamp is None:
            self.load_max_timestamp()
        if max_timestamp > self._max_timestamp:  # type: ignore[operator]  # just loaded
            self._max_timestamp = max_timestamp
            self._max_timestamp_offset = last_offset
        if position == 0:
            self.first_timestamp = max_timestamp
        since = self.bytes_since_index
        if since > self._index_interval:
            offsets = self.offsets()
            times = self.times()
            offsets.append(last_offset, position)
            times.maybe_append(self._max_timestamp, self._max_timestamp_offset)  # type: ignore[arg-type]
            if len(offsets) >= self._index_bytes // 8 or len(times) >= self._index_bytes // 12 - 1:
                self.full = True
            since = 0
        self.bytes_since_index = since + size

    def load_max_timestamp(self) -> tuple[int, int]:
        """(largest timestamp in ms, last offset of the first batch that has it); from the time index when first asked.

        The timestamp is -1 if none is known.
        """
        if self._max_timestamp is None:
            timestamp, offset = self.times().last_entry()
            if self._max_timestamp is None:  # unless rebuilding the index has found it
                self._max_timestamp, self._max_timestamp_offset = timestamp, offset
        return self._max_timestamp, self._max_timestamp_offset

    def finish_indexes(self) -> None:
        """Add the last time index entry, as when a segment stops being the active one, and write both out."""
        timestamp, offset = self.load_max_timestamp()
        self.times().maybe_append(timestamp, offset)
        self.flush_indexes()

    def flush_indexes(self) -> None:
        """Write out the index entries that are in memory. Raises OSError."""
        if self._offsets is not None:
            self._offsets.flush()
        if self._times is not None:
            self._times.flush()

    def release(self) -> None:
        """Give back the memory that an idle segment does not need; after `flush_indexes`."""
        self.flush_indexes()
        self._offsets = self._times = None

    # --- finding batches ---

    def scan(self, position: int, *, next_offset: int | None = None) -> Iterator[Located]:
        """Headers from the position to the end. KAFKA_STORAGE_ERROR where something else than a batch lies."""
        file = self.file()
        end = self.size
        expected = self.base_offset if next_offset is None else next_offset
        limit = self.base_offset + MAX_RELATIVE_OFFSET + 1 if self.limit is None else self.limit
        chunk = b""
        chunk_start = chunk_end = position
        while position < end:
            if position + HEADER_SIZE > chunk_end:
                chunk = file.read(position, min(_CHUNK, end - position))
                chunk_start, chunk_end = position, position + len(chunk)
                if len(chunk) < HEADER_SIZE:
                    raise self.broken(position, expected, f"{len(chunk)} bytes are no batch")
            header: BatchHeader = tuple.__new__(BatchHeader, _unpack(chunk, position - chunk_start))
            size = header[1] + LOG_OVERHEAD
            if header[3] != MAGIC or size < _MIN_BATCH or position + size > end:
                raise self.broken(position, expected, f"magic {header[3]} and size {size} are no batch's")
            if header[0] < expected or header[6] < 0 or header[0] + header[6] >= limit:
                raise self.broken(position, expected, f"the batch has offset {header[0]} and {header[6]} more")
            yield Located(position, header)
            expected = header[0] + header[6] + 1
            position += size

    def broken(self, position: int, expected: int, what: str) -> KafkaError:
        """Return the error for a damaged batch; `expected` is the offset that is due there."""
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.path}: damaged at byte {position}, where offset {expected} or a later one should begin: {what}",
        )

    def locate(self, offset: int) -> Located | None:
        """The first batch that ends at the offset or later; None if the segment ends before."""
        for found in self.scan(self.offsets().lookup(offset)):
            header = found.header
            if header[0] + header[6] >= offset:
                return found
        return None

    def boundary(self, start: int, limit: int, upper_offset: int) -> tuple[int, int | None]:
        """(position, next offset) of the last batch boundary that is at most `limit` and not past the upper offset.

        `start` is a boundary; the next offset is None when there is no later one.
        """
        position = max(start, self.offsets().floor(limit, upper_offset))
        next_offset: int | None = None
        for at, header in self.scan(position):
            last = header[0] + header[6]
            if last >= upper_offset or at + header[1] + LOG_OVERHEAD > limit:
                return at, header[0] if at > start else None
            position = at + header[1] + LOG_OVERHEAD
            next_offset = last + 1
        return position, next_offset

    def read_batch(self, found: Located) -> memoryview:
        """The bytes of a batch, its CRC checked. KAFKA_STORAGE_ERROR if that is wrong."""
        data = memoryview(self.file().read(found.position, found.header.size))
        try:
            if len(data) < found.header.size:
                raise CorruptRecords("it is cut off")
            verify_crc(data, 0, found.header)
        except CorruptRecords as error:
            raise self.broken(found.position, found.header.base_offset, str(error)) from error
        return data

    def columns(self, found: Located) -> EncodedColumns:
        """Decode the records of a batch. Raises KafkaError KAFKA_STORAGE_ERROR if it is damaged."""
        data = self.read_batch(found)
        try:
            return scan_columns(data, found.header)
        except CorruptRecords as error:
            raise self.broken(found.position, found.header.base_offset, str(error)) from error

    # --- changes ---

    def open_all(self) -> None:
        """Open all that `truncate_to` needs. Raises OSError."""
        self.warm()
        self.file()
        with suppress(FileNotFoundError):
            self._files.get(self.file_path(TRANSACTION_INDEX))

    def truncate_to(self, offset: int) -> None:
        """Cut off the batch that holds the offset and all that follows, indexes too; before it what is damaged."""
        self.load_max_timestamp()
        offsets = self.offsets()
        times = self.times()
        try:
            next(self.scan(0), None)  # `resume` reads it
            found = self.locate(offset)
            position = self.size
            if found is not None:
                position, offset = found.position, min(offset, found.header.base_offset)
        except KafkaError:
            position, offset = _sound_end(self, offset)
        # Also where nothing is cut off: it is appended to from here on, which must not reach another folder through a
        # second name of the file.
        self.file().truncate(position)
        self.size = position
        offsets.truncate_to(offset)
        times.truncate_to(offset)
        self.transactions.truncate_to(offset)
        self.full = False
        self.resume()

    def resume_from_index(self) -> None:
        """Continue from the last indexed batch: it and later ones are noted again, batch by batch."""
        self._max_timestamp, self._max_timestamp_offset = self.times().last_entry()
        self.bytes_since_index = 0

    def resume(self) -> int | None:
        """Restore what an active segment remembers, from the indexes and the headers after their last entry.

        Answers the offset after the last batch; None for an empty segment.
        """
        start = self.offsets().last_position()
        self._max_timestamp, self._max_timestamp_offset = self.times().last_entry()
        self.bytes_since_index = 0
        self.first_timestamp = NO_TIMESTAMP
        next_offset = None
        for position, header in self.scan(start):
            if header[8] > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header[8], header[0] + header[6]
            self.bytes_since_index += header[1] + LOG_OVERHEAD
            next_offset = header[0] + header[6] + 1
            if position == 0:
                self.first_timestamp = header[8]
        if start and self.size:
            self.first_timestamp = next(self.scan(0)).header[8]
        return next_offset


def _sound_end(segment: Segment, offset: int) -> tuple[int, int]:
    """(position, offset) where the batches end that come before the first damaged one, and lie below the offset."""
    position, end_offset = 0, segment.base_offset
    with suppress(KafkaError):
        for at, header in segment.scan(0):
            if header[0] + header[6] >= offset:
                break
            position, end_offset = at + header[1] + LOG_OVERHEAD, header[0] + header[6] + 1
    return position, end_offset


def create_later(segment: Segment, files: FileCache, disk: Disk, snapshot: NewSnapshot | None) -> None:
    """Let the first write to the segment make its files, with the snapshot of the producers that belongs to it.

    Nothing may lie under the names of its files.
    """
    indexes = segment.file_path(OFFSET_INDEX), segment.file_path(TIME_INDEX)
    files.put(segment.path, LateFile(segment.path, partial(make_segment, disk, segment.path, indexes, snapshot)))
    segment.set_fresh_indexes()
    segment.transactions.assume_empty()


def bound(segments: Sequence[Segment]) -> None:
    """Set the limit of each segment to the base offset of the next one."""
    for segment, following in pairwise(segments):
        segment.limit = following.base_offset
    segments[-1].limit = None
