"""Reading a coordinator's partition from its log start to its log end (Kafka's CoordinatorLoader)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from odradek.records.batch import BatchHeader, parse_header
from odradek.records.errors import CorruptRecords
from odradek.records.record import Record, decode_records
from odradek.replication.partition import Partition
from odradek.wire.errors import KafkaError
from odradek.wire.primitives import DecodeError

_SLICE_RECORDS = 500
"""Records replayed before the event loop gets its turn: a few milliseconds' worth."""


class CoordinatorLoader:
    """Reads the log up to the end that it had when loading began, one slice per turn of the event loop.

    Calls `replay(header, records)` for each batch, then `on_loaded(None)`. If the log is unreadable, it calls
    `on_loaded(error)`.
    """

    __slots__ = ("_cancelled", "_end_offset", "_loop", "_offset", "_on_loaded", "_parts", "_replay")

    def __init__(
        self,
        replay: Callable[[BatchHeader, list[Record]], None],
        on_loaded: Callable[[Exception | None], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._replay = replay
        self._on_loaded = on_loaded
        self._loop = loop
        self._offset = self._end_offset = 0
        self._parts: deque[tuple[BatchHeader, list[Record]]] = deque()
        """Records of the batches up to `_offset` that are not replayed yet."""
        self._cancelled = False

    def start(self, partition: Partition) -> None:
        """Load the partition; writes that are queued for the disk belong to it."""
        log = partition.log
        log.durability.when_written(log.next_offset - 1, partial(self._begin, partition))

    def _begin(self, partition: Partition) -> None:
        log = partition.log
        self._offset, self._end_offset = log.log_start_offset, log.end_offset
        self._load_slice(partition)

    def cancel(self) -> None:
        """Replay nothing more and report nothing."""
        self._cancelled = True

    def _load_slice(self, partition: Partition) -> None:
        if self._cancelled:
            return
        budget = _SLICE_RECORDS
        parts = self._parts
        # A new iterator in each turn: compaction may have replaced the segments that were read last.
        views = partition.log.reader.read_batches(self._offset, self._end_offset)
        try:
            while budget > 0:
                while not parts:
                    view = next(views, None)
                    if view is None:
                        self._on_loaded(None)
                        return
                    self._split(view)
                header, records = parts.popleft()
                self._replay(header, records)
                budget -= len(records) + 1
        except (DecodeError, CorruptRecords, KafkaError) as error:
            self._on_loaded(error)
            return
        self._loop.call_soon(self._load_slice, partition)

    def _split(self, view: memoryview) -> None:
        """Decode the batches of a view; the records of a large batch become several parts."""
        position = 0
        while position < len(view):
            header = parse_header(view, position)
            records = decode_records(view, header, position, copy=True)
            for start in range(0, max(len(records), 1), _SLICE_RECORDS):
                self._parts.append((header, records[start : start + _SLICE_RECORDS]))
            self._offset = header.last_offset + 1
            position += header.size
