"""Deadlines by key, ordered; the coordinator's only notion of time passing.

A session's deadline moves with every heartbeat, so moving one later is only an assignment: its entry in the heap stays
where it is and is moved on when it comes up.
"""

from __future__ import annotations

import heapq
from typing import Any, NamedTuple, TypeAlias

Key: TypeAlias = tuple[str, ...]


class Due(NamedTuple):
    """A deadline that has passed, with what was to be remembered about it."""

    key: Key
    payload: Any


class _Entry:
    __slots__ = ("deadline_ms", "payload", "queued_ms")

    def __init__(self, deadline_ms: int, payload: Any) -> None:
        self.deadline_ms = deadline_ms
        self.queued_ms = deadline_ms
        self.payload = payload


class Timers:
    """Scheduling a key again replaces its deadline and payload."""

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._entries: dict[Key, _Entry] = {}
        self._heap: list[tuple[int, Key]] = []

    def schedule(self, key: Key, deadline_ms: int, payload: Any = None) -> None:
        """Set the deadline of a key, in milliseconds, with what to remember about it."""
        entry = self._entries.get(key)
        if entry is not None and entry.queued_ms <= deadline_ms:
            entry.deadline_ms = deadline_ms
            entry.payload = payload
            return
        self._entries[key] = _Entry(deadline_ms, payload)
        heapq.heappush(self._heap, (deadline_ms, key))
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._entries):
            self._rebuild()

    def postpone(self, key: Key, deadline_ms: int) -> bool:
        """Move a deadline to a later time and keep its payload; False if it is not scheduled, or is later already."""
        entry = self._entries.get(key)
        if entry is None or entry.queued_ms > deadline_ms:
            return False
        entry.deadline_ms = deadline_ms
        return True

    def cancel(self, key: Key) -> None:
        """Drop the deadline of a key, if it has one."""
        self._entries.pop(key, None)
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._entries):
            self._rebuild()

    def _rebuild(self) -> None:
        """Drop what cancelled and replaced keys left in the heap."""
        for entry in self._entries.values():
            entry.queued_ms = entry.deadline_ms
        self._heap = [(entry.deadline_ms, key) for key, entry in self._entries.items()]
        heapq.heapify(self._heap)

    def deadline_of(self, key: Key) -> int | None:
        """The deadline of a key, in milliseconds, or None."""
        entry = self._entries.get(key)
        return None if entry is None else entry.deadline_ms

    def _top(self) -> tuple[int, Key] | None:
        """The first deadline that really stands."""
        heap = self._heap
        while heap:
            queued_ms, key = heap[0]
            entry = self._entries.get(key)
            if entry is None or entry.queued_ms != queued_ms:
                heapq.heappop(heap)
            elif entry.deadline_ms > queued_ms:
                entry.queued_ms = entry.deadline_ms
                heapq.heapreplace(heap, (entry.deadline_ms, key))
            else:
                return queued_ms, key
        return None

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline, or None."""
        top = self._top()
        return None if top is None else top[0]

    def pop_due(self, now_ms: int) -> Due | None:
        """Remove and answer the earliest deadline up to `now_ms`; one at a time, since each may cancel others."""
        top = self._top()
        if top is None or top[0] > now_ms:
            return None
        heapq.heappop(self._heap)
        return Due(top[1], self._entries.pop(top[1]).payload)
