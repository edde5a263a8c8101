"""Frames in a stream of bytes: bytes in, frames out, no I/O. Shared by broker and client.

    reader = FrameReader(max_frame_bytes)
    while n := sock.recv_into(reader.space()):
        for frame in reader.received(n):
            ...

A frame is a writable view of the receive buffer, without the four bytes of its size, and valid until the next call of
`space` or `received`: who wants to keep bytes copies them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

FLOOR_BYTES: Final = 65_536
# A buffer is given back when it is this many times larger than what is needed: at once if it is large, else when that
# has been so this many times in a row, because the next frame is often as long as the last one.
_SHRINK_FACTOR: Final = 4
_PATIENCE: Final = 32
# A large frame's buffer starts at this size and doubles as its bytes arrive: a size alone must not cost memory.
_TRUST_BYTES: Final = (1 << 20) + 65_536  # a batch of Kafka's default limit fits


class FrameError(ValueError):
    """The stream is not one of frames; the connection is of no further use."""


class FrameTooLarge(FrameError):
    """A frame announces more than `max_frame_bytes` (`size` in bytes)."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        super().__init__(f"frame of {size} bytes, the limit is {limit}")


class FrameReader:
    """One growing receive buffer and the frames in it."""

    __slots__ = ("_buffer", "_fault", "_filled", "_loose", "_taken", "_view", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._fault: FrameError | None = None
        self._buffer = bytearray(FLOOR_BYTES)
        self._view = memoryview(self._buffer)
        self._filled = 0  # bytes received
        self._taken = 0  # bytes of frames already given out
        self._loose = 0  # how often in a row the buffer was too large

    @property
    def pending(self) -> int:
        """Bytes received that do not make a whole frame yet."""
        return self._filled - self._taken

    @property
    def capacity(self) -> int:
        """Bytes that the receive buffer occupies."""
        return len(self._buffer)

    def space(self) -> memoryview:
        """Where the next bytes go: never empty. Frames given out before are invalid from here on.

        Of a broken stream it raises the fault again.
        """
        if self._fault is not None:
            raise self._fault
        if self._taken or self._filled == len(self._buffer):
            self._settle()
        return self._view[self._filled :] if self._filled else self._view

    def received(self, count: int) -> Iterator[memoryview]:
        """The frames complete after `count` more bytes in the last `space()`; those not taken come with the next call.

        Raises FrameTooLarge, or FrameError for a negative size, in the place of the frame that is none.
        """
        if self._taken:
            raise ValueError("received() needs a space() before it")
        self._filled += count
        return self._complete(self._view, self._filled)

    def _complete(self, view: memoryview, filled: int) -> Iterator[memoryview]:
        position = 0
        while filled - position >= 4:
            start = position + 4
            size = int.from_bytes(view[position:start], "big")
            if size > self.max_frame_bytes:
                self._fault = self._refused(size)
                raise self._fault
            position = start + size
            if position > filled:
                break
            self._taken = position
            yield view[start:position]

    def _refused(self, size: int) -> FrameError:
        if size > 0x7FFFFFFF:
            return FrameError(f"frame of size {size - (1 << 32)}")
        return FrameTooLarge(size, self.max_frame_bytes)

    def _settle(self) -> None:
        """Drop the frames given out; put the unfinished one first, in a buffer that suits it."""
        taken, rest = self._taken, self._filled - self._taken
        need = FLOOR_BYTES
        if rest >= 4:
            size = int.from_bytes(self._view[taken : taken + 4], "big") + 4
            need = max(need, min(size, max(_TRUST_BYTES, 2 * rest)))
        capacity = len(self._buffer)
        self._loose = self._loose + 1 if capacity > _SHRINK_FACTOR * need else 0
        if need > capacity or (self._loose and (capacity > _TRUST_BYTES + 4 or self._loose > _PATIENCE)):
            fresh = bytearray(need)
            fresh[:rest] = self._view[taken : self._filled]
            self._buffer = fresh
            self._view = memoryview(fresh)
            self._loose = 0
        elif taken and rest:
            self._view[:rest] = self._view[taken : self._filled]
        self._filled = rest
        self._taken = 0
