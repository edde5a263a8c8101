"""Topics as Iceberg tables: rows and positions are one snapshot, which has the positions as a property."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

from odradek.connect.errors import ConnectError, PositionMoved
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sinks import tables
from odradek.connect.sinks.rows import COORDINATES, Rows, kinds_of
from odradek.connect.table_formats.iceberg import (
    IcebergCatalog,
    add_columns,
    check_catalog,
    check_table_name,
    exclusive,
    marks,
    table_failures,
)
from odradek.connect.table_formats.partitioning import parse_divisions, split_division
from odradek.ports.installation import install_hint
from odradek.records.topic_partition import TopicPartition

PREFIX: Final = "catalog."
SETTINGS: Final = (
    Setting("table.name", Type.STRING, REQUIRED, "NAMESPACE.TABLE of a topic, with ${topic} in it; settings of the "
            "catalog as catalog.NAME: catalog.uri, catalog.warehouse and what else PyIceberg knows", Importance.HIGH,
            group="Tables"),
    Setting("partition.by", Type.LIST, [], "what a new table is divided by: columns, or hour(COLUMN), day(COLUMN), "
            "month(COLUMN)", group="Tables"),
    *tables.SETTINGS,
)  # fmt: skip

_TOPIC_OF: Final = "topic of {}"
"""The name of the number of a partition's topic, beside the partition's position, in the mark of a snapshot."""


def check(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with settings that are right one by one."""
    if importlib.util.find_spec("pyiceberg") is None:
        line = "connector.class: IcebergSink needs packages that are not installed (pyiceberg)"
        return {"connector.class": [f"{line}: {install_hint('iceberg')}"]}
    if len(values["topics"]) != 1 and "${topic}" not in values["table.name"]:
        return {"table.name": ["table.name: ${topic} expected, because the sink may read several topics"]}
    try:
        check_table_name(values["table.name"])
    except ValueError as error:
        return {"table.name": [f"table.name: {error}"]}
    try:
        check_catalog(values[PREFIX])
    except ValueError as error:
        return {f"{PREFIX}uri": [str(error)]}
    try:
        for each in values["partition.by"]:
            split_division(each)
    except ValueError as error:
        return {"partition.by": [f"partition.by: {error}"]}
    return {}


class IcebergFormat:
    """See `TableFormat`."""

    ignores_case = False

    def __init__(self, catalog: Mapping[str, str], connector: str, partition_by: Sequence[str] = ()) -> None:
        """`catalog` are the catalog's options."""
        self._catalog = IcebergCatalog(catalog)
        self._mark = f"odradek-connect.{connector}"
        self._partition_by = partition_by

    def failures(self, path: str) -> AbstractContextManager[None]:
        """See `TableFormat`."""
        return table_failures(path)

    def load(self, path: str) -> Any:
        """See `TableFormat`."""
        return self._catalog.load(path)

    def positions(self, table: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See `TableFormat`."""
        return self._marked(table, partitions, "{}")

    def topics(self, table: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """See `TableFormat`."""
        return self._marked(table, partitions, _TOPIC_OF)

    def _marked(self, table: Any, partitions: Collection[TopicPartition], name: str) -> dict[TopicPartition, int]:
        """The numbers of partitions in the table's mark, by names that are made of theirs."""
        by_topic = {} if table is None else marks(table, self._mark)
        found = {each: by_topic.get(each.topic, {}).get(name.format(each.partition)) for each in partitions}
        return {each: number for each, number in found.items() if number is not None}

    def kinds(self, table: Any) -> dict[str, str]:
        """See `TableFormat`."""
        return kinds_of(table.schema().as_arrow())

    def append(
        self, path: str, table: Any, rows: Rows, ends: Mapping[TopicPartition, int], topics: Mapping[str, int]
    ) -> None:
        """See `TableFormat`."""
        if table is None:
            table = self._create(path, rows)
            if table.current_snapshot() is not None:
                # its positions were not compared yet
                raise PositionMoved(f"{path}: another task has made the table")
        missing = {
            name: kind for name, kind in (rows.kinds | COORDINATES).items() if name not in table.schema().column_names
        }
        transaction = exclusive(table)
        if missing:
            add_columns(transaction, missing)
        by_topic = marks(table, self._mark)
        for each, end in ends.items():
            of_topic = by_topic.setdefault(each.topic, {})
            of_topic[str(each.partition)] = end
            of_topic.pop(_TOPIC_OF.format(each.partition), None)
            if each.topic in topics:
                of_topic[_TOPIC_OF.format(each.partition)] = topics[each.topic]
        transaction.append(rows.arrow(), snapshot_properties={self._mark: json.dumps(by_topic)})
        transaction.commit_transaction()

    def move(self, table: Any, positions: Mapping[TopicPartition, int | None]) -> None:
        """See `TableFormat`. The snapshot has no files of its own."""
        by_topic = marks(table, self._mark)
        for each, offset in positions.items():
            of_topic = by_topic.setdefault(each.topic, {})
            of_topic.pop(str(each.partition), None)
            of_topic.pop(_TOPIC_OF.format(each.partition), None)
            if offset is not None:
                of_topic[str(each.partition)] = offset
        transaction = exclusive(table)
        none = table.schema().as_arrow().empty_table()
        transaction.append(none, snapshot_properties={self._mark: json.dumps(by_topic)})
        transaction.commit_transaction()

    def close(self) -> None:
        """See `TableFormat`."""
        self._catalog.close()

    def _create(self, path: str, rows: Rows) -> Any:
        columns = rows.kinds | COORDINATES
        try:
            divisions = parse_divisions(self._partition_by, columns)
        except ValueError as error:
            raise ConnectError(f"partition.by: {error}") from error
        return self._catalog.create(path, columns, divisions)
