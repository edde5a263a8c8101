"""What goes wrong on the client's side of the wire. What a broker answers is `odradek.wire.errors.KafkaError`."""

from __future__ import annotations


class ClientError(Exception):
    """Base of the errors that the client itself raises."""


class ConfigError(ClientError, ValueError):
    """An option is unknown, or its value is invalid."""


class ClientClosed(ClientError):
    """The client was closed before or while the call ran."""


class TransportError(ClientError):
    """A request may or may not have reached the broker; it can be tried again."""


class Disconnected(TransportError):
    """The connection broke, or could not be made."""


class RequestTimedOut(TransportError, TimeoutError):
    """No answer came within `request_timeout_ms`."""


class CallTimedOut(ClientError, TimeoutError):
    """A call did not succeed within its time (`default_api_timeout_ms`, `max_block_ms`); caused by the last failure."""


class DeliveryTimedOut(ClientError, TimeoutError):
    """A record was not acknowledged within `delivery_timeout_ms`."""


class BufferExhausted(ClientError):
    """`buffer_memory` is full of records that are not yet acknowledged."""


class UnsupportedByBroker(ClientError):
    """The broker offers no version of an API that can carry the request."""


class NoOffsetForPartition(ClientError):
    """A partition has no committed offset and `auto_offset_reset` is `none`."""


class OffsetOutOfRange(ClientError):
    """A position lies outside of the partition's log and `auto_offset_reset` is `none`."""


class CommitFailed(ClientError):
    """The group has moved on: the offsets were not committed, and this member must rejoin."""


class TransactionAborted(ClientError):
    """A record was not sent because its transaction was aborted."""


class ProducerFenced(ClientError):
    """A newer producer with the same transactional id is at work; this one can only be closed."""


class IllegalState(ClientError):
    """The call does not fit the state of the client (for instance `seek` on a partition that is not assigned)."""
