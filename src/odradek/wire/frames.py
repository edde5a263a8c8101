"""Frames in a stream of bytes: bytes in, frames out, no I/O. Shared by broker and client.

    reader = FrameReader(max_frame_bytes)
    while n := sock.recv_into(reader.space()):
        for frame in reader.received(n):
            ...

A frame is a writable view, without the four bytes of its size, and valid until the next call of `space` of any reader
with the same buffers, unless it is kept (`FrameReader.keep`).

A connection that is between two frames owns no buffer: all of them receive into one (`ReceiveBuffers`), of which only
the beginning of an unfinished frame is kept. A frame too large for it gets a buffer of its own until it is whole.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

SHARED_BYTES: Final = 131_072
# A large frame gets a buffer when so much of it has come. That starts at the second size and doubles as bytes arrive: a
# size alone must not cost memory.
EARNEST_BYTES: Final = 32_768
TRUST_BYTES: Final = (1 << 20) + 65_536  # a batch of Kafka's default limit fits
SERVER_TRUST_BYTES: Final = 1 << 26  # the same where a client believes the server that it has chosen
# Large buffers are handed from frame to frame, because a fresh one has to be zeroed; so much may lie idle.
SPARE_BYTES: Final = 4 * TRUST_BYTES
SERVER_SPARE_BYTES: Final = 24 << 20
"""So much may lie idle in a server, until `ReceiveBuffers.trim` finds it unused. With frames of 10 MB a fresh buffer
and the copies on the way to it cost as much as to receive them."""
_ROUND_BYTES: Final = 1 << 16
_MOST_ROOM: Final = 4
"""A frame may have a spare buffer of up to this many times its size."""
KEPT_BUFFERS: Final = 4
"""So many buffers of kept frames are looked at for one that nothing refers to, before a fresh one is made."""
_NOTHING: Final = memoryview(b"")
_TLS_RECORDS: Final = frozenset((0x1503, 0x1603))
"""The first two bytes of a TLS alert and of a TLS handshake."""
SPEAKS_TLS: Final = "the peer speaks TLS, this side plain text"
"""The text of the FrameError for bytes of TLS."""


class FrameError(ValueError):
    """The stream is not one of frames; the connection is of no further use."""


class FrameTooLarge(FrameError):
    """A frame announces more than `max_frame_bytes` (`size` in bytes)."""

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        super().__init__(f"frame of {size} bytes, the limit is {limit}")


class ReceiveBuffers:
    """What the readers of one event loop receive into: the shared buffer, and those of large frames within `limit`.

    `limit` is Kafka's `queued.max.request.bytes`: when so much is in use, who needs a buffer has to wait. A single
    buffer may exceed it, as in Kafka: else a frame above the limit could never come. Buffers grow while their frames
    come, so one at a time may grow beyond it: else those that reach it together would wait for each other.
    """

    __slots__ = (
        "_are_spares_idle",
        "_beyond",
        "_kept",
        "_most_spare",
        "_spares",
        "_waiting",
        "in_use",
        "limit",
        "shared",
    )

    def __init__(self, limit: int | None = None, spare_bytes: int = SPARE_BYTES) -> None:
        """`spare_bytes` may lie idle; see `trim`."""
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.limit = limit
        self.in_use = 0
        self._spares: list[memoryview] = []
        self._most_spare = spare_bytes
        self._are_spares_idle = False
        self._kept: deque[bytearray] = deque(maxlen=KEPT_BUFFERS)
        # The buffer that has grown beyond the limit, until its frame is complete or given up.
        self._beyond: memoryview | None = None
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, size: int, whole: int = 0, outgrown: memoryview | None = None) -> memoryview | None:
        """A buffer of at least this size for `give_back`; None when the limit is reached.

        It has the size `whole` if one of that size lies idle: that costs no memory. `outgrown` is the buffer that it
        replaces: one at a time may then exceed the limit.
        """
        has_room = self.has_room()
        if not has_room and (outgrown is None or (self._beyond is not None and self._beyond is not outgrown)):
            return None
        found = self._spare(whole) if whole > size else None
        if found is None:
            # Rounded up, so that the next frame of nearly this size fits, too.
            size = -(-max(size, TRUST_BYTES) // _ROUND_BYTES) * _ROUND_BYTES
            found = self._spare(size) or self._unreferenced(size) or memoryview(bytearray(size))
        self.in_use += len(found)
        if not has_room:
            self._beyond = found
        return found

    def _spare(self, size: int) -> memoryview | None:
        for index, spare in enumerate(self._spares):
            if size <= len(spare) <= _MOST_ROOM * size:
                if len(spare) > TRUST_BYTES + _ROUND_BYTES:
                    self._are_spares_idle = False
                return self._spares.pop(index)
        return None

    def give_back(self, buffer: memoryview) -> None:
        """Return a buffer of `take`, for its next user. It replaces those that a frame has outgrown, if need be."""
        spares, idle = self._spares, sum(map(len, self._spares)) + len(buffer)
        while idle > self._most_spare:
            smaller = [index for index, each in enumerate(spares) if len(each) < len(buffer)]
            if not smaller:
                break
            idle -= len(spares.pop(max(smaller, key=lambda index: len(spares[index]))))
        if idle <= self._most_spare:
            spares.append(buffer)
        self._release(buffer)

    def trim(self) -> None:
        """Free large buffers that were not used since the last call."""
        spares = self._spares
        if self._are_spares_idle:
            spares.sort(key=len)
            while sum(map(len, spares)) > SPARE_BYTES:
                spares.pop()
        self._are_spares_idle = True

    def part_with(self, buffer: memoryview) -> None:
        """Give up a buffer of `take` of which views are kept; it is used again when they are gone."""
        self._kept.append(buffer.obj)  # type: ignore[arg-type]
        self._release(buffer)

    def _release(self, buffer: memoryview) -> None:
        """Count a buffer of `take` no longer. After one beyond the limit another may grow: all that wait look again."""
        self.release(len(buffer))
        if buffer is self._beyond:
            self._beyond = None
            for _ in range(len(self._waiting)):
                self._waiting.popleft()()

    def _unreferenced(self, size: int) -> memoryview | None:
        for _ in range(len(self._kept)):
            buffer = self._kept.popleft()
            if size <= len(buffer) <= _MOST_ROOM * size:
                with contextlib.suppress(BufferError):
                    buffer.pop()  # impossible as long as there are views of it
                    buffer.append(0)
                    return memoryview(buffer)
            self._kept.append(buffer)
        return None

    def charge(self, size: int) -> None:
        """Count bytes of requests that are kept elsewhere until `release`."""
        self.in_use += size

    def adjust(self, difference: int) -> None:
        """`charge` these bytes, or `release` them if their number is negative."""
        if difference >= 0:
            self.charge(difference)
        else:
            self.release(-difference)

    def release(self, size: int) -> None:
        """Subtract bytes of requests that are served from the total."""
        self.in_use -= size
        while self._waiting and self.has_room():
            self._waiting.popleft()()

    def has_room(self) -> bool:
        """Whether the total is below `queued.max.request.bytes`."""
        return self.limit is None or self.in_use < self.limit

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back once when there is room again, those who have waited longest first."""
        self._waiting.append(callback)


