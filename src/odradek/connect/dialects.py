"""What the SQL of a database calls things: identifiers, tables and their columns, inserts that replace, positions."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple, Protocol

from odradek.spark.stores.databases import (
    Database,
    Postgres,
    StoreError,
    create_statement,
    insert_statement,
    named,
    quoted,
    quoted_column,
)
from odradek.spark.stores.patience import first_line

_WRONG_TYPE: Final = "42804"
"""SQLSTATE of a value of another type than its column, among those of wrong statements and missing rights."""


class Dialect(Protocol):
    """The statements of connectors. Columns have Spark's names of simple types."""

    @property
    def ddl_commits(self) -> bool:
        """Whether CREATE and ALTER TABLE commit what a transaction has done, so that they have to come before it."""
        ...

    @property
    def ignores_case(self) -> bool:
        """Whether names of columns do not differ by case."""
        ...

    def name(self, name: str) -> str:
        """The identifier of a table in a statement with parameters, `schema.table` too."""
        ...

    def column(self, name: str) -> str:
        """The identifier of a column in a statement with parameters."""
        ...

    def prepare(self, connection: Any) -> None:
        """Let a transaction create tables and columns beside others that do so. Raises the driver's error."""
        ...

    def positions_table(self, table: str) -> str:
        """CREATE TABLE IF NOT EXISTS for positions: connector, topic, part, next_offset, topic_id."""
        ...

    def insert_position(self, table: str) -> str:
        """An INSERT into such a table that changes no row if there is a position."""
        ...

    def create_table(self, table: str, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> str:
        """CREATE TABLE IF NOT EXISTS for (name, type) columns. Raises StoreError."""
        ...

    def add_column(self, connection: Any, table: str, column: str, kind: str) -> None:
        """Add a column, unless another task has just done so. Raises the driver's error."""
        ...

    def columns(self, connection: Any, table: str) -> set[str]:
        """The names of a table's columns. Raises StoreError if it cannot be read, the driver's error if it is away."""
        ...

    def check_table(self, connection: Any, table: str, key: Collection[str]) -> None:
        """Raises StoreError for a table in which a transaction, or an upsert by the key, would not do what it says."""
        ...

    def insert(self, table: str, names: Sequence[str], key: Sequence[str]) -> str:
        """An INSERT that replaces the row of the same key."""
        ...

    def is_of_row(self, error: Exception) -> bool:
        """Whether a row could not be written because of its values, and not of the table, or of the right to write."""
        ...

    def is_past(self, column: str, delay_ms: int) -> str:
        """The condition that the time in a column lies so far back, by the database's clock."""
        ...


class StandardSql(NamedTuple):
    """SQLite and PostgreSQL."""

    database: Database

    @property
    def ddl_commits(self) -> bool:
        """False: a transaction can undo it."""
        return False

    @property
    def ignores_case(self) -> bool:
        """Whether this is SQLite."""
        return not isinstance(self.database, Postgres)

    def name(self, name: str) -> str:
        """See `Dialect`."""
        return named(self.database, quoted(name))

    def column(self, name: str) -> str:
        """See `Dialect`."""
        return named(self.database, quoted_column(name))

    def prepare(self, connection: Any) -> None:
        """See `Dialect`. PostgreSQL's IF NOT EXISTS fails where two transactions create the same table."""
        if isinstance(self.database, Postgres):
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('odradek connect tables', 0))")

    def positions_table(self, table: str) -> str:
        """See `Dialect`."""
        return (
            f"CREATE TABLE IF NOT EXISTS {table} (connector TEXT NOT NULL, topic TEXT NOT NULL, "
            "part INTEGER NOT NULL, next_offset BIGINT NOT NULL, topic_id TEXT, PRIMARY KEY (connector, topic, part))"
        )

    def insert_position(self, table: str) -> str:
        """See `Dialect`."""
        marks = ", ".join([self.database.placeholder] * 5)
        return (
            f"INSERT INTO {table} (connector, topic, part, next_offset, topic_id) VALUES ({marks}) "  # noqa: S608 - a constant
            "ON CONFLICT (connector, topic, part) DO NOTHING"
        )

    def create_table(self, table: str, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> str:
        """See `Dialect`."""
        return create_statement(self.database, table, columns, key)

    def add_column(self, connection: Any, table: str, column: str, kind: str) -> None:
        """See `Dialect`. A transaction of SQLite excludes others, and has read the columns."""
        condition = "IF NOT EXISTS " if isinstance(self.database, Postgres) else ""
        made = f"{quoted_column(column)} {self.database.column_type(kind)}"
        connection.execute(f"ALTER TABLE {quoted(table)} ADD COLUMN {condition}{made}")

    def columns(self, connection: Any, table: str) -> set[str]:
        """See `Dialect`."""
        connection.execute("SAVEPOINT odradek_columns")
        try:
            cursor = connection.execute(f"SELECT * FROM {quoted(table)} LIMIT 0")  # noqa: S608 - quoted
        except Exception as error:
            if self.database.is_away(error):
                raise
            connection.execute("ROLLBACK TO SAVEPOINT odradek_columns")
            raise StoreError(f"table {table} cannot be read: {first_line(error)}") from error
        found = {each[0] for each in cursor.description}
        connection.execute("RELEASE SAVEPOINT odradek_columns")
        return found

    def check_table(self, connection: Any, table: str, key: Collection[str]) -> None:
        """See `Dialect`. All tables have transactions, and an upsert without a unique key fails."""

    def insert(self, table: str, names: Sequence[str], key: Sequence[str]) -> str:
        """See `Dialect`."""
        return insert_statement(self.database, table, names, key)

    def is_of_row(self, error: Exception) -> bool:
        """See `Dialect`."""
        if isinstance(self.database, Postgres):
            state = getattr(error, "sqlstate", None) or ""
            return not state.startswith("42") or state == _WRONG_TYPE
        return not isinstance(error, sqlite3.OperationalError)

    def is_past(self, column: str, delay_ms: int) -> str:
        """See `Dialect`. SQLite has text in UTC, or ms since 1970; a time that it cannot read has passed long ago."""
        name = self.column(column)
        if isinstance(self.database, Postgres):
            return f"{name} <= CURRENT_TIMESTAMP - INTERVAL '{delay_ms} milliseconds'"
        day = f"CASE typeof({name}) WHEN 'text' THEN julianday({name}) ELSE {name} / 86400000.0 + 2440587.5 END"
        return f"IFNULL({day}, 0) <= julianday('now') - {delay_ms} / 86400000.0"
