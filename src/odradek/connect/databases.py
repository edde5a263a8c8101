"""The database that a connection URL names, for sources and sinks."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from odradek.connect.dialects import Dialect, StandardSql
from odradek.connect.mysql import MySql, MySqlDialect, is_mysql
from odradek.ports.installation import install_hint
from odradek.spark.stores.databases import Database, Postgres, Sqlite

FORMS: Final = "sqlite:///FILE, postgresql://HOST:PORT/NAME or mysql://HOST:PORT/NAME"
URL: Final = "connection.url"
_HOST: Final = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")
"""A host of PostgreSQL, with its port or not."""
_DRIVERS: Final[Mapping[type, tuple[str, str]]] = {Postgres: ("psycopg", "stores"), MySql: ("pymysql", "mysql")}
"""Modules by the kind of database, and the extras that install them."""


def check_database(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with the `connection.…` settings of a connector."""
    try:
        database = database_of(values[URL], values["connection.user"], values["connection.password"])
    except ValueError as error:
        return {URL: [f"{URL}: {error}"]}
    module, extra = _DRIVERS.get(type(database), ("sqlite3", ""))
    if find_spec(module) is None:
        return {URL: [f"{URL}: the driver is not installed ({module}): {install_hint(extra)}"]}
    return {}


def dialect_of(database: Database) -> Dialect:
    """The SQL that the database has."""
    return MySqlDialect(database) if isinstance(database, MySql) else StandardSql(database)


def connect_to_read(database: Database) -> Any:
    """Open a connection that changes nothing: SQLite would make a missing file, and give an existing one a WAL.

    Raises the driver's error.
    """
    if not isinstance(database, Sqlite):
        return database.connect()
    # a file that may not be written is opened as well
    place = f"file:{quote(database.path)}?mode=rw"
    return sqlite3.connect(place, timeout=database.busy_timeout_s, isolation_level=None, uri=True)


def database_of(url: str, user: str = "", password: str = "") -> Database:
    """The database of a URL, `jdbc:` before it or not; a user of its own replaces the URL's. Raises ValueError."""
    plain = url.removeprefix("jdbc:")
    if plain.startswith("sqlite:"):
        path = plain.removeprefix("sqlite:")
        path = path.removeprefix("//").removeprefix("/") if path.startswith("///") else path
        if not path or path == ":memory:":
            raise ValueError("sqlite: a file expected")
        if user or password:
            raise ValueError("sqlite: a file has no users")
        # three slashes and a relative path, four and an absolute one, as SQLAlchemy writes it
        return Sqlite(path)
    if plain.startswith(("postgresql:", "postgres:")):
        parts = urlsplit(plain)
        if not parts.netloc:
            raise ValueError(f"{FORMS} expected")
        # libpq would name what it takes for a port, which may be a part of a password with a / in it
        if not all(_HOST.fullmatch(each) for each in parts.netloc.rpartition("@")[2].split(",")):
            raise ValueError("postgresql://HOST:PORT/NAME expected, with %NN in place of / and @ in a password")
        # JDBC's URL has the user among its parameters
        given = {name: text for name, text in parse_qsl(parts.query) if name in ("user", "password")}
        user, password = user or given.get("user", ""), password or given.get("password", "")
        netloc = parts.netloc.rpartition("@")[2]
        if user:
            netloc = f"{quote(user, safe='')}{':' + quote(password, safe='') if password else ''}@{netloc}"
        else:
            netloc = parts.netloc
        query = "&".join(each for each in parts.query.split("&") if each and each.split("=", 1)[0] not in given)
        return Postgres(urlunsplit(("postgresql", netloc, parts.path, query, "")))
    if is_mysql(plain):
        return MySql.of(plain, user, password)
    raise ValueError(f"{FORMS} expected")


def shown(url: str) -> str:
    """A URL without what may be a secret."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url.partition("?")[0]
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
