"""Transactions seen by an administrator (KIP-664): what is open, at which coordinator, and how to end it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from odradek.client.admin.enums import TransactionState
from odradek.client.admin.requests import AdminRequests, raise_failure
from odradek.client.errors import UnsupportedByBroker
from odradek.client.network.cluster import TRANSACTION_COORDINATOR, error_of, is_stale_metadata
from odradek.client.offsets import by_topic
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
    DescribeProducersResponsePartition,
)
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseState,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from odradek.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)

_FENCING_TIMEOUT_MS: Final = 1
"""The transaction timeout of an epoch that is taken only to fence the previous owner, as in Java's client."""


class TransactionListing(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator_id: int


class TransactionDescription(NamedTuple):
    """A transactional id at its coordinator; start_time_ms (since the epoch) is None while no transaction is open."""

    transactional_id: str
    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int | None
    partitions: list[TopicPartition]


class ProducerState(NamedTuple):
    """A producer as a partition's leader knows it. None: no marker was written yet, or no transaction is open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


class OpenTransaction(NamedTuple):
    """An open transaction in one partition, as `abort` needs it. The epochs protect from aborting a later one."""

    topic_partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int


class ProducerIdAndEpoch(NamedTuple):
    """The producer id of a transactional id, and the epoch that fences its previous producers."""

    producer_id: int
    producer_epoch: int


Producers = list[ProducerState]
"""The active producers of a partition."""

Listings = list[TransactionListing]
"""Transactional ids, sorted."""


class TransactionsAdmin:
    """`admin.transactions`.

    Example:

        for each in await admin.transactions.list(states=[TransactionState.ONGOING], longer_than_ms=60_000):
            print(each.transactional_id, each.state)
            await admin.transactions.force_terminate(each.transactional_id)
        print(await admin.transactions.describe_producers([TopicPartition("orders", 0)]))
    """

    __slots__ = ("_requests",)

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def list(
        self,
        *,
        states: Collection[TransactionState] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> Listings:
        """Transactional ids of all coordinators, sorted; those that match all filters.

        `longer_than_ms` selects transactions that have been open longer (KIP-994), the pattern is a regular expression
        of whole ids (KIP-1152). Raises KafkaError, ClientError (UnsupportedByBroker for a filter that is too new).
        """
        cluster = self._requests.cluster

        async def ask(broker_id: int) -> Listings:
            connection = await cluster.connections.get(broker_id)
            version = connection.version_of(ListTransactionsRequest)
            if longer_than_ms is not None and version < 1:
                raise UnsupportedByBroker(f"broker {broker_id} cannot list transactions by duration")
            if transactional_id_pattern is not None and version < 2:
                raise UnsupportedByBroker(f"broker {broker_id} cannot list transactions by a pattern")
            request = ListTransactionsRequest(
                [str(each) for each in states],
                [*producer_ids],
                -1 if longer_than_ms is None else longer_than_ms,
                transactional_id_pattern,
            )
            response = await cluster.ask(connection, request, ListTransactionsResponse)
            raise_failure(response.error_code)
            return [
                TransactionListing(e.transactional_id, e.producer_id, TransactionState(e.transaction_state), broker_id)
                for e in response.transaction_states
            ]

        async def attempt() -> Listings:
            await cluster.refresh_metadata()
            return sorted([each for broker_id in cluster.metadata.brokers for each in await ask(broker_id)])

        return await cluster.retrying(attempt, "ListTransactions")

    async def describe(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription | KafkaError]:
        """Transactional ids at their coordinators; TRANSACTIONAL_ID_NOT_FOUND for one that does not exist."""
        cluster = self._requests.cluster
        found: dict[str, TransactionDescription | KafkaError] = {}
        for transactional_id in transactional_ids:
            response = await self._requests.to_coordinator(
                TRANSACTION_COORDINATOR,
                transactional_id,
                DescribeTransactionsRequest([transactional_id]),
                DescribeTransactionsResponse,
                code=lambda answer: answer.transaction_states[0].error_code,
            )
            state = response.transaction_states[0]
            if state.error_code:
                found[transactional_id] = error_of(state.error_code, f"transactional id {transactional_id}")
            else:
                coordinator_id = await cluster.coordinator(TRANSACTION_COORDINATOR, transactional_id)
                found[transactional_id] = _described(state, coordinator_id)
        return found

    async def describe_producers(
        self, partitions: Collection[TopicPartition], *, broker_id: int | None = None
    ) -> dict[TopicPartition, Producers | KafkaError]:
        """Active producers of partitions, at their leaders, or at the replicas of one broker."""
        cluster = self._requests.cluster

        async def ask(node_id: int, keys: list[TopicPartition]) -> dict[TopicPartition, Producers | KafkaError]:
            topics = [DescribeProducersRequestTopic(*topic) for topic in by_topic(keys).items()]
            response = await cluster.request(node_id, DescribeProducersRequest(topics), DescribeProducersResponse)
            return {
                key: _producers(each, key)
                for topic in response.topics
                for each in topic.partitions
                for key in (TopicPartition(topic.name, each.partition_index),)
            }

        if broker_id is None:
            return await self._requests.to_leaders(partitions, "DescribeProducers", ask)
        return await cluster.retrying(lambda: ask(broker_id, [*partitions]), "DescribeProducers")

    async def abort(self, transaction: OpenTransaction) -> None:
        """Write an abort marker into one partition, past the coordinator: for transactions that it does not know.

        Raises KafkaError (INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: the transaction has ended meanwhile).
        """
        cluster = self._requests.cluster
        (topic, partition), producer_id, producer_epoch, coordinator_epoch = transaction

        async def attempt() -> None:
            leader = (await cluster.leader(topic, partition)).leader
            request = WriteTxnMarkersRequest(
                [
                    WriteTxnMarkersRequestMarker(
                        producer_id,
                        producer_epoch,
                        transaction_result=False,
                        topics=[WriteTxnMarkersRequestTopic(topic, [partition])],
                        coordinator_epoch=coordinator_epoch,
                    )
                ]
            )
            response = await cluster.request(leader, request, WriteTxnMarkersResponse)
            code = response.markers[0].topics[0].partitions[0].error_code
            if is_stale_metadata(code):
                await cluster.refresh_metadata()
            raise_failure(code, f"transaction of producer {producer_id} in {transaction.topic_partition}")

        await cluster.retrying(attempt, "WriteTxnMarkers")

    async def fence(self, transactional_ids: Iterable[str]) -> dict[str, ProducerIdAndEpoch | KafkaError]:
        """Fence the producers of transactional ids: their open transactions are aborted, their next requests fail."""
        fenced: dict[str, ProducerIdAndEpoch | KafkaError] = {}
        for transactional_id in transactional_ids:
            response = await self._requests.to_coordinator(
                TRANSACTION_COORDINATOR,
                transactional_id,
                InitProducerIdRequest(transactional_id, _FENCING_TIMEOUT_MS),
                InitProducerIdResponse,
                code=lambda answer: answer.error_code,
            )
            if response.error_code:
                fenced[transactional_id] = error_of(response.error_code, f"transactional id {transactional_id}")
            else:
                fenced[transactional_id] = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return fenced

    async def force_terminate(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id by fencing its producer (KIP-939). Raises KafkaError."""
        result = (await self.fence([transactional_id]))[transactional_id]
        if isinstance(result, KafkaError):
            raise result


def _described(state: DescribeTransactionsResponseState, coordinator_id: int) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        coordinator_id,
        TransactionState(state.transaction_state),
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        None if state.transaction_start_time_ms < 0 else state.transaction_start_time_ms,
        [TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions],
    )


def _producers(partition: DescribeProducersResponsePartition, key: TopicPartition) -> Producers | KafkaError:
    if partition.error_code:
        return error_of(partition.error_code, partition.error_message or f"{key}")
    return [
        ProducerState(
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            None if each.coordinator_epoch < 0 else each.coordinator_epoch,
            None if each.current_txn_start_offset < 0 else each.current_txn_start_offset,
        )
        for each in partition.active_producers
    ]
