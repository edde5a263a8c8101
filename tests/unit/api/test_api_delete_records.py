"""DeleteRecords: how long it waits for followers, and which partitions it leaves alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_21_delete_records
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)


class Replica:
    """A leader whose follower has deleted nothing yet; `waiting` are the requests that wait for it."""

    def __init__(self, topic: str, index: int) -> None:
        self.topic, self.index = topic, index
        self.is_leader = True
        self.low_watermark = 0
        self.started = 0
        self.waiting: list[Any] = []
        self.deletion = self

    def check(self, offset: int) -> int:
        if offset > 10:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return offset

    def delete(self, offset: int) -> int:
        self.started = offset
        return offset

    def when_deleted(self, offset: int, callback: Any) -> None:
        if self.is_leader:
            self.waiting.append(callback)
        else:
            callback()


class Deleting:
    def __init__(self) -> None:
        self.replica = Replica("t", 0)
        self.persisted: list[dict[tuple[str, int], int]] = []

    async def _advance(self, starts: dict[tuple[str, int], int], then: Any) -> None:
        self.persisted.append(starts)
        then()

    async def ask(self, offset: int, timeout_ms: int = 0, topic: str = "t") -> tuple[int, int]:
        wanted = [DeleteRecordsRequestPartition(0, offset)]
        (found,) = await self.answers(wanted, lambda *_: self.replica, timeout_ms, topic)
        return found

    async def answers(
        self,
        wanted: list[DeleteRecordsRequestPartition],
        require: Callable[[str, int], Replica],
        timeout_ms: int = 60_000,
        topic: str = "t",
    ) -> list[tuple[int, int]]:
        clock = SimpleNamespace(monotonic=lambda: 0.0)
        directories = SimpleNamespace(advance_log_starts=self._advance)
        partitions = SimpleNamespace(require=require)
        services = SimpleNamespace(clock=clock, log_directories=directories, partitions=partitions)
        context: Any = SimpleNamespace(services=services)
        request = DeleteRecordsRequest([DeleteRecordsRequestTopic(topic, wanted)], timeout_ms)
        answer = await api_21_delete_records.handle(request, context)
        return [(found.error_code, found.low_watermark) for found in answer.topics[0].partitions]


def test_deletion_is_answered_when_the_followers_have_deleted() -> None:
    async def run() -> None:
        deleting = Deleting()
        answer = asyncio.create_task(deleting.ask(7, 60_000))
        while not deleting.replica.waiting:
            await asyncio.sleep(0)
        assert not answer.done()
        deleting.replica.low_watermark = 8
        deleting.replica.waiting[0]()
        assert await answer == (ErrorCode.NONE, 8)

    asyncio.run(run())


@pytest.mark.parametrize("timeout_ms", [-1, 0, 20])
def test_deletion_times_out_after_its_milliseconds(timeout_ms: int) -> None:
    deleting = Deleting()
    assert asyncio.run(deleting.ask(7, timeout_ms)) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert deleting.replica.started == 7, "the leader has deleted"


def test_deletion_does_not_wait_for_followers_that_are_there_already() -> None:
    deleting = Deleting()
    deleting.replica.low_watermark = 7
    assert asyncio.run(deleting.ask(7)) == (ErrorCode.NONE, 7)
    assert deleting.replica.waiting == []


def test_deletion_by_a_leader_that_is_deposed_meanwhile_fails() -> None:
    async def run() -> None:
        deleting = Deleting()
        answer = asyncio.create_task(deleting.ask(7, 60_000))
        while not deleting.replica.waiting:
            await asyncio.sleep(0)
        deleting.replica.is_leader = False
        deleting.replica.waiting[0]()
        assert await answer == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("topic", "offset", "code"),
    [("t", 11, ErrorCode.OFFSET_OUT_OF_RANGE), ("__consumer_offsets", 7, ErrorCode.INVALID_TOPIC_EXCEPTION)],
)
def test_rejected_deletion_deletes_nothing(topic: str, offset: int, code: ErrorCode) -> None:
    deleting = Deleting()
    assert asyncio.run(deleting.ask(offset, topic=topic)) == (code, -1)
    assert deleting.persisted == [{}]


def test_start_is_persisted_before_it_is_shown() -> None:
    deleting = Deleting()
    deleting.replica.low_watermark = 7
    asyncio.run(deleting.ask(7))
    assert deleting.persisted == [{("t", 0): 7}]


def test_later_start_is_persisted_of_a_partition_that_is_named_twice() -> None:
    """Records below the start that clients saw came back after a crash."""
    deleting = Deleting()
    deleting.replica.low_watermark = 7
    wanted = [DeleteRecordsRequestPartition(0, offset) for offset in (7, 5)]
    asyncio.run(deleting.answers(wanted, lambda *_: deleting.replica))
    assert deleting.persisted == [{("t", 0): 7}]


def test_deletion_fails_if_deposed_while_another_partition_waits() -> None:
    """A deposed leader knows no followers, so that its own log start seems to be that of all replicas."""

    async def run() -> None:
        deleting = Deleting()
        waits, deposed = Replica("t", 0), Replica("t", 1)
        wanted = [DeleteRecordsRequestPartition(index, 7) for index in range(2)]
        answer = asyncio.create_task(deleting.answers(wanted, lambda _, index: (waits, deposed)[index]))
        while not waits.waiting:
            await asyncio.sleep(0)
        deposed.is_leader, deposed.low_watermark = False, 7
        waits.low_watermark = 7
        waits.waiting[0]()
        assert await answer == [(ErrorCode.NONE, 7), (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]

    asyncio.run(run())
