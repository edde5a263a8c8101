"""Topics as Delta tables, exactly once: a commit adds rows, and has the positions as `txn` actions.

Values are JSON objects, whose fields are columns; a field that is an object or an array is stored as JSON text. Each
row has the topic, partition, offset and timestamp of its record. Fields that are new become columns.

Transforms may route the records of one partition to several tables. No table then says where reading continues: the
group does, and each table's position says which of the records it has already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from odradek.connect.columns import joined_kind, kind_of, scalar
from odradek.connect.errors import ConnectError, RecordRejected
from odradek.connect.model import Batch, SinkRecord
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sinks.delta_commits import DeltaCommits, table_failures
from odradek.connect.worker_thread import WorkerThread
from odradek.ports.installation import install_hint
from odradek.records.topic_partition import TopicPartition

SETTINGS: Final = (
    Setting("table.path", Type.STRING, REQUIRED, "folder or URL of the table of a topic, with ${topic} in it; further "
            "settings of the object store as storage.NAME", Importance.HIGH, group="Tables"),
    Setting("partition.by", Type.LIST, [], "columns that a new table is divided by", group="Tables"),
    Setting("auto.evolve", Type.BOOLEAN, True, "whether columns are added for new fields", group="Tables"),
    Setting("flush.size", Type.INT, 50_000, "most records of a commit", minimum=1, group="Tables"),
    Setting("rotate.interval.ms", Type.LONG, 10_000, "longest time before gathered records are committed", minimum=0,
            group="Tables"),
)  # fmt: skip
COORDINATES: Final = ("__topic", "__partition", "__offset", "__timestamp")


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


class Rows:
    """Records as columns of one table, whose types are those of the table or of the first values. Pure."""

    def __init__(self, kinds: Mapping[str, str], *, evolves: bool) -> None:
        """`kinds` are the types of the table's columns by name."""
        self._fixed = dict(kinds)
        self._evolves = evolves or not kinds
        self.kinds: dict[str, str] = dict(kinds)
        """Types by column, those of new ones included."""
        self.rows: list[dict[str, Any]] = []
        """The rows."""

    def add(self, record: SinkRecord) -> None:
        """Add a record. Raises ValueError for one that makes no row of this table."""
        if not isinstance(record.value, dict):
            raise ValueError(f"a JSON object expected, got {type(record.value).__name__}")  # noqa: TRY004 - data
        row = {name: scalar(value) for name, value in record.value.items()}
        reserved = [name for name in COORDINATES if name in row]
        if reserved:
            raise ValueError(f"field {reserved[0]} has the name of a column for the record's place")
        found = {name: kind for name, value in row.items() if (kind := kind_of(value)) is not None}
        kinds = {name: self._kind(name, kind) for name, kind in found.items()}
        self.kinds.update(kinds)
        at_us = None if record.timestamp < 0 else record.timestamp * 1000
        row.update(zip(COORDINATES, (*record.origin, record.offset, at_us), strict=True))
        self.rows.append(row)

    def _kind(self, name: str, kind: str) -> str:
        """The type of a column that has a value of this type. Raises ValueError."""
        before = self.kinds.get(name)
        if before is not None:
            return joined_kind(name, before, kind, is_fixed=name in self._fixed)
        if not self._evolves:
            raise ValueError(f"the table has no column {name}: auto.evolve is false")
        return kind

    def arrow(self) -> Any:
        """The rows as an Arrow table."""
        import pyarrow as pa

        types = {"boolean": pa.bool_(), "bigint": pa.int64(), "double": pa.float64(), "binary": pa.binary(),
                 "string": pa.string()}  # fmt: skip
        own = {"__topic": pa.string(), "__partition": pa.int32(), "__offset": pa.int64(),
               "__timestamp": pa.timestamp("us", "UTC")}  # fmt: skip
        columns = {}
        for name, kind in self.kinds.items():
            values = [row.get(name) for row in self.rows]
            if kind == "double":
                values = [None if value is None else float(value) for value in values]
            columns[name] = pa.array(values, types[kind])
        for name, kind in own.items():
            columns[name] = pa.array([row[name] for row in self.rows], kind)
        return pa.table(columns)


