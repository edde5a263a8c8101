"""Reads records for pages and searches, masked, within bounds of records, bytes and time."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from odradek.client.consumer.consumer import Consumer
from odradek.console.messages.filters import ExpressionFilter, RecordFilter, TextFilter
from odradek.console.messages.masks import Masks, RawRecord
from odradek.console.messages.query import MessageQuery, QueryError
from odradek.console.messages.schema_decoding import Decoders, Origin, RecordPlace
from odradek.console.messages.schemas import Schemas
from odradek.records.topic_partition import TopicPartition

PAGE_S: Final = 8.0
"""Limit for a page of records."""
SEARCH_S: Final = 120.0
"""Limit for a search."""
LIVE_S: Final = 3600.0
"""Limit for a view of new records."""
MAX_SCANNED: Final = 2_000_000
MAX_BYTES: Final = 2 * 1024**3
_POLL_MS: Final = 250
_POLL_RECORDS: Final = 500
_WINDOW: Final = 250
"""Offsets of each partition that a search from the newest record reads at once: a hit in it is shown soon."""
_WINDOW_GROWTH: Final = 4
_LARGEST_WINDOW: Final = 100_000

Offsets = Mapping[TopicPartition, int]


class Progress(NamedTuple):
    """The amount read so far, and the records that were found since the last progress."""

    found: list[RawRecord]
    scanned: int
    scanned_bytes: int
    failed: int
    why: str
    end: str = ""
    """Why the reading ended; empty while it continues."""
    origins: Mapping[RecordPlace, Origin] = {}
    """The schemas and formats of the records found."""


class _Bounds:
    """Counts what is read. `end` is the reason to stop."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._began = time.monotonic()
        self.scanned = 0
        self.scanned_bytes = 0

    def count(self, records: list[RawRecord]) -> None:
        self.scanned += len(records)
        self.scanned_bytes += sum(len(each.value or b"") + len(each.key or b"") for each in records)

    @property
    def end(self) -> str:
        if time.monotonic() - self._began > self._limit_s:
            return f"Stopped after {self._limit_s:g} s."
        if self.scanned >= MAX_SCANNED:
            return f"Stopped after {MAX_SCANNED} records."
        if self.scanned_bytes >= MAX_BYTES:
            return f"Stopped after {MAX_BYTES} bytes."
        return ""


def consumer_options(options: Mapping[str, Any], query: MessageQuery) -> dict[str, Any]:
    """Options of a consumer without a group, with small buffers."""
    return {
        **options,
        "enable_auto_commit": False,
        "allow_auto_create_topics": False,
        "auto_offset_reset": "earliest",
        "max_poll_records": _POLL_RECORDS,
        "max_partition_fetch_bytes": 256 * 1024,
        "fetch_max_bytes": 4 * 1024 * 1024,
        "isolation_level": "read_committed" if query.committed else "read_uncommitted",
    }


class Readers(NamedTuple):
    """What the console does with every record: schemas decode it, then masks hide parts of it."""

    masks: Masks
    schemas: Schemas


RAW: Final = Readers(Masks(), Schemas())
"""Records as they are stored."""


async def read(
    options: Mapping[str, Any], topic: str, query: MessageQuery, readers: Readers
) -> AsyncGenerator[Progress, None]:
    """Records that the query asks for, as they are found. The last progress has a reason for the end.

    Raises QueryError, FilterError, KafkaError, ClientError.
    """
    limit_s = LIVE_S if query.start == "live" else SEARCH_S if query.expression else PAGE_S
    bounds = _Bounds(limit_s)
    async with AsyncExitStack() as stack:
        chosen = await _filter(stack, query)
        consumer: Consumer[bytes, bytes] = await stack.enter_async_context(Consumer(**consumer_options(options, query)))
        known = [each.partition for each in await consumer.partitions_for(topic)]
        if query.partition is not None and query.partition not in known:
            raise QueryError(f"The topic has no partition {query.partition}.")
        wanted = known if query.partition is None else [query.partition]
        places = [TopicPartition(topic, each) for each in wanted]
        consumer.assign(places)
        schemas = readers.schemas.for_topic(topic) if query.is_decoded else None
        decoders = None if schemas is None else await stack.enter_async_context(Decoders(schemas))
        reading = _Reading(consumer, query, readers.masks, decoders, chosen, bounds)
        if chosen is not None:
            await chosen.wait_until_ready()
        windows = reading.newest(places) if query.start == "newest" else reading.forward(places)
        async for progress in windows:
            yield progress


async def _filter(stack: AsyncExitStack, query: MessageQuery) -> RecordFilter | None:
    if not query.expression:
        return None
    if query.filter == "text":
        return TextFilter(query.expression)
    return await stack.enter_async_context(ExpressionFilter(query.filter, query.expression))


