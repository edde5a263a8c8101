"""A decision: whether a client may do an operation, and by which rule.

Source: Kafka's `StandardAuthorizerData.authorize` and `Authorizer.authorizeByResourceType`.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from odradek.authorization.acl_index import EVERY_USER, AclIndex, Rules
from odradek.authorization.operations import is_allowed_by, is_denied_by
from odradek.wire.acls import WILDCARD, AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType


class Reason(Enum):
    """What a decision follows from."""

    SUPER_USER = "the principal is one of super.users"
    BROKER = "the client is a broker of this cluster"
    ACL = "an ACL"
    RESERVED = "only brokers and super users may change the audit topic"
    NO_ACL = "no ACL is for the resource; allow.everyone.if.no.acl.found decides"
    NO_MATCH = "no ACL for the resource allows it"


class Decision(NamedTuple):
    """Whether an operation is allowed; `binding` is the ACL that decides, if one does."""

    is_allowed: bool
    reason: Reason
    binding: AclBinding | None = None


class Subject(NamedTuple):
    """Who asks: the principal with its roles (`Type:NAME`), and the address in its compared spelling."""

    principal: str
    address: str
    roles: frozenset[str] = frozenset()

    @property
    def names(self) -> tuple[str, ...]:
        """Principals of ACLs that are for the subject."""
        return (self.principal, EVERY_USER, *sorted(self.roles))


def decide(
    index: AclIndex,
    subject: Subject,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    *,
    allow_without_acl: bool = False,
) -> Decision:
    """Any matching denial, then any matching allowance, then the default. Super users are not looked at."""
    matching = index.matching(kind, name)
    if not matching:
        return Decision(allow_without_acl, Reason.NO_ACL)
    allowed: AclBinding | None = None
    for binding in _applying(matching, subject):
        if binding.permission == AclPermissionType.DENY:
            if is_denied_by(operation, binding.operation):
                return Decision(False, Reason.ACL, binding)
        elif allowed is None and is_allowed_by(operation, binding.operation):
            allowed = binding
    if allowed is not None:
        return Decision(True, Reason.ACL, allowed)
    return Decision(False, Reason.NO_MATCH)


def _applying(matching: list[Rules], subject: Subject) -> Iterator[AclBinding]:
    """The ACLs among the matching ones that are for the subject."""
    for rules in matching:
        for principal in subject.names:
            for rule in rules.get(principal, ()):
                if rule.applies_to(subject.address):
                    yield rule.binding


_EXAMPLE = "hardcode"
"""A resource name that stands for "any": Kafka's name for the first question of `authorizeByResourceType`."""


def decide_on_any(
    index: AclIndex, subject: Subject, operation: AclOperation, kind: ResourceType, *, allow_without_acl: bool = False
) -> Decision:
    """Whether the operation is allowed on at least one resource of the type that may exist.

    An ACL that allows a name or a prefix counts unless a denial of the same name or of a prefix of it covers it.
    """
    example = decide(index, subject, operation, kind, _EXAMPLE, allow_without_acl=allow_without_acl)
    if example.is_allowed:
        return example
    denied: dict[PatternType, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
    allowed: list[AclBinding] = []
    for pattern, rules in index.of_type(kind):
        for binding in _applying([rules], subject):
            if binding.operation not in (operation, AclOperation.ALL):
                continue
            if binding.permission == AclPermissionType.ALLOW:
                allowed.append(binding)
            elif pattern.pattern_type == PatternType.LITERAL and pattern.name == WILDCARD:
                return Decision(False, Reason.ACL, binding)
            else:
                denied[pattern.pattern_type].add(pattern.name)
    for binding in allowed:
        if not _is_covered(binding, denied):
            return Decision(True, Reason.ACL, binding)
    return Decision(False, Reason.NO_MATCH)


def _is_covered(binding: AclBinding, denied: dict[PatternType, set[str]]) -> bool:
    name = binding.resource_name
    if binding.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if name in denied[PatternType.LITERAL]:
            return True
    prefixes = denied[PatternType.PREFIXED]
    return any(name[:length] in prefixes for length in range(1, len(name) + 1))
