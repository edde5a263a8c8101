"""How the C library treats memory that is freed."""

from __future__ import annotations

from functools import cache


@cache
def keep_freed_memory(size: int) -> None:
    """Let glibc keep up to twice `size` bytes of freed memory for the next buffers; without effect elsewhere.

    It returns the free end of its heap to the system, unless that is smaller than twice the largest block that was
    freed so far (at first 128 KiB). Pages that are used again then cost a fault each: more than all copies, where
    buffers of some 100 KB come and go. Here a block of `size` bytes is made, and freed untouched.

    The effect lasts as long as the process. A second block would come from the heap and cost ms: it is zeroed.
    """
    bytes(size)