class _Reading:
    """One reading of a query."""

    def __init__(
        self,
        consumer: Consumer[Any, Any],
        query: MessageQuery,
        masks: Masks,
        decoders: Decoders | None,
        chosen: RecordFilter | None,
        bounds: _Bounds,
    ) -> None:
        self._consumer = consumer
        self._query = query
        self._masks = masks
        self._decoders = decoders
        self._chosen = chosen
        self._bounds = bounds
        self._left = query.limit
        self._read: Mapping[RecordPlace, Origin] = {}
        self._origins: dict[RecordPlace, Origin] = {}

    async def forward(self, places: list[TopicPartition]) -> AsyncGenerator[Progress, None]:
        """From a start on: to the end as it is now, or without an end for new records."""
        consumer, query = self._consumer, self._query
        ends = await consumer.end_offsets(places)
        starts = await self._starts(places, ends)
        is_live = query.start == "live"
        async for records in self._between(starts, None if is_live else ends):
            found = (await self._select(records))[: None if is_live else self._left]
            self._left -= len(found)
            if not is_live and self._left <= 0:
                yield self._progress(found, f"{query.limit} records found; there may be more.")
                return
            yield self._progress(found)
        yield self._progress([], self._bounds.end or "All records were read.")

    async def newest(self, places: list[TopicPartition]) -> AsyncGenerator[Progress, None]:
        """From the newest record back, in windows that grow; each window is sorted by time."""
        consumer, query = self._consumer, self._query
        starts, ends = await consumer.beginning_offsets(places), await consumer.end_offsets(places)
        window = _WINDOW if self._chosen is not None else query.limit
        while any(ends[place] > starts[place] for place in places):
            lower = {place: max(starts[place], ends[place] - window) for place in places}
            found: list[RawRecord] = []
            async for records in self._between(lower, ends):
                found += await self._select(records)
                yield self._progress([])
            found.sort(key=lambda each: (each.timestamp, each.offset), reverse=True)
            found = found[: self._left]
            self._left -= len(found)
            if self._left <= 0 or self._bounds.end:
                reason = f"{query.limit} records found; there may be more." if self._left <= 0 else self._bounds.end
                yield self._progress(found, reason)
                return
            yield self._progress(found)
            ends = lower
            window = min(window * _WINDOW_GROWTH, _LARGEST_WINDOW)
        yield self._progress([], "All records were read.")

    async def _between(self, starts: Offsets, ends: Offsets | None) -> AsyncGenerator[list[RawRecord], None]:
        """Masked records from the starts to the ends, in lists as they arrive."""
        consumer, bounds = self._consumer, self._bounds
        is_open = {place for place in starts if ends is None or starts[place] < ends[place]}
        consumer.pause([place for place in starts if place not in is_open])
        consumer.resume(is_open)
        for place, offset in starts.items():
            consumer.seek(place, offset)
        while is_open and not bounds.end:
            records = await consumer.poll(_POLL_MS)
            bounds.count(records)
            if ends is not None:
                records = [each for each in records if each.offset < ends[each.topic_partition]]
                positions = consumer.positions()
                done = {place for place in is_open if place in positions and positions[place].offset >= ends[place]}
                consumer.pause(done)
                is_open -= done
            if self._decoders is not None:
                # Before the masks: they hide fields of the decoded document.
                records, self._read = await self._decoders.decode(records)
            yield [self._masks.apply(each) for each in records]

    async def _starts(self, places: list[TopicPartition], ends: Offsets) -> Offsets:
        consumer, query = self._consumer, self._query
        if query.start == "live":
            return ends
        starts = await consumer.beginning_offsets(places)
        if query.start == "offset":
            return {place: min(max(query.offset, starts[place]), ends[place]) for place in places}
        if query.start == "time":
            times = await consumer.offsets_for_times(dict.fromkeys(places, query.time_ms))
            return {place: ends[place] if at is None else at.offset for place, at in times.items()}
        return starts

    async def _select(self, records: list[RawRecord]) -> list[RawRecord]:
        found = records if self._chosen is None else await self._chosen.select(records)
        places = [(each.partition, each.offset) for each in found]
        self._origins |= {place: self._read[place] for place in places if place in self._read}
        return found

    def _progress(self, found: list[RawRecord], end: str = "") -> Progress:
        failed, why = (0, "") if self._chosen is None else (self._chosen.failed, self._chosen.why)
        places = [(each.partition, each.offset) for each in found]
        origins = {place: self._origins.pop(place) for place in places if place in self._origins}
        return Progress(found, self._bounds.scanned, self._bounds.scanned_bytes, failed, why, end, origins)
