"""Access control lists as the protocol has them: Kafka's codes, a binding, and the filter that selects bindings.

Source: Kafka's `AclBinding`, `AclBindingFilter`, `ResourcePatternFilter` (KIP-290).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Self

WILDCARD: Final = "*"
"""As a literal resource name, a host or the name of a `User` principal: every one."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of the type CLUSTER."""


class ResourceType(IntEnum):
    """What an ACL protects."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.UNKNOWN


class PatternType(IntEnum):
    """How an ACL's resource name matches (KIP-290). ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.UNKNOWN


class AclOperation(IntEnum):
    """What an ACL permits or denies. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.UNKNOWN


class AclPermissionType(IntEnum):
    """Whether an ACL permits or denies. ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.UNKNOWN


class AclBinding(NamedTuple):
    """An ACL. `principal` is `User:NAME` or `Role:NAME`, `host` an address, a network (CIDR) or `*`."""

    resource_type: ResourceType
    resource_name: str
    principal: str
    operation: AclOperation
    permission: AclPermissionType = AclPermissionType.ALLOW
    host: str = WILDCARD
    pattern_type: PatternType = PatternType.LITERAL


class ResourcePattern(NamedTuple):
    """The resources that an ACL is for."""

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL


def pattern_of(binding: AclBinding) -> ResourcePattern:
    """The pattern of an ACL."""
    return ResourcePattern(binding.resource_type, binding.resource_name, binding.pattern_type)


class AclFilter(NamedTuple):
    """Which ACLs are meant; None and ANY match all. MATCH selects the ACLs that apply to the resource of that name."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermissionType = AclPermissionType.ANY
    host: str | None = None
    pattern_type: PatternType = PatternType.ANY

    def matches(self, binding: AclBinding) -> bool:
        """Whether the ACL is one of those that are meant."""
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._matches_name(binding)
            and self.principal in (None, binding.principal)
            and self.operation in (AclOperation.ANY, binding.operation)
            and self.permission in (AclPermissionType.ANY, binding.permission)
            and self.host in (None, binding.host)
        )

    def _matches_name(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        name = self.resource_name
        if name is None or name == binding.resource_name:
            return True
        if self.pattern_type != PatternType.MATCH:
            return False
        if binding.pattern_type == PatternType.PREFIXED:
            return name.startswith(binding.resource_name)
        return binding.resource_name == WILDCARD
