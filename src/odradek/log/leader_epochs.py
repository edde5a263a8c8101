"""Where each leader's epoch begins in the log (LeaderEpochFileCache, KIP-101). Pure; see `checkpoints` for the file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1


class LeaderEpochs:
    """Epochs with their start offsets, both strictly increasing."""

    __slots__ = ("_entries", "latest")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self._entries: list[tuple[int, int]] = []
        self.latest = UNDEFINED_EPOCH
        """The last epoch; -1 without epochs."""
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) in order."""
        return list(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that the epoch begins at the offset; whether that changed anything. Contradicting later entries go."""
        entries = self._entries
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} cannot start at offset {start_offset}")
        if entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset:
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self.latest = epoch
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest known epoch up to the requested one; (-1, -1) if that is unknown."""
        entries = self._entries
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        above = bisect_right(entries, epoch, key=lambda entry: entry[0])
        if above == len(entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        return (entries[above - 1][0] if above else epoch), entries[above][1]

    def epoch_for(self, offset: int) -> int:
        """The epoch in which the offset was written; -1 if unknown."""
        above = bisect_right(self._entries, offset, key=lambda entry: entry[1])
        return self._entries[above - 1][0] if above else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> bool:
        """Forget epochs that begin at the offset or later; whether there were any."""
        entries = self._entries
        before = len(entries)
        while entries and entries[-1][1] >= end_offset:
            entries.pop()
        self.latest = entries[-1][0] if entries else UNDEFINED_EPOCH
        return len(entries) != before

    def believe(self, epoch: int, offset: int) -> bool:
        """A batch of the epoch lies at the offset: forget later epochs that are said to begin there or below.

        Whether there were any.
        """
        above = bisect_right(self._entries, epoch, key=lambda entry: entry[0])
        if above == len(self._entries) or self._entries[above][1] > offset:
            return False
        del self._entries[above:]
        self.latest = self._entries[-1][0] if self._entries else UNDEFINED_EPOCH
        return True

    def truncate_from_start(self, start_offset: int) -> bool:
        """Let the epoch that holds the offset begin there and forget earlier ones; whether that changed anything."""
        above = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
        if not above or (above == 1 and self._entries[0][1] == start_offset):
            return False
        self._entries[:above] = [(self._entries[above - 1][0], start_offset)]
        return True

    def clear(self) -> None:
        """Forget all epochs."""
        self._entries.clear()
        self.latest = UNDEFINED_EPOCH
