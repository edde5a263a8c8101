"""The embedded metadata store: one SQLite file, for a broker or for several brokers of one machine.

Every transaction is on disk before `apply` returns (WAL with synchronous=FULL): what was acknowledged survives a power
loss. Writes run in a lane of the disk port, on a connection of their own; reads are of what is committed and take
microseconds.

Several processes may have the file open, each with a session. Who commits a change wakes the others, which read what
changed. A process that died is buried at once, by the first one that notices; one that is silent for the session
timeout loses its session, which it finds out by its next write at the latest.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec

from odradek.metadata.stores.sqlite_neighbours import Neighbours
from odradek.metadata.stores.sqlite_tree import EVERYTHING, Opened, SqliteTree, TreeChange, connect
from odradek.metadata.stores.watches import Watches
from odradek.ports.disk import Disk
from odradek.ports.store import (
    Changed,
    Node,
    Operation,
    SessionExpired,
    Stop,
    StoreError,
    StoreUnavailable,
    checked,
    name_of,
)

logger = logging.getLogger(__name__)

P = ParamSpec("P")

DEFAULT_SESSION_TIMEOUT_MS = 9000
_LANE = "metadata"
_READ_SECONDS = 2.0
_BURIAL_ATTEMPTS = 50
_BURIAL_PAUSE_SECONDS = 0.005
_BURIAL_TURN_SECONDS = 0.02


class SqliteStore:
    """One session of one process. Made by `open`."""

    __slots__ = (
        "_disk",
        "_expired",
        "_last_seq",
        "_loop",
        "_neighbours",
        "_path",
        "_reader",
        "_tasks",
        "_tree",
        "_watches",
        "session",
    )

    max_transaction_bytes = 0

    def __init__(self, path: str, disk: Disk, session_timeout_ms: int) -> None:
        self._path = path
        self._disk = disk
        self._loop = asyncio.get_running_loop()
        self._watches = Watches()
        self._reader: sqlite3.Connection | None = None
        self._tree: SqliteTree | None = None
        self._neighbours = Neighbours(path, session_timeout_ms / 1000, self._news, self._died, self._silent)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._last_seq = 0
        self._expired = False
        self.session = 0

    @classmethod
    async def open(cls, path: str, disk: Disk, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS) -> SqliteStore:
        """Open or create the file (its directory must exist). Raises StoreError."""
        store = cls(path, disk, session_timeout_ms)
        try:
            await disk.run(_LANE, _create, disk, path)
            store._tree = await disk.run(_LANE, SqliteTree.open, path)
            store._reader = connect(path, _READ_SECONDS)
            await store._begin()
        except sqlite3.Error as error:
            store.abandon()
            raise StoreUnavailable(f"{path}: {error}") from error
        except OSError as error:
            store.abandon()
            raise StoreUnavailable(f"{path}: {error.strerror}") from error
        return store

    # --- reading ---

    async def get(self, path: str) -> Node | None:
        """Implements MetadataStore."""
        rows = self._read("SELECT data, version, session FROM nodes WHERE path = ?", (checked(path),))
        if not rows:
            return Node(b"", 0) if path == "/" else None
        return Node(*rows[0])

    async def children(self, path: str) -> list[str]:
        """Implements MetadataStore."""
        rows = self._read("SELECT path FROM nodes WHERE parent = ?", (checked(path),))
        return sorted(name_of(row[0]) for row in rows)

    async def subtree(self, path: str) -> Mapping[str, Node]:
        """Implements MetadataStore."""
        if checked(path) == "/":
            rows = self._read("SELECT path, data, version, session FROM nodes", ())
        else:
            # '0' follows '/': the range holds exactly what begins with PATH/.
            rows = self._read(
                "SELECT path, data, version, session FROM nodes WHERE path = ? OR (path > ? AND path < ?)",
                (path, path + "/", path + "0"),
            )
        return {row[0]: Node(row[1], row[2], row[3]) for row in rows}

    def _read(self, query: str, parameters: tuple[str | int, ...]) -> list[Any]:
        reader = self._reader
        if reader is None:
            raise StoreUnavailable(f"{self._path} is closed")
        if self._expired:
            raise SessionExpired("the session is over")
        try:
            return reader.execute(query, parameters).fetchall()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error

    # --- writing ---

    async def apply(self, operations: Sequence[Operation]) -> None:
        """Implements MetadataStore."""
        tree = self._tree
        if tree is None:
            raise StoreUnavailable(f"{self._path} is closed")
        if self._expired:
            raise SessionExpired("the session is over")
        try:
            await self._disk.run(_LANE, self._then_notify, tree.write, self.session, list(operations))
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        except SessionExpired:
            self._expire()
            raise

    def _then_notify(
        self, change: Callable[P, TreeChange | None], *args: P.args, **kwargs: P.kwargs
    ) -> TreeChange | None:
        """In the lane: change, then notify, even if the caller was cancelled."""
        outcome = change(*args, **kwargs)
        if outcome is not None:
            self._loop.call_soon_threadsafe(self._notify, outcome)
        return outcome

    def _notify(self, outcome: TreeChange) -> None:
        if self._tree is not None:
            self._neighbours.wake(outcome.others)
            self._watches.fire(outcome.changed)

    # --- watching ---

    def watch(self, path: str, changed: Changed) -> Stop:
        """Implements MetadataStore."""
        return self._watches.add(checked(path), changed)

    def watch_session(self, expired: Callable[[], None]) -> Stop:
        """Implements MetadataStore."""
        return self._watches.add_session(expired)

    def _news(self) -> None:
        """Another process woke this one: read the changes and the sessions."""
        if self._expired or self._reader is None:
            return
        try:
            rows = self._read("SELECT seq, session, path FROM changes WHERE seq > ? ORDER BY seq", (self._last_seq,))
            sessions = [row[0] for row in self._read("SELECT id FROM sessions", ())]
        except StoreUnavailable as error:
            logger.warning("metadata store: cannot read changes: %s", error)
            return
        missed = bool(rows) and rows[0][0] > self._last_seq + 1
        if rows:
            self._last_seq = rows[-1][0]
        if self.session not in sessions:
            self._expire()
            return
        self._neighbours.update(sessions)
        paths = [path for _, session, path in rows if session != self.session]
        if missed or EVERYTHING in paths:
            self._watches.fire_all()
        else:
            self._watches.fire(paths)

    # --- sessions ---

    def renew_session(self) -> float:
        """Implements MetadataStore."""
        return self._neighbours.renew()

    async def _begin(self) -> None:
        assert self._tree is not None
        opened: Opened = await self._disk.run(_LANE, self._tree.begin_session, self._loop.time())
        self.session = opened.session
        self._last_seq = opened.last_seq
        self._neighbours.begin(opened.session, opened.lease)
        self._neighbours.wake(opened.outcome.others)
        self._neighbours.update([opened.session, *opened.outcome.others])

    def _expire(self) -> None:
        if not self._expired:
            self._expired = True
            logger.warning("metadata store: session %d was ended by another process", self.session)
            self._neighbours.end()
            self._watches.fire_expired()

    async def reopen(self) -> None:
        """Implements MetadataStore."""
        if self._tree is None:
            raise StoreUnavailable(f"{self._path} is closed")
        if not self._expired:
            return
        try:
            await self._begin()
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        except OSError as error:
            raise StoreUnavailable(f"{self._path}: {error.strerror}") from error
        self._expired = False
        self._watches.fire_all()

    def _died(self, session: int) -> None:
        """Its pipe has ended: either it ended its session before, or the session is still open."""
        if session in self._tasks or self._tree is None:
            return
        if self._has_ended(session):
            self._neighbours.forget(session)
        else:
            self._tasks[session] = self._loop.create_task(self._bury(session, self._tree))

    def _has_ended(self, session: int) -> bool:
        try:
            return not self._read("SELECT 1 FROM sessions WHERE id = ?", (session,))
        except StoreError:
            return False

    def _silent(self, session: int, stamp: float | None) -> None:
        if session not in self._tasks and self._tree is not None:
            self._tasks[session] = self._loop.create_task(self._end_silent(session, stamp, self._tree))

    async def _bury(self, session: int, tree: SqliteTree) -> None:
        try:
            # All notice at the same time, and one is enough: the others only look after it.
            await asyncio.sleep(_BURIAL_TURN_SECONDS * self._neighbours.rank(besides=self._tasks))
            for _ in range(_BURIAL_ATTEMPTS):
                if self._has_ended(session):
                    return
                if await self._disk.run(_LANE, self._then_notify, tree.bury, self.session, session) is not None:
                    return
                # The kernel closes a dead process's files one after the other.
                await asyncio.sleep(_BURIAL_PAUSE_SECONDS)
            logger.warning(
                "metadata store: cannot end session %d: its process closed its pipe but holds its lease", session
            )
        except (sqlite3.Error, OSError) as error:
            logger.warning("metadata store: cannot end session %d: %s", session, error)
        finally:
            self._tasks.pop(session, None)
            self._news()

    async def _end_silent(self, session: int, stamp: float | None, tree: SqliteTree) -> None:
        try:
            outcome = await self._disk.run(_LANE, self._then_notify, tree.expire, self.session, session, stamp)
            if outcome is not None and outcome.ended:
                logger.warning("metadata store: ended session %d: its process has not renewed its lease", session)
                # If its process ever runs again, it learns of it first thing.
                self._neighbours.wake([session])
        except (sqlite3.Error, OSError) as error:
            logger.warning("metadata store: cannot end session %d: %s", session, error)
        finally:
            self._tasks.pop(session, None)
            self._news()

    # --- the end ---

    async def close(self) -> None:
        """Implements MetadataStore."""
        tree, self._tree = self._tree, None
        self._watches.clear()
        try:
            if tree is not None and not self._expired:
                outcome = await self._disk.run(_LANE, tree.end_session, self.session)
                self._neighbours.wake(outcome.others if outcome is not None else ())
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self._path}: {error}") from error
        finally:
            self._tree = tree
            self.abandon(dead=False)

    def abandon(self, *, dead: bool = True) -> None:
        """Close all files without ending the session, as the kernel does for a process that was killed."""
        self._neighbours.end(dead=dead)
        for task in self._tasks.values():
            task.cancel()
        for connection in (self._reader, self._tree):
            if connection is not None:
                connection.close()
        self._reader = self._tree = None


def _create(disk: Disk, path: str) -> None:
    """Create an empty file, a database to SQLite: its own files have the mode of this one, which would be 0644."""
    if not disk.exists(path):
        disk.open(path, create=True).close()
