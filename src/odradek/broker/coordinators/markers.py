"""Writing transaction markers into the partitions of this broker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from odradek.broker.coordinators.timers import CoordinatorClock
from odradek.log.append import Origin
from odradek.metadata.image import GROUP_METADATA_TOPIC, NO_LEADER
from odradek.records.control import encode_end_transaction
from odradek.records.topic_partition import PartitionKey
from odradek.replication.partition import Partition
from odradek.transactions.events import Markers
from odradek.transactions.records import TV_2
from odradek.transactions.service import PartitionMarker
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.api.requests.context import PartitionLookup

logger = logging.getLogger("odradek.transactions")

_RETRY_SECONDS = 0.1


LEADER_HERE = -2
"""Instead of a broker's id: this broker leads the partition."""

SendElsewhere = Callable[[int, PartitionMarker, Callable[[ErrorCode], None]], None]
"""Send a marker to the broker that leads its partition; the callback gets NONE once it is committed, or the error."""


class TransactionListener(Protocol):
    """Is notified of transactions that end in partitions of `__consumer_offsets`."""

    def transaction_ended(self, index: int, producer_id: int, last_offset: int, *, committed: bool) -> None:
        """A transaction's marker was appended to a partition of `__consumer_offsets` at `last_offset`."""
        ...


class MarkerWriter:
    """Appends markers to partitions that this broker leads.

    It notifies the group coordinator of markers in partitions of `__consumer_offsets`.
    """

    __slots__ = ("_clock", "_groups", "_loop", "_partitions")

    def __init__(
        self,
        partitions: PartitionLookup,
        groups: TransactionListener,
        clock: CoordinatorClock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._partitions = partitions
        self._groups = groups
        self._clock = clock
        self._loop = loop

    def write(self, marker: PartitionMarker, on_result: Callable[[bool], None]) -> None:
        """Call `on_result(True)` when the marker is committed, with False if this broker loses the partition before.

        Raises KafkaError if the partition rejects the marker.
        """
        partition = self._partitions.find(marker.topic, marker.partition)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if marker.transaction_version >= TV_2 and self._is_repeated(partition, marker):
            _when_committed(partition, partition.log.next_offset - 1, on_result)
            return
        now_ms = self._clock.now_ms()
        batch = encode_end_transaction(
            commit=marker.commit,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp_ms=now_ms,
        )
        result = partition.append(memoryview(batch), now_ms=now_ms, origin=Origin.COORDINATOR, all_in_sync=True)
        # Ended transactions of a partition that no client reads would stay in memory otherwise.
        partition.log.history.producers.on_high_watermark(partition.high_watermark)
        if marker.topic == GROUP_METADATA_TOPIC:
            self._groups.transaction_ended(
                marker.partition, marker.producer_id, result.last_offset, committed=marker.commit
            )
        _when_committed(partition, result.last_offset, on_result)

    def _is_repeated(self, partition: Partition, marker: PartitionMarker) -> bool:
        """Under transaction.version 2 a marker's epoch is above that of its records, unless it is there already."""
        known = partition.log.history.producers.producers.get(marker.producer_id)
        if known is None or known.epoch != marker.producer_epoch:
            return False
        if known.transaction_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {marker.producer_id} writes in epoch {known.epoch}, which a marker wants to end",
            )
        partition.check_leader()
        return True

    def write_future(self, marker: PartitionMarker) -> asyncio.Future[None]:
        """As `write`; the future fails with NOT_LEADER_OR_FOLLOWER if this broker loses the partition."""
        future: asyncio.Future[None] = self._loop.create_future()

        def on_result(committed: bool) -> None:
            if future.done():
                return
            if committed:
                future.set_result(None)
            else:
                future.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

        self.write(marker, on_result)
        return future


def _when_committed(partition: Partition, offset: int, on_result: Callable[[bool], None]) -> None:
    # Waiters are released as well when the partition leaves this broker.
    partition.when_committed(offset, lambda: on_result(partition.is_committed(offset)))


