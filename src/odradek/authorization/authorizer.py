"""The authorizer of a broker, and what each connection keeps of its decisions.

A connection asks the same questions with every request, so its `Access` remembers the answers. They are forgotten when
the ACLs change or the connection has another principal; a warm decision costs two dictionary look-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.authorization.acl_index import AclIndex, Acls
from odradek.authorization.decisions import Decision, Reason, Subject, decide, decide_on_any
from odradek.authorization.operations import SUPPORTED
from odradek.metadata.image import AUDIT_TOPIC
from odradek.ports.hosts import normalized
from odradek.wire.acls import CLUSTER_NAME, AclOperation, ResourceType

_MOST_DECISIONS: Final = 2000
"""Decisions that a connection remembers: the names in them are the client's."""
_MOST_NAME_CHARACTERS: Final = 256
_ALLOWED: Final = 1
_DENIED: Final = 0
_DENIED_QUIETLY: Final = -1
"""Not in the log yet: the first request that is refused by the decision puts it there."""
_READS: Final = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS)
"""What ACLs may allow on the audit topic."""
_NOTHING_DECIDED: Final[Mapping[str | bytes, int]] = MappingProxyType({})


def right_key(operation: AclOperation, kind: ResourceType) -> int:
    """The number under which a connection remembers its decisions on an operation and a type of resources."""
    return int(kind) << 4 | int(operation)


_DESCRIBE_TOPIC: Final = right_key(AclOperation.DESCRIBE, ResourceType.TOPIC)
_READ_TOPIC: Final = right_key(AclOperation.READ, ResourceType.TOPIC)


class Mode(Enum):
    """The consequence of a denial."""

    ENFORCE = "enforce"
    AUDIT = "audit"
    """The request is served and the denial is logged: a trial of ACLs on a running cluster."""


class Settings(NamedTuple):
    """The authorizer's part of a broker's configuration."""

    super_users: frozenset[str] = frozenset()
    """Principals that may do everything, roles among them."""
    allow_without_acl: bool = False
    """Whether a resource that no ACL is for is free to all (`allow.everyone.if.no.acl.found`)."""
    mode: Mode = Mode.ENFORCE


class Question(NamedTuple):
    """A decision, for the log of decisions."""

    subject: Subject
    operation: AclOperation
    kind: ResourceType
    name: str
    request: str
    """The API that asks; empty where none does."""
    client_id: str | None = None
    """The client's name for itself."""


Report = Callable[[Question, Decision, bool], None]
"""Called with each new decision, and whether a denial is only part of a longer question or of a filter (Kafka logs
that at the level TRACE)."""


class Authorizer:
    """Decides for all connections of a broker by the newest ACLs."""

    __slots__ = ("_allow_without_acl", "_report", "index", "settings")

    def __init__(
        self,
        settings: Settings,
        report: Report = lambda _question, _decision, _quiet: None,
        *,
        knows_acls: bool = True,
    ) -> None:
        """Unless it `knows_acls`, no resource is free to all before the first `update`."""
        self.settings = settings
        self._allow_without_acl = settings.allow_without_acl and knows_acls
        self._report = report
        self.index = AclIndex()
        """The ACLs that count now; another object after every change."""

    def update(self, acls: Acls) -> None:
        """Decide by these ACLs from now on."""
        self._allow_without_acl = self.settings.allow_without_acl
        self.index = AclIndex(acls, self.index)

    def subject(self, principal: str, host: str, roles: Collection[str] = ()) -> Subject:
        """The principal with all its roles: those that its authentication gave and those of ACLs."""
        address = normalized(host)
        return Subject(principal, address, self.index.roles_of(principal, address).union(roles))

    def decide(self, subject: Subject, operation: AclOperation, kind: ResourceType, name: str) -> Decision:
        """By super users first, then by ACLs; those allow no client to change the audit topic."""
        if self._is_super(subject):
            return Decision(True, Reason.SUPER_USER)
        if name == AUDIT_TOPIC and kind == ResourceType.TOPIC and operation not in _READS:
            return Decision(False, Reason.RESERVED)
        return decide(self.index, subject, operation, kind, name, allow_without_acl=self._allow_without_acl)

    def decide_on_any(self, subject: Subject, operation: AclOperation, kind: ResourceType) -> Decision:
        """Whether the operation is allowed on some resource of the type."""
        if self._is_super(subject):
            return Decision(True, Reason.SUPER_USER)
        return decide_on_any(self.index, subject, operation, kind, allow_without_acl=self._allow_without_acl)

    def _is_super(self, subject: Subject) -> bool:
        super_users = self.settings.super_users
        return subject.principal in super_users or not super_users.isdisjoint(subject.roles)

    def report(self, question: Question, decision: Decision, *, quiet: bool) -> None:
        """Log a decision."""
        self._report(question, decision, quiet)


