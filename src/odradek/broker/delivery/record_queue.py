"""Records that wait to be written: bounded in bytes, so a topic without a leader costs a known amount of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from odradek.records.batch import HEADER_SIZE
from odradek.records.builder import encode_batch
from odradek.records.headers import Headers

_RECORD_OVERHEAD: Final = 24
"""The most bytes that a record's lengths, time and offset take."""
_HEADER_OVERHEAD: Final = 10
"""The most bytes that the lengths of a header take."""


class Waiting(NamedTuple):
    """A record with its wall time."""

    time_ms: int
    key: bytes | None
    value: bytes
    headers: Headers

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        size = len(self.value) + len(self.key or b"")
        return size + sum(len(name) + len(value or b"") + _HEADER_OVERHEAD for name, value in self.headers)


class RecordQueue:
    """Takes records at once, or counts them as lost; pure. Implements `Outlet`."""

    __slots__ = ("_most_bytes", "_records", "_wake", "lost", "size", "written")

    def __init__(self, most_bytes: Callable[[], int]) -> None:
        """`most_bytes`: of the records that wait; read for each record."""
        self._most_bytes = most_bytes
        self._records: deque[Waiting] = deque()
        self._wake: Callable[[], None] = lambda: None
        self.size = 0
        """Bytes of the records that wait."""
        self.lost = 0
        """Records that were not written and never will be."""
        self.written = 0
        """Records that the topic has."""

    def __len__(self) -> int:
        return len(self._records)

    def waiting(self) -> tuple[Waiting, ...]:
        """The records that wait, oldest first."""
        return tuple(self._records)

    def watch(self, wake: Callable[[], None]) -> None:
        """Call for each record that is accepted."""
        self._wake = wake

    def offer(self, time_ms: int, value: bytes, key: bytes | None = None, headers: Headers = ()) -> bool:
        """Accept a record unless it exceeds the bound, which counts it as lost."""
        record = Waiting(time_ms, key, value, headers)
        size = record.size
        if self.size + size > self._most_bytes():
            self.lost += 1
            return False
        self.size += size
        self._records.append(record)
        self._wake()
        return True

    def lose(self) -> None:
        """Count a record that could not be made."""
        self.lost += 1

    def next_batch(self, most_bytes: int) -> tuple[int, bytearray]:
        """The oldest records as a batch of at most that size, or the oldest alone, and their number; they stay here.

        Raises ValueError for an empty queue.
        """
        taken: list[Waiting] = []
        size = HEADER_SIZE
        for each in self._records:
            size += each.size + _RECORD_OVERHEAD
            if taken and size > most_bytes:
                break
            taken.append(each)
        return len(taken), encode_batch(taken)

    def complete(self, count: int) -> None:
        """The oldest records are written."""
        self._remove(count)
        self.written += count

    def drop(self, count: int) -> None:
        """Give the oldest records up."""
        self._remove(count)
        self.lost += count

    def _remove(self, count: int) -> None:
        for _ in range(count):
            self.size -= self._records.popleft().size