class _Delivery:
    """The markers of one transaction that are not all written yet."""

    __slots__ = ("coordinator_epoch", "done", "markers", "pending", "wanted")

    def __init__(
        self, markers: Markers, coordinator_epoch: int, wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        self.markers = markers
        self.coordinator_epoch = coordinator_epoch
        self.wanted = wanted
        self.done = done
        self.pending = set(markers.partitions)


class RoutedMarkers:
    """A `MarkerSender`: markers go to the leader of their partition, which may be this broker or another one."""

    __slots__ = ("_deliveries", "_elsewhere", "_leader_of", "_loop", "_writer")

    def __init__(
        self,
        writer: MarkerWriter,
        leader_of: Callable[[str, int], int | None],
        elsewhere: SendElsewhere,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`leader_of` a partition: LEADER_HERE, another broker's id, NO_LEADER, or None for one that does not exist."""
        self._deliveries: dict[str, _Delivery] = {}
        self._writer = writer
        self._leader_of = leader_of
        self._elsewhere = elsewhere
        self._loop = loop

    def send(
        self, markers: Markers, coordinator_epoch: int, wanted: Callable[[], bool], done: Callable[[], None]
    ) -> None:
        """See `MarkerSender`."""
        delivery = self._deliveries[markers.transactional_id] = _Delivery(markers, coordinator_epoch, wanted, done)
        for topic, index in sorted(markers.partitions):
            self._write(delivery, topic, index)

    def _write(self, delivery: _Delivery, topic: str, index: int) -> None:
        if not delivery.wanted():
            self._forget(delivery)
            return
        markers = delivery.markers
        marker = PartitionMarker(
            topic,
            index,
            markers.producer_id,
            markers.producer_epoch,
            markers.commit,
            delivery.coordinator_epoch,
            markers.transaction_version,
        )
        leader = self._leader_of(topic, index)
        if leader is None or leader == NO_LEADER:
            self._on_written(delivery, topic, index, False)
        elif leader != LEADER_HERE:
            self._elsewhere(leader, marker, lambda code: self._on_answer(delivery, topic, index, code))
        else:
            try:
                self._writer.write(marker, lambda committed: self._on_written(delivery, topic, index, committed))
            except KafkaError as error:
                self._on_answer(delivery, topic, index, error.code)

    def _on_answer(self, delivery: _Delivery, topic: str, index: int, code: ErrorCode) -> None:
        transactional_id = delivery.markers.transactional_id
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            logger.warning(
                "%s-%d: no marker for transactional id %s: %s; the new coordinator writes it",
                topic,
                index,
                transactional_id,
                code.name,
            )
            self._forget(delivery)
            return
        if code is ErrorCode.INVALID_PRODUCER_EPOCH:
            # The coordinator's log has lost the transactions after this one. Kafka gives up without completing this
            # one, which blocks the transactional id for ever.
            logger.warning(
                "%s-%d: no marker for transactional id %s: the partition has a newer epoch of producer %d; "
                "the transaction is completed without it",
                topic,
                index,
                transactional_id,
                delivery.markers.producer_id,
            )
            code = ErrorCode.NONE
        if code is not ErrorCode.NONE:
            logger.debug(
                "%s-%d: no marker for transactional id %s yet: %s; retrying", topic, index, transactional_id, code.name
            )
        self._on_written(delivery, topic, index, code is ErrorCode.NONE)

    def _on_written(self, delivery: _Delivery, topic: str, index: int, committed: bool) -> None:
        if not committed and self._leader_of(topic, index) is not None:
            self._loop.call_later(_RETRY_SECONDS, self._write, delivery, topic, index)
            return
        delivery.pending.discard((topic, index))
        if not delivery.pending:
            self._forget(delivery)
            if delivery.wanted():
                delivery.done()

    def _forget(self, delivery: _Delivery) -> None:
        transactional_id = delivery.markers.transactional_id
        if self._deliveries.get(transactional_id) is delivery:
            del self._deliveries[transactional_id]

    def pending(self, transactional_id: str) -> frozenset[PartitionKey] | None:
        """See `MarkerSender`."""
        delivery = self._deliveries.get(transactional_id)
        return None if delivery is None else frozenset(delivery.pending)
