"""ACLs of which this version knows all codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType


def known_acls(acls: Iterable[AclBinding]) -> Iterator[AclBinding]:
    """Those whose types, operations, permissions and patterns this version knows."""
    for each in acls:
        if (
            each.resource_type > ResourceType.ANY
            and each.operation > AclOperation.ANY
            and each.permission > AclPermissionType.ANY
            and each.pattern_type > PatternType.MATCH
        ):
            yield each
