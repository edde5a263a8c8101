"""Jobs that are stopped while they are given work."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.storage.background import BackgroundJobs
from odradek.log.config import LogConfig
from odradek.log.directories.events import DirectoryEvents


class Directories:
    """Log directories without a log, whose work wakes the job that does it."""

    def __init__(self) -> None:
        self.worked = 0
        self.events = DirectoryEvents()
        self.flusher = self

    async def work(self, now_ms: int) -> int:
        self.worked += 1
        return now_ms + 3_600_000


def jobs_of(directories: Directories) -> BackgroundJobs:
    config = SimpleNamespace(number=lambda _: 3_600_000, flag=lambda _: False, on_change=lambda *_: None)
    partitions = SimpleNamespace(opened=lambda: ())
    clock = SimpleNamespace(now_ms=lambda: 1_000, monotonic=lambda: 1.0)
    return BackgroundJobs(
        cast("Any", config),
        cast("Any", partitions),
        cast("Any", directories),
        cast("Any", None),
        cast("Any", None),
        cast("Any", clock),
    )


@pytest.mark.parametrize("turns", range(6))
def test_work_that_comes_with_the_end_does_not_outlive_it(turns: int) -> None:
    """Found by the simulator (txn-500073): the cancellation was lost with the wake-up, and the broker never stopped."""

    async def scenario() -> None:
        directories = Directories()
        jobs = jobs_of(directories)
        jobs.start()
        while not directories.worked:
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        directories.events.work_is_due()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await jobs.stop()

    asyncio.run(scenario())


def test_a_log_is_synced_in_time_though_the_wall_clock_jumps_back() -> None:
    durability = SimpleNamespace(is_dirty=True)
    log = SimpleNamespace(end_offset=1, durability=durability, is_offline=False, config=SimpleNamespace(flush_ms=500))
    partition = SimpleNamespace(topic="t", index=0, log=log)
    clock: Any = SimpleNamespace(wall=10_000_000, passed=5.0, now_ms=lambda: clock.wall, monotonic=lambda: clock.passed)
    flushed: list[Any] = []

    async def flush(found: Any, end_offset: int) -> None:
        flushed.append(found)

    jobs = BackgroundJobs(
        cast("Any", SimpleNamespace(number=lambda _: 3_600_000, flag=lambda _: False, on_change=lambda *_: None)),
        cast("Any", SimpleNamespace(opened=lambda: (partition,))),
        cast("Any", SimpleNamespace(flusher=SimpleNamespace(flush=flush), events=DirectoryEvents())),
        cast("Any", None),
        cast("Any", None),
        cast("Any", clock),
    )
    asyncio.run(jobs.flush_due())
    clock.wall, clock.passed = 0, 5.4
    asyncio.run(jobs.flush_due())
    assert flushed == []
    clock.passed = 5.6
    asyncio.run(jobs.flush_due())
    assert flushed == [durability]


async def delete_while_others_are_served(jobs: BackgroundJobs, seen: list[str]) -> None:
    """One run of retention; each turn of the loop meanwhile adds "served"."""
    job = asyncio.ensure_future(jobs.delete_old_segments())
    while not job.done():
        await asyncio.sleep(0)
        seen.append("served")
    job.result()


def test_retention_lets_others_be_served_between_deletions() -> None:
    async def scenario() -> None:
        seen: list[str] = []
        left = [32, 32, 0]

        def delete(_now_ms: int, _high_watermark: int) -> int:
            seen.append("deleted")
            return left.pop(0)

        producers = SimpleNamespace(remove_expired=lambda *_: [])
        history = SimpleNamespace(producers=producers)
        log = SimpleNamespace(is_offline=False, history=history, delete_old_segments=delete)
        jobs = jobs_of(Directories())
        jobs._partitions = cast("Any", SimpleNamespace(opened=lambda: [SimpleNamespace(log=log, high_watermark=9)]))
        jobs._directories = cast("Any", SimpleNamespace(unopened=lambda: ()))

        async def run(*_: object) -> tuple[()]:
            return ()

        jobs._disk = cast("Any", SimpleNamespace(run=run))
        await delete_while_others_are_served(jobs, seen)
        assert [each for each, _ in itertools.groupby(seen)].count("deleted") == 3

    asyncio.run(scenario())


def test_producers_expire_by_the_setting_of_the_moment() -> None:
    async def scenario() -> None:
        asked: list[tuple[int, int]] = []
        settings = {"producer.id.expiration.ms": 7}
        producers = SimpleNamespace(remove_expired=lambda *times: asked.append(times))
        log = SimpleNamespace(
            is_offline=False, history=SimpleNamespace(producers=producers), delete_old_segments=lambda *_: 0
        )
        jobs = jobs_of(Directories())
        jobs._config = cast("Any", SimpleNamespace(number=settings.__getitem__))
        jobs._partitions = cast("Any", SimpleNamespace(opened=lambda: [SimpleNamespace(log=log, high_watermark=9)]))
        jobs._directories = cast("Any", SimpleNamespace(unopened=lambda: ()))

        async def run(*_: object) -> tuple[()]:
            return ()

        jobs._disk = cast("Any", SimpleNamespace(run=run))
        await jobs.delete_old_segments()
        settings["producer.id.expiration.ms"] = 9
        await jobs.delete_old_segments()
        assert asked == [(1_000, 7), (1_000, 9)]

    asyncio.run(scenario())


def test_retention_lets_others_be_served_between_looks_at_unopened_logs() -> None:
    async def scenario() -> None:
        seen: list[str] = []

        def unopened() -> Iterator[tuple[str, int, str, None]]:
            for index in range(2_500):
                seen.append("looked")
                yield "t", index, f"/t-{index}", None

        async def run(_lane: str, _survey: object, _disk: object, wanted: list[object], _now_ms: int) -> tuple[()]:
            assert len(wanted) == 2_500
            return ()

        jobs = jobs_of(Directories())
        jobs._partitions = cast("Any", SimpleNamespace(opened=list, settings_of=lambda _: LogConfig()))
        jobs._directories = cast("Any", SimpleNamespace(unopened=unopened))
        jobs._disk = cast("Any", SimpleNamespace(run=run))
        await delete_while_others_are_served(jobs, seen)
        assert [each for each, _ in itertools.groupby(seen)].count("looked") == 3

    asyncio.run(scenario())


def test_checkpoint_leaves_out_a_partition_that_was_recreated_meanwhile() -> None:
    """The high watermark of the old one would be that of the new one after a crash."""

    async def scenario() -> None:
        old = {("t", index): SimpleNamespace(topic="t", index=index, high_watermark=9) for index in range(1_500)}
        now = dict(old)
        noted: dict[tuple[str, int], int] = {}

        async def persist_all() -> None:
            assert len(noted) == 1_499

        jobs = jobs_of(Directories())
        jobs._partitions = cast(
            "Any",
            SimpleNamespace(
                opened=lambda: list(now.values()), opened_partition=lambda topic, index: now.get((topic, index))
            ),
        )
        checkpoints = SimpleNamespace(note_watermarks=noted.update, persist_all=persist_all)
        jobs._directories = cast("Any", SimpleNamespace(checkpoints=checkpoints))
        job = asyncio.ensure_future(jobs.checkpoint())
        await asyncio.sleep(0)
        assert len(noted) == 1_000
        now["t", 1_400] = SimpleNamespace(topic="t", index=1_400, high_watermark=0)
        await job
        assert ("t", 1_400) not in noted

    asyncio.run(scenario())
