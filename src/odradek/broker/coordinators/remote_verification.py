"""Asking a transaction's coordinator on another broker whether partitions belong to it, or to add them (KIP-890).

Source: Kafka's AddPartitionsToTxnManager.
"""

from __future__ import annotations

from odradek.broker.cluster.peers import Peers, Purpose
from odradek.client.errors import TransportError
from odradek.transactions.events import AddPartitions
from odradek.transactions.service import Rejections
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnRequestTransaction,
    AddPartitionsToTxnResponse,
)

_VERSION = 5


async def ask_coordinator(
    peers: Peers, broker_id: int, wanted: AddPartitions, *, verify_only: bool, timeout_ms: int
) -> Rejections:
    """The partitions that are not in the transaction, and why."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(wanted.partitions):
        topics.setdefault(topic, []).append(index)
    request = AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnRequestTransaction(
                transactional_id=wanted.transactional_id,
                producer_id=wanted.producer_id,
                producer_epoch=wanted.producer_epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnRequestTopic(*topic) for topic in topics.items()],
            )
        ]
    )
    try:
        answer = await peers.request(
            Purpose.VERIFICATION, broker_id, request, AddPartitionsToTxnResponse, _VERSION, timeout_ms
        )
    except TransportError:
        return dict.fromkeys(wanted.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if answer.error_code:
        return dict.fromkeys(wanted.partitions, ErrorCode(answer.error_code))
    return {
        (topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
        for result in answer.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
        if partition.partition_error_code
    }
