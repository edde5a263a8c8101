"""The authorizer of one broker: made of its settings, fed with the ACLs of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.api.requests.session import Session
from odradek.authorization.acl_index import Acls
from odradek.authorization.authorizer import Access, Authorizer, Mode, Question, Report, Settings
from odradek.authorization.decision_log import report_of
from odradek.authorization.decisions import Decision
from odradek.broker.authorization.acl_changes import AclChanges
from odradek.broker.authorization.stored_acls import StoredAcls
from odradek.broker.configuration.authorizers import super_users
from odradek.ports.store import MetadataStore
from odradek.wire.acls import AclBinding, AclFilter

if TYPE_CHECKING:
    from odradek.api.audit.trail import AuditTrail


class AuthorizerConfig(Protocol):
    """The part of a broker's configuration that is read here."""

    def text(self, name: str) -> str:
        """A text; empty when it is not set."""
        ...

    def flag(self, name: str) -> bool:
        """A boolean."""
        ...


def authorizer_settings(config: AuthorizerConfig) -> Settings:
    """The settings of the authorizer."""
    return Settings(
        super_users(config.text("super.users")),
        config.flag("allow.everyone.if.no.acl.found"),
        Mode(config.text("odradek.authorizer.mode")),
    )


def _audited(log: Report, audit: AuditTrail, mode: Mode) -> Report:
    def report(question: Question, decision: Decision, quiet: bool) -> None:
        log(question, decision, quiet)
        if not decision.is_allowed and not quiet:
            audit.denied(question, decision, is_enforced=mode is Mode.ENFORCE)

    return report


class AclSource(Protocol):
    """All ACLs of the cluster: `load`, then `follow`."""

    async def load(self) -> None:
        """Read all ACLs. Raises StoreError and CorruptNode where that is not possible."""
        ...

    def follow(self) -> None:
        """Take every change from here on, and those since `load`."""
        ...

    def close(self) -> None:
        """Take no further change."""
        ...

    def all(self) -> Iterable[AclBinding]:
        """Every ACL."""
        ...


class AclEditor(Protocol):
    """Changes ACLs; when a call returns, this broker decides by them."""

    async def create(self, bindings: Sequence[AclBinding]) -> None:
        """Add ACLs. Raises KafkaError."""
        ...

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """Remove what the filters match; by filter, the removed ACLs. Raises KafkaError."""
        ...


class ClusterAcls(NamedTuple):
    """The ACLs of a cluster, and how they are changed."""

    acls: AclSource
    changes: AclEditor


Source = Callable[[Callable[[Acls], None]], ClusterAcls]
"""Makes the ACLs of a cluster, which call what they are given with all ACLs after each change."""


def acls_in(store: MetadataStore) -> Source:
    """The ACLs in a metadata store."""

    def source(on_change: Callable[[Acls], None]) -> ClusterAcls:
        stored = StoredAcls(store, on_change)
        return ClusterAcls(stored, AclChanges(store, stored))

    return source


class BrokerAuthorization:
    """Implements `AuthorizationService`."""

    __slots__ = ("_changes", "authorizer", "stored")

    def __init__(
        self, settings: Settings, source: Source, audit: AuditTrail | None = None, *, knows_acls: bool = True
    ) -> None:
        """`audit`: records denials as well; `knows_acls`: see `Authorizer`."""
        log = report_of(settings.mode)
        report = log if audit is None else _audited(log, audit, settings.mode)
        self.authorizer = Authorizer(settings, report, knows_acls=knows_acls)
        """Decides."""
        found = source(self.authorizer.update)
        self.stored = found.acls
        """The ACLs of the cluster."""
        self._changes = found.changes

    def access(self, session: Session) -> Access:
        """What the client of a connection may do now."""
        found = session.access
        # Once per request: no property calls.
        if found is None or found.principal is not session.principal or found.is_broker is (session.broker_id is None):
            found = session.access = Access(
                self.authorizer,
                session.principal,
                session.peer_host,
                session.principal.roles,
                is_broker=session.is_broker,
            )
        return found

    def describe(self, matching: AclFilter) -> list[AclBinding]:
        """The ACLs that the filter matches, in order."""
        return sorted(binding for binding in self.stored.all() if matching.matches(binding))

    async def create(self, bindings: Sequence[AclBinding]) -> None:
        """Add ACLs. Raises KafkaError."""
        await self._changes.create(bindings)

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """Remove what the filters match; by filter, the removed ACLs. Raises KafkaError."""
        return await self._changes.delete(filters)
