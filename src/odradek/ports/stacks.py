"""What threads execute: their stacks now, and samples of one of them over some time.

Stacks are places in the code (file, line, function), without the values of variables, so they have no secrets.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final, NamedTuple

SAMPLE_S: Final = 0.005
"""Pause between two samples: 200 a second cost less than 1 % of a processor."""
SWITCH_S: Final = 20e-6
"""Python's switch interval while a thread is sampled."""
_SWITCHING: Final = threading.Lock()
MAX_DEPTH: Final = 100
"""Frames of a stack, from the innermost one."""
MAX_STACKS: Final = 500
"""Distinct stacks of a profile, the most frequent ones."""

_ROOTS: Final = ("/site-packages/", "/src/", "/lib/")
"""Folders below which paths are shown: those above them name the user."""

Stack = tuple[str, ...]
"""Places in the code, the outermost first."""


class Profile(NamedTuple):
    """Samples of a thread."""

    samples: int
    stacks: dict[Stack, int]
    """Samples by stack, the most frequent ones first."""


def place_of(code: CodeType, line: int | None) -> str:
    """A place in the code, such as `odradek/log/segment.py:12 Segment.append`."""
    path = code.co_filename
    shown = next((path.rpartition(root)[2] for root in _ROOTS if root in path), path.rpartition("/")[2])
    return f"{shown}:{line or 0} {code.co_qualname}"


def thread_stacks() -> list[tuple[str, Stack]]:
    """The names of all threads and their stacks, by name."""
    names = {each.ident: each.name for each in threading.enumerate()}
    return sorted(
        (names.get(ident, f"thread {ident}"), _stack(frame)) for ident, frame in sys._current_frames().items()
    )


def current_thread() -> int:
    """The id of the calling thread."""
    return threading.get_ident()


def sample_thread(ident: int, seconds: float, is_cancelled: Callable[[], bool]) -> Profile:
    """Sample another thread; blocks the calling thread for that time, or until it is cancelled."""
    found: Counter[Stack] = Counter()
    with _quick_switches():
        ends = time.monotonic() + seconds
        while time.monotonic() < ends and not is_cancelled():
            frame = sys._current_frames().get(ident)
            if frame is None:
                break
            found[_stack(frame)] += 1
            # Hold no frame while asleep: it would keep the objects of a call that has ended.
            del frame
            time.sleep(SAMPLE_S)
    return Profile(found.total(), dict(found.most_common(MAX_STACKS)))


@contextmanager
def _quick_switches() -> Iterator[None]:
    """Let the sampling thread run within microseconds of waking up.

    With Python's usual 5 ms a busy thread would be sampled only where it waits for input, as if it were idle.
    """
    with _SWITCHING:
        usual = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            yield
        finally:
            sys.setswitchinterval(usual)


def _stack(frame: FrameType) -> Stack:
    places: list[str] = []
    current: FrameType | None = frame
    while current is not None and len(places) < MAX_DEPTH:
        places.append(place_of(current.f_code, current.f_lineno))
        current = current.f_back
    return tuple(reversed(places))
