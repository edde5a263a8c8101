"""The metadata store port: a tree of versioned nodes with sessions, ephemeral nodes and watches, as ZooKeeper has.

SQLite keeps it for brokers of one machine, ZooKeeper for a cluster of machines, memory for tests and simulation. Paths
and contents follow the layout that Kafka's ZooKeeper-based controller used (`/brokers/ids/1`, `/brokers/topics/T`,
...).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

ANY_VERSION = -1


class StoreError(Exception):
    """Base of what a store can refuse."""


class NoNode(StoreError):
    """The node (or the parent of a new one) does not exist."""


class NodeExists(StoreError):
    """The node to be created exists already."""


class BadVersion(StoreError):
    """The node has another version than the write expected."""


class NotEmpty(StoreError):
    """The node to be deleted has children."""


class StoreUnavailable(StoreError):
    """The store cannot be reached; whether a write took effect is unknown."""


class SessionExpired(StoreError):
    """This client's session is over: its ephemeral nodes are gone."""


class Node(NamedTuple):
    data: bytes
    version: int


class Create(NamedTuple):
    path: str
    data: bytes
    ephemeral: bool = False


class Put(NamedTuple):
    """Write an existing node if it has the version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the whole transaction unless the node has the version."""

    path: str
    version: int


Operation = Create | Put | Delete | Check


class MetadataStore(Protocol):
    """All methods raise StoreError subclasses only."""

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """Names below a node, sorted; empty when the node is missing."""
        ...

    async def apply(self, operations: Sequence[Operation]) -> None:
        """All operations or none. Missing parents of created nodes are created too."""
        ...

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call back with a path after a change of that node or of one below it, until the returned function is called.

        Callbacks may be joined and late; they say that something changed, never what.
        """
        ...

    async def close(self) -> None: ...
