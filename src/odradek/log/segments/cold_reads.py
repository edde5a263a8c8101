"""Reading ahead what is not in the page cache, so that `sendfile` never waits for the device on the event loop.

Apache Kafka's network threads do wait there (KAFKA-7504): one consumer that lags stalls every client of its thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from odradek.ports.disk import FileRange

LANE: Final = "cold reads"
"""The lane of `Disk.run` that reads ahead; its own, because appends and syncs must not queue behind it."""

RECENT_BYTES: Final = 1 << 20
_CHUNK: Final = 1 << 18


def cold_ranges(ranges: Iterable[FileRange]) -> list[FileRange]:
    """Those that would have to be read from the device. What lies in the last megabyte of a file counts as recent."""
    # A comprehension is a call of its own in Python 3.11, and most fetches have one range.
    cold = []
    for part in ranges:
        file, position, size = part
        if file.size() - position > RECENT_BYTES and not file.is_cached(position, size):
            cold.append(part)
    return cold


def read_ahead(ranges: Iterable[FileRange]) -> None:
    """Bring the ranges into the page cache; blocks. A range that cannot be read is left to the one who sends it."""
    for part in ranges:
        end = part.position + part.size
        for position in range(part.position, end, _CHUNK):
            try:
                part.file.read(position, min(_CHUNK, end - position))
            except OSError:
                break
