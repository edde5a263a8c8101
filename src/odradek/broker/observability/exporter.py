"""A scrape: all collectors' families as text, made in slices so that the event loop is never held for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Final

from odradek.broker.observability.http_messages import HttpRequest, HttpResponse
from odradek.metrics.definition import Collector, Family, counter, gauge, single
from odradek.metrics.exposition import TextFormat, accepted_format, portions

SLICE_SECONDS: Final = 0.0005
"""The event loop serves others after this time; one step more may come on top."""

_PORTIONS: Final = 16
"""Portions that make a part of an answer: some 64 KB."""

SCRAPES: Final = counter("odradek_scrapes", "Scrapes that were answered, without this one")
SCRAPE_SECONDS: Final = gauge("odradek_last_scrape_seconds", "How long the previous scrape took, pauses included")
LONGEST_HOLD: Final = gauge(
    "odradek_last_scrape_longest_hold_seconds", "For how long the previous scrape held the event loop at a time"
)
LONGEST_CPU: Final = gauge(
    "odradek_last_scrape_longest_hold_cpu_seconds",
    "The same in processor time of the event loop's thread: without what the machine did meanwhile for other threads",
)

OWN_METRICS: Final = (SCRAPES, SCRAPE_SECONDS, LONGEST_HOLD, LONGEST_CPU)
"""What the exporter says of itself."""


class Exporter:
    """Answers `GET /metrics`."""

    __slots__ = (
        "_collectors",
        "_cpu_s",
        "_longest_cpu_s",
        "_longest_hold_s",
        "_now",
        "_prepare",
        "_scrapes",
        "_took_s",
    )

    def __init__(
        self,
        collectors: Sequence[Collector],
        now: Callable[[], float],
        cpu_s: Callable[[], float],
        prepare: Callable[[], Awaitable[None]],
    ) -> None:
        """`now` is a monotonic clock and `cpu_s` the processor time of the loop's thread, both in seconds.

        `prepare` is awaited before each scrape.
        """
        self._collectors = collectors
        self._now = now
        self._cpu_s = cpu_s
        self._prepare = prepare
        self._scrapes = 0
        self._took_s = 0.0
        self._longest_hold_s = 0.0
        self._longest_cpu_s = 0.0

    def _families(self, names: Sequence[str]) -> Iterator[Family | None]:
        if names:
            yield from self._named(frozenset(names))
            return
        for collector in self._collectors:
            yield from collector.collect()
            yield None
        yield single(SCRAPES, self._scrapes)
        yield single(SCRAPE_SECONDS, self._took_s)
        yield single(LONGEST_HOLD, self._longest_hold_s)
        yield single(LONGEST_CPU, self._longest_cpu_s)

    def _named(self, names: Collection[str]) -> Iterator[Family | None]:
        for collector in self._collectors:
            # A collector without a wanted family does no work.
            if not any(metric.sample_name in names for metric in collector.metrics):
                continue
            for family in collector.collect():
                yield family if family is not None and family.metric.sample_name in names else None

    async def text(self, text_format: TextFormat, names: Sequence[str] = ()) -> list[bytes]:
        """The answer's parts: of all families, or of those with these names."""
        now, cpu_s = self._now, self._cpu_s
        began = now()
        await self._prepare()
        resumed, used = now(), cpu_s()
        longest = longest_cpu = 0.0
        parts: list[bytes] = []
        text: list[str] = []
        for portion in portions(self._families(names), text_format):
            if portion:
                text.append(portion)
                if len(text) == _PORTIONS:
                    parts.append("".join(text).encode())
                    text.clear()
            held = now() - resumed
            if held >= SLICE_SECONDS:
                longest, longest_cpu = max(longest, held), max(longest_cpu, cpu_s() - used)
                await asyncio.sleep(0)
                resumed, used = now(), cpu_s()
        parts.append("".join(text).encode())
        self._scrapes += 1
        self._took_s = now() - began
        self._longest_hold_s = max(longest, now() - resumed)
        self._longest_cpu_s = max(longest_cpu, cpu_s() - used)
        return parts

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Serve the path."""
        text_format = accepted_format(request.headers.get("accept", ""))
        return HttpResponse(200, text_format.value, await self.text(text_format, request.query.get("name[]", ())))
