"""The vocabulary of authorization: what a right is, and what follows where a principal lacks it.

Source: Kafka's `AclOperation`, `ResourceType`, `KafkaApis`.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple

from odradek.wire.errors import ErrorCode


class Operation(IntEnum):
    """What a principal does to a resource, by Kafka's codes."""

    ANY = 1
    """Every operation of the resource: the answer lists those that the principal may use."""
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


class Resource(IntEnum):
    """What is protected, by Kafka's codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Denial(Enum):
    """What follows where a principal lacks a right."""

    REQUEST = "the whole request fails"
    ENTRY = "the entries of that resource fail, the others are served"
    HIDDEN = "the resource is left out of the answer, without an error"
    NEXT = "the next right of the declaration decides"
    REPORTED = "the operation is missing in the answer's bit field"


_ERRORS: Final = {
    Resource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Resource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    Resource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    Resource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Resource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    Resource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


class Right(NamedTuple):
    """One right that a request needs: an operation on a resource, and what a denial does."""

    operation: Operation
    resource: Resource
    denial: Denial = Denial.ENTRY
    when: str = ""
    """Which resources of the request need it, and under which condition; empty: all of that type, always."""
    denied_with: ErrorCode | None = None
    """The error of a denial, where it is not the resource's own."""

    @property
    def error(self) -> ErrorCode:
        """The error code of a denial, of the request or of the entry."""
        return _ERRORS[self.resource] if self.denied_with is None else self.denied_with
