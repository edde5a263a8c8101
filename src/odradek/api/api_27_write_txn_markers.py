"""WriteTxnMarkers: end transactions in partitions that this broker leads, for a coordinator or `transactions abort`.

Version notes: 2 the level of transaction.version that the transaction ended under.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from odradek.api.requests.capabilities import HasAuthorization, HasTransactions
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.transactions.service import PartitionMarker
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)


class Uses(HasAuthorization, HasTransactions, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.WRITE_TXN_MARKERS)
async def handle(request: WriteTxnMarkersRequest, context: RequestContext[Uses]) -> WriteTxnMarkersResponse | None:
    """Append the markers, with an error code for each partition.

    Raises KafkaError CLUSTER_AUTHORIZATION_FAILED when a client, not a broker, asks to commit. None for a broker's
    superseded connection, which is closed.
    """
    sender = context.client_id or ""
    connection = context.connection
    is_broker = context.session.is_broker
    if not context.may_act_as_broker and any(marker.transaction_result for marker in request.markers):
        # A client may abort a transaction that hangs (KIP-664); only its coordinator knows whether it is committed.
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # Brokers send markers on one connection at a time.
    if is_broker and context.services.transactions.is_stale_sender(sender, connection.identifier):
        connection.close(f"{sender!r} has continued on a newer connection")
        return None
    answers = await asyncio.gather(*(_write(marker, context) for marker in request.markers))
    return WriteTxnMarkersResponse(markers=answers)


async def _write(marker: WriteTxnMarkersRequestMarker, context: RequestContext[Uses]) -> WriteTxnMarkersResponseMarker:
    # All are appended now, as in Kafka, and only then waited for: one that is written later, when another one is
    # committed or given up, may come after the coordinator has had it written otherwise, and end the next transaction.
    topics = await asyncio.gather(*(_write_topic(marker, topic, context) for topic in marker.topics))
    return WriteTxnMarkersResponseMarker(marker.producer_id, topics)


async def _write_topic(
    marker: WriteTxnMarkersRequestMarker, topic: WriteTxnMarkersRequestTopic, context: RequestContext[Uses]
) -> WriteTxnMarkersResponseTopic:
    indexes = topic.partition_indexes
    codes = await asyncio.gather(*(_write_one(marker, topic.name, index, context) for index in indexes))
    return WriteTxnMarkersResponseTopic(topic.name, codes)


async def _write_one(
    marker: WriteTxnMarkersRequestMarker, topic: str, index: int, context: RequestContext[Uses]
) -> WriteTxnMarkersResponsePartition:
    code = ErrorCode.NONE
    try:
        await context.services.transactions.write_marker(
            PartitionMarker(
                topic,
                index,
                marker.producer_id,
                marker.producer_epoch,
                marker.transaction_result,
                marker.coordinator_epoch,
                marker.transaction_version,
            )
        )
    except KafkaError as error:
        code = error.code
    return WriteTxnMarkersResponsePartition(index, code)
