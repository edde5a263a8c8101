"""A metadata store in memory, for tests and simulation. Several sessions (brokers) share one tree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek.metadata.stores.watches import Watches
from odradek.ports.store import (
    ANY_VERSION,
    BadVersion,
    Changed,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    SessionExpired,
    Stop,
    StoreError,
    StoreUnavailable,
    checked,
    is_at_or_below,
    name_of,
    parent_of,
)

_PERSISTENT = 0


class _Entry:
    __slots__ = ("children", "data", "owner", "version")

    def __init__(self, data: bytes, owner: int) -> None:
        self.data = data
        self.version = 0
        self.owner = owner
        self.children: set[str] = set()


class MemoryTree:
    """The nodes that all sessions see."""

    __slots__ = ("_entries", "_next_session", "_sessions")

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {"/": _Entry(b"", _PERSISTENT)}
        self._sessions: dict[int, MemoryStore] = {}
        self._next_session = 1

    def find(self, path: str) -> _Entry | None:
        """The entry of a node; None if it is missing."""
        return self._entries.get(path)

    def below(self, path: str) -> list[tuple[str, _Entry]]:
        """Paths and entries of the node and of all below it, without the root."""
        return [(p, e) for p, e in self._entries.items() if p != "/" and is_at_or_below(p, path)]

    def join(self, store: MemoryStore) -> int:
        """A new session."""
        session = self._next_session
        self._next_session += 1
        self._sessions[session] = store
        return session

    def leave(self, session: int) -> None:
        """End a session: its ephemeral nodes go."""
        if self._sessions.pop(session, None) is None:
            return
        gone = sorted((p for p, e in self._entries.items() if e.owner == session), reverse=True)
        for path in gone:
            self._drop(path)
        self.notify(gone)

    def notify(self, paths: Sequence[str]) -> None:
        """Call the watches of all sessions for these paths."""
        for store in list(self._sessions.values()):
            store.watches.fire(paths)

    def apply(self, operations: Sequence[Operation], session: int) -> list[str]:
        """All or none; the paths that changed."""
        undo: list[Callable[[], None]] = []
        changed: list[str] = []
        try:
            for operation in operations:
                self._apply_one(operation, session, undo, changed)
        except StoreError:
            for step in reversed(undo):
                step()
            raise
        return changed

    def _apply_one(
        self, operation: Operation, session: int, undo: list[Callable[[], None]], changed: list[str]
    ) -> None:
        path = checked(operation.path)
        if isinstance(operation, Create):
            if path in self._entries:
                raise NodeExists(path)
            self._create(path, operation.data, session if operation.ephemeral else _PERSISTENT, undo, changed)
            return
        entry = self._entries.get(path)
        if entry is None:
            raise NoNode(path)
        if operation.version not in (ANY_VERSION, entry.version):
            raise BadVersion(f"{path} has version {entry.version}, not {operation.version}")
        if isinstance(operation, Put):
            before = (entry.data, entry.version)
            entry.data, entry.version = operation.data, entry.version + 1

            def restore(entry: _Entry = entry, before: tuple[bytes, int] = before) -> None:
                entry.data, entry.version = before

            undo.append(restore)
            changed.append(path)
        elif isinstance(operation, Delete):
            if entry.children:
                raise NotEmpty(path)
            self._drop(path)
            undo.append(lambda: self._hang(path, entry))
            changed.append(path)
        else:
            assert isinstance(operation, Check)

    def _create(
        self,
        path: str,
        data: bytes,
        owner: int,
        undo: list[Callable[[], None]],
        changed: list[str],
    ) -> None:
        parent = parent_of(path)
        if parent not in self._entries:
            self._create(parent, b"", _PERSISTENT, undo, changed)
        if self._entries[parent].owner != _PERSISTENT:
            raise StoreError(f"{parent} is ephemeral and cannot have children")
        self._hang(path, _Entry(data, owner))
        undo.append(lambda: self._drop(path))
        changed.append(path)

    def _hang(self, path: str, entry: _Entry) -> None:
        self._entries[path] = entry
        self._entries[parent_of(path)].children.add(name_of(path))

    def _drop(self, path: str) -> None:
        del self._entries[path]
        self._entries[parent_of(path)].children.discard(name_of(path))


class MemoryStore:
    """One session on a tree."""

    __slots__ = ("_closed", "_expired", "_tree", "session", "watches")

    max_transaction_bytes = 0

    def __init__(self, tree: MemoryTree | None = None) -> None:
        self._tree = tree if tree is not None else MemoryTree()
        self._closed = False
        self._expired = False
        self.watches = Watches()
        self.session = self._tree.join(self)

    def renew_session(self) -> None:
        """Implements MetadataStore: sessions end when a test ends them."""

    async def get(self, path: str) -> Node | None:
        """Implements MetadataStore."""
        self._ensure_open()
        entry = self._tree.find(checked(path))
        return None if entry is None else Node(entry.data, entry.version, entry.owner)

    async def children(self, path: str) -> list[str]:
        """Implements MetadataStore."""
        self._ensure_open()
        entry = self._tree.find(checked(path))
        return [] if entry is None else sorted(entry.children)

    async def subtree(self, path: str) -> dict[str, Node]:
        """The node and all below it, by path."""
        self._ensure_open()
        return {p: Node(e.data, e.version, e.owner) for p, e in self._tree.below(checked(path))}

    async def apply(self, operations: Sequence[Operation]) -> None:
        """Implements MetadataStore."""
        self._ensure_open()
        self._tree.notify(self._tree.apply(operations, self.session))

    def watch(self, path: str, changed: Changed) -> Stop:
        """Implements MetadataStore."""
        return self.watches.add(checked(path), changed)

    def watch_session(self, expired: Callable[[], None]) -> Stop:
        """Implements MetadataStore."""
        return self.watches.add_session(expired)

    async def reopen(self) -> None:
        """Implements MetadataStore."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._expired:
            self._expired = False
            self.session = self._tree.join(self)
            self.watches.fire_all()

    async def close(self) -> None:
        """Implements MetadataStore."""
        self._closed = True
        self.watches.clear()
        self._tree.leave(self.session)

    @property
    def is_expired(self) -> bool:
        """Whether the session is over and no other one is open."""
        return self._expired

    def expire(self) -> None:
        """End the session of a silent broker: its ephemeral nodes go, and it learns of it."""
        if self._expired or self._closed:
            return
        self._expired = True
        self._tree.leave(self.session)
        self.watches.fire_expired()

    def _ensure_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store is closed")
        if self._expired:
            raise SessionExpired("the session is over")
