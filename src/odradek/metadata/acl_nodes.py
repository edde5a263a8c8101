"""The nodes of ACLs, as Kafka's `AclAuthorizer` keeps them in ZooKeeper: one for each resource pattern.

Literal patterns lie in `/kafka-acl/TYPE/NAME`, prefixed ones in `/kafka-acl-extended/prefixed/TYPE/NAME` (KIP-290). A
name that is no part of a path is encoded in it, and stands as it is in the content: Kafka could not store such an ACL.
Source: Kafka's `ZkData` (ResourceZNode, ExtendedAclStore) and `AclEntry`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from odradek.metadata.nodes import CorruptNode
from odradek.wire.acls import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourceType,
)

LITERAL_ACLS: Final = "/kafka-acl"
EXTENDED_ACLS: Final = "/kafka-acl-extended"
PREFIXED_ACLS: Final = f"{EXTENDED_ACLS}/prefixed"

_UNENCODED: Final = " !\"#$&'()*+,:;<=>?@[\\]^`{|}~"
"""Beside letters, digits and `_.-`: the characters that stand for themselves, `%` and `/` not among them."""


def _words(name: str) -> str:
    """CLUSTER_ACTION as `ClusterAction`."""
    return "".join(word.capitalize() for word in name.split("_"))


_TYPES: Final = {_words(kind.name): kind for kind in ResourceType if kind > ResourceType.ANY}
_OPERATIONS: Final = {_words(operation.name): operation for operation in AclOperation if operation > AclOperation.ANY}
_PERMISSIONS: Final = {"Allow": AclPermissionType.ALLOW, "Deny": AclPermissionType.DENY}


class AclNode:
    """The ACLs of one resource pattern."""

    @staticmethod
    def path(pattern: ResourcePattern) -> str:
        """The path of a pattern's ACLs."""
        top = LITERAL_ACLS if pattern.pattern_type == PatternType.LITERAL else PREFIXED_ACLS
        return f"{top}/{_words(pattern.type.name)}/{_part(pattern.name)}"

    @staticmethod
    def is_path(path: str) -> bool:
        """Whether the node holds ACLs, and is not one above such nodes."""
        return _located(path) is not None

    @staticmethod
    def encode(pattern: ResourcePattern, bindings: Iterable[AclBinding]) -> bytes:
        """The content for the ACLs of a pattern."""
        content: dict[str, object] = {
            "version": 1,
            "acls": [
                {
                    "principal": each.principal,
                    "permissionType": each.permission.name.capitalize(),
                    "operation": _words(each.operation.name),
                    "host": each.host,
                }
                for each in sorted(bindings)
            ],
        }
        if _part(pattern.name) != pattern.name:
            content["resource"] = pattern.name
        return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()

    @staticmethod
    def decode(path: str, data: bytes) -> tuple[ResourcePattern, frozenset[AclBinding]]:
        """The pattern and its ACLs. Raises CorruptNode: a denial that cannot be read must not be left out."""
        located = _located(path)
        if located is None:
            raise CorruptNode(f"{path} is not the path of ACLs")
        kind, pattern_type, part = located
        try:
            content = json.loads(data)
            pattern = ResourcePattern(kind, content.get("resource", part), pattern_type)
            return pattern, frozenset(
                AclBinding(
                    kind,
                    pattern.name,
                    each["principal"],
                    _OPERATIONS[each["operation"]],
                    _PERMISSIONS[each["permissionType"]],
                    each["host"],
                    pattern_type,
                )
                for each in content["acls"]
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptNode(f"{path}: {error!r}") from error


def _located(path: str) -> tuple[ResourceType, PatternType, str] | None:
    """Type, pattern type and the last part of the path of a pattern's ACLs; None for any other path."""
    for top, pattern_type in ((LITERAL_ACLS, PatternType.LITERAL), (PREFIXED_ACLS, PatternType.PREFIXED)):
        if path.startswith(top + "/"):
            type_name, _, part = path[len(top) + 1 :].partition("/")
            kind = _TYPES.get(type_name)
            return (kind, pattern_type, part) if kind is not None and part else None
    return None


def _part(name: str) -> str:
    """The name as a part of a path."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return name if name.isalnum() and name.isascii() else quote(name, safe=_UNENCODED)
