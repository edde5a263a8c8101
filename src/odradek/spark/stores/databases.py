"""The two SQL databases: how to connect, what their SQL calls things, how one transaction keeps others out.

Both are plain values, so that tasks on executors can be handed one. Another database is a class with the same members.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class StoreError(RuntimeError):
    """The rows or the table do not fit, or a batch belongs to another query."""


class Database(Protocol):
    """Connections are DB-API ones that begin and end no transaction by themselves."""

    @property
    def placeholder(self) -> str:
        """The mark of a parameter in a statement."""
        ...

    def connect(self) -> Any:
        """Open a connection. Raises the driver's error."""
        ...

    def begin(self, connection: Any, lock: str | None = None) -> None:
        """Begin a transaction that excludes others with the same `lock`."""
        ...

    def is_away(self, error: Exception) -> bool:
        """Whether the same may work later: the database is down, restarts, or is locked."""
        ...

    def column_type(self, kind: str) -> str:
        """The type for a column of Spark's simple type name. Raises StoreError."""
        ...

    def value(self, value: Any) -> Any:
        """What the driver takes for a value of a Row."""
        ...


_SQLITE_TYPES = {
    "string": "TEXT", "binary": "BLOB", "boolean": "INTEGER", "tinyint": "INTEGER", "smallint": "INTEGER",
    "int": "INTEGER", "bigint": "INTEGER", "float": "REAL", "double": "REAL", "date": "TEXT", "timestamp": "TEXT",
    "timestamp_ntz": "TEXT", "decimal": "TEXT",
}  # fmt: skip
_POSTGRES_TYPES = {
    "string": "TEXT", "binary": "BYTEA", "boolean": "BOOLEAN", "tinyint": "SMALLINT", "smallint": "SMALLINT",
    "int": "INTEGER", "bigint": "BIGINT", "float": "REAL", "double": "DOUBLE PRECISION", "date": "DATE",
    "timestamp": "TIMESTAMPTZ", "timestamp_ntz": "TIMESTAMP", "decimal": "NUMERIC",
}  # fmt: skip


def _type_of(kind: str, types: dict[str, str]) -> str:
    found = types.get(kind.split("(", 1)[0])
    if found is None:
        raise StoreError(f"a column of type {kind} cannot be stored; turn it into text, with to_json for example")
    return found


class Sqlite(NamedTuple):
    """A SQLite file. Only processes of this machine can write to it, one at a time."""

    path: str
    busy_timeout_s: float = 10.0

    @property
    def placeholder(self) -> str:
        """The mark of a parameter in a statement."""
        return "?"

    def connect(self) -> sqlite3.Connection:
        """Open the file. Raises sqlite3.Error."""
        connection = sqlite3.connect(self.path, timeout=self.busy_timeout_s, isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        # In WAL mode the default, NORMAL, may lose the last commits of a power loss, after which offsets go back, too:
        # consistent, but not what "committed" says.
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def begin(self, connection: sqlite3.Connection, lock: str | None = None) -> None:
        """Begin a transaction that takes the write lock at once."""
        connection.execute("BEGIN IMMEDIATE")

    def is_away(self, error: Exception) -> bool:
        """Whether a retry may succeed: the file is locked, cannot be opened, or its disk is full or fails."""
        # "database is locked", "unable to open database file" (its disk is not mounted), "disk I/O error",
        # "database or disk is full"
        words = ("locked", "unable to open", "disk I/O", "is full")
        return isinstance(error, sqlite3.OperationalError) and any(each in str(error) for each in words)

    def column_type(self, kind: str) -> str:
        """The column type of a Spark type."""
        return _type_of(kind, _SQLITE_TYPES)

    def value(self, value: Any) -> Any:
        """A Spark value as the driver accepts it."""
        if isinstance(value, dt.datetime | dt.date):
            return value.isoformat()
        return str(value) if isinstance(value, decimal.Decimal) else value


_KEEPALIVES = {
    "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3, "tcp_user_timeout": 60_000,
}  # fmt: skip
"""libpq's parameters by which a server whose host is gone is noticed within a minute, and not after two hours."""
_READ_ONLY = "25006"
"""SQLSTATE of a write on a server that is a standby, as the former leader after a failover."""
_REJECTED_STATES = ("28", "3D")
"""Classes of SQLSTATE: invalid authorization, invalid catalog name."""
_REJECTED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|(?:database|role) .+ does not exist"
    r"|is not permitted to log in|permission denied for database"
)
"""libpq has only text for what a server says to a new connection."""


