"""The metadata store port: a tree of versioned nodes with sessions, ephemeral nodes and watches, as ZooKeeper has.

SQLite keeps it for brokers of one machine, ZooKeeper for a cluster of machines, memory for tests and simulation. Paths
and contents follow the layout that Kafka's ZooKeeper-based controller used (`/brokers/ids/1`, `/brokers/topics/T`,
...).

A client has one session at a time. While it lasts, the ephemeral nodes that it created exist; when it is lost (the
process was silent for too long) they go, `watch_session` calls back, and calls raise SessionExpired until `reopen`.
Each write is checked against the session where it takes effect: a process that slept through its own end cannot write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class StoreError(Exception):
    """Base of what a store can refuse."""


class WrongStore(StoreError):
    """The store is not the one that belongs to this broker's data: a mistake in the configuration."""


class NoNode(StoreError):
    """The node (or the parent of a new one) does not exist."""


class NodeExists(StoreError):
    """The node to be created exists already."""


class BadVersion(StoreError):
    """The node has another version than the write expected."""


class NotEmpty(StoreError):
    """The node to be deleted has children."""


class NotAllowed(StoreError):
    """The ACL of a node denies the operation to this session."""


class StoreUnavailable(StoreError):
    """The store cannot be reached or was closed; whether a write took effect is unknown."""


class ConnectionLost(StoreUnavailable):
    """The connection broke before the answer came: a write may have taken effect or not. Read, then decide."""


class SessionExpired(StoreError):
    """This client's session is over: its ephemeral nodes are gone, and nothing of this call took effect."""


class TransactionTooLarge(StoreError):
    """More bytes than the store takes at once (`max_transaction_bytes`): nothing took effect."""


class Node(NamedTuple):
    """The content of a node."""

    data: bytes
    version: int
    session: int = 0
    """Whose ephemeral node it is; 0 for a persistent one."""


class Create(NamedTuple):
    """Create a node; its parents are created if they are missing."""

    path: str
    data: bytes
    ephemeral: bool = False


class Put(NamedTuple):
    """Write an existing node if it has the version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete an existing node if it has the version."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the whole transaction unless the node has the version."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


Changed = Callable[[str], None]
Stop = Callable[[], None]


def transaction_bytes(operations: Iterable[Operation]) -> int:
    """What a transaction takes in a request of ZooKeeper's, parents that have to be created not counted."""
    total = 0
    for operation in operations:
        total += 64 + len(operation.path.encode())
        if isinstance(operation, Create | Put):
            total += len(operation.data)
    return total


class MetadataStore(Protocol):
    """All methods raise StoreError subclasses only."""

    @property
    def session(self) -> int:
        """The id of this client's session, as in `Node.session`."""
        ...

    @property
    def max_transaction_bytes(self) -> int:
        """Most `transaction_bytes` that `apply` takes at once; 0 for no limit."""
        ...

    def renew_session(self) -> float | None:
        """Show the store that this process runs; until when it keeps the session at least, by `Clock.monotonic`.

        That holds if a write that is asked for after this call succeeds, and unless the process ends the session or
        dies. None for a store that gives no such bound.
        """
        ...

    async def get(self, path: str) -> Node | None:
        """The node, or None if it is missing."""
        ...

    async def children(self, path: str) -> list[str]:
        """Names below a node, sorted; empty when the node is missing."""
        ...

    async def subtree(self, path: str) -> Mapping[str, Node]:
        """The node and all below it, by path; empty when the node is missing. Without the root itself."""
        ...

    async def apply(self, operations: Sequence[Operation]) -> None:
        """All operations or none, durably. Missing parents of created nodes are created too."""
        ...

    def watch(self, path: str, changed: Changed) -> Stop:
        """Call back after changes of that node or of any below it, until the returned function is called.

        `changed(P)` says that the node P or one below it may have changed, never what: read. P is the watched path or
        one below. Calls may be late and joined but are never left out: after a lost connection, a reopened session or
        very many changes the watched path itself is named. Own writes are reported like others, before or after `apply`
        returns.
        """
        ...

    def watch_session(self, expired: Callable[[], None]) -> Stop:
        """Call back once for every session that is lost, until the returned function is called."""
        ...

    async def reopen(self) -> None:
        """Begin a new session after the old one expired. Watches stay, and each calls back once."""
        ...

    async def close(self) -> None:
        """End the session, ephemeral nodes with it."""
        ...


# --- paths ---


def checked(path: str) -> str:
    """The path, if it is absolute, without empty parts and without a slash at its end. Raises StoreError."""
    if not path.startswith("/") or (path != "/" and (path.endswith("/") or "//" in path)):
        raise StoreError(f"{path!r} is not a path of a node")
    return path


def parent_of(path: str) -> str:
    """The path of the node above."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last part of the path."""
    return path.rpartition("/")[2]


def is_at_or_below(path: str, top: str) -> bool:
    """Whether the path is `top` or lies below it."""
    return top == "/" or path == top or path.startswith(top + "/")
