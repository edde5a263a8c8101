"""Planning a read: which bytes of which segments hold the batches from an offset up to a limit.

The answer is file ranges; only headers are read, and for a reader at the tail not even those.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from odradek.log.segments.segment import Located, Segment
from odradek.ports.disk import FileRange

_TAIL_LIMIT: Final = 128
_TAIL_KEPT: Final = 64
_HINTS: Final = 8


class LogRead(NamedTuple):
    """The plan of a read: complete batches as ranges of local files.

    `size` is their sum in bytes; `next_offset` is where the next read continues.
    """

    ranges: list[FileRange]
    size: int
    next_offset: int


class Tail:
    """The last batches of the active segment, and where recent readers stopped: spares most reads any look-up."""

    __slots__ = ("base_offsets", "ends", "hints", "last_offsets", "positions")

    def __init__(self) -> None:
        self.base_offsets: list[int] = []
        self.last_offsets: list[int] = []
        self.positions: list[int] = []
        self.ends: list[int] = []
        # Offset -> (base offset of its segment, position) of the batch that begins there.
        self.hints: dict[int, tuple[int, int]] = {}

    def add(self, base_offset: int, last_offset: int, position: int, size: int) -> None:
        """Note a batch that was appended."""
        bases = self.base_offsets
        if len(bases) >= _TAIL_LIMIT:
            cut = len(bases) - _TAIL_KEPT
            del bases[:cut], self.last_offsets[:cut], self.positions[:cut], self.ends[:cut]
        bases.append(base_offset)
        self.last_offsets.append(last_offset)
        self.positions.append(position)
        self.ends.append(position + size)

    def clear(self) -> None:
        """After a roll or a truncation."""
        for part in (self.base_offsets, self.last_offsets, self.positions, self.ends):
            part.clear()
        self.hints.clear()

    def find(self, offset: int) -> int | None:
        """Index of the batch that ends at the offset or later, if it is known to be the first such."""
        bases = self.base_offsets
        if not bases or offset < bases[0]:
            return None
        return bisect_left(self.last_offsets, offset)

    def extent(self, index: int, limit: int, upper_offset: int) -> tuple[int, int] | None:
        """(end position, next offset) of the batches from `index` on that fit; None if not even the first does."""
        last = min(bisect_right(self.ends, limit), bisect_left(self.last_offsets, upper_offset))
        if last <= index:
            return None
        return self.ends[last - 1], self.last_offsets[last - 1] + 1

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """Note where a reader stopped: its next read begins there."""
        hints = self.hints
        if len(hints) >= _HINTS:
            del hints[next(iter(hints))]
        hints[offset] = (segment.base_offset, position)


def find_in_segment(segment: Segment, offset: int, hint: int | None) -> Located | None:
    """The first batch of the segment that ends at the offset or later."""
    if hint is not None and hint < segment.size:
        return next(segment.scan(hint))
    return segment.locate(offset)


def plan_segment(
    segment: Segment, first: Located, end_offset: int, max_bytes: int, upper_offset: int
) -> tuple[int, int] | None:
    """(end position, next offset) of the batches from `first` on within the limits; None if the first is too large.

    `end_offset` is where the segment's offsets end.
    """
    start = first.position
    header = first.header
    limit = start + max_bytes
    if end_offset <= upper_offset and segment.size <= limit:
        return segment.size, end_offset
    if start + header.size > limit or header.last_offset >= upper_offset:
        return None
    position, next_offset = segment.boundary(start, min(limit, segment.size), upper_offset)
    return position, header.next_offset if next_offset is None else next_offset
