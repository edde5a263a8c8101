"""What the SQLite store does in the file, in the thread of its lane: nodes, sessions, and news for others.

Every change is one transaction that first looks whether the session that makes it still exists. When there are other
sessions, the changed paths go into the same transaction, so that the others can read what is new for them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from odradek.ports.liveness import Lease, is_abandoned, remove_lease, renewed_at
from odradek.ports.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    SessionExpired,
    StoreError,
    checked,
    parent_of,
)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (
    path TEXT PRIMARY KEY,
    parent TEXT NOT NULL,
    data BLOB NOT NULL,
    version INTEGER NOT NULL,
    session INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS nodes_by_parent ON nodes (parent);
CREATE INDEX IF NOT EXISTS nodes_by_session ON nodes (session) WHERE session <> 0;
CREATE TABLE IF NOT EXISTS sessions (id INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE IF NOT EXISTS changes (seq INTEGER PRIMARY KEY, session INTEGER NOT NULL, path TEXT NOT NULL);
"""
_SCHEMA_VERSION = 2
_PERSISTENT = 0
_BUSY_SECONDS = 10.0
_WAL_ATTEMPTS = 50

NEWS_KEPT = 4096
"""Changed paths that the file keeps; a process that missed more learns that anything may have changed."""
MOST_NEWS = 256
"""A transaction that changed more paths is recorded as a change of everything."""
EVERYTHING = ""


class TreeChange(NamedTuple):
    """What a transaction did."""

    changed: list[str]
    others: list[int]
    """Sessions besides the one that made the change."""
    ended: bool = False
    """Whether it was this transaction that ended a session."""


class Opened(NamedTuple):
    """A new session, and what its beginning changed for other sessions."""

    session: int
    lease: Lease
    last_seq: int
    outcome: TreeChange


def lease_path(path: str, session: int) -> str:
    """The path of a session's lease."""
    return f"{path}.session.{session}"


def connect(path: str, seconds: float = _BUSY_SECONDS) -> sqlite3.Connection:
    """A connection to the file; `seconds` is how long a call waits for another process's lock."""
    # Used by one thread at a time, though not always by the same.
    return sqlite3.connect(path, timeout=seconds, isolation_level=None, check_same_thread=False)


