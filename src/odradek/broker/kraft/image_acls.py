"""The ACLs of a KRaft cluster, which the metadata log has (`StandardAuthorizer`).

The broker decides by the newest image: an ACL that is removed denies the next request after the record has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final

from odradek.authorization.acl_index import Acls
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.metadata.features import is_on_records
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.known_acls import known_acls
from odradek.wire.acls import AclBinding, ResourcePattern, pattern_of

_NONE: Final[AbstractSet[AclBinding]] = frozenset()


class ImageAcls:
    """Implements `AclSource`."""

    __slots__ = ("_acls", "_is_known", "_on_change", "_unsubscribe", "_view")

    def __init__(self, view: ClusterView, on_change: Callable[[Acls], None]) -> None:
        """`on_change` is called with all ACLs after each change, and first when the image has the metadata log."""
        self._view = view
        self._on_change = on_change
        self._acls: Acls = {}
        self._is_known = False
        self._unsubscribe: Callable[[], None] | None = None

    async def load(self) -> None:
        """See `AclSource`."""
        self._take(self._view.image)

    def follow(self) -> None:
        """See `AclSource`."""
        self._unsubscribe = self._view.subscribe(self._changed)

    def close(self) -> None:
        """See `AclSource`."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None

    def all(self) -> Iterable[AclBinding]:
        """See `AclSource`."""
        return (binding for bindings in self._acls.values() for binding in bindings)

    def _changed(self, old: ClusterImage, new: ClusterImage) -> None:
        if new.acls is not old.acls or not self._is_known:
            self._take(new)

    def _take(self, image: ClusterImage) -> None:
        found: dict[ResourcePattern, set[AclBinding]] = {}
        for binding in known_acls(image.acls.values()):
            found.setdefault(pattern_of(binding), set()).add(binding)
        before = self._acls
        # Patterns that did not change keep their objects, by which the index sees what it can share.
        self._acls = {
            pattern: before[pattern] if before.get(pattern, _NONE) == bindings else frozenset(bindings)
            for pattern, bindings in found.items()
        }
        was_known, self._is_known = self._is_known, is_on_records(image)
        if self._acls != before or self._is_known is not was_known:
            self._on_change(self._acls)
