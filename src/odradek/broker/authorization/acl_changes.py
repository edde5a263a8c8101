"""Changes of ACLs in the metadata store, by any broker: each node is written in the version that was read.

Source: Kafka's `AclAuthorizer.updateResourceAcls`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from odradek.broker.authorization.stored_acls import StoredAcls
from odradek.metadata.acl_nodes import AclNode
from odradek.ports.store import (
    BadVersion,
    ConnectionLost,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    Put,
    StoreError,
    transaction_bytes,
)
from odradek.wire.acls import AclBinding, AclFilter, ResourcePattern, pattern_of
from odradek.wire.errors import ErrorCode, KafkaError

_ATTEMPTS: Final = 20
"""Attempts while other brokers change the same ACLs."""

Edit = Callable[[ResourcePattern, frozenset[AclBinding]], frozenset[AclBinding]]
"""The ACLs of a pattern after a change, from those before it."""


class AclChanges:
    """Creates and deletes ACLs; when a call returns, this broker decides by them."""

    __slots__ = ("_acls", "_store")

    def __init__(self, store: MetadataStore, acls: StoredAcls) -> None:
        self._store = store
        self._acls = acls

    async def create(self, bindings: Sequence[AclBinding]) -> None:
        """Add ACLs; those that exist stay. Raises KafkaError if the store cannot be written."""
        added: dict[ResourcePattern, set[AclBinding]] = {}
        for binding in bindings:
            added.setdefault(pattern_of(binding), set()).add(binding)
        await self._change(added, lambda pattern, before: before | added[pattern])

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """Remove the ACLs that filters match; by filter, the removed ones. Raises KafkaError."""
        removed: set[AclBinding] = set()

        def edit(_pattern: ResourcePattern, before: frozenset[AclBinding]) -> frozenset[AclBinding]:
            matched = {binding for binding in before if any(each.matches(binding) for each in filters)}
            # An attempt of unknown outcome may have removed them before.
            removed.update(matched)
            return before - matched

        try:
            await self._acls.refresh()
        except StoreError as error:
            raise _unavailable(error) from error
        matching = {
            pattern
            for pattern, bindings in self._acls.acls.items()
            if any(each.matches(binding) for binding in bindings for each in filters)
        }
        await self._change(matching, edit)
        return [sorted(binding for binding in removed if each.matches(binding)) for each in filters]

    async def _change(self, patterns: Iterable[ResourcePattern], edit: Edit) -> None:
        waiting = list(patterns)
        try:
            for chunk in self._chunks(waiting):
                await self._change_together(chunk, edit)
            await self._acls.refresh([AclNode.path(pattern) for pattern in waiting])
        except StoreError as error:
            raise _unavailable(error) from error

    def _chunks(self, patterns: list[ResourcePattern]) -> Iterable[list[ResourcePattern]]:
        """All patterns at once where the store has no limit, else a few hundred."""
        size = len(patterns) if not self._store.max_transaction_bytes else 100
        return (patterns[start : start + size] for start in range(0, len(patterns), max(1, size)))

    async def _change_together(self, patterns: list[ResourcePattern], edit: Edit) -> None:
        """Write the nodes of some patterns, all or none, on the versions that were read. Raises StoreError."""
        failure: StoreError | None = None
        for _ in range(_ATTEMPTS):
            operations = [each for pattern in patterns if (each := await self._edited(pattern, edit)) is not None]
            limit = self._store.max_transaction_bytes
            if limit and len(patterns) > 1 and transaction_bytes(operations) > limit // 2:
                half = len(patterns) // 2
                await self._change_together(patterns[:half], edit)
                await self._change_together(patterns[half:], edit)
                return
            if not operations:
                return
            try:
                await self._store.apply(operations)
                return
            except (BadVersion, NodeExists, NoNode, ConnectionLost) as error:
                failure = error
        assert failure is not None
        raise failure

    async def _edited(self, pattern: ResourcePattern, edit: Edit) -> Operation | None:
        """The write that a change needs; None if it changes nothing."""
        path = AclNode.path(pattern)
        node = await self._store.get(path)
        before: frozenset[AclBinding] = frozenset() if node is None else AclNode.decode(path, node.data)[1]
        after = edit(pattern, before)
        if after == before:
            return None
        if node is None:
            return Create(path, AclNode.encode(pattern, after))
        if not after:
            return Delete(path, node.version)
        return Put(path, AclNode.encode(pattern, after), node.version)


def _unavailable(error: StoreError) -> KafkaError:
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store cannot be used: {error}")
