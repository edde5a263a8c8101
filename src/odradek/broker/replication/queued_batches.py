"""What a fetcher has received and its logs have queued, because the disk does not keep up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from odradek.log.partition_log import PartitionLog


class QueuedBatches:
    """The received bytes that are not written yet."""

    __slots__ = ("_poke", "size")

    def __init__(self, poke: Callable[[], None]) -> None:
        """`poke` is called whenever some of them are written, or their log has failed."""
        self._poke = poke
        self.size = 0
        """Their number."""

    def received(self, log: PartitionLog, size: int) -> None:
        """Count an append, unless it is written."""
        if log.durability.has_queued:
            self.size += size
            log.durability.when_written(log.next_offset - 1, partial(self._written, size))

    def _written(self, size: int) -> None:
        self.size -= size
        self._poke()

    def waits(self, log: PartitionLog, written: Callable[[], None]) -> bool:
        """Whether the log has queued batches: the leader must not learn of them, nor send them again.

        Then `written` is called once they are written, or the log has failed.
        """
        if not log.durability.has_queued:
            return False
        log.durability.when_written(log.next_offset - 1, written)
        return True
