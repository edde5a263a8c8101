"""Batches of idempotent producers that were rejected with a retriable error: later batches get the same error.

A producer has up to five batches in flight. The broker may reject the first because it does not lead yet, has too few
replicas in sync or no file descriptor left, or cannot ask the transaction's coordinator. If that reason has passed when
the next batch arrives, this batch is out of order. librdkafka treats that as a gap of its own making: it gives all its
partitions a new epoch, in which batches that are unanswered elsewhere are written twice. If all of them get the error
of the first, librdkafka sends all of them again, in order. Apache Kafka does so only for batches of transactions that
are not verified yet.

A producer sends a batch that is too large again in parts (KIP-126), and later batches in flight are out of order until
then. A partition that knows the producer rejects them by their sequences. One that has forgotten the producer accepts
any first sequence, and would append a later batch instead: the parts would be out of order for ever.
"""

from __future__ import annotations

from typing import Final

from odradek.log.producers.state import ProducerStates
from odradek.records.batch import MAX_SEQUENCE, NO_SEQUENCE, BatchHeader, parse_header
from odradek.records.errors import CorruptRecords
from odradek.wire.errors import ErrorCode, KafkaError

SENT_AGAIN: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )
)
"""The errors after which a producer sends a batch again, maybe in parts."""
_MOST_PRODUCERS: Final = 1000
_FORGOTTEN_MS: Final = 30_000
"""A producer that has not sent the batch again by then has given it up; its gap is reported."""


class RefusedBatches:
    """Producer id -> its first rejected batch that has not arrived again."""

    __slots__ = ("_refused",)

    def __init__(self) -> None:
        self._refused: dict[int, tuple[int, int, ErrorCode, int]] = {}

    def note(self, batches: memoryview, code: ErrorCode, producers: ProducerStates, now_ms: int) -> None:
        """Note that the batches were rejected with this code, one of `SENT_AGAIN`."""
        header = _header(batches)
        if header is None:
            return
        producer_id = header.producer_id
        if producer_id < 0 or header.base_sequence == NO_SEQUENCE or self._before(header, producers, now_ms):
            return
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            if producer_id in producers.producers or header.base_sequence == 0:
                # A producer that begins with it may give it up and send the next: not every client takes a new epoch.
                return
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if len(self._refused) >= _MOST_PRODUCERS:
            self._refused.clear()
        self._refused[producer_id] = header.producer_epoch, header.base_sequence, code, now_ms

    def check(self, batches: memoryview, producers: ProducerStates, now_ms: int) -> None:
        """Raise KafkaError with the code of an earlier batch that is still missing."""
        header = _header(batches)
        if header is not None and (code := self._before(header, producers, now_ms)):
            raise KafkaError(code, "a batch of the producer that comes before this one was refused")

    def _before(self, header: BatchHeader, producers: ProducerStates, now_ms: int) -> ErrorCode | None:
        """The error of the rejected batch before; None without one, or once it was appended or given up."""
        found = self._refused.get(header.producer_id)
        if found is None:
            return None
        epoch, sequence, code, refused_ms = found
        entry = producers.producers.get(header.producer_id)
        last = entry.last_sequence if entry is not None and entry.epoch == epoch else NO_SEQUENCE
        if (
            header.producer_epoch == epoch
            and header.base_sequence > sequence
            and (entry is None or (last + 1) & MAX_SEQUENCE == sequence)
            and abs(now_ms - refused_ms) < _FORGOTTEN_MS
        ):
            return code
        del self._refused[header.producer_id]
        return None


def _header(batches: memoryview) -> BatchHeader | None:
    """The header of the first batch; None for bytes that are not a batch, which the log rejects."""
    try:
        return parse_header(batches)
    except CorruptRecords:
        return None
