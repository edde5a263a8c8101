"""MySQL and MariaDB, by PyMySQL (extra `mysql`).

CREATE and ALTER TABLE commit the transaction that they are in. A string key is compared by its bytes, as Kafka compares
keys, though without spaces at its end: no collation that both servers have counts them.
"""

from __future__ import annotations

import ssl
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from odradek.ports.network import limit_silence
from odradek.spark.stores.databases import StoreError
from odradek.spark.stores.patience import first_line

SCHEMES: Final = ("mysql", "mariadb")
_PORT: Final = 3306
_PARAMETERS: Final = ("user", "password", "ssl_ca", "ssl_cert", "ssl_key")
_SESSION: Final = (
    "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@SESSION.sql_mode, ''), 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO'), "
    "time_zone = '+00:00'"
)
"""Values that do not fit are errors, a key 0 stays 0, and TIMESTAMP columns do not depend on the server's time zone."""

_TYPES: Final = {
    "string": "LONGTEXT CHARACTER SET utf8mb4", "binary": "LONGBLOB", "boolean": "BOOLEAN", "bigint": "BIGINT",
    "double": "DOUBLE",
}  # fmt: skip
_KEY_TYPES: Final = {
    **_TYPES, "string": "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "binary": "VARBINARY(1000)",
}  # fmt: skip
"""A key needs types of bounded size."""

_AWAY: Final = frozenset({
    0,  # the driver's connection was closed
    1021, 1114,  # the disk is full, the table is
    1037, 1038, 1040, 1203,  # lack of memory, lack of connections, of the user's connections
    1053, 1077, 1152, 1158, 1159, 1160, 1161, 1927, 4031,  # the server shuts down, or has ended the connection
    1205, 1213,  # a lock was waited for too long, a deadlock
    1290, 1836,  # a server that was or will be the leader is read only
    2002, 2003, 2006, 2013, 2055,  # the client cannot connect, or has lost the connection
})  # fmt: skip
"""Codes of errors after which the same may succeed; all others are lasting."""
_DUPLICATE_COLUMN: Final = 1060
_SILENCE_S: Final = 60.0
"""How long the server's host may not answer the kernel's probes."""
_OF_TABLE: Final = frozenset({1036, 1044, 1054, 1142, 1143, 1146})
"""Codes of errors for every row: the table is read only or missing, lacks a column, or may not be written."""


def identifier(name: str) -> str:
    """The quoted name of a table, `schema.table` too."""
    return ".".join(map(column_identifier, name.split(".")))


def column_identifier(name: str) -> str:
    """The quoted name of a column, which may have dots."""
    return "`" + name.replace("`", "``") + "`"


class MySqlConnection:
    """PyMySQL's connection with the method that those of SQLite and PostgreSQL have."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def execute(self, statement: str, parameters: Sequence[Any] | None = None) -> Any:
        """A cursor that has executed the statement. Raises the driver's error."""
        cursor = self._driver.cursor()
        cursor.execute(statement, parameters)
        return cursor

    def cursor(self) -> Any:
        """A new cursor."""
        return self._driver.cursor()

    def close(self) -> None:
        """Disconnect."""
        self._driver.close()


