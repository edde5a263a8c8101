"""Requests to the transaction coordinator and its results: plain values, free of wire versions and of I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from odradek.records.topic_partition import PartitionKey
from odradek.transactions.records import NO_EPOCH, NO_PRODUCER_ID, TransactionRecord
from odradek.wire.errors import ErrorCode


class NoProducerIds(Exception):
    """The broker's block of producer ids is used up: get the next one and decide again."""


class ProducerIdSource(Protocol):
    """Unused producer ids, from the block that the controller gave to this broker."""

    def take(self) -> int:
        """A new producer id. Raises NoProducerIds."""
        ...


class InitProducerId(NamedTuple):
    """`producer_id` and `producer_epoch` are what a producer that recovers has now (KIP-360), else -1."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH

    @property
    def is_recovery(self) -> bool:
        """Whether the producer asks to continue with the id that it has (KIP-360)."""
        return self.producer_epoch != NO_EPOCH


class AddPartitions(NamedTuple):
    """`client_version` is the level of transaction.version that the request's version shows."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[PartitionKey]
    client_version: int = 0


class EndTransaction(NamedTuple):
    """EndTxn. `client_version` is the level of transaction.version that the version of the request implies."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    client_version: int = 0


class ProducerResult(NamedTuple):
    """With an error, id and epoch are -1; else what the producer has to use from now on."""

    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH


class Markers(NamedTuple):
    """A transaction whose end is decided: write a marker to each partition, then call `markers_written`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: frozenset[PartitionKey]
    transaction_version: int


class TransactionDecision(NamedTuple):
    """What the caller has to do.

    1. Append `records` as one batch, then `replay` each; if the log rejects them, answer `append_failure` of the error.
    2. Once they are committed: answer with `reply` and send `markers`.
    """

    records: Sequence[TransactionRecord] = ()
    reply: Any = None
    markers: Sequence[Markers] = ()


class TransactionDescription(NamedTuple):
    """`error` is TRANSACTIONAL_ID_NOT_FOUND if the id is unknown. `start_ms` is -1 without a transaction."""

    error: ErrorCode
    transactional_id: str
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: frozenset[PartitionKey] = frozenset()


class TransactionListing(NamedTuple):
    """A transactional id as ListTransactions returns it."""

    transactional_id: str
    producer_id: int
    state: str


_COORDINATOR_NOT_AVAILABLE = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
)
_NOT_COORDINATOR = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def append_failure(error: ErrorCode) -> ErrorCode:
    """The error that a client gets if the append failed (Kafka: TransactionStateManager.appendTransactionToLog)."""
    if error in _COORDINATOR_NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in _NOT_COORDINATOR:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in _TOO_LARGE else error
