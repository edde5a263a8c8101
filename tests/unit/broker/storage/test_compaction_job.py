"""The job that compacts logs in the background: it starts by itself, and continues after pauses and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.storage.compaction import CompactionJob
from odradek.wire.errors import ErrorCode, KafkaError


class Cleaner:
    """Names the logs that a test makes dirty; each is clean when it was compacted once."""

    def __init__(self) -> None:
        self.dirty: list[Any] = []
        self.offered: list[list[str]] = []
        self.cleaned: list[str] = []
        self.failures: list[Exception] = []
        self.map_bytes = 0
        self.rounds = 0

    def retry_failed(self) -> None:
        self.rounds += 1

    def dirtiest(self, candidates: list[tuple[Any, int]], _: int) -> tuple[Any, None] | None:
        self.offered.append([log.topic for log, _ in candidates])
        return (self.dirty[0], None) if self.dirty else None

    async def clean(self, log: Any, _cleanable: Any, _now_ms: int, map_bytes: int, *_: Any) -> Any:
        self.map_bytes = map_bytes
        if self.failures:
            raise self.failures.pop(0)
        self.dirty.remove(log)
        self.cleaned.append(log.topic)
        outcome = SimpleNamespace(end_offset=1, keys=1, kept_bytes=1, read_bytes=1)
        return SimpleNamespace(from_offset=0, outcome=outcome)


def log_named(topic: str, *, compact: bool = True, is_offline: bool = False) -> Any:
    return SimpleNamespace(topic=topic, partition=0, config=SimpleNamespace(compact=compact), is_offline=is_offline)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


def start(cleaner: Cleaner, *logs: Any, **settings: str) -> tuple[CompactionJob, BrokerConfig]:
    values = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig({"node.id": "1", "log.cleaner.backoff.ms": "1", **values})
    partitions = SimpleNamespace(opened=lambda: [SimpleNamespace(log=log, last_stable_offset=1) for log in logs])
    clock = SimpleNamespace(now_ms=lambda: 1, monotonic=lambda: 1.0)
    job = CompactionJob(config, cast("Any", partitions), cast("Any", cleaner), cast("Any", clock))
    job.start()
    return job, config


def test_dirty_logs_are_compacted_in_the_background() -> None:
    async def scenario() -> None:
        cleaner = Cleaner()
        logs = [log_named("a"), log_named("b")]
        job, _ = start(cleaner, *logs)
        cleaner.dirty += logs
        await wait_until(lambda: cleaner.cleaned == ["a", "b"])
        cleaner.dirty.append(logs[0])
        await wait_until(lambda: cleaner.cleaned == ["a", "b", "a"])
        await job.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "failure", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk has failed"), ZeroDivisionError("a mistake")]
)
def test_compaction_continues_after_a_failure(failure: Exception) -> None:
    async def scenario() -> None:
        cleaner = Cleaner()
        cleaner.failures.append(failure)
        log = log_named("a")
        cleaner.dirty.append(log)
        job, _ = start(cleaner, log)
        await wait_until(lambda: cleaner.cleaned == ["a"] and cleaner.rounds > 0)
        await job.stop()

    asyncio.run(scenario())


def test_only_online_logs_with_compaction_are_candidates() -> None:
    async def scenario() -> None:
        cleaner = Cleaner()
        job, _ = start(cleaner, log_named("a"), log_named("b", compact=False), log_named("c", is_offline=True))
        await wait_until(lambda: bool(cleaner.offered))
        assert cleaner.offered[0] == ["a"]
        await job.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(("threads", "enabled", "tasks"), [("3", "true", 3), ("1", "true", 1), ("3", "false", 0)])
def test_number_of_workers_is_the_setting(threads: str, enabled: str, tasks: int) -> None:
    async def scenario() -> int:
        job, _ = start(Cleaner(), log_cleaner_threads=threads, log_cleaner_enable=enabled)
        count = sum(task.get_name().startswith("cleaner ") for task in asyncio.all_tasks())
        await job.stop()
        return count

    assert asyncio.run(scenario()) == tasks


def test_stopped_job_leaves_no_task() -> None:
    async def scenario() -> None:
        job, _ = start(Cleaner())
        await asyncio.sleep(0)
        await job.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


@pytest.mark.parametrize(("threads", "share"), [("1", 12_000_000), ("3", 4_000_000)])
def test_workers_share_the_memory_for_keys(threads: str, share: int) -> None:
    async def scenario() -> int:
        cleaner = Cleaner()
        log = log_named("a")
        cleaner.dirty.append(log)
        size = {"log_cleaner_dedupe_buffer_size": "12000000"}
        job, _ = start(cleaner, log, log_cleaner_threads=threads, **size)
        await wait_until(lambda: cleaner.cleaned == ["a"])
        await job.stop()
        return cleaner.map_bytes

    assert asyncio.run(scenario()) == share


class Ratios(Cleaner):
    """As `Cleaner`, for logs that are dirty to a degree; `busy` ones are being cleaned by another worker."""

    def __init__(self, degrees: dict[str, float]) -> None:
        super().__init__()
        self.degrees = degrees
        self.busy: set[str] = set()

    def dirtiest(self, candidates: list[tuple[Any, int]], _: int) -> Any:
        self.offered.append([log.topic for log, _ in candidates])
        found = [log for log, _ in candidates if log.topic in self.degrees and log.topic not in self.busy]
        if not found:
            return None
        log = max(found, key=lambda each: self.degrees[each.topic])
        return log, SimpleNamespace(ratio=self.degrees[log.topic])

    async def clean(self, log: Any, *_: Any) -> Any:
        self.cleaned.append(log.topic)
        outcome = SimpleNamespace(end_offset=1, keys=1, kept_bytes=1, read_bytes=1)
        return SimpleNamespace(from_offset=0, outcome=outcome)


def job_of(cleaner: Cleaner, logs: list[Any]) -> CompactionJob:
    partitions = SimpleNamespace(opened=lambda: [SimpleNamespace(log=log, last_stable_offset=1) for log in logs])
    clock = SimpleNamespace(now_ms=lambda: 1, monotonic=lambda: 1.0)
    return CompactionJob(
        BrokerConfig({"node.id": "1"}), cast("Any", partitions), cast("Any", cleaner), cast("Any", clock)
    )


@pytest.mark.parametrize("place", [0, 1_200, 2_499])
def test_dirtiest_of_thousands_of_logs_is_compacted_wherever_it_is(place: int) -> None:
    logs = [log_named(f"t{number}") for number in range(2_500)]
    cleaner = Ratios({"t7": 0.6, "t1500": 0.7, "t2400": 0.5, f"t{place}": 0.9})
    assert asyncio.run(job_of(cleaner, logs).clean_one())
    assert cleaner.cleaned == [f"t{place}"]
    assert max(map(len, cleaner.offered)) == 1_000


def test_log_that_another_worker_took_meanwhile_is_not_compacted_twice() -> None:
    async def scenario() -> None:
        logs = [log_named(f"t{number}") for number in range(2_500)]
        cleaner = Ratios({"t7": 0.9})
        job = asyncio.ensure_future(job_of(cleaner, logs).clean_one())
        await asyncio.sleep(0)
        cleaner.busy.add("t7")
        assert not await job
        assert cleaner.cleaned == []
        assert cleaner.offered[-1] == ["t7"]

    asyncio.run(scenario())
