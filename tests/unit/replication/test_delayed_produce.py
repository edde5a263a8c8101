"""Appends that wait: the answers when they are confirmed, can no longer be, or time out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.replication.delayed_produce import DelayedProduce
from odradek.wire.errors import ErrorCode, KafkaError


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def run() -> None:
        asyncio.run(test())

    return run


class Waiting:
    """A partition of which the test says what becomes of its appends. Everything below `end_offset` is written."""

    def __init__(self, *, end_offset: int = 10) -> None:
        self.high_watermark = 0
        self.is_leader = self.may_lead = True
        self.committed: list[Any] = []
        self.clients: list[bool] = []
        self.written: list[Any] = []
        durability = SimpleNamespace(when_written=lambda _offset, callback: self.written.append(callback))
        self.log = SimpleNamespace(end_offset=end_offset, is_offline=False, durability=durability)

    def when_committed(self, _offset: int, callback: Any, *, is_client: bool = False) -> None:
        self.committed.append(callback)
        self.clients.append(is_client)

    def commit_error(self, offset: int, otherwise: ErrorCode) -> ErrorCode:
        return ErrorCode.NONE if offset < self.high_watermark else otherwise


class Outcome:
    """What a request learned."""

    def __init__(self, *partitions: Waiting) -> None:
        self.failures: dict[int, KafkaError] = {}
        self.finished = 0
        self.delayed = DelayedProduce(
            [(each, 5) for each in partitions],  # type: ignore[misc]
            self.failures.__setitem__,
            self._finish,
        )

    def _finish(self) -> None:
        self.finished += 1


@in_loop
async def test_request_finishes_once_when_all_appends_are_committed() -> None:
    partitions = Waiting(), Waiting()
    outcome = Outcome(*partitions)
    outcome.delayed.wait_for_replicas(30_000)
    for partition in partitions:
        assert not outcome.finished
        partition.high_watermark = 6
        partition.committed[0]()
    assert (outcome.finished, outcome.failures) == (1, {})


@in_loop
async def test_append_counts_as_unconfirmed_when_its_leader_is_deposed() -> None:
    partition = Waiting()
    outcome = Outcome(partition)
    outcome.delayed.wait_for_replicas(30_000)
    partition.is_leader = False
    partition.committed[0]()
    assert outcome.failures[0].code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert outcome.failures[0].message.endswith("this broker no longer leads the partition")


@in_loop
async def test_append_times_out_when_replicas_do_not_follow() -> None:
    outcome = Outcome(Waiting())
    outcome.delayed.wait_for_replicas(0)
    while not outcome.finished:
        await asyncio.sleep(0)
    assert outcome.failures[0].code is ErrorCode.REQUEST_TIMED_OUT


@in_loop
async def test_time_begins_when_appends_are_written() -> None:
    partition = Waiting(end_offset=5)
    outcome = Outcome(partition)
    outcome.delayed.wait_for_replicas(0)
    await asyncio.sleep(0.01)
    assert not outcome.finished
    partition.log.end_offset = 6
    partition.written[0]()
    while not outcome.finished:
        await asyncio.sleep(0)


@in_loop
async def test_append_counts_as_unconfirmed_when_its_log_fails() -> None:
    partition = Waiting(end_offset=5)
    outcome = Outcome(partition)
    outcome.delayed.wait_until_written()
    partition.log.is_offline = True
    partition.written[0]()
    assert outcome.failures[0].code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert outcome.failures[0].message.endswith("the log directory failed")


@in_loop
async def test_request_that_timed_out_does_not_finish_again_when_committed() -> None:
    partition = Waiting()
    outcome = Outcome(partition)
    outcome.delayed.wait_for_replicas(0)
    while not outcome.finished:
        await asyncio.sleep(0)
    partition.high_watermark = 6
    partition.committed[0]()
    assert outcome.finished == 1
    assert outcome.failures[0].code is ErrorCode.REQUEST_TIMED_OUT


class Timers:
    """Calls that the loop owes, in place of real time."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.cancelled = 0

    def call_later(self, delay: float, _call: Callable[[], None]) -> Any:
        self.delays.append(delay)
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    found = Timers()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: found)
    return found


