"""Errors that the client itself raises. An error that a broker returns is `odradek.wire.errors.KafkaError`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek.wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.records.topic_partition import TopicPartition


class ClientError(Exception):
    """Base of the errors that the client itself raises."""


class ConfigError(ClientError, ValueError):
    """An option is unknown, or its value is invalid."""


class SerializationError(ClientError, ValueError):
    """A serializer or deserializer of this package was given an object or bytes that it cannot convert."""


class DeserializationError(ClientError):
    """A deserializer failed on a record; caused by what it raised. The next poll meets the record again.

    `consumer.seek(error.topic_partition, error.offset + 1)` skips it.
    """

    def __init__(self, message: str, topic_partition: TopicPartition, offset: int) -> None:
        """`offset` is that of the record."""
        super().__init__(message, topic_partition, offset)
        self.topic_partition = topic_partition
        """The record's partition."""
        self.offset = offset
        """The record's offset."""

    def __str__(self) -> str:
        return str(self.args[0])


class ClientClosed(ClientError):
    """The client was closed before or while the call ran."""


class TransportError(ClientError):
    """A request may or may not have reached the broker; it can be retried."""


class Disconnected(TransportError):
    """The connection broke, or could not be made."""


class ConnectionRefused(Disconnected):
    """No process listens at the address of a node: it has ended, or has not started yet."""


class IdleConnection(Disconnected):
    """A connection had no requests for `connections_max_idle_ms`, and was closed; the next request opens another."""


class RequestTimedOut(TransportError, TimeoutError):
    """No answer came within `request_timeout_ms`."""


class AuthenticationFailed(ClientError):
    """The broker does not accept this client's credentials, or does not prove that it knows the password."""


class CallTimedOut(ClientError, TimeoutError):
    """A call did not succeed within its time (`default_api_timeout_ms`, `max_block_ms`); caused by the last failure."""


class DeliveryTimedOut(ClientError, TimeoutError):
    """A record was not acknowledged within `delivery_timeout_ms`."""


class BufferExhausted(ClientError):
    """`buffer_memory` is full of records that are not yet acknowledged."""


class UnsupportedByBroker(ClientError):
    """The broker offers no version of an API that can carry the request."""

    code: Final = ErrorCode.UNSUPPORTED_VERSION
    """Kafka's error code for it, with which Java's client fails the call."""


class NoOffsetForPartition(ClientError):
    """A partition has no committed offset and `auto_offset_reset` is `none`."""


class OffsetOutOfRange(ClientError):
    """A position lies outside of the partition's log and `auto_offset_reset` is `none`."""


class CommitFailed(ClientError):
    """The group has rebalanced without this member: the offsets were not committed, and the next poll rejoins."""


class TransactionAborted(ClientError):
    """A record was not sent because its transaction was aborted."""


class ProducerFenced(ClientError):
    """A newer producer uses the same transactional id; this one can only be closed."""


class IllegalState(ClientError):
    """The call does not fit the state of the client (for instance `seek` on a partition that is not assigned)."""
