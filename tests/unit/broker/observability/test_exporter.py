"""Scrapes: in slices, with the longest of them as figures of the next scrape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from odradek.broker.observability.exporter import LONGEST_CPU, LONGEST_HOLD, SLICE_SECONDS, Exporter
from odradek.metrics.definition import Family, Metric, gauge, single
from odradek.metrics.exposition import TextFormat

LARGE = gauge("large", "Many samples")
STEPS = 200
STEP_SECONDS = SLICE_SECONDS / 4


class Work:
    """Time that passes only while a collector works; half of it other threads have the processor."""

    metrics: tuple[Metric, ...] = (LARGE,)

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = 0

    def collect(self) -> Iterator[Family | None]:
        for _ in range(STEPS):
            self.now += STEP_SECONDS
            yield None
        yield single(LARGE, 1)

    def clock(self) -> float:
        return self.now

    def cpu(self) -> float:
        return self.now / 2

    async def prepare(self) -> None:
        """Nothing to learn."""

    async def count_turns(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


def scrape_twice(work: Work) -> dict[str, float]:
    """The samples of the second scrape."""

    async def scraped() -> str:
        exporter = Exporter((work,), work.clock, work.cpu, work.prepare)
        others = asyncio.create_task(work.count_turns())
        await exporter.text(TextFormat.PROMETHEUS)
        text = b"".join(await exporter.text(TextFormat.PROMETHEUS)).decode()
        others.cancel()
        return text

    lines = [line.split() for line in asyncio.run(scraped()).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_event_loop_serves_others_between_slices() -> None:
    work = Work()
    scrape_twice(work)
    assert work.turns >= 2 * STEPS * STEP_SECONDS / (SLICE_SECONDS + STEP_SECONDS) - 2


def test_longest_hold_is_a_slice_and_the_step_that_ended_it() -> None:
    samples = scrape_twice(Work())
    assert SLICE_SECONDS <= samples[LONGEST_HOLD.name] <= SLICE_SECONDS + 1.01 * STEP_SECONDS
    assert samples[LONGEST_CPU.name] * 2 == samples[LONGEST_HOLD.name]