@pytest.mark.parametrize(("timeout_ms", "seconds"), [(1500, 1.5), (0, 0.0), (-1, 0.0)])
def test_time_of_a_request_is_in_milliseconds(timers: Timers, timeout_ms: int, seconds: float) -> None:
    Outcome(Waiting()).delayed.wait_for_replicas(timeout_ms)
    assert timers.delays == [seconds]


def test_finished_request_cancels_its_timer(timers: Timers) -> None:
    partition = Waiting()
    outcome = Outcome(partition)
    outcome.delayed.wait_for_replicas(1000)
    partition.high_watermark = 6
    partition.committed[0]()
    assert (outcome.finished, timers.cancelled) == (1, 1)


def test_time_begins_once_when_the_last_of_several_appends_is_written(timers: Timers) -> None:
    partitions = Waiting(end_offset=5), Waiting(end_offset=5), Waiting()
    outcome = Outcome(*partitions)
    outcome.delayed.wait_for_replicas(1000)
    assert [len(each.written) for each in partitions] == [1, 1, 0], "the third is written already"
    assert [len(each.committed) for each in partitions] == [1, 1, 1]
    partitions[0].written[0]()
    assert timers.delays == []
    partitions[1].written[0]()
    assert timers.delays == [1.0]


def test_write_after_the_end_of_the_request_starts_no_timer(timers: Timers) -> None:
    partition = Waiting(end_offset=5)
    outcome = Outcome(partition)
    outcome.delayed.wait_for_replicas(1000)
    partition.is_leader = False
    partition.committed[0]()
    partition.written[0]()
    assert (outcome.finished, timers.delays, timers.cancelled) == (1, [], 0)


@pytest.mark.parametrize("is_offline", [False, True])
def test_failed_write_of_a_follower_is_answered_at_once(timers: Timers, is_offline: bool) -> None:
    partition = Waiting(end_offset=5)
    outcome = Outcome(partition)
    outcome.delayed.wait_for_replicas(1000)
    partition.log.is_offline = is_offline
    partition.written[0]()
    assert outcome.finished == is_offline
    assert [each.code for each in outcome.failures.values()] == (
        [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND] if is_offline else []
    )


def test_write_of_a_client_waits_as_one(timers: Timers) -> None:
    """Writes of clients are released while this broker may not act as the leader."""
    partition = Waiting()
    Outcome(partition).delayed.wait_for_replicas(1000)
    assert partition.clients == [True]


def test_written_append_needs_no_replica() -> None:
    partition = Waiting()
    outcome = Outcome(partition)
    outcome.delayed.wait_until_written()
    partition.written[0]()
    assert (outcome.finished, outcome.failures) == (1, {})
    partition.written[0]()
    assert outcome.finished == 1


@pytest.mark.parametrize(("end_offset", "is_written"), [(5, False), (6, True)])
def test_append_is_written_when_the_log_ends_past_it(end_offset: int, is_written: bool) -> None:
    partition = Waiting(end_offset=end_offset)
    outcome = Outcome(partition)
    outcome.delayed.wait_until_written()
    partition.written[0]()
    assert (outcome.failures == {}) is is_written


@in_loop
async def test_only_unconfirmed_appends_time_out() -> None:
    partitions = Waiting(), Waiting()
    outcome = Outcome(*partitions)
    outcome.delayed.wait_for_replicas(0)
    partitions[0].high_watermark = 6
    partitions[0].committed[0]()
    while not outcome.finished:
        await asyncio.sleep(0)
    assert {index: each.code for index, each in outcome.failures.items()} == {1: ErrorCode.REQUEST_TIMED_OUT}
    assert outcome.finished == 1


@pytest.mark.parametrize(
    ("is_leader", "may_lead", "is_offline", "reason"),
    [
        (True, True, False, "in-sync replicas are missing"),
        (True, False, False, "this broker no longer leads the partition"),
        (False, True, False, "this broker no longer leads the partition"),
        (True, True, True, "in-sync replicas are missing"),
    ],
)
def test_unconfirmed_append_says_why(
    timers: Timers, is_leader: bool, may_lead: bool, is_offline: bool, reason: str
) -> None:
    partition = Waiting()
    outcome = Outcome(partition)
    outcome.delayed.wait_for_replicas(1000)
    partition.is_leader, partition.may_lead, partition.log.is_offline = is_leader, may_lead, is_offline
    partition.committed[0]()
    assert outcome.failures[0].message == f"appended, but not confirmed: {reason}"