class MySql(NamedTuple):
    """A server and a database on it. See `Database`."""

    host: str
    port: int
    name: str
    user: str = ""
    password: str = ""
    tls: tuple[tuple[str, str], ...] = ()
    """PyMySQL's ssl_ca, ssl_cert and ssl_key."""
    connect_timeout_s: int = 10

    @classmethod
    def of(cls, url: str, user: str = "", password: str = "") -> MySql:
        """The one of a URL; a user of its own replaces the URL's. Raises ValueError."""
        parts = urlsplit(url)
        name = unquote(parts.path.removeprefix("/"))
        try:
            port = parts.port or _PORT
        except ValueError:
            # its text has what may be a part of a password with a / in it
            port = 0
        if not parts.hostname or not name or "/" in name or not port:
            raise ValueError("mysql://HOST:PORT/NAME expected, with %NN in place of / and @ in a password")
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = [each for each in given if each not in _PARAMETERS]
        if unknown:
            raise ValueError(f"{unknown[0]}: one of {', '.join(_PARAMETERS)} expected as a parameter of the URL")
        if "ssl_ca" not in given and ("ssl_cert" in given or "ssl_key" in given):
            raise ValueError("ssl_cert and ssl_key need ssl_ca")
        return cls(
            parts.hostname,
            port,
            name,
            user or given.get("user", "") or unquote(parts.username or ""),
            password or given.get("password", "") or unquote(parts.password or ""),
            tuple((each, given[each]) for each in ("ssl_ca", "ssl_cert", "ssl_key") if each in given),
        )

    @property
    def placeholder(self) -> str:
        """The mark of a parameter in a statement."""
        return "%s"

    def connect(self) -> MySqlConnection:
        """Open a connection. Raises the driver's error."""
        import pymysql

        # With `ssl_ca`, the certificate has to be one of the authority's, for the host's name.
        tls: dict[str, Any] = dict(self.tls)
        if tls:
            tls.update(ssl_verify_cert=True, ssl_verify_identity=True)
        connection = pymysql.connect(
            host=self.host,
            port=self.port,
            database=self.name,
            user=self.user or None,
            password=self.password,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=self.connect_timeout_s,
            # UPDATE returns the rows that it found, though it changed none of their values.
            client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
            init_command=_SESSION,
            **tls,
        )
        # a statement that a host has received which is gone since would be waited for, for hours
        limit_silence(connection._sock, _SILENCE_S)
        return MySqlConnection(connection)

    def begin(self, connection: Any, lock: str | None = None) -> None:
        """Begin a transaction; InnoDB locks the rows that it changes, so there are no names of locks."""
        if lock is not None:
            raise ValueError("transactions of MySQL have no named locks")
        connection.execute("START TRANSACTION")

    def is_away(self, error: Exception) -> bool:
        """Whether a retry may succeed: the connection, the server or its resources failed.

        A server with a wrong certificate, in contrast, will have it the next time.
        """
        import pymysql

        if isinstance(getattr(error, "original_exception", None), ssl.SSLCertVerificationError):
            return False
        if isinstance(error, pymysql.err.InterfaceError | OSError):
            return True
        return isinstance(error, pymysql.err.MySQLError) and error_code(error) in _AWAY

    def column_type(self, kind: str) -> str:
        """The type for a column that is not part of a key."""
        return _TYPES[kind]

    def value(self, value: Any) -> Any:
        """Values of JSON are accepted as they are."""
        return value


