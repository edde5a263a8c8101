"""Garbage cycles of a process that serves: it looks at all of its objects only while no client waits.

CPython's full collection looks at every object: 15 ms after the start, 45 to 100 ms with 5,000 open logs, and the
event loop serves no client meanwhile. Reference counts free nearly all that a broker drops, deleted partitions and
their logs as well, and the young collections, which stay, most cycles. What they leave, a collection finds that looks
at the objects since the last one only.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from typing import Final

YOUNG: Final = 5_000
"""New objects between two young collections, where Python has 700: the partitions of a request outlive several of
those, which look at them in vain. They take 0.3 ms."""
MIDDLE: Final = 5
"""Young collections between two that also look at what survived them: 1.5 ms."""
_NO_FULL_ONES: Final = 1_000_000_000

LOOK_SECONDS: Final = 10.0
"""Between two looks at what the process has made."""
_IDLE_SHARE: Final = 0.01
_MIDDLE_ONES: Final = 2
"""So many collections of the middle generation make another one worth it."""
FEW_BLOCKS: Final = 50_000
"""New blocks of memory through which a collection takes 4 ms."""
MANY_BLOCKS: Final = 600_000
"""New ones through which it takes 50 ms, which an idle process has."""
MOST_BLOCKS: Final = 4_000_000
"""New ones that may be garbage in a process that is never idle: some 300 MB."""


def collect_in_small_steps() -> None:
    """Let the interpreter collect young objects only. To be called before the process makes most of its objects."""
    gc.set_threshold(YOUNG, MIDDLE, _NO_FULL_ONES)


class LateCollections:
    """Collections of all objects since the last one, in a moment that has time for them. The survivors stay for good.

    An idle process that has made too many, as after tens of thousands of logs were opened, takes them for such
    survivors.
    """

    __slots__ = ("_blocks", "_loop", "_processor_seconds", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """The process has made what it starts with, which stays as long as the process."""
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._processor_seconds = 0.0
        self._blocks = 0
        self._keep()
        self._wait()

    def _wait(self) -> None:
        self._processor_seconds = time.process_time()
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        used = time.process_time() - self._processor_seconds
        self.look(is_idle=used < LOOK_SECONDS * _IDLE_SHARE)
        self._wait()

    def look(self, *, is_idle: bool) -> None:
        """Collect what the younger generations have left, if it is worth it and there is time."""
        if gc.get_count()[2] < _MIDDLE_ONES:
            return
        new = sys.getallocatedblocks() - self._blocks
        if new <= FEW_BLOCKS or new > MOST_BLOCKS or (is_idle and new <= MANY_BLOCKS):
            gc.collect()
        elif not is_idle:
            return
        self._keep()

    def _keep(self) -> None:
        gc.freeze()
        self._blocks = sys.getallocatedblocks()

    def close(self) -> None:
        """The process ends."""
        if self._timer is not None:
            self._timer.cancel()
