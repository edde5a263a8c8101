"""The vocabulary of authorization: what a right is, and what follows where a principal lacks it.

Source: Kafka's `AclOperation`, `ResourceType`, `KafkaApis`.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode


class Denial(Enum):
    """The consequence where a principal lacks a right."""

    REQUEST = "the whole request fails"
    ENTRY = "the entries of that resource fail, the others are served"
    HIDDEN = "the resource is left out of the answer, without an error"
    NEXT = "the next right of the declaration decides"
    REPORTED = "the operation is missing in the answer's bit field"


_ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Right(NamedTuple):
    """One right that a request needs: an operation on a resource, and what a denial does."""

    operation: AclOperation
    resource: ResourceType
    denial: Denial = Denial.ENTRY
    when: str = ""
    """Which resources of the request need it, and under which condition; empty: all of that type, always."""
    denied_with: ErrorCode | None = None
    """The error of a denial, where it is not the resource's own."""

    @property
    def error(self) -> ErrorCode:
        """The error code of a denial, of the request or of the entry."""
        return _ERRORS[self.resource] if self.denied_with is None else self.denied_with
