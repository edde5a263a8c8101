"""Operations of resources: which implies which, and which a resource has at all.

Source: Kafka's `AclEntry.supportedOperations`, `StandardAuthorizerData` (IMPLIES_DESCRIBE, IMPLIES_DESCRIBE_CONFIGS).
"""

from __future__ import annotations

from typing import Final

from odradek.wire.acls import AclOperation, ResourceType

_O = AclOperation

_IMPLIED_BY: Final = {
    _O.DESCRIBE: frozenset((_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER)),
    _O.DESCRIBE_CONFIGS: frozenset((_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS)),
}

SUPPORTED: Final = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
"""Operations that a resource of each type has; an ACL may name any other, which then decides on nothing."""


def is_allowed_by(wanted: AclOperation, allowed: AclOperation) -> bool:
    """Whether an ACL that allows one operation allows another. A denial implies no other operation."""
    if allowed == _O.ALL or allowed == wanted:
        return True
    return allowed in _IMPLIED_BY.get(wanted, ())


def is_denied_by(wanted: AclOperation, denied: AclOperation) -> bool:
    """Whether an ACL that denies one operation denies another."""
    return denied in (_O.ALL, wanted)
