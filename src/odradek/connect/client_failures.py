"""What a failure of a client means for a task."""

from __future__ import annotations

from typing import Final

from odradek.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConfigError,
    NoOffsetForPartition,
    OffsetOutOfRange,
    ProducerFenced,
    UnsupportedByBroker,
)
from odradek.connect.errors import ConnectError, TargetAway
from odradek.wire.errors import ErrorCode, KafkaError

_LASTING: Final = (
    AuthenticationFailed, ConfigError, NoOffsetForPartition, OffsetOutOfRange, ProducerFenced, UnsupportedByBroker,
)  # fmt: skip
_PASSING: Final = frozenset({
    # brokers forget a producer that is idle for long (transactional.id.expiration.ms)
    ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.UNKNOWN_PRODUCER_ID,
    # the transaction is lost, and not the producer's right to write
    ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
})  # fmt: skip
"""Errors that a client may not retry, but that a new client does not meet."""


def failure_of(error: KafkaError | ClientError, who: str) -> ConnectError:
    """TargetAway if the same may succeed later, with a new client; else that the task has no right, or was fenced."""
    text = f"{who}: {type(error).__name__}: {error}" if isinstance(error, ClientError) else f"{who}: {error}"
    if isinstance(error, KafkaError):
        lasts = not error.retriable and error.code not in _PASSING
    else:
        lasts = isinstance(error, _LASTING)
    return ConnectError(text) if lasts else TargetAway(text)
