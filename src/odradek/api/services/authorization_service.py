"""The authorizer as handlers use it. A broker without an authorizer has none: then every client may do everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from odradek.wire.acls import AclBinding, AclFilter

if TYPE_CHECKING:
    from odradek.api.requests.session import Session
    from odradek.authorization.authorizer import Access


class AuthorizationService(Protocol):
    """Decisions about clients, and the ACLs that decide."""

    def access(self, session: Session) -> Access:
        """What the client of a connection may do now."""
        ...

    def describe(self, matching: AclFilter) -> list[AclBinding]:
        """The ACLs that the filter matches, in order."""
        ...

    async def create(self, bindings: Sequence[AclBinding]) -> None:
        """Add ACLs. This broker decides by them before the call returns. Raises KafkaError."""
        ...

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """Remove what the filters match; by filter, the removed ACLs. Raises KafkaError."""
        ...
