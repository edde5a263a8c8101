"""The interface of a format of tables. Every function blocks: a runner calls it in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from odradek.tables.planning import Decoded


class Written(NamedTuple):
    """What a commit did."""

    rows: int
    deleted: int
    """Keys that had a null value last."""
    bad: int
    """Records that went to the table of bad records."""


class TableStore(Protocol):
    """One table, the table of its bad records, and the positions in both.

    Every function raises TargetAway if the same may succeed later, else ConnectError.
    """

    def check(self) -> bool:
        """Whether the table exists. Raises ConnectError if it is there and its columns do not fit; changes nothing."""
        ...

    def open(self, partitions: Sequence[int], topic_id: bytes) -> Mapping[int, int]:
        """Make the table unless it is there; the positions that it has, by partition."""
        ...

    def begin(self, offsets: Mapping[int, int]) -> None:
        """Commit first positions, so that a restart begins there. Raises PositionMoved."""
        ...

    def write(self, records: Sequence[Decoded], ends: Mapping[int, int]) -> Written:
        """Write a batch and the positions after it. Raises PositionMoved if the table has others than this object."""
        ...

    def compact(self) -> int:
        """Join small files; the number of files that were joined. Raises PositionMoved if others wrote meanwhile."""
        ...

    def offsets(self, version: str | None) -> Mapping[int, int]:
        """The positions in a version of the table (a number, or a time in ISO 8601), by partition; None: now."""
        ...

    def close(self) -> None:
        """Give back what the object holds, such as connections to a catalog; it can be used again after that."""
        ...

    def describe(self) -> Mapping[str, Any]:
        """What the table is: version, columns, rows, files, bad records. Raises ConnectError if there is none."""
        ...
