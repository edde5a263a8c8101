"""Frames of a worker's standard input and output, and the limit of its memory."""

from __future__ import annotations

import resource
import struct
from typing import BinaryIO, Final

MAX_BYTES: Final = 2 * 1024**3
"""Address space of a worker: input that makes large values fails."""
LENGTH: Final = struct.Struct(">I")
"""The length that precedes each frame."""


def limit_memory() -> None:
    """Let the process fail instead of using more memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None at the end."""
    head = stream.read(LENGTH.size)
    return None if len(head) < LENGTH.size else stream.read(LENGTH.unpack(head)[0])


def write_frame(stream: BinaryIO, data: bytes) -> None:
    """Send a frame."""
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()
