"""Appends that wait: the answers when they are confirmed, can no longer be, or time out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from types import SimpleNamespace
from typing import Any

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
        self.written: list[Any] = []
        durability = SimpleNamespace(when_written=lambda _offset, callback: self.written.append(callback))
        self.log = SimpleNamespace(end_offset=end_offset, is_offline=False, durability=durability)

    def when_committed(self, _offset: int, callback: Any, *, is_client: bool = False) -> None:
        self.committed.append(callback)

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
