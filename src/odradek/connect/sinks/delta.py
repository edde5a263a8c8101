"""Topics as Delta tables: rows and positions are one commit, which has the positions as `txn` actions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from odradek.connect.errors import PositionMoved
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sinks import tables
from odradek.connect.sinks.rows import Rows, kinds_of
from odradek.connect.table_formats.delta import DeltaCommits, table_failures
from odradek.ports.installation import install_hint
from odradek.records.topic_partition import TopicPartition

SETTINGS: Final = (
    Setting("table.path", Type.STRING, REQUIRED, "folder or URL of the table of a topic, with ${topic} in it; further "
            "settings of the object store as storage.NAME", Importance.HIGH, group="Tables"),
    Setting("partition.by", Type.LIST, [], "columns that a new table is divided by", group="Tables"),
    *tables.SETTINGS,
)  # fmt: skip

_UNKNOWN: Final = -1
"""The number of a topic that is not known: a table forgets no action."""


def check(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with settings that are right one by one."""
    try:
        import deltalake  # noqa: F401 - the first commit would fail without it
    except ImportError as error:
        line = f"connector.class: DeltaSink needs packages that are not installed ({error.name})"
        return {"connector.class": [f"{line}: {install_hint('stores')}"]}
    if len(values["topics"]) != 1 and "${topic}" not in values["table.path"]:
        return {"table.path": ["table.path: ${topic} expected, because the sink may read several topics"]}
    return {}


class DeltaFormat:
    """See `TableFormat`."""

    ignores_case = True

    def __init__(self, storage: Mapping[str, str], writer: str, partition_by: Sequence[str] = ()) -> None:
        """`storage` are options of the object store; `writer` stands for the writer in the tables for ever."""
        self._storage = storage
        self._writer = writer
        self._partition_by = list(partition_by)

    def failures(self, path: str) -> AbstractContextManager[None]:
        """See `TableFormat`."""
        return table_failures(path)

    def load(self, path: str) -> Any:
        """See `TableFormat`."""
        return self._commits(path).load()

    def positions(self, table: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See `TableFormat`."""
        return self._commits("").positions(table, partitions)

    def topics(self, table: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See `TableFormat`."""
        found = {
            each: None if table is None else table.transaction_version(self._topic_mark(each)) for each in partitions
        }
        return {each: number for each, number in found.items() if number is not None and number != _UNKNOWN}

    def kinds(self, table: Any) -> dict[str, str]:
        """See `TableFormat`."""
        import pyarrow as pa

        return kinds_of(pa.schema(table.schema()))

    def append(
        self, path: str, table: Any, rows: Rows, ends: Mapping[TopicPartition, int], topics: Mapping[str, int]
    ) -> None:
        """See `TableFormat`."""
        from deltalake import write_deltalake
        from deltalake.exceptions import DeltaError

        commits = self._commits(path)
        numbers = {self._topic_mark(each): topics.get(each.topic, _UNKNOWN) for each in ends}
        try:
            write_deltalake(
                path if table is None else table,
                rows.arrow(),
                mode="error" if table is None else "append",
                schema_mode="merge",
                partition_by=self._partition_by or None,
                storage_options=commits.storage,
                commit_properties=commits.properties(ends, numbers),
            )
        except DeltaError as error:
            if table is None and commits.load() is not None:
                # its positions were not compared yet
                raise PositionMoved(f"{path}: another task has made the table") from error
            raise

    def move(self, table: Any, positions: Mapping[TopicPartition, int | None]) -> None:
        """See `TableFormat`."""
        unknown = {self._topic_mark(each): _UNKNOWN for each in positions}
        table.create_write_transaction(
            [], "append", table.schema(), commit_properties=self._commits("").properties(positions, unknown)
        )

    def close(self) -> None:
        """See `TableFormat`. Nothing is open between two calls."""

    def _topic_mark(self, partition: TopicPartition) -> str:
        """The application's id of the number of the topic that a partition's position belongs to."""
        return f"{self._commits('').mark(partition)}/topic-id"

    def _commits(self, path: str) -> DeltaCommits:
        return DeltaCommits(path, self._storage, self._writer)
