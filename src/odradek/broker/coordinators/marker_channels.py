"""Transaction markers for partitions that other brokers lead (Kafka's TransactionMarkerChannelManager).

Each broker gets one request at a time; markers that come meanwhile share the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from odradek.broker.cluster.peers import Peers, Purpose
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import TransportError
from odradek.transactions.service import PartitionMarker
from odradek.wire.errors import ErrorCode, error_code
from odradek.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger("odradek.transactions")
_log_failure = logs_failure(logger, "sending transaction markers failed")

_VERSION = 2

OnResult: TypeAlias = Callable[[ErrorCode], None]
_Waiting: TypeAlias = "tuple[PartitionMarker, OnResult]"
_Codes: TypeAlias = dict[tuple[int, str, int], ErrorCode]
"""By producer id, topic and partition."""


class MarkerChannels:
    """Sends markers to the brokers that lead their partitions."""

    __slots__ = ("_loop", "_peers", "_queues", "_timeout_ms")

    def __init__(self, peers: Peers, loop: asyncio.AbstractEventLoop, timeout_ms: int) -> None:
        self._peers = peers
        self._loop = loop
        self._timeout_ms = timeout_ms
        self._queues: dict[int, deque[_Waiting]] = {}

    def send(self, broker_id: int, marker: PartitionMarker, on_result: OnResult) -> None:
        """Send a marker; `on_result` gets NONE once it is committed there, or the error."""
        queue = self._queues.get(broker_id)
        if queue is not None:
            queue.append((marker, on_result))
            return
        queue = self._queues[broker_id] = deque(((marker, on_result),))
        self._loop.create_task(self._drain(broker_id, queue)).add_done_callback(_log_failure)

    async def _drain(self, broker_id: int, queue: deque[_Waiting]) -> None:
        try:
            while queue:
                batch = list(queue)
                queue.clear()
                codes: _Codes = {}
                try:
                    codes = await self._ask(broker_id, batch)
                finally:
                    _report(batch, codes)
        finally:
            # After any failure the next marker starts a new queue, and markers that came meanwhile are sent again.
            del self._queues[broker_id]
            _report(queue, {})

    async def _ask(self, broker_id: int, batch: list[_Waiting]) -> _Codes:
        request = _request(marker for marker, _ in batch)
        try:
            return _codes(
                await self._peers.request(
                    Purpose.MARKERS, broker_id, request, WriteTxnMarkersResponse, _VERSION, self._timeout_ms
                )
            )
        except TransportError:
            return {}


def _report(waiting: Iterable[_Waiting], codes: _Codes) -> None:
    for marker, on_result in waiting:
        on_result(codes.get((marker.producer_id, marker.topic, marker.partition), ErrorCode.NETWORK_EXCEPTION))


def _request(markers: Iterable[PartitionMarker]) -> WriteTxnMarkersRequest:
    entries: dict[tuple[int, int, bool, int, int], dict[str, list[int]]] = {}
    for marker in markers:
        end = (
            marker.producer_id,
            marker.producer_epoch,
            marker.commit,
            marker.coordinator_epoch,
            marker.transaction_version,
        )
        entries.setdefault(end, {}).setdefault(marker.topic, []).append(marker.partition)
    return WriteTxnMarkersRequest(
        [
            WriteTxnMarkersRequestMarker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                transaction_result=commit,
                topics=[WriteTxnMarkersRequestTopic(*topic) for topic in topics.items()],
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
            )
            for (producer_id, producer_epoch, commit, coordinator_epoch, transaction_version), topics in entries.items()
        ]
    )


def _codes(answer: WriteTxnMarkersResponse) -> _Codes:
    """A producer that has two ends in one answer failed if one of them did."""
    codes: _Codes = {}
    for marker in answer.markers:
        for topic in marker.topics:
            for partition in topic.partitions:
                place = (marker.producer_id, topic.name, partition.partition_index)
                if codes.get(place, ErrorCode.NONE) is ErrorCode.NONE:
                    codes[place] = error_code(partition.error_code)
    return codes
