"""Records as rows of SQL tables, exactly once: the positions are in the same transaction as the rows.

Settings have the names of Confluent's JDBC sink. Values are JSON objects, whose fields are columns; a field that is
an object or an array is stored as JSON text. With `pk.mode=record_key` and `delete.enabled`, a tombstone deletes.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.connect.columns import check_new_columns, kind_of, scalar
from odradek.connect.databases import FORMS, check_database, database_of, dialect_of
from odradek.connect.errors import ConnectError, PositionMoved, RecordRejected, TargetAway
from odradek.connect.model import Batch, SinkRecord
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sinks.sink import of_a_former_topic
from odradek.connect.worker_thread import WorkerThread
from odradek.records.topic_partition import TopicPartition
from odradek.spark.stores.databases import Database, StoreError
from odradek.spark.stores.patience import first_line

logger = logging.getLogger(__name__)

SETTINGS: Final = (
    Setting("connection.url", Type.STRING, REQUIRED, f"the database: {FORMS}", Importance.HIGH, group="Database"),
    Setting("connection.user", Type.STRING, "", "user, where the URL has none", group="Database"),
    Setting("connection.password", Type.PASSWORD, "", "password of the user", group="Database"),
    Setting("table.name.format", Type.STRING, "${topic}", "table of a topic; dots in a topic's name become _",
            group="Tables"),
    Setting("insert.mode", Type.STRING, "insert", "insert adds rows; upsert replaces those of the same key",
            choices=("insert", "upsert"), group="Writes"),
    Setting("pk.mode", Type.STRING, "none", "where the key columns come from; kafka: topic, partition and offset",
            choices=("none", "kafka", "record_key", "record_value"), group="Writes"),
    Setting("pk.fields", Type.LIST, [], "names of the key columns; with record_key and a plain key, one name",
            group="Writes"),
    Setting("delete.enabled", Type.BOOLEAN, False, "whether a record without a value deletes the row of its key",
            group="Writes"),
    Setting("auto.create", Type.BOOLEAN, False, "whether missing tables are created", group="Tables"),
    Setting("auto.evolve", Type.BOOLEAN, False, "whether columns are added for new fields", group="Tables"),
    Setting("batch.size", Type.INT, 3_000, "most records of one transaction", minimum=1, group="Writes"),
)  # fmt: skip

COORDINATES: Final = ("__connect_topic", "__connect_partition", "__connect_offset")
POSITIONS_TABLE: Final = "odradek_connect_positions"
TOPIC_ID: Final = "topic_id"
"""The column of that table with the id of the topic, null where unknown: tables of earlier releases lack it."""


class Row(NamedTuple):
    """One change of a table: values by column, or None to delete the row of the key."""

    table: str
    key: tuple[tuple[str, Any], ...]
    values: Mapping[str, Any] | None


def check(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with settings that are right one by one."""
    errors = check_database(values)
    mode, fields = values["pk.mode"], values["pk.fields"]
    if values["insert.mode"] == "upsert" and mode == "none":
        errors["pk.mode"] = ["pk.mode: upsert needs kafka, record_key or record_value"]
    if values["delete.enabled"] and mode != "record_key":
        errors["delete.enabled"] = ["delete.enabled: needs pk.mode=record_key"]
    if mode == "record_value" and not fields:
        errors["pk.fields"] = ["pk.fields: needed with pk.mode=record_value"]
    if mode == "kafka" and fields and len(fields) != len(COORDINATES):
        errors["pk.fields"] = ["pk.fields: three names for topic, partition and offset expected, or none"]
    return errors