class DeltaSink:
    """One task's tables. See `Sink`."""

    def __init__(
        self, values: Mapping[str, Any], storage: Mapping[str, str], connector: str, *, routes: bool = False
    ) -> None:
        """`values` are those of a checked configuration; `storage` are options of the object store.

        `routes` says that transforms may change the topics of records.
        """
        self._connector = connector
        self._routes = routes
        self._layout: str = values["table.path"]
        self._partition_by: list[str] = values["partition.by"]
        self._evolves: bool = values["auto.evolve"]
        self._storage = storage
        self._thread = WorkerThread(f"connect-{connector}")
        self._held: dict[TopicPartition, int] = {}
        self.batch_records: int = values["flush.size"]
        """Records of one commit."""
        self.batch_wait_s: float = values["rotate.interval.ms"] / 1000
        """How long records are gathered."""

    async def open(self) -> None:
        """See `Sink`."""

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See `Sink`."""
        return {} if self._routes else await self._thread.run(self._read_positions, partitions)

    async def write(self, batch: Batch) -> None:
        """See `Sink`. Tables that were committed by an attempt that failed later are not written again."""
        by_path: dict[str, list[tuple[int, SinkRecord]]] = defaultdict(list)
        for index, record in enumerate(batch.records):
            by_path[self._path(record.topic)].append((index, record))
        for path, records in by_path.items():
            if self._routes:
                await self._thread.run(self._write_routed, path, records, batch.ends)
                continue
            ends = {each: end for each, end in batch.ends.items() if self._path(each.topic) == path}
            if any(self._held.get(each) != end for each, end in ends.items()):
                await self._thread.run(self._write, path, records, ends)

    async def close(self) -> None:
        """See `Sink`."""
        await self._thread.close()

    # --- in the thread ---

    def _path(self, topic: str) -> str:
        """The table of a topic."""
        return self._layout.replace("${topic}", topic)

    def _commits(self, path: str) -> DeltaCommits:
        return DeltaCommits(path, self._storage, f"odradek-connect/{self._connector}")

    def _read_positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for topic in {each.topic for each in partitions}:
            commits = self._commits(self._path(topic))
            with table_failures(commits.path):
                found.update(commits.positions(commits.load(), [each for each in partitions if each.topic == topic]))
        for each in partitions:
            self._held.pop(each, None)
        self._held.update(found)
        return found

    def _write(self, path: str, records: Sequence[tuple[int, SinkRecord]], ends: Mapping[TopicPartition, int]) -> None:
        commits = self._commits(path)
        with table_failures(path):
            table = commits.load()
            commits.check(table, self._held, ends)
            self._append(commits, table, records, ends)
        self._held.update(ends)

    def _write_routed(
        self, path: str, records: Sequence[tuple[int, SinkRecord]], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Write the records that the table does not have yet."""
        commits = self._commits(path)
        with table_failures(path):
            table = commits.load()
            held = commits.positions(table, {record.origin for _, record in records})
            new = [(index, record) for index, record in records if record.offset >= held.get(record.origin, 0)]
            if new:
                origins = {record.origin for _, record in new}
                self._append(commits, table, new, {each: ends[each] for each in origins})

    def _append(
        self,
        commits: DeltaCommits,
        table: Any,
        records: Sequence[tuple[int, SinkRecord]],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        """One commit of rows and positions."""
        from deltalake import write_deltalake

        rows = Rows({} if table is None else _kinds(table), evolves=self._evolves)
        for index, record in records:
            try:
                rows.add(record)
            except ValueError as error:
                raise RecordRejected(index, str(error)) from error
        write_deltalake(
            commits.path if table is None else table,
            rows.arrow(),
            mode="append",
            schema_mode="merge",
            partition_by=self._partition_by or None,
            storage_options=commits.storage,
            commit_properties=commits.properties(ends),
        )


def _kinds(table: Any) -> dict[str, str]:
    """The types of a table's own columns by name. Raises ConnectError for a column that no JSON field fits."""
    import pyarrow as pa

    found = {}
    for field in pa.schema(table.schema()):
        if field.name in COORDINATES:
            continue
        kinds = {"bool": "boolean", "int64": "bigint", "double": "double", "binary": "binary", "string": "string",
                 "string_view": "string", "binary_view": "binary", "large_string": "string"}  # fmt: skip
        kind = kinds.get(str(field.type))
        if kind is None:
            raise ConnectError(f"column {field.name} is of type {field.type}, which no field of JSON fits")
        found[field.name] = kind
    return found
