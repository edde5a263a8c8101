"""Changes of ACLs, roles and delegation tokens, from requests and their answers.

A role's members are ACLs, too: ALL on the USER resource `Role:NAME`.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator, Sequence
from typing import Any, Final

from odradek.api.audit.answered import Answered
from odradek.api.audit.trail import Change
from odradek.security.delegation_tokens import DelegationToken
from odradek.wire.acls import AclOperation, AclPermissionType, PatternType, ResourceType

_KIND: Final = "DELEGATION_TOKEN"


def created_acls(served: Answered) -> Iterator[Change]:
    """Of CreateAcls."""
    for creation, result in zip(served.request.creations, served.answer.results, strict=False):
        acl = _acl(creation, creation.resource_pattern_type)
        kind = ResourceType(creation.resource_type).name
        yield Change(kind, creation.resource_name, None, None if result.error_code else acl, result.error_code)


def deleted_acls(served: Answered) -> Iterator[Change]:
    """Of DeleteAcls: each ACL that a filter matched."""
    for result in served.answer.filter_results:
        if result.error_code:
            yield Change("CLUSTER", "kafka-cluster", None, None, result.error_code)
        for each in result.matching_acls:
            acl = _acl(each, each.pattern_type)
            kind = ResourceType(each.resource_type).name
            yield Change(kind, each.resource_name, acl, acl if each.error_code else None, each.error_code)


def _acl(found: Any, pattern_type: int) -> dict[str, Any]:
    return {
        "principal": found.principal,
        "permission": AclPermissionType(found.permission_type).name,
        "operation": AclOperation(found.operation).name,
        "host": found.host,
        "pattern_type": PatternType(pattern_type).name,
    }


def created_token(served: Answered) -> Iterator[Change]:
    """Of CreateDelegationToken, without the token's HMAC."""
    answer = served.answer
    if answer.error_code:
        yield Change(_KIND, answer.token_id, None, None, answer.error_code)
        return
    after = {
        "owner": f"{answer.principal_type}:{answer.principal_name}",
        "renewers": [f"{each.principal_type}:{each.principal_name}" for each in served.request.renewers],
        "expiry_ms": answer.expiry_timestamp_ms,
        "max_ms": answer.max_timestamp_ms,
    }
    yield Change(_KIND, answer.token_id, None, after)


def extended_token(served: Answered) -> Iterator[Change]:
    """Of RenewDelegationToken and ExpireDelegationToken; `known` are the tokens before, with their HMACs."""
    token = _token(served.known or (), bytes(served.request.hmac))
    name = "" if token is None else token.token_id
    before = None if token is None else {"owner": token.owner, "expiry_ms": token.expiry_ms}
    after = None if before is None else before | {"expiry_ms": served.answer.expiry_timestamp_ms}
    yield Change(_KIND, name, before, before if served.failure else after, served.failure)


def _token(tokens: Sequence[tuple[DelegationToken, bytes]], mac: bytes) -> DelegationToken | None:
    return next((token for token, known in tokens if hmac.compare_digest(known, mac)), None)
