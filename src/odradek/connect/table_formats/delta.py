"""Commits to a Delta table that carry positions: what makes each record appear in the table once.

A commit of a Delta log may have `txn` actions: an application's id and a version, which the table remembers. The
offset after the last record of each partition goes there, in the very commit that adds the rows. Two commits that have
an action of the same application exclude each other, so that the slower one of two writers changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from odradek.connect.errors import ConnectError, PositionMoved, TargetAway
from odradek.records.topic_partition import TopicPartition
from odradek.spark.stores.object_stores import is_away
from odradek.spark.stores.patience import first_line

_REMOVED: Final = -1
"""The version of a position that was removed: a table forgets no action."""


class DeltaCommits:
    """The positions of one writer in one table. Blocks: use it in a thread."""

    def __init__(self, path: str, storage: Mapping[str, str], writer: str) -> None:
        """`storage` are options of the object store; `writer` stands for the writer in the table for ever."""
        self.path = path
        """Folder or URL."""
        self.storage = dict(storage) or None
        """Options of the object store."""
        self._writer = writer

    def load(self) -> Any:
        """The table as it is now; None before it exists."""
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(self.path, self.storage):
            return None
        return DeltaTable(self.path, storage_options=self.storage)

    def mark(self, partition: TopicPartition) -> str:
        """The application's id of a partition's position."""
        return f"{self._writer}/{partition.topic}/{partition.partition}"

    def positions(self, table: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where reading continues, of the partitions that the table has a position of."""
        if table is None:
            return {}
        found = {each: table.transaction_version(self.mark(each)) for each in partitions}
        return {each: version for each, version in found.items() if version is not None and version != _REMOVED}

    def check(self, table: Any, held: Mapping[TopicPartition, int], ends: Collection[TopicPartition]) -> None:
        """Raises PositionMoved if the table has other positions of these partitions than the held ones."""
        found = self.positions(table, ends)
        for each in ends:
            if found.get(each) != held.get(each):
                raise PositionMoved(f"{each}: another task has written to the table since")

    def properties(self, ends: Mapping[TopicPartition, int | None], more: Mapping[str, int] | None = None) -> Any:
        """Properties of a commit that has these positions, and further numbers by application's id.

        None removes a position.
        """
        from deltalake import CommitProperties, Transaction

        marks = {self.mark(each): _REMOVED if end is None else end for each, end in ends.items()} | dict(more or {})
        return CommitProperties(app_transactions=[Transaction(name, number) for name, number in marks.items()])


@contextmanager
def table_failures(path: str) -> Iterator[None]:
    """Raise failures of a commit as PositionMoved, of an absent store as TargetAway, others as ConnectError."""
    from deltalake.exceptions import CommitFailedError

    try:
        yield
    except ConnectError:
        raise
    except CommitFailedError as error:
        raise PositionMoved(f"{path}: another task has committed to the table") from error
    except Exception as error:
        text = first_line(error)
        if is_away(error):
            raise TargetAway(f"the table is away: {text}") from error
        raise ConnectError(f"the table rejects it: {text}") from error
