"""Topics as tables in Delta or Iceberg, exactly once: a commit adds rows, and has the positions after them.

Values are JSON objects, whose fields are columns; a field that is an object or an array is stored as JSON text. Each
row has the topic, partition, offset and timestamp of its record. Fields that are new become columns.

Transforms may route the records of one partition to several tables. No table then says where reading continues: the
group does, and each table's position says which of the records it has already.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from odradek.connect.errors import PositionMoved, RecordRejected
from odradek.connect.model import Batch, SinkRecord
from odradek.connect.settings import Setting, Type
from odradek.connect.sinks.rows import Rows
from odradek.connect.sinks.sink import of_a_former_topic
from odradek.connect.worker_thread import WorkerThread
from odradek.records.topic_partition import TopicPartition

SETTINGS: Final = (
    Setting("auto.evolve", Type.BOOLEAN, True, "whether columns are added for new fields", group="Tables"),
    Setting("flush.size", Type.INT, 50_000, "most records of a commit", minimum=1, group="Tables"),
    Setting("rotate.interval.ms", Type.LONG, 10_000, "longest time before gathered records are committed", minimum=0,
            group="Tables"),
)  # fmt: skip
"""Settings of every format."""
ATTEMPTS: Final = 5
"""How often a commit is tried while other tasks commit to the same table."""


def topic_number(topic_id: bytes) -> int:
    """As much of a topic's id as the version of a `txn` action of a Delta table holds."""
    return int.from_bytes(topic_id) >> 65


class TableFormat(Protocol):
    """Tables of one format, by path or name. Every function blocks: the sink calls it in a thread."""

    ignores_case: bool
    """Whether names of columns do not differ by case."""

    def failures(self, path: str) -> AbstractContextManager[None]:
        """Raise failures of a commit as PositionMoved, of an absent store as TargetAway, others as ConnectError."""
        ...

    def load(self, path: str) -> Any:
        """The table as it is now; None before it exists."""
        ...

    def positions(self, table: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Where reading continues, of the partitions that the table (or None) has a position of."""
        ...

    def topics(self, table: Any, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The numbers of topics (see `topic_number`) that the positions of these partitions belong to, where known."""
        ...

    def kinds(self, table: Any) -> dict[str, str]:
        """The types of the table's own columns. Raises ConnectError for a column that no field of JSON fits."""
        ...

    def append(
        self, path: str, table: Any, rows: Rows, ends: Mapping[TopicPartition, int], topics: Mapping[str, int]
    ) -> None:
        """Commit rows, their new columns and positions with the numbers of their topics, where known.

        The commit fails if a rival one came since `load`. A table that is None is created. Raises RecordRejected with
        the place of a row that has a value beyond its column's type.
        """
        ...

    def move(self, table: Any, positions: Mapping[TopicPartition, int | None]) -> None:
        """Commit positions of the connector, of no known topic and without rows; None removes one."""
        ...

    def close(self) -> None:
        """Close connections."""
        ...


class TableSink:
    """One task's tables. See `Sink`."""

    def __init__(
        self, made_by: TableFormat, layout: str, values: Mapping[str, Any], connector: str, *, routes: bool = False
    ) -> None:
        """`layout` is the path or name of a topic's table; `values` are those of a checked configuration.

        `routes` says that transforms may change the topics of records.
        """
        self._format = made_by
        self._layout = layout
        self._routes = routes
        self._evolves: bool = values["auto.evolve"]
        self._thread = WorkerThread(f"connect-{connector}")
        self._held: dict[TopicPartition, int] = {}
        self._topics: dict[str, int] = {}
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

    def note_topics(self, topic_ids: Mapping[str, bytes]) -> None:
        """See `TopicBoundSink`. A table of routed records has none of a topic whose id it does not know."""
        self._topics.update({topic: topic_number(topic_id) for topic, topic_id in topic_ids.items()})

    async def move(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """See `MovableSink`. Where transforms route records, the group has the positions, and tables skip what they
        have."""
        by_path: dict[str, dict[TopicPartition, int | None]] = defaultdict(dict)
        for each, offset in positions.items():
            by_path[self._path(each.topic)][each] = offset
        for path, moved in by_path.items():
            await self._thread.run(self._move, path, moved)

    async def close(self) -> None:
        """See `Sink`."""
        await self._thread.run(self._format.close)
        await self._thread.close()

    # --- in the thread ---

    def _path(self, topic: str) -> str:
        """The table of a topic."""
        return self._layout.replace("${topic}", topic)

    def _read_positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for topic in {each.topic for each in partitions}:
            path = self._path(topic)
            with self._format.failures(path):
                table = self._format.load(path)
                held = self._format.positions(table, [each for each in partitions if each.topic == topic])
                for each in self._former(table, held):
                    raise of_a_former_topic(each, held[each], path)
                found.update(held)
        for each in partitions:
            self._held.pop(each, None)
        self._held.update(found)
        return found

    def _former(self, table: Any, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """Partitions whose positions in the table are those of a topic that was deleted and created again."""
        known = self._format.topics(table, partitions)
        return [each for each, number in known.items() if self._topics.get(each.topic, number) != number]

    def _write(self, path: str, records: Sequence[tuple[int, SinkRecord]], ends: Mapping[TopicPartition, int]) -> None:
        """Commit rows and positions, behind the commits of tasks that have other partitions."""
        for attempt in range(1, ATTEMPTS + 1):
            with self._format.failures(path):
                table = self._format.load(path)
                found = self._format.positions(table, ends)
            moved = next((each for each in ends if found.get(each) != self._held.get(each)), None)
            if moved is not None:
                raise PositionMoved(f"{moved}: another task has written to the table since")
            try:
                self._append(path, table, records, ends)
            except PositionMoved:
                if attempt == ATTEMPTS:
                    raise
            else:
                break
        self._held.update(ends)

    def _move(self, path: str, positions: Mapping[TopicPartition, int | None]) -> None:
        with self._format.failures(path):
            self._format.move(self._format.load(path), positions)

    def _write_routed(
        self, path: str, records: Sequence[tuple[int, SinkRecord]], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Write the records that the table does not have yet."""
        with self._format.failures(path):
            table = self._format.load(path)
            held = self._format.positions(table, {record.origin for _, record in records})
            for each in self._former(table, held):
                del held[each]  # it has no record of the topic that is read now
        new = [(index, record) for index, record in records if record.offset >= held.get(record.origin, 0)]
        if new:
            origins = {record.origin for _, record in new}
            self._append(path, table, new, {each: ends[each] for each in origins})

    def _append(
        self,
        path: str,
        table: Any,
        records: Sequence[tuple[int, SinkRecord]],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        """One commit of rows and positions."""
        with self._format.failures(path):
            kinds = {} if table is None else self._format.kinds(table)
            rows = Rows(kinds, evolves=self._evolves, ignores_case=self._format.ignores_case)
            for index, record in records:
                try:
                    rows.add(record)
                except ValueError as error:
                    raise RecordRejected(index, str(error)) from error
            try:
                self._format.append(path, table, rows, ends, self._topics)
            except RecordRejected as error:
                raise RecordRejected(records[error.index][0], str(error)) from error