def error_code(error: Exception) -> int | None:
    """The server's or the driver's number of an error."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else None


class MySqlDialect(NamedTuple):
    """The SQL that MySQL and MariaDB have in common. See `Dialect`."""

    database: MySql

    @property
    def ddl_commits(self) -> bool:
        """True."""
        return True

    @property
    def ignores_case(self) -> bool:
        """True."""
        return True

    def name(self, name: str) -> str:
        """See `Dialect`. The driver takes two percents for one."""
        return identifier(name).replace("%", "%%")

    def column(self, name: str) -> str:
        """See `Dialect`."""
        return column_identifier(name).replace("%", "%%")

    def prepare(self, connection: Any) -> None:
        """See `Dialect`. Nothing: the server lets one task at a time change a table."""

    def positions_table(self, table: str) -> str:
        """See `Dialect`. Names of topics differ by case."""
        text = "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
        return (
            f"CREATE TABLE IF NOT EXISTS {table} (connector VARCHAR(200) {text}, topic VARCHAR(249) {text}, "
            "part INTEGER NOT NULL, next_offset BIGINT NOT NULL, topic_id VARCHAR(32), "
            "PRIMARY KEY (connector, topic, part)) ENGINE=InnoDB"
        )

    def insert_position(self, table: str) -> str:
        """See `Dialect`."""
        return (
            f"INSERT IGNORE INTO {table} (connector, topic, part, next_offset, topic_id) "  # noqa: S608 - a constant
            "VALUES (%s, %s, %s, %s, %s)"
        )

    def create_table(self, table: str, columns: Sequence[tuple[str, str]], key: Sequence[str]) -> str:
        """See `Dialect`."""
        missing = [name for name in key if name not in {each for each, _ in columns}]
        if missing:
            raise StoreError(f"the rows have no column {', '.join(missing)}, which {table} has as its key")
        parts = [f"{column_identifier(name)} {(_KEY_TYPES if name in key else _TYPES)[kind]}" for name, kind in columns]
        if key:
            parts.append(f"PRIMARY KEY ({', '.join(map(column_identifier, key))})")
        return f"CREATE TABLE IF NOT EXISTS {identifier(table)} ({', '.join(parts)}) ENGINE=InnoDB"

    def add_column(self, connection: Any, table: str, column: str, kind: str) -> None:
        """See `Dialect`. Names of columns do not differ by case."""
        try:
            connection.execute(f"ALTER TABLE {identifier(table)} ADD COLUMN {column_identifier(column)} {_TYPES[kind]}")
        except Exception as error:
            if error_code(error) != _DUPLICATE_COLUMN:
                raise
            if column not in self.columns(connection, table):
                raise StoreError(f"table {table} has a column whose name is {column} but for the case") from error

    def columns(self, connection: Any, table: str) -> set[str]:
        """See `Dialect`."""
        try:
            cursor = connection.execute(f"SELECT * FROM {identifier(table)} LIMIT 0")  # noqa: S608 - quoted
        except Exception as error:
            if self.database.is_away(error):
                raise
            raise StoreError(f"table {table} cannot be read: {first_line(error)}") from error
        return {each[0] for each in cursor.description}

    def check_table(self, connection: Any, table: str, key: Collection[str]) -> None:
        """See `Dialect`. MyISAM and its relatives undo nothing; ON DUPLICATE KEY needs a unique key to find rows by."""
        schema, _, plain = table.rpartition(".")
        place = (schema or self.database.name, plain)
        engines = connection.execute(
            "SELECT t.engine, e.transactions FROM information_schema.tables t JOIN information_schema.engines e "
            "ON e.engine = t.engine WHERE t.table_schema = %s AND t.table_name = %s",
            place,
        ).fetchall()
        for engine, transactions in engines:
            if transactions != "YES":
                raise StoreError(f"table {table} has the engine {engine}, which has no transactions: use InnoDB")
        if not key:
            return
        indexes: dict[str, set[str]] = {}
        for index, column in connection.execute(
            "SELECT index_name, column_name FROM information_schema.statistics "
            "WHERE table_schema = %s AND table_name = %s AND non_unique = 0",
            place,
        ).fetchall():
            indexes.setdefault(index, set()).add(str(column).lower())
        if {each.lower() for each in key} not in indexes.values():
            raise StoreError(f"table {table} has no unique key of {', '.join(key)}: an upsert would add rows")

    def insert(self, table: str, names: Sequence[str], key: Sequence[str]) -> str:
        """See `Dialect`. MariaDB has no aliases of new rows, so that VALUES() names them."""
        marks = ", ".join(["%s"] * len(names))
        text = f"INSERT INTO {self.name(table)} ({', '.join(map(self.column, names))}) VALUES ({marks})"  # noqa: S608 - quoted
        if not key:
            return text
        # a key alone is set to itself
        changed = [each for each in names if each not in key] or list(key)[:1]
        action = ", ".join(f"{self.column(each)} = VALUES({self.column(each)})" for each in changed)
        return f"{text} ON DUPLICATE KEY UPDATE {action}"

    def is_of_row(self, error: Exception) -> bool:
        """See `Dialect`."""
        return error_code(error) not in _OF_TABLE

    def is_past(self, column: str, delay_ms: int) -> str:
        """See `Dialect`. The session has UTC."""
        return f"{self.column(column)} <= CURRENT_TIMESTAMP(6) - INTERVAL {delay_ms * 1000} MICROSECOND"


def is_mysql(url: str) -> bool:
    """Whether the URL, without `jdbc:`, names such a server."""
    return url.partition(":")[0] in SCHEMES
