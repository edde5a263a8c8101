"""The ACLs in the metadata store, as this broker has read them.

Each broker reads ACLs by itself, as Kafka's brokers do with ZooKeeper: a change counts on all brokers as soon as the
store reports it, whether a controller is elected or not, and no event of the cluster image delays it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from odradek.authorization.acl_index import Acls
from odradek.broker.task_failures import logs_failure
from odradek.metadata.acl_nodes import EXTENDED_ACLS, LITERAL_ACLS, AclNode
from odradek.metadata.nodes import CorruptNode
from odradek.ports.store import MetadataStore, Node, Stop, StoreError, is_at_or_below
from odradek.wire.acls import AclBinding, ResourcePattern

logger = logging.getLogger(__name__)
_log_failure = logs_failure(logger, "reading the ACLs failed")

ROOTS: Final = (LITERAL_ACLS, EXTENDED_ACLS)
_AGAIN_SECONDS: Final = 0.5
"""After which ACLs that could not be read are read again."""


class StoredAcls:
    """`load` and `follow`; then `acls` is what the store has. `on_change` is called with all ACLs after each change."""

    __slots__ = (
        "_again",
        "_closed",
        "_on_change",
        "_paths",
        "_pending",
        "_store",
        "_task",
        "_unwatch",
        "_waiting",
        "acls",
    )

    def __init__(self, store: MetadataStore, on_change: Callable[[Acls], None]) -> None:
        self._store = store
        self._on_change = on_change
        self.acls: Acls = {}
        """All ACLs by their patterns; unchanged patterns keep their objects."""
        self._paths: dict[str, ResourcePattern] = {}
        self._pending: set[str] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._unwatch: list[Stop] = []
        self._closed = False

    async def load(self) -> None:
        """Read all ACLs. Raises StoreError, CorruptNode for ACLs that cannot be read."""
        await self._read(ROOTS, strict=True)

    def follow(self) -> None:
        """Read ACLs again whenever they change, and now: they may have since `load`."""
        for root in ROOTS:
            self._unwatch.append(self._store.watch(root, self._changed))
            self._changed(root)

    def close(self) -> None:
        """Follow the store no longer."""
        self._closed = True
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        if self._again is not None:
            self._again.cancel()

    async def refresh(self, paths: Iterable[str] = ROOTS) -> None:
        """Read what is at or below these paths now. Raises StoreError."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._pending.update(paths)
        self._start()
        await done

    def _changed(self, path: str) -> None:
        self._pending.add(path)
        self._start()

    def _start(self) -> None:
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._read_pending())
            self._task.add_done_callback(_log_failure)

    async def _read_pending(self) -> None:
        """One read at a time, so that no older state follows a newer one."""
        try:
            while self._pending or self._waiting:
                paths, self._pending = self._pending, set()
                waiting, self._waiting = self._waiting, []
                try:
                    await self._read(paths)
                except StoreError as error:
                    self._failed(paths, waiting, error)
                    return
                for each in waiting:
                    if not each.done():
                        each.set_result(None)
        finally:
            self._task = None

    def _failed(self, paths: set[str], waiting: list[asyncio.Future[None]], error: StoreError) -> None:
        logger.warning(
            "cannot read the ACLs from the metadata store: %s; reading them again in %.1f s", error, _AGAIN_SECONDS
        )
        self._pending |= paths
        for each in waiting:
            if not each.done():
                each.set_exception(error)
        if not self._closed:
            self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._start)

    async def _read(self, paths: Iterable[str], *, strict: bool = False) -> None:
        """Take over what the store has at these paths. Raises StoreError; CorruptNode only if `strict`."""
        nodes: dict[str, Node] = {}
        tops = _without_those_below(paths)
        for path in tops:
            if AclNode.is_path(path):
                node = await self._store.get(path)
                if node is not None:
                    nodes[path] = node
            else:
                nodes.update(await self._store.subtree(path))
        self._take(tops, nodes, strict)

    def _take(self, tops: list[str], nodes: dict[str, Node], strict: bool) -> None:
        acls = dict(self.acls)
        known = {path: pattern for path, pattern in self._paths.items() if any(is_at_or_below(path, t) for t in tops)}
        for path, pattern in known.items():
            if path not in nodes:
                acls.pop(pattern, None)
                del self._paths[path]
        for path, node in nodes.items():
            if not AclNode.is_path(path):
                continue
            try:
                pattern, bindings = AclNode.decode(path, node.data)
            except CorruptNode as error:
                if strict:
                    raise
                logger.warning("cannot read ACLs: %s; the previous ones of that resource stay in effect", error)
                continue
            self._paths[path] = pattern
            if not bindings:
                acls.pop(pattern, None)
            elif acls.get(pattern) != bindings:
                acls[pattern] = bindings
        if acls != self.acls:
            self.acls = acls
            self._on_change(acls)

    def all(self) -> Iterable[AclBinding]:
        """Every ACL."""
        return (binding for bindings in self.acls.values() for binding in bindings)


def _without_those_below(paths: Iterable[str]) -> list[str]:
    """The paths of which none is below another one."""
    tops: list[str] = []
    for path in sorted(set(paths)):
        if not tops or not is_at_or_below(path, tops[-1]):
            tops.append(path)
    return tops
