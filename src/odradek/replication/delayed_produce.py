"""Appends of one request that wait to be confirmed: written (acks=1), or on all in-sync replicas (acks=all).

Source: Kafka's DelayedProduce and its purgatory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError

Append = tuple[Partition, int]
"""A partition and the last offset that was appended to it."""


class DelayedProduce:
    """Waits until each append is confirmed, can no longer be, or the time is over.

    `failed` is called with the index of each append that was not confirmed and the error that says so, then `finished`
    once. An append is in the log, so its error never says that it is not: NOT_ENOUGH_REPLICAS_AFTER_APPEND or
    REQUEST_TIMED_OUT, which all clients treat as possibly persisted (docs/ARCHITECTURE.md, "Repeated batches").
    """

    __slots__ = (
        "_appends",
        "_done",
        "_failed",
        "_finished",
        "_is_finished",
        "_timeout_ms",
        "_timer",
        "_unwritten",
        "_waits_for_replicas",
    )

    def __init__(
        self, appends: Sequence[Append], failed: Callable[[int, KafkaError], None], finished: Callable[[], None]
    ) -> None:
        self._appends = appends
        self._failed = failed
        self._finished = finished
        self._done: set[int] = set()
        self._is_finished = False
        self._waits_for_replicas = False
        self._timer: asyncio.TimerHandle | None = None
        self._timeout_ms = 0
        # Appends that are on their way to the disk here; the time of the request begins when they are written.
        self._unwritten = 0

    def wait_until_written(self) -> None:
        """Wait for this broker's disk, however long it takes (acks=1)."""
        for index, (partition, offset) in enumerate(self._appends):
            partition.log.durability.when_written(offset, partial(self._released, index))

    def wait_for_replicas(self, timeout_ms: int) -> None:
        """Wait for the high watermark, at most that long after everything is written here (acks=all)."""
        self._waits_for_replicas = True
        self._timeout_ms = timeout_ms
        self._unwritten = sum(offset >= partition.log.end_offset for partition, offset in self._appends)
        if not self._unwritten:
            self._arm()
        for index, (partition, offset) in enumerate(self._appends):
            is_unwritten = offset >= partition.log.end_offset
            # At once, also for unwritten appends: the partition may lose its leader meanwhile.
            partition.when_committed(offset, partial(self._released, index), is_client=True)
            if is_unwritten:
                partition.log.durability.when_written(offset, partial(self._written, index))

    def _arm(self) -> None:
        # As in Kafka the time runs for the followers: a leader's own disk takes as long as it takes.
        seconds = max(0, self._timeout_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._timed_out)

    def _written(self, index: int) -> None:
        self._unwritten -= 1
        if self._is_finished:
            return
        if not self._unwritten:
            self._arm()
        if self._appends[index][0].log.is_offline:
            self._released(index)

    def _released(self, index: int) -> None:
        # Called when an append is committed, and when its partition left this broker before it could be. Which of both
        # it was must be seen now: a follower's high watermark passes the offset, too, with other records below it.
        if self._is_finished or index in self._done:
            return
        # To librdkafka NOT_LEADER_OR_FOLLOWER says that the batch was not written: it gives its sequences to another.
        self._complete(index, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._done.add(index)
        if len(self._done) == len(self._appends):
            self._finish()

    def _timed_out(self) -> None:
        for index in range(len(self._appends)):
            if index not in self._done:
                self._complete(index, ErrorCode.REQUEST_TIMED_OUT)
        self._finish()

    def _complete(self, index: int, otherwise: ErrorCode) -> None:
        partition, offset = self._appends[index]
        if self._waits_for_replicas:
            code = partition.commit_error(offset, otherwise)
        else:
            code = ErrorCode.NONE if offset < partition.log.end_offset else otherwise
        if code:
            reason = _why_unconfirmed(partition, offset)
            self._failed(index, KafkaError(code, f"appended, but not confirmed: {reason}"))

    def _finish(self) -> None:
        self._is_finished = True
        if self._timer is not None:
            self._timer.cancel()
        self._finished()


def _why_unconfirmed(partition: Partition, offset: int) -> str:
    if offset >= partition.log.end_offset and partition.log.is_offline:
        return "the log directory failed"
    if partition.is_leader and partition.may_lead:
        return "in-sync replicas are missing"
    return "this broker no longer leads the partition"
