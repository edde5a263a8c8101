"""The database that a connection URL names, for sources and sinks."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from odradek.spark.stores.databases import Database, Postgres, Sqlite

FORMS: Final = "sqlite:///FILE or postgresql://HOST:PORT/NAME"


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
    raise ValueError(f"{FORMS} expected")


def shown(url: str) -> str:
    """A URL without what may be a secret."""
    scheme, colon, rest = url.partition("://")
    if not colon:
        return url.partition("?")[0]
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