class Access:
    """What one client may do. Made for a connection's principal; another principal gets another one."""

    __slots__ = (
        "_authorizer",
        "_count",
        "_decisions",
        "_host",
        "_index",
        "_on_any",
        "_roles",
        "_subject",
        "client_id",
        "is_broker",
        "principal",
        "request",
    )

    def __init__(
        self,
        authorizer: Authorizer,
        principal: object,
        host: str,
        roles: Collection[str] = (),
        *,
        is_broker: bool = False,
    ) -> None:
        """`principal` is compared by identity and read as text; a broker of the cluster may do everything."""
        self._authorizer = authorizer
        self.principal = principal
        """Whose access it is."""
        self._host = host
        self._roles = roles
        self.is_broker = is_broker
        """Whether the client has proven to be a broker of the cluster."""
        self._index: AclIndex | None = None
        self._subject = Subject(str(principal), host)
        self._decisions: dict[int, dict[str | bytes, int]] = {}
        self._on_any: dict[int, bool] = {}
        self._count = 0
        self.request = ""
        """The API that asks now, for the log of decisions."""
        self.client_id: str | None = None
        """The client's name for itself, likewise."""

    def allows(self, operation: AclOperation, kind: ResourceType, name: str, *, quiet: bool = False) -> bool:
        """Whether the client may do the operation. `quiet`: a denial is no refusal of the request."""
        if self._index is not self._authorizer.index:
            self._forget()
        decided = self._decisions.get(kind << 4 | operation)
        if decided is not None and (known := decided.get(name)) is not None and (known >= 0 or quiet):
            return known > 0
        return self._decide(operation, kind, name, quiet)

    def remembered(self, right: int) -> Mapping[str | bytes, int]:
        """The decisions so far on a `right_key`, by name or id: above 0 where the client may do the operation.

        For callers that ask with every request. What it says counts until the caller awaits. `allows` decides on
        every other name.
        """
        if self._index is not self._authorizer.index:
            self._forget()
        return self._decisions.get(right, _NOTHING_DECIDED)

    def remember_id(self, right: int, topic_id: bytes) -> None:
        """Remember by its id that the client may do the operation to a topic: an id never gets another name."""
        if self._count < _MOST_DECISIONS:
            self._count += 1
            self._decisions.setdefault(right, {})[topic_id] = _ALLOWED

    def described_topics(self) -> Mapping[str | bytes, int]:
        """What is `remembered` of DESCRIBE on topics."""
        return self.remembered(_DESCRIBE_TOPIC)

    def readable_topics(self) -> Mapping[str | bytes, int]:
        """What is `remembered` of READ on topics."""
        # With every fetch, so without a call.
        if self._index is not self._authorizer.index:
            self._forget()
        return self._decisions.get(_READ_TOPIC, _NOTHING_DECIDED)

    def may_read(self, name: str, topic_id: bytes | None) -> bool:
        """Whether the client may read a topic; remembered by its id, too, if there is one."""
        is_allowed = self.allows(AclOperation.READ, ResourceType.TOPIC, name)
        if is_allowed and topic_id is not None:
            self.remember_id(_READ_TOPIC, topic_id)
        return is_allowed

    def allows_cluster(self, operation: AclOperation, *, quiet: bool = False) -> bool:
        """Whether the client may do the operation to the cluster."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME, quiet=quiet)

    def allows_on_any(self, operation: AclOperation, kind: ResourceType) -> bool:
        """Whether the client may do the operation on some resource of the type."""
        if self._index is not self._authorizer.index:
            self._forget()
        right = right_key(operation, kind)
        known = self._on_any.get(right)
        if known is None:
            decision = self._of_broker() or self._authorizer.decide_on_any(self._subject, operation, kind)
            known = self._on_any[right] = self._report(decision, operation, kind, "", quiet=False)
        return known

    def operations(self, kind: ResourceType, name: str) -> int:
        """The operations that the client may use, as a bit field of their codes; nothing is logged as a denial."""
        return sum(1 << each for each in SUPPORTED[kind] if self.allows(each, kind, name, quiet=True))

    def _forget(self) -> None:
        authorizer = self._authorizer
        self._index = authorizer.index
        self._decisions, self._on_any, self._count = {}, {}, 0
        self._subject = authorizer.subject(str(self.principal), self._host, self._roles)

    def _decide(self, operation: AclOperation, kind: ResourceType, name: str, quiet: bool) -> bool:
        decision = self._of_broker() or self._authorizer.decide(self._subject, operation, kind, name)
        is_allowed = self._report(decision, operation, kind, name, quiet=quiet)
        if len(name) <= _MOST_NAME_CHARACTERS:
            if self._count >= _MOST_DECISIONS:
                self._decisions, self._count = {}, 0
            self._count += 1
            known = _ALLOWED if is_allowed else _DENIED_QUIETLY if quiet else _DENIED
            self._decisions.setdefault(right_key(operation, kind), {})[name] = known
        return is_allowed

    def _of_broker(self) -> Decision | None:
        return Decision(True, Reason.BROKER) if self.is_broker else None

    def _report(
        self, decision: Decision, operation: AclOperation, kind: ResourceType, name: str, *, quiet: bool
    ) -> bool:
        """Log the decision; whether the client may do the operation, also because denials have no effect yet."""
        authorizer = self._authorizer
        question = Question(self._subject, operation, kind, name, self.request, self.client_id)
        authorizer.report(question, decision, quiet=quiet)
        is_trial = authorizer.settings.mode is Mode.AUDIT and decision.reason is not Reason.RESERVED
        return decision.is_allowed or is_trial
