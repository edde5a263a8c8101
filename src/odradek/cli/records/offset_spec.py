"""Where `odradek consume --offset` begins and ends: Apache's numbers and words, and rpk's ranges and times."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.cli.arguments.errors import UsageError
from odradek.cli.records.times import timestamp_ms

if TYPE_CHECKING:
    from odradek.client.consumer.consumer import Consumer
    from odradek.records.topic_partition import TopicPartition

_WORDS: Final = {
    "earliest": "start", "beginning": "start", "start": "start", "oldest": "start",
    "latest": "end", "end": "end", "newest": "end",
}  # fmt: skip
_NUMBER: Final = re.compile(r"[+-]?\d+")


class Point(NamedTuple):
    """kind: start, end, at (an offset), after_start, before_end (a number of records), time (ms since the epoch)."""

    kind: str
    number: int = 0


class OffsetRange(NamedTuple):
    """From a point up to (without) another, at most to the end of what is there now; without an end for ever."""

    start: Point
    end: Point | None


START: Final = Point("start")
END: Final = Point("end")


def parse_range(text: str, now_ms: int) -> OffsetRange:
    """`earliest`, `5`, `-10` (the last ten), `+10`, `@-1h`, `@2026-01-31`, `5:9`, `start:end`, `:end`, `@…:@…`.

    Raises UsageError.
    """
    whole = _point(text, now_ms)
    if whole is not None:
        return OffsetRange(whole, None)
    for at, character in enumerate(text):
        if character != ":":
            continue
        start = START if at == 0 else _point(text[:at], now_ms)
        end = END if at == len(text) - 1 else _point(text[at + 1 :], now_ms)
        if start is not None and end is not None:
            if start.kind == end.kind == "at" and start.number > end.number:
                raise UsageError(f"--offset {text}: it ends before it begins")
            return OffsetRange(start, end)
    raise UsageError(f"--offset {text}: an offset, earliest, latest, -10, +10, @TIME or FROM:TO expected")


def _point(text: str, now_ms: int) -> Point | None:
    if text in _WORDS:
        return Point(_WORDS[text])
    if _NUMBER.fullmatch(text):
        kind = {"-": "before_end", "+": "after_start"}.get(text[0], "at")
        return Point(kind, abs(int(text)))
    if text.startswith("@"):
        try:
            return Point("time", timestamp_ms(text[1:], now_ms))
        except UsageError:
            return None
    return None


async def resolve(consumer: Consumer, partitions: Iterable[TopicPartition], point: Point) -> dict[TopicPartition, int]:
    """The offsets of a point, none outside of its partition's log. Raises KafkaError, CallTimedOut."""
    wanted = list(partitions)
    if point.kind == "start":
        return await consumer.beginning_offsets(wanted)
    ends = await consumer.end_offsets(wanted)
    if point.kind == "end":
        return ends
    if point.kind == "time":
        times = await consumer.offsets_for_times(dict.fromkeys(wanted, point.number))
        return {key: ends[key] if found is None else found.offset for key, found in times.items()}
    starts = await consumer.beginning_offsets(wanted)
    if point.kind == "before_end":
        found = {key: end - point.number for key, end in ends.items()}
    elif point.kind == "after_start":
        found = {key: start + point.number for key, start in starts.items()}
    else:
        found = dict.fromkeys(wanted, point.number)
    return {key: min(max(offset, starts[key]), ends[key]) for key, offset in found.items()}
