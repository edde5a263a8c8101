"""Standard output and standard error whose reader may have gone: `head` and `less` close a pipe early."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO, Any, cast


def write_bytes(data: bytes) -> None:
    """Write all bytes to standard output. Raises OSError.

    With PYTHONUNBUFFERED a stream writes to its file directly. It then takes a part of the bytes without an error where
    the reader goes away meanwhile; only the attempt to write the rest raises.
    """
    out = sys.stdout.buffer
    rest = memoryview(data)
    while rest:
        rest = rest[out.write(rest) :]
    out.flush()


def complain(line: str) -> None:
    """Print a line on standard error, if it has a reader."""
    try:
        print(line, file=sys.stderr, flush=True)
    except BrokenPipeError:
        drop_unread()


def drop_unread() -> None:
    """Send what a stream buffers and cannot write to the null device, so that nothing fails at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            discard(stream)


@contextlib.contextmanager
def output_without_reader_dropped() -> Iterator[None]:
    """Let a command complete its work without the reader of its standard output: what it prints is then dropped."""
    with contextlib.redirect_stdout(cast("IO[str]", _Optional(sys.stdout))):
        yield


def has_lost_reader() -> bool:
    """Whether output is dropped because its reader has gone: what repeats for ever may end."""
    return isinstance(sys.stdout, _Optional) and sys.stdout.is_dropped


class _Optional:
    """Standard output until its reader has gone."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.is_dropped = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        self.is_dropped = True
        discard(self._stream)


def discard(stream: Any) -> None:
    """Connect the file of a stream to the null device: what is written from now on is dropped."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
