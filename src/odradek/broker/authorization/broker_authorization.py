"""The authorizer of one broker: made of its settings, fed with the ACLs of the metadata store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from odradek.api.requests.session import Session
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


class BrokerAuthorization:
    """Implements `AuthorizationService`."""

    __slots__ = ("_changes", "authorizer", "stored")

    def __init__(self, settings: Settings, store: MetadataStore, audit: AuditTrail | None = None) -> None:
        """`audit`: records denials as well."""
        log = report_of(settings.mode)
        self.authorizer = Authorizer(settings, log if audit is None else _audited(log, audit, settings.mode))
        """Decides."""
        self.stored = StoredAcls(store, self.authorizer.update)
        """The ACLs in the metadata store."""
        self._changes = AclChanges(store, self.stored)

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
