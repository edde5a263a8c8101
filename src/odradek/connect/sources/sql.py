"""New and changed rows of SQL tables as records.

Settings have the names of Confluent's JDBC source. A row is a JSON object; dates and times are ISO 8601, decimals are
text, binary columns base64. A row that is committed later with a smaller number or an earlier time than one that was
read is not found: choose a column that grows in the order of commits. By time alone, one of the same time is not found
either. With `timestamp.delay.interval.ms` rows are read once their time lies so far back, so that these are there.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.connect.columns import plain_value
from odradek.connect.databases import FORMS, check_database, connect_to_read, database_of, dialect_of
from odradek.connect.errors import ConnectError, TargetAway
from odradek.connect.model import SourceRecord
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sources.source import StoredOffsets
from odradek.connect.worker_thread import WorkerThread
from odradek.spark.stores.patience import first_line

_DELAY: Final = "timestamp.delay.interval.ms"
SETTINGS: Final = (
    Setting("connection.url", Type.STRING, REQUIRED, f"the database: {FORMS}", Importance.HIGH, group="Database"),
    Setting("connection.user", Type.STRING, "", "user, where the URL has none", group="Database"),
    Setting("connection.password", Type.PASSWORD, "", "password of the user", group="Database"),
    Setting("table.whitelist", Type.LIST, REQUIRED, "tables to read", Importance.HIGH, group="Tables"),
    Setting("topic.prefix", Type.STRING, "", "what the name of a topic has before that of the table", group="Tables"),
    Setting("mode", Type.STRING, REQUIRED, "incrementing finds new rows, timestamp changed ones, too",
            Importance.HIGH, choices=("incrementing", "timestamp", "timestamp+incrementing"), group="Tables"),
    Setting("incrementing.column.name", Type.STRING, "", "column that grows with each new row", group="Tables"),
    Setting("timestamp.column.name", Type.STRING, "", "column that grows with each change", group="Tables"),
    Setting(_DELAY, Type.LONG, 0, "how long a row's time has to lie back until the row is read: "
            "rows with earlier times, or the same, may be committed meanwhile", minimum=0, group="Tables"),
    Setting("key.fields", Type.LIST, [], "columns that make the key; one column alone is a plain value",
            group="Tables"),
    Setting("batch.max.rows", Type.INT, 1_000, "most rows of one transaction", minimum=1, group="Tables"),
)  # fmt: skip


def check(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with settings that are right one by one."""
    errors = check_database(values)
    for part in ("incrementing", "timestamp"):
        name = f"{part}.column.name"
        if (part in values["mode"].split("+")) != bool(values[name]):
            errors[name] = [f"{name}: {'missing' if not values[name] else 'not used'} with mode={values['mode']}"]
    if values[_DELAY] and values["mode"] == "incrementing":
        errors[_DELAY] = [f"{_DELAY}: not used with mode=incrementing"]
    return errors


class SqlSource:
    """One task's tables. See `Source`."""

    def __init__(self, values: Mapping[str, Any], connector: str, tables: Sequence[str]) -> None:
        """`values` are those of a checked configuration; `tables` are this task's."""
        self._database = database_of(values["connection.url"], values["connection.user"], values["connection.password"])
        self._sql = dialect_of(self._database)
        self._tables = list(tables)
        self._prefix: str = values["topic.prefix"]
        self._number: str = values["incrementing.column.name"]
        self._time: str = values["timestamp.column.name"]
        self._delay_ms: int = values[_DELAY]
        self._key: list[str] = values["key.fields"]
        self._limit: int = values["batch.max.rows"]
        self._thread = WorkerThread(f"connect-{connector}")
        self._connection: Any = None
        self._offsets: dict[str, Mapping[str, Any]] = {}

    async def open(self, offsets: StoredOffsets) -> None:
        """See `Source`."""
        self._offsets = {table: offsets.of({"table": table}) or {} for table in self._tables}
        await self._thread.run(self._guarded, self._connect)

    async def poll(self) -> Sequence[SourceRecord]:
        """See `Source`."""
        found: list[SourceRecord] = []
        for table in self._tables:
            rows = await self._thread.run(self._guarded, self._read, table)
            found += [self._record(table, row) for row in rows]
            if rows:
                self._offsets[table] = found[-1].source_offset
        return found

    async def close(self) -> None:
        """See `Source`."""
        await self._thread.run(self._disconnect)
        await self._thread.close()

    def _record(self, table: str, row: Mapping[str, Any]) -> SourceRecord:
        plain = {name: plain_value(value) for name, value in row.items()}
        missing = [name for name in (self._number, self._time, *self._key) if name and name not in plain]
        if missing:
            raise ConnectError(f"table {table} has no column {missing[0]}, but {', '.join(plain)}")
        offset = {}
        if self._number:
            offset["incrementing"] = plain[self._number]
        if self._time:
            offset["timestamp"] = plain[self._time]
        key: Any = {name: plain[name] for name in self._key} or None
        if len(self._key) == 1:
            key = plain[self._key[0]]
        return SourceRecord({"table": table}, offset, f"{self._prefix}{table}", key, plain)

    # --- in the thread ---

    def _guarded(self, work: Any, *arguments: Any) -> Any:
        """Drop the connection after a failure, and say of which kind it was."""
        try:
            return work(*arguments)
        except ConnectError:
            raise
        except Exception as error:
            self._disconnect()
            text = first_line(error)
            if self._database.is_away(error):
                raise TargetAway(f"the database is away: {text}") from error
            raise ConnectError(f"the database rejects it: {text}") from error

    def _connect(self) -> Any:
        if self._connection is None:
            self._connection = connect_to_read(self._database)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _read(self, table: str) -> list[dict[str, Any]]:
        condition, parameters = self._after(table)
        if self._delay_ms:
            condition = f"{condition} AND {self._sql.is_past(self._time, self._delay_ms)}"
        rows = self._select(table, condition, parameters, f"LIMIT {self._limit}")
        if self._number or len(rows) < self._limit:
            return rows
        # The limit may have cut rows of the same time apart, and those behind it would never be later than the offset.
        last = rows[-1][self._time]
        earlier = [row for row in rows if row[self._time] != last]
        if earlier:
            return earlier
        mark = self._database.placeholder
        return self._select(table, f"{self._sql.column(self._time)} = {mark}", (_parameter(last),), "")

    def _after(self, table: str) -> tuple[str, tuple[Any, ...]]:
        """The condition on rows behind the offset, with its parameters."""
        offset = self._offsets.get(table) or {}
        mark = self._database.placeholder
        number, time = (self._sql.column(each) if each else "" for each in (self._number, self._time))
        if not offset:
            return " AND ".join(f"{each} IS NOT NULL" for each in (number, time) if each), ()
        if not self._time:
            return f"{number} > {mark}", (offset["incrementing"],)
        if not self._number:
            return f"{time} > {mark}", (offset["timestamp"],)
        at = offset["timestamp"]
        condition = f"({time} > {mark} OR ({time} = {mark} AND {number} > {mark}))"
        return condition, (at, at, offset["incrementing"])

    def _select(self, table: str, condition: str, parameters: tuple[Any, ...], limit: str) -> list[dict[str, Any]]:
        order = ", ".join(self._sql.column(each) for each in (self._time, self._number) if each)
        statement = f"SELECT * FROM {self._sql.name(table)} WHERE {condition} ORDER BY {order} {limit}"  # noqa: S608 - quoted
        cursor = self._connect().execute(statement, parameters)
        names = [each[0] for each in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _parameter(value: Any) -> Any:
    return value.isoformat() if isinstance(value, dt.datetime | dt.date) else value
