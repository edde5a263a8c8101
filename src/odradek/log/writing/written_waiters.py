"""Callbacks that wait until their appends are written, in the order of offsets."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class WrittenWaiters:
    """Callbacks by the last offset that each waits for; those of one offset in the order in which they came."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def add(self, last_offset: int, callback: Callable[[], None]) -> None:
        """Call back once the end is past the offset."""
        self._count += 1
        heapq.heappush(self._heap, (last_offset, self._count, callback))

    def release(self, end_offset: int) -> None:
        """Call back the waiters for offsets below the end."""
        heap = self._heap
        while heap and heap[0][0] < end_offset:
            heapq.heappop(heap)[2]()

    def release_all(self) -> None:
        """Call back everyone: the log has failed."""
        waiting = sorted(self._heap)
        # The same list: `release` may be running, and one of its callbacks may have made the log fail.
        self._heap.clear()
        for _, _, callback in waiting:
            callback()
