"""Records that wait for their commit, as Arrow tables, and the positions after them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Gathered:
    """Tables of records in the order in which they were read."""

    def __init__(self) -> None:
        self.tables: list[Any] = []
        """Tables with the columns of `Consumer.arrow`."""
        self.ends: dict[int, int] = {}
        """The offset after the last record, by partition."""
        self.records = 0
        """Their number."""

    def add(self, table: Any) -> None:
        """Add a table, whose rows follow those that are there."""
        import pyarrow as pa

        self.tables.append(table)
        self.records += table.num_rows
        columns = pa.table({"partition": table.column("partition"), "offset": table.column("offset")})
        last = columns.group_by("partition").aggregate([("offset", "max")])
        for partition, offset in zip(
            last.column("partition").to_pylist(), last.column("offset_max").to_pylist(), strict=True
        ):
            self.ends[partition] = offset + 1

    def advance(self, positions: Mapping[int, int]) -> None:
        """Move the ends to positions of the consumer, behind markers of transactions, where records were read."""
        for partition, position in positions.items():
            if partition in self.ends:
                self.ends[partition] = max(position, self.ends[partition])
