"""The transaction coordinator as request handlers see it; `broker.coordinators.transactions` implements it.

Methods that may have to wait return a future, which is done already if the answer is known. A failure
of the request as a whole is raised, at the call or by the future, as KafkaError: NOT_COORDINATOR and
COORDINATOR_LOAD_IN_PROGRESS from every one of them. `connection` is the identifier of the one that a request came on;
StaleConnection is raised when its producer has used a newer one (see `connections`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from odradek.records.topic_partition import PartitionKey
from odradek.transactions.events import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    ProducerResult,
    TransactionDescription,
    TransactionListing,
)
from odradek.wire.errors import ErrorCode

Rejections: TypeAlias = dict[PartitionKey, ErrorCode]
"""Partitions that are not part of the transaction, each with the error for the producer."""


class Verification(NamedTuple):
    """A producer's request to write to partitions as part of its transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[PartitionKey]


class Listings(NamedTuple):
    """`unknown_states` are names among the filters that are no states."""

    unknown_states: list[str]
    listings: list[TransactionListing]


class ListFilter(NamedTuple):
    """Empty sequences, a negative duration and no pattern let everything pass."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    duration_ms: int = -1
    transactional_id_pattern: str | None = None


class PartitionMarker(NamedTuple):
    """The end of a transaction in one partition."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class TransactionService(Protocol):
    """See the module."""

    async def new_producer_id(self) -> int:
        """For a producer without a transactional id."""
        ...

    def init_producer_id(self, request: InitProducerId, connection: int) -> asyncio.Future[ProducerResult]:
        """InitProducerId of a transactional producer."""
        ...

    def add_partitions(self, request: AddPartitions, connection: int | None) -> asyncio.Future[ErrorCode]:
        """The connection is None when another broker asks."""
        ...

    def add_offsets(
        self, transactional_id: str, producer: tuple[int, int], group_id: str, connection: int
    ) -> asyncio.Future[ErrorCode]:
        """Add the partition of `__consumer_offsets` that keeps the group's offsets; `producer` is (id, epoch)."""
        ...

    def verify_partitions(self, request: AddPartitions) -> Rejections:
        """TRANSACTION_ABORTABLE for those that are not in the transaction; NONE is left out."""
        ...

    def end(self, request: EndTransaction, connection: int) -> asyncio.Future[ProducerResult]:
        """EndTxn: the answer is given when the end is decided; markers follow."""
        ...

    def verify_or_add(self, wanted: Verification, produce_version: int) -> Rejections | Awaitable[Rejections]:
        """What stands against appending to the partitions, in the codes that Produce of this version answers.

        From version 12 on (transaction.version 2) they are added to the transaction; before that it is only checked
        that they were (KIP-890 part 1). Ask for those alone where the producer has no open transaction yet. What an
        awaitable answers counts when it comes: append before anything else is awaited.
        """
        ...

    def verify_or_add_offsets(
        self, wanted: Verification, group_id: str, version: int
    ) -> ErrorCode | Awaitable[ErrorCode]:
        """The same for the partition that keeps the group's offsets, of TxnOffsetCommit in this version."""
        ...

    def is_stale_commit(self, group_id: str, producer: tuple[int, int], connection: int) -> bool:
        """Whether the producer has committed offsets of this group on a newer connection; notes this one if not."""
        ...

    def is_stale_sender(self, client_id: str, connection: int) -> bool:
        """Whether the broker of this client id has sent markers on a newer connection; notes this one if not.

        That broker has closed the older connection, and has sent its requests again. Below transaction.version 2 a late
        marker cannot be distinguished from one of the next transaction.
        """
        ...

    def write_marker(self, marker: PartitionMarker) -> asyncio.Future[None]:
        """Append a marker; done when it is committed. Raises KafkaError if the partition rejects it."""
        ...

    def describe(self, transactional_id: str) -> TransactionDescription:
        """The transactional id as DescribeTransactions returns it."""
        ...

    def list_transactions(self, wanted: ListFilter) -> Listings:
        """Of all shards of this broker. Raises INVALID_REGULAR_EXPRESSION for a malformed pattern."""
        ...
