"""The two sparse indexes of a segment, in Kafka's formats (OffsetIndex, TimeIndex).

`.index`:     relative offset int32 | position int32     last offset of a batch, and where the batch begins
`.timeindex`: timestamp int64 | relative offset int32    largest timestamp so far, and the last offset of its batch

Apache Kafka maps these files into memory. Here new entries gather in memory and go to the file in one write every few
hundred; what a crash loses lies past the recovery point and is rebuilt from the log. Look-ups bisect the file.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import Final

from odradek.log.disk_errors import is_transient
from odradek.log.segments.files import FileCache

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")
NO_TIMESTAMP: Final = -1
_PENDING_BYTES: Final = 4096
_READ_WHOLE_BYTES: Final = 16 * 1024


class CorruptIndex(ValueError):
    """An index file contradicts itself or its segment; it can be rebuilt from the segment."""


class _Entries:
    """Fixed-size entries of one file, with a tail of new ones in memory."""

    __slots__ = ("files", "path", "pending", "record", "size", "written")

    def __init__(self, files: FileCache, path: str, record: Struct, *, fresh: bool) -> None:
        self.files = files
        self.path = path
        self.record = record
        self.size = record.size
        self.pending = bytearray()
        self.written = 0 if fresh else files.get(path).size()
        if self.written % self.size:
            raise CorruptIndex(f"{path}: {self.written} bytes are no multiple of {self.size}")

    def __len__(self) -> int:
        return (self.written + len(self.pending)) // self.size

    def entry(self, slot: int) -> tuple[int, int]:
        position = slot * self.size
        if position >= self.written:
            first, second = self.record.unpack_from(self.pending, position - self.written)
        else:
            first, second = self.record.unpack(self.files.get(self.path).read(position, self.size))
        return first, second

    def append(self, first: int, second: int) -> None:
        self.pending += self.record.pack(first, second)
        if len(self.pending) >= _PENDING_BYTES:
            try:
                self.flush()
            except OSError as error:
                if not is_transient(error):
                    raise
                # They stay in memory, and the next entry tries again.

    def upper_slot(self, target: int, column: int) -> int:
        """The number of entries whose column is at most the target."""
        written = self.written
        pending = self.pending
        size = self.size
        unpack = self.record.unpack_from
        if pending and unpack(pending, 0)[column] <= target:
            found = bisect_right(
                range(len(pending) // size), target, key=lambda slot: unpack(pending, slot * size)[column]
            )
            return written // size + found
        if not written:
            return 0
        if written <= _READ_WHOLE_BYTES:
            data = self.files.get(self.path).read(0, written)
            return bisect_right(range(len(data) // size), target, key=lambda slot: unpack(data, slot * size)[column])
        return bisect_right(range(written // size), target, key=lambda slot: self.entry(slot)[column])

    def flush(self) -> None:
        if self.pending:
            file = self.files.get(self.path, create=True)
            file.write_at(self.written, self.pending)
            self.written += len(self.pending)
            self.pending = bytearray()

    def cut(self, entries: int) -> None:
        """Keep only the first entries."""
        self.flush()
        size = entries * self.size
        if size != self.written:
            self.files.get(self.path, create=True).truncate(size)
            self.written = size


class OffsetIndex:
    """Where batches begin, one in about `index.interval.bytes`. Positions are bytes in the segment."""

    __slots__ = ("_base", "_entries")

    def __init__(self, files: FileCache, path: str, base_offset: int, *, fresh: bool = False) -> None:
        """Raises FileNotFoundError, or CorruptIndex for a file that Kafka's sanity check would refuse."""
        self._base = base_offset
        self._entries = _Entries(files, path, OFFSET_ENTRY, fresh=fresh)
        count = len(self._entries)
        if count:
            relative, position = self._entries.entry(count - 1)
            if relative < 0 or position < 0 or (count > 1 and position == 0):
                raise CorruptIndex(f"{path}: the last of {count} entries is ({relative}, {position})")

    def __len__(self) -> int:
        return len(self._entries)

    def append(self, last_offset: int, position: int) -> None:
        """Add an entry: the batch that ends at the offset begins at the position."""
        self._entries.append(last_offset - self._base, position)

    def lookup(self, offset: int) -> int:
        """Position of a batch that begins at or before the one that holds the offset."""
        slot = self._entries.upper_slot(offset - self._base, 0) - 1
        return self._entries.entry(slot)[1] if slot >= 0 else 0

    def floor(self, position: int, upper_offset: int) -> int:
        """The last indexed position up to `position` whose batch ends below `upper_offset`; 0 without one."""
        entries = self._entries
        slot = min(entries.upper_slot(position, 1), entries.upper_slot(upper_offset - 1 - self._base, 0)) - 1
        return entries.entry(slot)[1] if slot >= 0 else 0

    def last_position(self) -> int:
        """The position of the last entry; 0 without entries."""
        count = len(self._entries)
        return self._entries.entry(count - 1)[1] if count else 0

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of this offset and later ones."""
        self._entries.cut(self._entries.upper_slot(offset - 1 - self._base, 0))

    def flush(self) -> None:
        """Write out the entries that are in memory. Raises OSError."""
        self._entries.flush()


class TimeIndex:
    """The largest timestamp up to an offset; timestamps and offsets never fall."""

    __slots__ = ("_base", "_entries", "_last_timestamp")

    def __init__(self, files: FileCache, path: str, base_offset: int, *, fresh: bool = False) -> None:
        """Raises FileNotFoundError, or CorruptIndex for a file that Kafka's sanity check would refuse."""
        self._base = base_offset
        self._entries = _Entries(files, path, TIME_ENTRY, fresh=fresh)
        self._last_timestamp = NO_TIMESTAMP
        count = len(self._entries)
        if count:
            timestamp, relative = self._entries.entry(count - 1)
            if relative < 0 or timestamp < self._entries.entry(0)[0]:
                raise CorruptIndex(f"{path}: the last of {count} entries is ({timestamp}, {relative})")
            self._last_timestamp = timestamp

    def __len__(self) -> int:
        return len(self._entries)

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is larger than the last one."""
        if timestamp > self._last_timestamp:
            self._entries.append(timestamp, offset - self._base)
            self._last_timestamp = timestamp

    def lookup(self, timestamp: int) -> int:
        """An offset in or before the first batch with this timestamp or a later one."""
        slot = self._entries.upper_slot(timestamp, 0) - 1
        return self._base + self._entries.entry(slot)[1] if slot >= 0 else self._base

    def last_entry(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) without one."""
        count = len(self._entries)
        if not count:
            return NO_TIMESTAMP, self._base
        timestamp, relative = self._entries.entry(count - 1)
        return timestamp, self._base + relative

    def truncate_to(self, offset: int) -> None:
        """Drop the entries of this offset and later ones."""
        self._entries.cut(self._entries.upper_slot(offset - 1 - self._base, 1))
        self._last_timestamp = self.last_entry()[0]

    def flush(self) -> None:
        """Write out the entries that are in memory. Raises OSError."""
        self._entries.flush()
