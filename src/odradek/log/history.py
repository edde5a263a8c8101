"""What a log remembers beside its batches: leader epochs and producers, with the files that keep them (UnifiedLog)."""

from __future__ import annotations

from typing import Final

from odradek.log.environment import LogEnvironment
from odradek.log.leader_epochs import LeaderEpochs
from odradek.log.log_state import LogState
from odradek.log.producers.state import FrozenProducers, ProducerStates
from odradek.log.recovery import restore_producers
from odradek.log.segments.local_log import LocalLog

_PRODUCERS_AT_ONCE: Final = 4096
"""Producers whose snapshot a roll writes itself, in some 2 ms; more are encoded in pieces."""
_PRODUCERS_IN_A_PIECE: Final = 1024


class LogHistory:
    """Leader epochs and producer states of one log.

    Methods that write files raise KafkaError KAFKA_STORAGE_ERROR where nothing else is stated.
    """

    __slots__ = ("_epochs_written", "_local", "_state", "_unwritten", "leader_epochs", "producers")

    def __init__(
        self, state: LogState, local: LocalLog, leader_epochs: LeaderEpochs, producers: ProducerStates
    ) -> None:
        self._state = state
        self._local = local
        self._epochs_written = True
        self._unwritten: tuple[int, FrozenProducers] | None = None
        self.leader_epochs = leader_epochs
        """Where each leader epoch begins in the log."""
        self.producers = producers
        """Sequences, epochs and open transactions of the producers."""

    # --- leader epochs ---

    def assign_leader_epoch(self, epoch: int, start_offset: int | None = None) -> None:
        """Let an epoch begin at the offset (the next offset if None), as when a leader is elected."""
        offset = self._state.next_offset if start_offset is None else start_offset
        if epoch >= 0 and self.leader_epochs.assign(epoch, offset):
            self._write_epochs()

    def write_pending_epochs(self) -> None:
        """Write the epochs whose file could not be written when they changed."""
        if not self._epochs_written:
            self._write_epochs()

    def _write_epochs(self, *, after_change: bool = False) -> None:
        # The next flush syncs the file: until then recovery finds the epochs past the recovery point in the batches.
        self._epochs_written = False
        try:
            self._local.write_epochs(self.leader_epochs.entries())
            self._epochs_written = True
        except OSError as error:
            failure = self._state.storage_error(error)
            # The log has already changed. If only a descriptor is lacking, a later flush writes the epochs.
            if self._state.failure is not None or not after_change:
                raise failure from error

    # --- producers ---

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of an open transaction. Ended ones whose marker is not replicated: `last_stable_offset`."""
        return self.producers.first_open_offset

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction is decided and its marker is below the high watermark."""
        producers = self.producers
        producers.on_high_watermark(high_watermark)
        unstable = producers.first_unstable_offset
        if unstable is None or unstable > high_watermark:
            return high_watermark
        # DeleteRecords may have taken the beginning of an open transaction.
        return max(unstable, self._state.log_start_offset)

    def take_snapshot(self) -> None:
        """Write the producers as of the log's end, unless a file of that offset exists. Raises OSError."""
        self.complete_snapshot()
        end_offset = self._state.end_offset
        if not self._local.has_snapshot(end_offset):
            self._local.take_snapshot(end_offset, self.producers.snapshot())

    def roll(self, offset: int, *, later: bool = False) -> None:
        """Begin a segment, with a snapshot of the producers. Of many it follows with the flush of the segments before,
        or with the next change that needs it: until then recovery reads more batches. Raises OSError.

        `later`: the next append, which is queued, makes the files.
        """
        self.complete_snapshot()
        if len(self.producers.producers) <= _PRODUCERS_AT_ONCE:
            self._local.roll(offset, self.producers.snapshot(), later=later)
        else:
            self._local.roll(offset, None, later=later)
            self._unwritten = offset, self.producers.freeze()

    def encode_snapshot(self) -> bool:
        """Encode a piece of the snapshot that a roll has left to do; whether there is more."""
        return self._unwritten is not None and self._unwritten[1].encode(_PRODUCERS_IN_A_PIECE)

    def complete_snapshot(self) -> None:
        """Write the snapshot that a roll has left to do. Raises OSError."""
        if self._unwritten is not None:
            offset, frozen = self._unwritten
            self._local.take_snapshot(offset, frozen.snapshot())
            self._drop_snapshot()

    def _drop_snapshot(self) -> None:
        self._unwritten = None
        self.producers.thaw()

    # --- changes of the log ---

    def restore_producers(self, environment: LogEnvironment) -> None:
        """Rebuild the producers as of the log's end, after a truncation. Raises OSError."""
        self._drop_snapshot()
        state, local = self._state, self._local
        local.snapshots = restore_producers(
            state.directory,
            local.segments,
            self.producers,
            environment,
            local.snapshots,
            state.end_offset,
            state.log_start_offset,
        )

    def clear_producers(self) -> None:
        """Forget all producers: the log has lost all batches."""
        self._drop_snapshot()
        self.producers.clear()

    def truncate_epochs_from_end(self) -> None:
        """Forget the epochs that begin at the log's end or later, after a truncation."""
        if self.leader_epochs.truncate_from_end(self._state.end_offset):
            self._write_epochs(after_change=True)

    def clear_epochs(self) -> None:
        """Forget all epochs: the log has lost all batches."""
        self.leader_epochs.clear()
        self._write_epochs(after_change=True)

    def advance_log_start(self) -> None:
        """Forget the epochs and transactions that lie below the new log start offset."""
        offset = self._state.log_start_offset
        if self.leader_epochs.truncate_from_start(offset):
            self._write_epochs(after_change=True)
        self.producers.on_log_start(offset)

    def take_over(self, other: LogHistory) -> None:
        """Adopt the epochs and producers of another log of the same partition that has the same end."""
        other._drop_snapshot()
        self._drop_snapshot()
        self.producers = other.producers
        self.leader_epochs = other.leader_epochs
        self._write_epochs()
        try:
            # A flush wrote a snapshot from the copied batches alone, and some producers have no batch left.
            self._local.remove_snapshots(self._state.end_offset)
        except OSError as error:
            raise self._state.storage_error(error) from error
