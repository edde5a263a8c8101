"""The embedded metadata store: one SQLite file, for a broker or for several brokers of one machine.

Every transaction is on disk before `apply` returns (WAL with synchronous=FULL). Writes run in a lane of the disk port,
on a connection of their own; reads are of what is committed and take microseconds. A session holds a lock file as long
as its process lives, so a process that died is recognised at once and the next one removes its ephemeral nodes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

from odradek.metadata.paths import checked, name_of, parent_of
from odradek.metadata.watches import Watches
from odradek.ports.disk import DirectoryLock, Disk
from odradek.ports.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    StoreError,
    StoreUnavailable,
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
"""
_SCHEMA_VERSION = 1
_PERSISTENT = 0
_BUSY_SECONDS = 10.0
_LANE = "metadata"


class SqliteStore:
    """One session of one process. Made by `open`."""

    __slots__ = ("_disk", "_lock", "_lock_path", "_path", "_reader", "_session", "_watches", "_writer")

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self._watches = Watches()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._session = 0
        self._lock: DirectoryLock | None = None
        self._lock_path = ""

    @classmethod
    async def open(cls, path: str, disk: Disk) -> SqliteStore:
        """Open or create the file (its directory must exist). Raises StoreError."""
        store = cls(path, disk)
        try:
            await disk.run(_LANE, store._open)
        except sqlite3.Error as error:
            store._close()
            raise StoreUnavailable(f"{path}: {error}") from error
        except OSError as error:
            store._close()
            raise StoreUnavailable(f"{path}: {error.strerror}") from error
        return store

    async def get(self, path: str) -> Node | None:
        rows = self._read("SELECT data, version FROM nodes WHERE path = ?", (checked(path),))
        if not rows:
            return Node(b"", 0) if path == "/" else None
        return Node(rows[0][0], rows[0][1])

    async def children(self, path: str) -> list[str]:
        rows = self._read("SELECT path FROM nodes WHERE parent = ? AND path <> '/'", (checked(path),))
        return sorted(name_of(row[0]) for row in rows)

    async def subtree(self, path: str) -> dict[str, Node]:
        """The node and all below it, by path."""
        if checked(path) == "/":
            rows = self._read("SELECT path, data, version FROM nodes", ())
        else:
            # '0' follows '/': the range holds exactly what begins with PATH/.
            rows = self._read(
                "SELECT path, data, version FROM nodes WHERE path = ? OR (path > ? AND path < ?)",
                (path, path + "/", path + "0"),
            )
        return {row[0]: Node(row[1], row[2]) for row in rows}

    async def apply(self, operations: Sequence[Operation]) -> None:
        if self._writer is None:
            raise StoreUnavailable(f"{self._path} is closed")
        try:
            changed = await self._disk.run(_LANE, self._write, list(operations))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        self._watches.fire(changed)

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        return self._watches.add(checked(path), changed)

    async def close(self) -> None:
        """End the session: its ephemeral nodes go."""
        self._watches.clear()
        if self._writer is not None:
            try:
                await self._disk.run(_LANE, self._end_session)
            except sqlite3.Error as error:
                raise StoreUnavailable(f"{self._path}: {error}") from error
            finally:
                self._close()

    # --- inner: what runs in the lane ---

    def _open(self) -> None:
        writer = self._writer = self._connect()
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("PRAGMA synchronous = FULL")
        found: int = writer.execute("PRAGMA user_version").fetchone()[0]
        if found > _SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"was written by a newer version (format {found})")
        if found < _SCHEMA_VERSION:
            writer.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_SCHEMA_VERSION}; COMMIT;")
        self._reader = self._connect()
        with _Transaction(writer):
            self._bury_the_dead(writer)
            self._session = int(writer.execute("INSERT INTO sessions DEFAULT VALUES").lastrowid or 0)
            self._lock_path = self._lock_path_of(self._session)
            self._lock = self._disk.lock(self._lock_path)

    def _connect(self) -> sqlite3.Connection:
        # Used by one thread at a time, though not always by the same.
        return sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)

    def _lock_path_of(self, session: int) -> str:
        return f"{self._path}.session.{session}"

    def _bury_the_dead(self, writer: sqlite3.Connection) -> None:
        """Remove what sessions left whose lock is free: their process is gone."""
        for (session,) in writer.execute("SELECT id FROM sessions").fetchall():
            path = self._lock_path_of(session)
            try:
                lock = self._disk.lock(path)
            except BlockingIOError:
                continue
            writer.execute("DELETE FROM nodes WHERE session = ?", (session,))
            writer.execute("DELETE FROM sessions WHERE id = ?", (session,))
            self._disk.remove(path)
            lock.release()

    def _end_session(self) -> None:
        assert self._writer is not None
        with _Transaction(self._writer):
            self._writer.execute("DELETE FROM nodes WHERE session = ?", (self._session,))
            self._writer.execute("DELETE FROM sessions WHERE id = ?", (self._session,))
        self._disk.remove(self._lock_path)

    def _write(self, operations: list[Operation]) -> list[str]:
        assert self._writer is not None
        changed: list[str] = []
        with _Transaction(self._writer):
            for operation in operations:
                self._apply_one(self._writer, operation, changed)
        return changed

    def _apply_one(self, writer: sqlite3.Connection, operation: Operation, changed: list[str]) -> None:
        path = checked(operation.path)
        row = writer.execute("SELECT version FROM nodes WHERE path = ?", (path,)).fetchone()
        if isinstance(operation, Create):
            if row is not None or path == "/":
                raise NodeExists(path)
            self._create(writer, path, operation.data, self._session if operation.ephemeral else _PERSISTENT, changed)
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

    def _create(self, writer: sqlite3.Connection, path: str, data: bytes, session: int, changed: list[str]) -> None:
        parent = parent_of(path)
        if parent != "/":
            row = writer.execute("SELECT session FROM nodes WHERE path = ?", (parent,)).fetchone()
            if row is None:
                self._create(writer, parent, b"", _PERSISTENT, changed)
            elif row[0] != _PERSISTENT:
                raise StoreError(f"{parent} is ephemeral and cannot have children")
        writer.execute("INSERT INTO nodes VALUES (?, ?, ?, 0, ?)", (path, parent, data, session))
        changed.append(path)

    # --- inner: on the loop ---

    def _read(self, query: str, parameters: tuple[str, ...]) -> list[Any]:
        if self._reader is None:
            raise StoreUnavailable(f"{self._path} is closed")
        try:
            return self._reader.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error

    def _close(self) -> None:
        for connection in (self._reader, self._writer):
            if connection is not None:
                connection.close()
        self._reader = self._writer = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class _Transaction:
    """Commit at the end, roll back on an exception."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT" if kind is None else "ROLLBACK")