class RowMaker:
    """Makes rows of records, by the settings. Pure."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._layout: str = values["table.name.format"]
        self._mode: str = values["pk.mode"]
        self._fields: list[str] = values["pk.fields"]
        self._deletes: bool = values["delete.enabled"]

    def row(self, record: SinkRecord) -> Row | None:
        """The row of a record; None for one that changes nothing. Raises ValueError."""
        table = self._layout.replace("${topic}", record.topic.replace(".", "_"))
        key = self._key(record)
        if record.value is None:
            if self._deletes:
                return Row(table, key, None)
            raise ValueError("a record without a value: delete.enabled is false")
        if not isinstance(record.value, dict):
            raise ValueError(f"a JSON object expected, got {type(record.value).__name__}")  # noqa: TRY004 - a value of data
        values = dict(record.value)
        values.update(key)
        if not values:
            raise ValueError("an object without fields makes no row")
        return Row(table, key, values)

    def _key(self, record: SinkRecord) -> tuple[tuple[str, Any], ...]:
        if self._mode == "none":
            return ()
        if self._mode == "kafka":
            names = self._fields or COORDINATES
            return tuple(zip(names, (*record.origin, record.offset), strict=True))
        if self._mode == "record_value":
            part = record.value
        else:
            part = record.key
            if part is not None and not isinstance(part, dict):
                if len(self._fields) != 1:
                    raise ValueError("pk.fields: one name expected for a key that is no JSON object")
                part = {self._fields[0]: part}
        if not isinstance(part, dict):
            raise ValueError("the record has no key")  # noqa: TRY004 - a value of data
        names = self._fields or sorted(part)
        missing = [name for name in names if part.get(name) is None]
        if missing:
            raise ValueError(f"key column {missing[0]} has no value")
        return tuple((name, part[name]) for name in names)


class SqlSink:
    """One task's tables. See `Sink`."""

    def __init__(self, values: Mapping[str, Any], connector: str) -> None:
        """`values` are those of a checked configuration; positions are kept under the connector's name."""
        self._connector = connector
        self._maker = RowMaker(values)
        self._upserts: bool = values["insert.mode"] == "upsert"
        self._tables = Tables(
            database_of(values["connection.url"], values["connection.user"], values["connection.password"]),
            creates=values["auto.create"],
            evolves=values["auto.evolve"],
            upserts=self._upserts,
        )
        self._thread = WorkerThread(f"connect-{connector}")
        self._connection: Any = None
        self._held: dict[TopicPartition, int | None] = {}
        self._topics: dict[str, str] = {}
        self.batch_records: int = values["batch.size"]
        """Records of one transaction."""
        self.batch_wait_s = 0.0
        """Batches are written as they come."""

    async def open(self) -> None:
        """See `Sink`."""
        await self._thread.run(self._guarded, self._connect)

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """See `Sink`."""
        return await self._thread.run(self._guarded, self._read_positions, partitions)

    async def write(self, batch: Batch) -> None:
        """See `Sink`."""
        rows = []
        for index, record in enumerate(batch.records):
            try:
                row = self._maker.row(record)
            except ValueError as error:
                raise RecordRejected(index, str(error)) from error
            if row is not None:
                rows.append((index, row))
        await self._thread.run(self._guarded, self._write, rows, batch.ends)

    def note_topics(self, topic_ids: Mapping[str, bytes]) -> None:
        """See `TopicBoundSink`."""
        self._topics.update({topic: topic_id.hex() for topic, topic_id in topic_ids.items()})

    async def move(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """See `MovableSink`."""
        await self._thread.run(self._guarded, self._set_positions, positions)

    async def close(self) -> None:
        """See `Sink`."""
        await self._thread.run(self._disconnect)
        await self._thread.close()

    # --- in the thread ---

    def _guarded(self, work: Any, *arguments: Any) -> Any:
        """Drop the connection after a failure, and say of which kind it was."""
        try:
            return work(*arguments)
        except (RecordRejected, PositionMoved):
            raise
        except Exception as error:
            self._disconnect()
            if self._tables.database.is_away(error):
                raise TargetAway(f"the database is away: {first_line(error)}") from error
            if isinstance(error, ConnectError):
                raise
            raise ConnectError(f"the database rejects it: {first_line(error)}") from error

    def _connect(self) -> Any:
        if self._connection is None:
            connection = self._tables.database.connect()
            self._connection = connection
            self._tables.database.begin(connection)
            self._tables.sql.prepare(connection)
            connection.execute(self._tables.sql.positions_table(POSITIONS_TABLE))
            if TOPIC_ID not in self._tables.sql.columns(connection, POSITIONS_TABLE):
                self._tables.sql.add_column(connection, POSITIONS_TABLE, TOPIC_ID, "string")
            connection.execute("COMMIT")
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._tables.forget()
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _read_positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        connection = self._connect()
        mark = self._tables.database.placeholder
        found = connection.execute(
            f"SELECT topic, part, next_offset, {TOPIC_ID} FROM {POSITIONS_TABLE} WHERE connector = {mark}",  # noqa: S608 - constants
            (self._connector,),
        ).fetchall()
        stored = {TopicPartition(topic, part): offset for topic, part, offset, _ in found}
        for topic, part, offset, topic_id in found:
            place = TopicPartition(topic, part)
            if place in partitions and topic_id and self._topics.get(topic, topic_id) != topic_id:
                raise of_a_former_topic(place, offset, "the database")
        self._held.update({each: stored.get(each) for each in partitions})
        return {each: stored[each] for each in partitions if each in stored}

    def _write(self, rows: Sequence[tuple[int, Row]], ends: Mapping[TopicPartition, int]) -> None:
        connection = self._connect()
        runs = list(_runs(rows))
        if self._tables.sql.ddl_commits:
            for run in runs:
                self._prepare(connection, run)
        self._tables.database.begin(connection)
        try:
            self._move_positions(connection, ends)
            for run in runs:
                self._write_run(connection, run)
            connection.execute("COMMIT")
        except BaseException:
            # A connection that broke has nothing to undo, and what it raises here must not hide the reason.
            with contextlib.suppress(Exception):
                connection.execute("ROLLBACK")
            self._tables.forget()
            raise
        self._held.update(ends)

    def _move_positions(self, connection: Any, ends: Mapping[TopicPartition, int]) -> None:
        """Set the positions, if they are those that this task left. A task that lost its partitions fails here.

        Raises PositionMoved.
        """
        mark = self._tables.database.placeholder
        for each, end in ends.items():
            held, topic_id = self._held.get(each), self._topics.get(each.topic)
            if held is None:
                # The second of two tasks that both found no position waits here for the first, and changes nothing.
                moved = connection.execute(
                    self._tables.sql.insert_position(POSITIONS_TABLE), (self._connector, *each, end, topic_id)
                )
            else:
                moved = connection.execute(
                    f"UPDATE {POSITIONS_TABLE} SET next_offset = {mark}, {TOPIC_ID} = {mark} "  # noqa: S608 - constants
                    f"WHERE connector = {mark} AND topic = {mark} AND part = {mark} AND next_offset = {mark}",
                    (end, topic_id, self._connector, each.topic, each.partition, held),
                )
            if moved.rowcount != 1:
                raise PositionMoved(f"{each}: another task has written to the database since")

    def _set_positions(self, positions: Mapping[TopicPartition, int | None]) -> None:
        connection = self._connect()
        mark = self._tables.database.placeholder
        this = f"WHERE connector = {mark} AND topic = {mark} AND part = {mark}"
        self._tables.database.begin(connection)
        for each, offset in positions.items():
            place = (self._connector, *each)
            if offset is None:
                connection.execute(f"DELETE FROM {POSITIONS_TABLE} {this}", place)  # noqa: S608 - constants
            else:
                connection.execute(
                    f"UPDATE {POSITIONS_TABLE} SET next_offset = {mark}, {TOPIC_ID} = NULL {this}",  # noqa: S608 - constants
                    (offset, *place),
                )
        connection.execute("COMMIT")

    def _prepare(self, connection: Any, group: Sequence[tuple[int, Row]]) -> None:
        """Create the table of a run, and add columns, as allowed."""
        index, first = group[0]
        if first.values is not None:
            key = [name for name, _ in first.key]
            try:
                self._tables.prepare(connection, first.table, [row.values or {} for _, row in group], key)
            except ValueError as error:
                # all rows of a run have the same fields
                raise RecordRejected(index, str(error)) from error

    def _write_run(self, connection: Any, group: Sequence[tuple[int, Row]]) -> None:
        index, first = group[0]
        indexes = [index for index, _ in group]
        if first.values is None:
            keys = [tuple(self._tables.database.value(value) for _, value in row.key) for _, row in group]
            delete = self._tables.delete(connection, first.table, [name for name, _ in first.key])
            if delete:
                self._execute(connection, delete, keys, indexes)
            return
        names = list(first.values)
        if not self._tables.sql.ddl_commits:
            self._prepare(connection, group)
        known = self._tables.known(first.table)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise RecordRejected(index, f"table {first.table} has no column {unknown[0]}: auto.evolve is false")
        key = [name for name, _ in first.key] if self._upserts else []
        statement = self._tables.sql.insert(first.table, names, key)
        rows = [
            tuple(self._tables.database.value(scalar((row.values or {})[name])) for name in names) for _, row in group
        ]
        self._execute(connection, statement, rows, indexes)

    def _execute(self, connection: Any, statement: str, rows: list[tuple[Any, ...]], indexes: list[int]) -> None:
        """Insert or delete the rows. Raises RecordRejected for the first that the database does not take.

        What is wrong with the table is no reason to skip records: the driver's error is raised.
        """
        database = self._tables.database
        connection.execute("SAVEPOINT odradek_rows")
        try:
            connection.cursor().executemany(statement, rows)
        except Exception as error:
            if database.is_away(error):
                raise
            connection.execute("ROLLBACK TO SAVEPOINT odradek_rows")
            for index, row in zip(indexes, rows, strict=True):
                try:
                    connection.cursor().execute(statement, row)
                except Exception as failure:
                    if database.is_away(failure) or not self._tables.sql.is_of_row(failure):
                        raise
                    raise RecordRejected(index, f"the database rejects the row: {first_line(failure)}") from failure
        connection.execute("RELEASE SAVEPOINT odradek_rows")


class Tables:
    """Tables as they are, and what is created and added where a configuration allows it."""

    def __init__(self, database: Database, *, creates: bool, evolves: bool, upserts: bool) -> None:
        self.database = database
        """The database that has the tables."""
        self.sql = dialect_of(database)
        """Its SQL."""
        self._upserts = upserts
        self._creates = creates
        self._evolves = evolves
        self._columns: dict[str, set[str]] = {}

    def forget(self) -> None:
        """Read the tables' columns again: a transaction that added some was undone, or others changed them."""
        self._columns.clear()

    def known(self, table: str) -> set[str]:
        """The columns of a table that was prepared."""
        return self._columns[table]

    def prepare(self, connection: Any, table: str, rows: Sequence[Mapping[str, Any]], key: Sequence[str]) -> None:
        """Create the table, and add columns, as allowed.

        Raises ValueError for a name that no column can have, the driver's error, StoreError.
        """
        if table not in self._columns:
            if self._creates:
                check_new_columns(rows[0], (), ignores_case=self.sql.ignores_case)
                self.sql.prepare(connection)
                connection.execute(self.sql.create_table(table, _typed(rows), key))
            self._columns[table] = self._read(connection, table)
            self.sql.check_table(connection, table, key if self._upserts else ())
        if not self._evolves or all(row.keys() <= self._columns[table] for row in rows):
            return
        # Another task may have added them, or is about to.
        self.sql.prepare(connection)
        known = self._columns[table] = self._read(connection, table)
        check_new_columns(rows[0].keys() - known, known, ignores_case=self.sql.ignores_case)
        for name, kind in _typed(rows):
            if name not in known:
                logger.info("table %s gets column %s (%s)", table, name, kind)
                self.sql.add_column(connection, table, name, kind)
                known.add(name)

    def delete(self, connection: Any, table: str, names: Sequence[str]) -> str:
        """The statement that deletes the row of a key; empty for a table that does not exist yet. Raises StoreError."""
        if table not in self._columns:
            try:
                self._read(connection, table)
            except StoreError:
                if self._creates:
                    return ""
                raise
        condition = " AND ".join(f"{self.sql.column(name)} = {self.database.placeholder}" for name in names)
        return f"DELETE FROM {self.sql.name(table)} WHERE {condition}"  # noqa: S608 - quoted

    def _read(self, connection: Any, table: str) -> set[str]:
        try:
            return self.sql.columns(connection, table)
        except StoreError as error:
            raise error if self._creates else StoreError(f"{error} (auto.create is false)") from error


def _runs(rows: Sequence[tuple[int, Row]]) -> Iterator[list[tuple[int, Row]]]:
    """Rows next to each other that one statement writes."""

    def shape(each: tuple[int, Row]) -> tuple[Any, ...]:
        row = each[1]
        return (row.table, tuple(name for name, _ in row.key), None if row.values is None else tuple(row.values))

    for _, group in itertools.groupby(rows, shape):
        yield list(group)


def _typed(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(column, Spark's simple type) of JSON values. A column that has no value yet is text."""
    kinds: dict[str, str] = {}
    for row in rows:
        for name, value in row.items():
            kind = kind_of(value)
            before = kinds.get(name)
            if before is None:
                kinds[name] = kind or ""
            elif kind and before != kind:
                kinds[name] = "double" if {before, kind} == {"bigint", "double"} else kind if not before else "string"
    return [(name, kind or "string") for name, kind in kinds.items()]