def _is_rejected(state: str | None, text: str) -> bool:
    """Whether PostgreSQL rejects the user or the database of a connection."""
    return (state or "").startswith(_REJECTED_STATES) or _REJECTED.search(text) is not None


class Postgres(NamedTuple):
    """A PostgreSQL server, by a connection string or URL as libpq takes it; needs psycopg (extra `stores`)."""

    conninfo: str
    connect_timeout_s: int = 10

    @property
    def placeholder(self) -> str:
        """The mark of a parameter in a statement."""
        return "%s"

    def connect(self) -> Any:
        """Open a connection. Raises the driver's error."""
        import psycopg

        given = psycopg.conninfo.conninfo_to_dict(self.conninfo)
        unset: Any = {name: value for name, value in _KEEPALIVES.items() if name not in given}
        return psycopg.connect(self.conninfo, autocommit=True, connect_timeout=self.connect_timeout_s, **unset)

    def begin(self, connection: Any, lock: str | None = None) -> None:
        """Begin a transaction, serialized with others of the same lock name."""
        connection.execute("BEGIN")
        if lock is not None:
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", (f"odradek {lock}",))

    def is_away(self, error: Exception) -> bool:
        """Whether a retry may succeed: the connection, the server or its resources failed.

        A server that rejects the user or has no such database is there, and will say so again.
        """
        import psycopg

        if isinstance(error, psycopg.Error) and error.sqlstate == _READ_ONLY:
            return True
        # connection failures, a server that shuts down or starts (57P0x), deadlocks, lack of disk or connections
        return isinstance(error, psycopg.OperationalError) and not _is_rejected(error.sqlstate, str(error))

    def column_type(self, kind: str) -> str:
        """The column type of a Spark type."""
        return _type_of(kind, _POSTGRES_TYPES)

    def value(self, value: Any) -> Any:
        """A Spark value as the driver accepts it."""
        return bytes(value) if isinstance(value, bytearray) else value


def quoted(name: str) -> str:
    """The identifier of a table, `schema.table` too."""
    return ".".join(map(quoted_column, name.split(".")))


def quoted_column(name: str) -> str:
    """The identifier of a column, whose name may have dots."""
    return '"' + name.replace('"', '""') + '"'


def named(database: Database, identifier: str) -> str:
    """A quoted identifier in a statement with parameters; drivers that mark these with percents take two for one."""
    return identifier.replace("%", "%%") if database.placeholder == "%s" else identifier


def create_statement(database: Database, table: str, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> str:
    """CREATE TABLE IF NOT EXISTS for (name, Spark's type) columns. Raises StoreError."""
    missing = [name for name in key if name not in {each for each, _ in columns}]
    if missing:
        raise StoreError(f"the rows have no column {', '.join(missing)}, which {table} has as its key")
    parts = [f"{quoted_column(name)} {database.column_type(kind)}" for name, kind in columns]
    if key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quoted_column, key))})")
    return f"CREATE TABLE IF NOT EXISTS {quoted(table)} ({', '.join(parts)})"


def insert_statement(database: Database, table: str, names: Sequence[str], key: Sequence[str]) -> str:
    """An INSERT that replaces the row of the same key."""
    values = ", ".join([database.placeholder] * len(names))
    columns = {name: named(database, quoted_column(name)) for name in names}
    text = f"INSERT INTO {named(database, quoted(table))} ({', '.join(columns.values())}) VALUES ({values})"  # noqa: S608 - quoted
    if not key:
        return text
    changed = [f"{column} = excluded.{column}" for name, column in columns.items() if name not in key]
    action = f"UPDATE SET {', '.join(changed)}" if changed else "NOTHING"
    return f"{text} ON CONFLICT ({', '.join(named(database, quoted_column(name)) for name in key)}) DO {action}"
