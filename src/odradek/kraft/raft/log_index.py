"""The part of the metadata log that Raft decides by: its start, its epochs, its end, and how far it is synced. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_observer import BEGINNING, LogEnd
from odradek.kraft.raft.voter_history import VoterHistory


class LogIndex:
    """`start` is the end of the snapshot with which the log begins, `epochs` are the (epoch, first offset) after it.

    The records below `synced_offset` survive a power loss; `history` are the voters by offset.
    Source: Kafka's `RaftLog` and `LeaderEpochFileCache`.
    """

    def __init__(
        self,
        *,
        start: LogEnd = BEGINNING,
        epochs: Sequence[tuple[int, int]] = (),
        end_offset: int = 0,
        snapshot_size: int = 0,
        history: VoterHistory | None = None,
    ) -> None:
        self.start = start
        self.end_offset = max(start.offset, end_offset)
        self.synced_offset = self.end_offset
        self.snapshot_size = snapshot_size
        """Bytes of the snapshot at `start`."""
        self.history = history or VoterHistory()
        self._epochs = list(epochs)

    @property
    def end(self) -> LogEnd:
        """The end offset, and the epoch of the last record."""
        return LogEnd(self.end_offset, self._epochs[-1][0] if self._epochs else self.start.epoch)

    @property
    def snapshot(self) -> CheckpointId | None:
        """The snapshot with which the log begins; None if it begins at offset 0."""
        return CheckpointId(*self.start) if self.start.offset else None

    def append(self, epoch: int, count: int) -> int:
        """Count records that are appended; returns the offset of the first. Raises CorruptMetadata for an old epoch."""
        if epoch < self.end.epoch:
            raise CorruptMetadata(f"records of epoch {epoch} cannot follow those of epoch {self.end.epoch}")
        base = self.end_offset
        if epoch > self.end.epoch or not self._epochs:
            self._epochs.append((epoch, base))
        self.end_offset += count
        return base

    def mark_synced(self, end: LogEnd) -> None:
        """Note that the log up to this end is on the disk, unless records of it were truncated meanwhile."""
        if end.offset <= self.end_offset and self.epoch_at(end.offset) == end.epoch:
            self.synced_offset = max(self.synced_offset, end.offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the records from this offset on."""
        self._epochs = [(epoch, first) for epoch, first in self._epochs if first < offset]
        self.end_offset = offset
        self.synced_offset = min(self.synced_offset, offset)
        self.history.truncate_to(offset)

    def begin_at(self, snapshot: CheckpointId, size: int) -> None:
        """Let the log begin at the end of a durable snapshot; records after it stay."""
        if not self.start.offset <= snapshot.end_offset <= self.end_offset:
            raise CorruptMetadata(f"the log from {self.start.offset} to {self.end_offset} has no {snapshot.file_name}")
        kept = [(epoch, max(first, snapshot.end_offset)) for epoch, first in self._epochs]
        following = [first for _, first in kept[1:]] + [self.end_offset]
        self._epochs = [each for each, next_first in zip(kept, following, strict=True) if each[1] < next_first]
        self.start, self.snapshot_size = LogEnd(*snapshot), size
        self.history.forget_before(self.start.offset)

    def replace_by(self, snapshot: CheckpointId, size: int) -> None:
        """Replace the complete log by a durable snapshot; `history` is replaced once its records are read."""
        self.start, self.snapshot_size = LogEnd(*snapshot), size
        self._epochs = []
        self.end_offset = self.synced_offset = snapshot.end_offset

    def epoch_at(self, end_offset: int) -> int:
        """The epoch of the record before this offset."""
        epochs = [epoch for epoch, first in self._epochs if first < end_offset]
        return epochs[-1] if epochs else self.start.epoch

    def end_of_epoch(self, epoch: int) -> LogEnd:
        """The end of the highest epoch that is not above this one (Kafka's `endOffsetForEpoch`)."""
        found, end = self.start.epoch, self._epochs[0][1] if self._epochs else self.end_offset
        for index, (each, _) in enumerate(self._epochs):
            if each <= epoch:
                found = each
                end = self._epochs[index + 1][1] if index + 1 < len(self._epochs) else self.end_offset
        return LogEnd(end, found) if epoch >= self.start.epoch else LogEnd(0, 0)

    def check_position(self, position: LogEnd) -> LogEnd | CheckpointId | None:
        """What a leader answers to a replica whose log ends at this position.

        None if this log continues there; a LogEnd where the logs diverge; a CheckpointId if the records are deleted.
        Source: Kafka's `RaftLog.validateOffsetAndEpoch`.
        """
        if self.snapshot is not None and (position.offset < self.start.offset or position.epoch < self.start.epoch):
            return self.snapshot
        if position == BEGINNING:
            return None
        common = self.end_of_epoch(position.epoch)
        if common.epoch != position.epoch or position.offset > common.offset:
            return common
        return None

    def common_offset(self, diverging: LogEnd) -> int:
        """The offset to truncate to after a leader answered where the logs diverge."""
        end = self.end_of_epoch(diverging.epoch)
        return min(end.offset, diverging.offset) if end.epoch == diverging.epoch else end.offset