class FrameReader:
    """The frames of one stream."""

    __slots__ = (
        "_fault",
        "_filled",
        "_is_kept",
        "_is_trusting",
        "_large",
        "_limit",
        "_most_bytes",
        "_rest",
        "_view",
        "buffers",
        "max_frame_bytes",
        "missing",
    )

    def __init__(
        self,
        max_frame_bytes: int | Callable[[], int],
        buffers: ReceiveBuffers | None = None,
        most_bytes: Callable[[int], int | None] | None = None,
        *,
        is_trusting: bool = False,
    ) -> None:
        """`is_trusting` makes a buffer as large as the peer says its frame is, up to 64 MiB, before the bytes come.

        `buffers` may be shared by all readers of an event loop.

        A limit that depends on the peer's authentication is a function; it is called again before a frame is rejected.

        `most_bytes(key)` bounds a frame by the number in its first two bytes, the API key of a request: one that is
        larger gets no buffer of its own. None is no bound but `max_frame_bytes`.
        """
        self._most_bytes = most_bytes
        self._limit = max_frame_bytes if callable(max_frame_bytes) else None
        self.max_frame_bytes = max_frame_bytes() if callable(max_frame_bytes) else max_frame_bytes
        self.buffers = ReceiveBuffers() if buffers is None else buffers
        self.missing = 0
        """Bytes that an unfinished frame with a buffer of its own lacks, as of the last `received`."""
        self._fault: FrameError | None = None
        self._rest = b""  # the beginning of an unfinished frame, unless `_large` has it
        self._large: memoryview | None = None  # the buffer of an unfinished large frame
        self._is_kept = False  # whether `keep` has given out a view of it
        self._is_trusting = is_trusting
        self._filled = 0  # bytes of that in `_large`, or after `space` what lies in the shared buffer
        self._view: memoryview | None = None  # what the last `space` was of; None after `received`

    @property
    def pending(self) -> int:
        """Bytes received that do not make a whole frame yet."""
        return len(self._rest) if self._large is None else self._filled

    @property
    def capacity(self) -> int:
        """Bytes that this reader alone occupies."""
        return len(self._rest) if self._large is None else len(self._large)

    @property
    def large_bytes(self) -> int | None:
        """Received bytes of an unfinished frame that has a buffer of its own; None without one."""
        return None if self._large is None else self._filled

    def _raised_limit(self) -> int:
        if self._limit is not None:
            self.max_frame_bytes = self._limit()
        return self.max_frame_bytes

    def space(self) -> memoryview:
        """Where the next bytes go. Frames given out before are invalid from here on.

        Empty only when a large frame needs a buffer and the limit of the buffers is reached. Of a broken stream it
        raises the fault again.
        """
        if self._fault is not None:
            raise self._fault
        if self._large is not None or len(self._rest) >= SHARED_BYTES:
            return self._large_space()
        rest = self._rest
        view = self._view = self.buffers.shared
        if not rest:
            self._filled = 0
            return view
        size = self._filled = len(rest)
        if size >= EARNEST_BYTES and int.from_bytes(rest[:4], "big") + 4 > SHARED_BYTES:
            return self._large_space()
        view[:size] = rest
        return view[size:]

    def received(self, count: int) -> Iterator[memoryview]:
        """The frames complete after `count` more bytes in the last `space()`; those not taken come with the next call.

        Raises FrameTooLarge, or FrameError for a negative size, in the place of the invalid frame.
        """
        view = self._view
        if view is None:
            raise ValueError("received() needs a space() before it")
        self._view = None
        self._filled += count
        return self._complete(view, self._filled)

    def keep(self, frame: memoryview) -> memoryview:
        """The bytes of a frame, of which `received` has just given out a view, for longer than its view is valid.

        A frame with a buffer of its own keeps that; a small one is copied.
        """
        if self._large is not None and frame.obj is self._large.obj:
            self._is_kept = True
            return frame
        return memoryview(bytes(frame))

    def close(self) -> None:
        """Give up what is unfinished."""
        self._rest = b""
        if self._large is not None:
            if self._is_kept:
                self.buffers.part_with(self._large)
                self._is_kept = False
            else:
                self.buffers.give_back(self._large)
            self._large = None
            self.missing = 0

    def _complete(self, view: memoryview, filled: int) -> Iterator[memoryview]:
        position = 0
        try:
            while filled - position >= 4:
                start = position + 4
                size = int.from_bytes(view[position:start], "big")
                if size > self.max_frame_bytes and size > self._raised_limit():
                    self._fault = self._refused(size)
                    raise self._fault
                end = start + size
                if end > filled:
                    break
                position = end
                yield view[start:end]
        finally:
            if self._large is not None:
                if position:
                    self.close()
                    self._rest = bytes(view[position:filled])
                else:
                    self.missing = max(0, int.from_bytes(view[:4], "big") + 4 - filled)
            elif position != filled:
                self._rest = bytes(view[position:filled])
            elif self._rest:
                self._rest = b""

    @property
    def begins_with_tls(self) -> bool:
        """Whether the unfinished frame is the beginning of a TLS record."""
        return int.from_bytes(self._rest[:2], "big") in _TLS_RECORDS

    def _refused(self, size: int) -> FrameError:
        if size >> 16 in _TLS_RECORDS:
            return FrameError(SPEAKS_TLS)
        if size > 0x7FFFFFFF:
            return FrameError(f"frame of size {size - (1 << 32)}")
        return FrameTooLarge(size, self.max_frame_bytes)

    def _large_space(self) -> memoryview:
        """The same for a frame that does not fit the shared buffer: to its end, or as far as it is trusted."""
        filled = self._filled = self.pending
        large = self._large
        size = int.from_bytes(self._rest[:4] if large is None else large[:4], "big") + 4
        if large is None and size > filled and self._most_bytes is not None:
            most = self._most_bytes(int.from_bytes(self._rest[4:6], "big", signed=True))
            if most is not None and size - 4 > most:
                self._fault = FrameTooLarge(size - 4, most)
                raise self._fault
        if large is None or filled == len(large):
            # Complete frames that were not taken yet may fill the space, too.
            trusted = max(SERVER_TRUST_BYTES if self._is_trusting else TRUST_BYTES, 2 * filled)
            fresh = self.buffers.take(min(size, trusted) if size > filled else 2 * filled, size, large)
            if fresh is None:
                return _NOTHING
            fresh[:filled] = self._rest if large is None else large
            if large is not None:
                self.buffers.give_back(large)
            large = self._large = fresh
            self._rest = b""
        self._view = large
        return large[filled : size if filled < size < len(large) else len(large)]