class SqliteTree:
    """The writing connection. Made by `open`; methods raise sqlite3.Error, OSError and StoreError."""

    __slots__ = ("_path", "_writer")

    def __init__(self, path: str, writer: sqlite3.Connection) -> None:
        self._path = path
        self._writer = writer

    @classmethod
    def open(cls, path: str) -> SqliteTree:
        """Open the file, and create or migrate its tables. Raises sqlite3.Error."""
        writer = connect(path)
        try:
            _use_wal(writer)
            # Until there is a session no write is acknowledged.
            writer.execute("PRAGMA synchronous = NORMAL")
            found: int = writer.execute("PRAGMA user_version").fetchone()[0]
            if found > _SCHEMA_VERSION:
                raise sqlite3.DatabaseError(f"was written by a newer version (format {found})")
            if found < _SCHEMA_VERSION:
                writer.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;")
        except BaseException:
            writer.close()
            raise
        return cls(path, writer)

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    # --- sessions ---

    def begin_session(self, now: float) -> Opened:
        """A new session, after those whose processes are dead were buried."""
        lease: Lease | None = None
        try:
            with _Transaction(self._writer):
                changed: list[str] = []
                buried = [session for session in self._sessions() if is_abandoned(lease_path(self._path, session))]
                for session in buried:
                    self._forget(session, changed)
                session = int(self._writer.execute("INSERT INTO sessions DEFAULT VALUES").lastrowid or 0)
                lease = Lease(lease_path(self._path, session), now)
                others = self._record_changes(session, changed)
                last_seq = self._last_seq()
        except BaseException:
            # Of a transaction that was not committed the next one gets the same number.
            if lease is not None:
                lease.end()
            raise
        self._remove_leases(buried)
        # NORMAL could lose the last transactions in a power loss: they would have been acknowledged.
        self._writer.execute("PRAGMA synchronous = FULL")
        return Opened(session, lease, last_seq, TreeChange(changed, others))

    def end_session(self, session: int) -> TreeChange | None:
        """End the process's own session; None if it has ended already."""
        return self._end(session, session)

    def bury(self, by: int, session: int) -> TreeChange | None:
        """Remove what the session of a dead process left; None while its process lives."""
        path = lease_path(self._path, session)
        return self._end(by, session, lambda: is_abandoned(path))

    def expire(self, by: int, session: int, stamp: float | None) -> TreeChange | None:
        """End the session of a process that is silent since `stamp`; None if it is not."""
        path = lease_path(self._path, session)
        return self._end(by, session, lambda: renewed_at(path) == stamp)

    def _end(self, by: int, session: int, confirmed: Callable[[], bool] | None = None) -> TreeChange | None:
        changed: list[str] = []
        with _Transaction(self._writer):
            ended = session in self._sessions()
            # Checked with the file locked: no other process ends it, and its owner cannot write, meanwhile.
            if ended and confirmed is not None and not confirmed():
                return None
            if ended:
                self._forget(session, changed)
            others = self._record_changes(by, changed)
        remove_lease(lease_path(self._path, session))
        return TreeChange(changed, others, ended)

    def _sessions(self) -> list[int]:
        return [row[0] for row in self._writer.execute("SELECT id FROM sessions").fetchall()]

    def _forget(self, session: int, changed: list[str]) -> None:
        rows = self._writer.execute("SELECT path FROM nodes WHERE session = ?", (session,)).fetchall()
        changed.extend(row[0] for row in rows)
        self._writer.execute("DELETE FROM nodes WHERE session = ?", (session,))
        self._writer.execute("DELETE FROM sessions WHERE id = ?", (session,))

    def _remove_leases(self, sessions: Iterable[int]) -> None:
        for session in sessions:
            remove_lease(lease_path(self._path, session))

    # --- nodes ---

    def write(self, session: int, operations: Sequence[Operation]) -> TreeChange:
        """Raises SessionExpired, and the StoreError of the first operation that is refused."""
        changed: list[str] = []
        with _Transaction(self._writer):
            if self._writer.execute("SELECT 1 FROM sessions WHERE id = ?", (session,)).fetchone() is None:
                raise SessionExpired("the session is over")
            for operation in operations:
                self._apply(operation, session, changed)
            return TreeChange(changed, self._record_changes(session, changed))

    def _apply(self, operation: Operation, session: int, changed: list[str]) -> None:
        path = checked(operation.path)
        writer = self._writer
        row = writer.execute("SELECT version FROM nodes WHERE path = ?", (path,)).fetchone()
        if isinstance(operation, Create):
            if row is not None or path == "/":
                raise NodeExists(path)
            self._create(path, operation.data, session if operation.ephemeral else _PERSISTENT, changed)
            return
        if row is None:
            raise NoNode(path)
        if operation.version not in (ANY_VERSION, row[0]):
            raise BadVersion(f"{path} has version {row[0]}, not {operation.version}")
        if isinstance(operation, Put):
            writer.execute("UPDATE nodes SET data = ?, version = version + 1 WHERE path = ?", (operation.data, path))
            changed.append(path)
        elif isinstance(operation, Delete):
            if writer.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)).fetchone():
                raise NotEmpty(path)
            writer.execute("DELETE FROM nodes WHERE path = ?", (path,))
            changed.append(path)
        else:
            assert isinstance(operation, Check)

    def _create(self, path: str, data: bytes, session: int, changed: list[str]) -> None:
        parent = parent_of(path)
        if parent != "/":
            row = self._writer.execute("SELECT session FROM nodes WHERE path = ?", (parent,)).fetchone()
            if row is None:
                self._create(parent, b"", _PERSISTENT, changed)
            elif row[0] != _PERSISTENT:
                raise StoreError(f"{parent} is ephemeral and cannot have children")
        self._writer.execute("INSERT INTO nodes VALUES (?, ?, ?, 0, ?)", (path, parent, data, session))
        changed.append(path)

    # --- news ---

    def _record_changes(self, session: int, changed: Sequence[str]) -> list[int]:
        """Note the changes if other sessions are there to read them; returns the ids of those sessions."""
        others = [other for other in self._sessions() if other != session]
        if others and changed:
            paths = list(dict.fromkeys(changed)) if len(changed) <= MOST_NEWS else [EVERYTHING]
            self._writer.executemany("INSERT INTO changes (session, path) VALUES (?, ?)", [(session, p) for p in paths])
            self._writer.execute("DELETE FROM changes WHERE seq <= ?", (self._last_seq() - NEWS_KEPT,))
        return others

    def _last_seq(self) -> int:
        return int(self._writer.execute("SELECT coalesce(max(seq), 0) FROM changes").fetchone()[0])


def _use_wal(writer: sqlite3.Connection) -> None:
    """Processes that make the file at the same time are in each other's way here, and SQLite does not wait for this."""
    for attempt in range(_WAL_ATTEMPTS):
        try:
            writer.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or attempt == _WAL_ATTEMPTS - 1:
                raise
        # For this it waits.
        writer.executescript("BEGIN IMMEDIATE; COMMIT;")


class _Transaction:
    """Commit at the end, roll back on an exception."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("COMMIT" if kind is None else "ROLLBACK")
            except sqlite3.Error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
