"""When to look at a transactional id again: one heap, in which a deadline that moves later costs nothing."""

from __future__ import annotations

import heapq
from collections.abc import Callable

_REBUILD_FROM = 64


class Deadlines:
    """`deadline_of(name)` says when the name is due by its state now (ms), None when never."""

    __slots__ = ("_deadline_of", "_heap", "_queued")

    def __init__(self, deadline_of: Callable[[str], int | None]) -> None:
        self._deadline_of = deadline_of
        self._heap: list[tuple[int, str]] = []
        self._queued: dict[str, int] = {}

    def update(self, name: str) -> None:
        """The name's state has changed. An entry that is too early stays: it is put off when it comes up."""
        deadline = self._deadline_of(name)
        if deadline is None:
            return
        queued = self._queued.get(name)
        if queued is None or deadline < queued:
            self._push(deadline, name)
            if len(self._heap) > _REBUILD_FROM and len(self._heap) > 4 * len(self._queued):
                self._heap = [(at, queued_name) for queued_name, at in self._queued.items()]
                heapq.heapify(self._heap)

    def forget(self, name: str) -> None:
        """The name has no deadline any longer."""
        self._queued.pop(name, None)

    def _push(self, deadline: int, name: str) -> None:
        self._queued[name] = deadline
        heapq.heappush(self._heap, (deadline, name))

    def _first(self) -> tuple[int, str] | None:
        """The first entry that stands."""
        heap = self._heap
        while heap:
            at, name = heap[0]
            if self._queued.get(name) != at:
                heapq.heappop(heap)
                continue
            deadline = self._deadline_of(name)
            if deadline == at:
                return at, name
            heapq.heappop(heap)
            del self._queued[name]
            if deadline is not None:
                self._push(deadline, name)
        return None

    def next_ms(self) -> int | None:
        """The earliest deadline."""
        first = self._first()
        return None if first is None else first[0]

    def pop_due(self, now_ms: int) -> str | None:
        """A name whose deadline is not after `now_ms`; it is forgotten until `update`."""
        first = self._first()
        if first is None or first[0] > now_ms:
            return None
        heapq.heappop(self._heap)
        del self._queued[first[1]]
        return first[1]
