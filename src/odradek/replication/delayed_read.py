"""Readers that wait for more bytes: woken by appends to the partitions they watch, or by a deadline, without polling.

Source: Kafka's DelayedFetch and its purgatory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from odradek.replication.partition import Partition
from odradek.replication.readers import PartitionReaders

Attempt = Callable[[bool], int]
"""Try to answer: return 0 when done, else the number of bytes that are lacking.

The argument says that time is up: then it must answer.
"""


class DelayedRead:
    """One waiting fetch. `attempt` is run again when about as many bytes as it lacked have been appended."""

    __slots__ = ("_attempt", "_lacking", "_partitions", "_timer")

    def __init__(self, partitions: Sequence[Partition], lacking: int, attempt: Attempt) -> None:
        self._partitions = partitions
        self._lacking = lacking
        self._attempt = attempt
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop, wait_seconds: float) -> None:
        """Watch the partitions for appends, for at most `wait_seconds`."""
        self._timer = loop.call_later(wait_seconds, self._time_is_up)
        for partition in self._partitions:
            partition.readers.wait(self._appended)

    def _appended(self, readers: PartitionReaders, count: int) -> None:
        if self._timer is None:
            return None
        self._lacking -= count
        if self._lacking <= 0:
            self._lacking = self._attempt(False)
            if not self._lacking:
                return self.stop()
        readers.wait(self._appended)
        return None

    def _time_is_up(self) -> None:
        self._attempt(True)
        self.stop()

    def stop(self) -> None:
        """Forget the partitions, after the answer or when the connection has closed."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
            for partition in self._partitions:
                partition.readers.stop_waiting(self._appended)
