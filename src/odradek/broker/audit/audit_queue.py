"""Events that wait to be written: bounded in bytes, so that a topic without a leader costs a known amount of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.records.batch import HEADER_SIZE
from odradek.records.builder import encode_batch

_RECORD_OVERHEAD: Final = 24
"""The most bytes that a record's lengths, time and offset take."""


class Waiting(NamedTuple):
    """An event with its wall time."""

    time_ms: int
    event: bytes


class AuditQueue:
    """Takes events at once, or counts them as lost; pure. Implements `Outlet`."""

    __slots__ = ("_events", "_most_bytes", "_wake", "lost", "size", "written")

    def __init__(self, most_bytes: Callable[[], int]) -> None:
        """`most_bytes`: of the events that wait; read for each event."""
        self._most_bytes = most_bytes
        self._events: deque[Waiting] = deque()
        self._wake: Callable[[], None] = lambda: None
        self.size = 0
        """Bytes of the events that wait."""
        self.lost = 0
        """Events that were not written and never will be."""
        self.written = 0
        """Events that the topic has."""

    def __len__(self) -> int:
        return len(self._events)

    def watch(self, wake: Callable[[], None]) -> None:
        """Call for each event that is accepted."""
        self._wake = wake

    def offer(self, time_ms: int, event: bytes) -> bool:
        """Accept an event unless it exceeds the bound, which counts it as lost."""
        if self.size + len(event) > self._most_bytes():
            self.lost += 1
            return False
        self.size += len(event)
        self._events.append(Waiting(time_ms, event))
        self._wake()
        return True

    def lose(self) -> None:
        """Count an event that could not be made."""
        self.lost += 1

    def next_batch(self, most_bytes: int) -> tuple[int, bytearray]:
        """The oldest events as a batch of at most that size, or the oldest alone, and their number; they stay here.

        Raises ValueError for an empty queue.
        """
        taken: list[Waiting] = []
        size = HEADER_SIZE
        for each in self._events:
            size += len(each.event) + _RECORD_OVERHEAD
            if taken and size > most_bytes:
                break
            taken.append(each)
        return len(taken), encode_batch((each.time_ms, None, each.event, ()) for each in taken)

    def complete(self, count: int) -> None:
        """The oldest events are written."""
        self._remove(count)
        self.written += count

    def drop(self, count: int) -> None:
        """Give the oldest events up."""
        self._remove(count)
        self.lost += count

    def _remove(self, count: int) -> None:
        for _ in range(count):
            self.size -= len(self._events.popleft().event)
