"""Sequence numbers of an idempotent producer: which batch may be sent, which are renumbered (KIP-98, KIP-360).

The sender reports outcomes, and asks before it sends. Source: Kafka's TransactionManager and TxnPartitionMap.
"""

from __future__ import annotations

from typing import Final

from odradek.client.producer.accumulator import Batch
from odradek.client.producer.sequence_numbers import (
    MAX_EPOCH,
    NO_IDENTITY,
    NO_SEQUENCE,
    ProducerIdentity,
    next_sequence,
    precedes,
)
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode

REMEMBERED_BATCHES: Final = 5
"""The last batches of a producer that a partition recognizes as duplicates."""


class _Partition:
    """`in_flight` are the batches that have a sequence and no final outcome, in order of their sequences; at most
    `overtaken` others have an outcome although an earlier one has none.
    """

    __slots__ = ("identity", "in_flight", "last_acked_offset", "last_acked_sequence", "next", "overtaken", "unresolved")

    def __init__(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.next = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.last_acked_offset = -1
        self.in_flight: list[Batch] = []
        self.overtaken = 0
        self.unresolved: int | None = None


class Sequences:
    """The producer's identity and, per partition, the sequences given out under it."""

    __slots__ = ("_partitions", "_to_renumber", "identity", "transactional")

    def __init__(self, *, transactional: bool = False) -> None:
        self.identity = NO_IDENTITY
        self.transactional = transactional
        self._partitions: dict[PartitionKey, _Partition] = {}
        self._to_renumber: set[PartitionKey] = set()

    @property
    def needs_identity(self) -> bool:
        """Whether InitProducerId must be sent before any batch."""
        return not self.identity.valid

    @property
    def is_settled(self) -> bool:
        """Whether an idempotent producer has its identity, and no partition waits for a new epoch."""
        return self.identity.valid and not self._to_renumber and not self.transactional

    @property
    def bump_wanted(self) -> bool:
        """Whether a partition's sequences have a gap that only a new epoch can close."""
        return bool(self._to_renumber)

    def adopt(self, identity: ProducerIdentity) -> None:
        """Use an identity that the broker, or another process, assigned."""
        self.identity = identity
        if self.transactional:
            self._partitions.clear()
        self._renumber()

    def resume(self, key: PartitionKey, sequence: int) -> None:
        """Set the next sequence of a partition whose earlier batches other processes have sent under this identity.

        No batch of the partition may be in flight here.
        """
        state = self._partitions[key] = _Partition(self.identity)
        state.next = sequence
        state.last_acked_sequence = sequence - 1 if sequence else NO_SEQUENCE

    def bump_epoch(self) -> None:
        """Use the next epoch without asking the broker (idempotent producers may); after the last one, get a new id."""
        assert not self.transactional
        if self.identity.epoch >= MAX_EPOCH:
            self.identity = NO_IDENTITY
            return
        self.identity = ProducerIdentity(self.identity.producer_id, self.identity.epoch + 1)
        self._renumber()

    def _renumber(self) -> None:
        for key in self._to_renumber:
            state = self._partitions.get(key)
            if state is None:
                continue
            state.identity = self.identity
            state.next = 0
            state.last_acked_sequence = NO_SEQUENCE
            state.unresolved = None
            state.overtaken = 0
            for batch in state.in_flight:
                batch.set_sequence(self.identity, state.next, reset=True)
                state.next = next_sequence(state.next, batch.count)
        self._to_renumber.clear()

    def may_send(self, batch: Batch) -> bool:
        """Whether the first batch of a partition's queue may be sent now.

        New batches wait for in-flight ones of an older epoch; of batches that are retried, only the oldest is sent.
        """
        if not self.identity.valid:
            return False
        state = self._partitions.get(batch.key)
        if state is None:
            return True
        if batch.base_sequence == NO_SEQUENCE:
            if state.unresolved is not None:
                return False
            if not state.in_flight:
                return True
            if len(state.in_flight) + state.overtaken >= REMEMBERED_BATCHES:
                # Some were sent to an earlier leader: the next cannot distinguish replicated batches from a gap, and
                # remembers only this many.
                return False
            # A broker accepts any first sequence of an unknown producer. If it rejected the first batch (the partition
            # is being created) with a second one in flight, the second would be written first.
            return state.identity == self.identity and state.last_acked_sequence != NO_SEQUENCE
        return not state.in_flight or state.in_flight[0] is batch

    def assign(self, batch: Batch) -> None:
        """Number a batch that is sent for the first time."""
        state = self._partitions.get(batch.key)
        if state is None:
            state = self._partitions[batch.key] = _Partition(self.identity)
        elif state.identity != self.identity and not state.in_flight:
            state.identity = self.identity
            state.next = 0
            state.last_acked_sequence = NO_SEQUENCE
        batch.set_sequence(state.identity, state.next)
        state.next = next_sequence(state.next, batch.count)
        state.in_flight.append(batch)

    def acknowledged(self, batch: Batch, base_offset: int) -> None:
        """A batch is in the log, at base_offset (-1: unknown)."""
        state = self._partitions.get(batch.key)
        if state is None:
            return
        self._remove(state, batch)
        if batch.identity == state.identity:
            last = next_sequence(batch.base_sequence, batch.count - 1)
            if state.last_acked_sequence == NO_SEQUENCE or precedes(state.last_acked_sequence, last):
                state.last_acked_sequence = last
        if base_offset >= 0:
            state.last_acked_offset = max(state.last_acked_offset, base_offset + batch.count - 1)
        self._resolve(batch.key, state)

    def failed(self, batch: Batch, *, outcome_known: bool) -> None:
        """A batch is lost. If its outcome is unknown, later sequences are valid only if the broker has written it."""
        state = self._partitions.get(batch.key)
        if state is None or batch.base_sequence == NO_SEQUENCE:
            return
        self._remove(state, batch)
        if self.transactional:
            return
        if outcome_known:
            self._to_renumber.add(batch.key)
            return
        end = next_sequence(batch.base_sequence, batch.count)
        if state.unresolved is None or precedes(state.unresolved, end):
            state.unresolved = end
        self._resolve(batch.key, state)

    def replaced(self, batch: Batch, parts: list[Batch]) -> None:
        """A batch was split: its parts share its numbers."""
        state = self._partitions.get(batch.key)
        if state is None or batch.base_sequence == NO_SEQUENCE:
            return
        at = state.in_flight.index(batch)
        sequence = batch.base_sequence
        for part in parts:
            part.set_sequence(batch.identity, sequence)
            sequence = next_sequence(sequence, part.count)
        state.in_flight[at : at + 1] = parts

    def can_retry(self, batch: Batch, code: int, log_start_offset: int) -> bool:
        """Whether a batch that was rejected for its sequence can be retried, perhaps under a new epoch."""
        state = self._partitions.get(batch.key)
        if state is None:
            return False
        if code == ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset == -1:
                return False
            if batch.sequence_was_reset:
                return True
            if state.last_acked_offset < log_start_offset or not self.transactional:
                # Retention deleted all records of this producer that the broker knew.
                self._to_renumber.add(batch.key)
                return not self.transactional
            return False
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if state.unresolved is None and (batch.sequence_was_reset or not self._is_next(state, batch)):
                # An earlier batch failed with a retriable error: this one is only early.
                return True
            if not self.transactional:
                # An earlier attempt may be written in spite of this answer, and renumbering would duplicate it: a
                # restarted Apache Kafka knows only the last batch of a producer, and bytes of an earlier connection
                # may arrive later. So it is retried until it expires. A batch of one attempt was surely rejected.
                if all(each.attempts <= 1 for each in state.in_flight):
                    self._to_renumber.add(batch.key)
                return True
        return False

    def in_flight(self, topic: str, partition: int) -> int:
        """Batches of a partition that have a sequence and no outcome."""
        state = self._partitions.get((topic, partition))
        return 0 if state is None else len(state.in_flight)

    def _is_next(self, state: _Partition, batch: Batch) -> bool:
        expected = 0 if state.last_acked_sequence == NO_SEQUENCE else next_sequence(state.last_acked_sequence, 1)
        return batch.base_sequence == expected

    def _remove(self, state: _Partition, batch: Batch) -> None:
        if batch in state.in_flight:
            state.overtaken += batch is not state.in_flight[0]
            state.in_flight.remove(batch)
            if not state.in_flight:
                state.overtaken = 0

    def _resolve(self, key: PartitionKey, state: _Partition) -> None:
        if state.unresolved is None or state.in_flight:
            return
        if next_sequence(state.last_acked_sequence, 1) != state.unresolved:
            self._to_renumber.add(key)
        state.unresolved = None
