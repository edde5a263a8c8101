"""Appending a coordinator's records to its partition (Kafka's CoordinatorPartitionWriter)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek.log.append import AppendResult, Origin
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError

REJECTED_SECONDS = 0.1
"""How long the answer to a write is delayed that the log rejected for too few in-sync replicas."""


class CoordinatorWriter:
    """Writes to one partition and remembers the last offset written.

    Rejected writes are logged in one line when they begin, and in one when the log accepts writes again.
    """

    __slots__ = ("_code", "_coordinator", "_logger", "_partition", "is_rejecting", "last_written_offset")

    def __init__(self, partition: Partition, coordinator: str, logger: logging.Logger) -> None:
        self._partition = partition
        self._coordinator = coordinator
        self._logger = logger
        self._code: ErrorCode | None = None
        self.is_rejecting = False
        """Whether the log rejected the last write."""
        self.last_written_offset = -1
        """The offset of the last record that belongs to the coordinator's state."""

    def append(self, batch: bytes | bytearray, now_ms: int) -> AppendResult:
        """Append one batch. Raises KafkaError; then call `reject` unless the caller writes it in another way."""
        result = self._partition.append(memoryview(batch), now_ms=now_ms, origin=Origin.COORDINATOR, all_in_sync=True)
        if self.is_rejecting:
            self._accept()
        self.last_written_offset = result.last_offset
        return result

    def start_after(self, offset: int) -> None:
        """Begin with a partition whose last record has this offset."""
        self.last_written_offset = offset

    def note_written(self, offset: int) -> None:
        """Note a record of the coordinator's state that was not written by `append`: a marker."""
        self.last_written_offset = max(self.last_written_offset, offset)

    def when_committed(self, callback: Callable[[bool], None]) -> None:
        """Call back with True once everything written so far is committed, with False if the partition moves away."""
        partition, offset = self._partition, self.last_written_offset
        # Waiters are released as well when the partition's leadership moves to another broker.
        partition.when_committed(offset, lambda: callback(partition.is_committed(offset)))

    def reject(self, error: Exception) -> float:
        """The log rejected a write; returns the seconds after which the request is answered.

        With too few in-sync replicas the answer is delayed: clients that retry at once, and rebalances that start over,
        would keep the broker busy until there are enough.
        """
        code = error.code if isinstance(error, KafkaError) else None
        if code is None or code is not self._code:
            self._logger.warning(
                "%s: the %s coordinator cannot write: %s; its clients retry", self.name, self._coordinator, error
            )
        self._code = code
        self.is_rejecting = True
        return REJECTED_SECONDS if code is ErrorCode.NOT_ENOUGH_REPLICAS else 0.0

    def _accept(self) -> None:
        if self._code is ErrorCode.NOT_ENOUGH_REPLICAS:
            self._logger.info("%s: the %s coordinator writes again", self.name, self._coordinator)
        self._code = None
        self.is_rejecting = False

    @property
    def name(self) -> str:
        """The partition, as `__consumer_offsets-7`."""
        return f"{self._partition.topic}-{self._partition.index}"
