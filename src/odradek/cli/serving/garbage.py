"""Garbage cycles of a process that serves: it looks at all of its objects only while no client waits.

CPython's full collection looks at every object: 15 ms after the start, 45 to 100 ms with 5,000 open logs, and the
event loop serves no client meanwhile. Reference counts free nearly all that a broker drops, and the young
collections, which stay, nearly all cycles.
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
"""Between two looks at whether the process is idle."""
_IDLE_SHARE: Final = 0.01
_MIDDLE_ONES: Final = 10
"""So many collections of the middle generation make a full one worth it."""
_MOST_BLOCKS: Final = 200_000
"""Blocks of memory beyond those after the last full collection, with which another one would take some 10 ms."""


def collect_in_small_steps() -> None:
    """Let the interpreter collect young objects only. To be called before the process makes most of its objects."""
    gc.set_threshold(YOUNG, MIDDLE, _NO_FULL_ONES)


class IdleCollections:
    """Full collections while the process is idle. What they leave is not looked at again.

    Where memory has grown too much for a short one, as after thousands of logs were opened, the new objects are taken
    for ones that stay.
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
        if used < LOOK_SECONDS * _IDLE_SHARE:
            self.on_idle()
        self._wait()

    def on_idle(self) -> None:
        """No client has asked for much lately: collect what the younger generations have left, if it is worth it."""
        if gc.get_count()[2] < _MIDDLE_ONES:
            return
        if sys.getallocatedblocks() - self._blocks <= _MOST_BLOCKS:
            gc.collect()
        self._keep()

    def _keep(self) -> None:
        gc.freeze()
        self._blocks = sys.getallocatedblocks()

    def close(self) -> None:
        """The process ends."""
        if self._timer is not None:
            self._timer.cancel()
