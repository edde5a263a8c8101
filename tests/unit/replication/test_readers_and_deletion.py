"""Fetches that wait for bytes, the readers of a partition, and the deletion of records by a leader."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.replication.delayed_read import DelayedRead
from odradek.replication.in_sync import FollowerProgress
from odradek.replication.readers import MANY_BYTES, PartitionReaders
from odradek.replication.record_deletion import RecordDeletion
from odradek.wire.errors import ErrorCode, KafkaError

# --- fetches that wait ---


class Waiting:
    """A fetch that waits for two partitions, with its timer in the test's hands."""

    def __init__(self, lacking: int, *answers: int) -> None:
        self.partitions: Any = [SimpleNamespace(readers=PartitionReaders()) for _ in range(2)]
        self._answers = list(answers)
        self.attempts: list[bool] = []
        self.timer: tuple[float, Callable[[], None]] | None = None
        self.cancelled = 0
        self.read = DelayedRead(self.partitions, lacking, self._attempt)
        loop: Any = SimpleNamespace(call_later=self._call_later)
        self.read.start(loop, 0.5)

    def _call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        self.timer = seconds, call
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.cancelled += 1

    def _attempt(self, time_is_up: bool) -> int:
        self.attempts.append(time_is_up)
        return self._answers.pop(0) if self._answers else 0

    def append(self, index: int, size: int) -> None:
        self.partitions[index].readers.wake(size)

    @property
    def watched(self) -> list[bool]:
        """Whether each partition would wake the fetch."""
        return [bool(partition.readers.waiting) for partition in self.partitions]


def test_fetch_is_attempted_again_when_enough_was_appended() -> None:
    waiting = Waiting(100)
    assert waiting.watched == [True, True]
    waiting.append(0, 60)
    waiting.append(1, 39)
    assert (waiting.attempts, waiting.watched) == ([], [True, True])
    waiting.append(0, 1)
    assert (waiting.attempts, waiting.watched, waiting.cancelled) == ([False], [False, False], 1)


def test_fetch_that_still_lacks_bytes_waits_for_those() -> None:
    waiting = Waiting(100, 30)
    waiting.append(0, 100)
    assert (waiting.attempts, waiting.watched) == ([False], [True, True])
    waiting.append(0, 29)
    assert len(waiting.attempts) == 1
    waiting.append(1, 1)
    assert (len(waiting.attempts), waiting.watched) == (2, [False, False])


def test_fetch_is_answered_when_its_time_is_up() -> None:
    waiting = Waiting(100, 30)
    assert waiting.timer is not None
    seconds, call = waiting.timer
    assert seconds == 0.5
    call()
    assert (waiting.attempts, waiting.watched) == ([True], [False, False])


def test_stopped_fetch_is_not_attempted() -> None:
    waiting = Waiting(1)
    ((call,),) = ([*partition.readers.waiting] for partition in waiting.partitions[:1])
    waiting.read.stop()
    assert (waiting.watched, waiting.cancelled) == ([False, False], 1)
    call(waiting.partitions[0].readers, MANY_BYTES)
    waiting.read.stop()
    assert (waiting.attempts, waiting.watched, waiting.cancelled) == ([], [False, False], 1)


def test_readers_call_each_fetch_once() -> None:
    readers = PartitionReaders()
    seen: list[int] = []

    def fetch(_readers: PartitionReaders, size: int) -> None:
        seen.append(size)

    readers.wait(fetch)
    readers.wake(5)
    readers.wake(6)
    assert seen == [5]
    readers.stop_waiting(fetch)
    readers.wait(fetch)
    readers.stop_waiting(fetch)
    readers.wake(7)
    assert seen == [5]


def test_sessions_are_notified_until_they_leave() -> None:
    readers = PartitionReaders()
    seen: list[int] = []
    session: Any = SimpleNamespace(appended=seen.append)
    readers.leave(session)
    readers.join(session)
    readers.appended(5)
    readers.leave(session)
    readers.appended(6)
    assert seen == [5]


# --- deletion of records ---


class Leader:
    """A partition of offsets 0 to 10, 8 of them committed, with two followers."""

    def __init__(self, *, compact: bool = False, delete: bool = True) -> None:
        config = SimpleNamespace(compact=compact, delete=delete)
        self.topic, self.index = "t", 0
        self.log: Any = SimpleNamespace(config=config, log_start_offset=2, advance_log_start=self._advance)
        self.high_watermark = 8
        self.is_leader = True
        self.persisted: list[int] = []
        self.readers = PartitionReaders()
        self.progress = {2: FollowerProgress(2, 0), 3: FollowerProgress(3, 0)}
        self.eligible: set[int] = set()
        followers: Any = SimpleNamespace(
            progress=self.progress, counted={1, 2}, is_eligible=lambda broker_id, _epoch: broker_id in self.eligible
        )
        replicated: Any = SimpleNamespace(start_persisted=self.persisted.append)
        self.deletion = RecordDeletion(self, followers, self.readers, replicated)

    def _advance(self, offset: int) -> None:
        self.log.log_start_offset = offset

    def check_leader(self) -> None:
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (-1, 8),
        (8, 8),
        (5, 5),
        (2, 2),
        (0, 2),
        (9, ErrorCode.OFFSET_OUT_OF_RANGE),
        (-2, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_records_are_deleted_up_to_the_high_watermark(offset: int, expected: int | ErrorCode) -> None:
    leader = Leader()
    notified: list[str] = []
    session: Any = SimpleNamespace(started_later=lambda: notified.append("later"))
    leader.readers.join(session)
    if isinstance(expected, ErrorCode):
        with pytest.raises(KafkaError) as raised:
            leader.deletion.delete(offset)
        assert raised.value.code is expected
        assert (leader.persisted, notified) == ([], [])
    else:
        assert leader.deletion.check(offset) == expected
        assert leader.log.log_start_offset == 2
        assert leader.deletion.delete(offset) == expected
        assert (leader.persisted, notified) == ([expected], ["later"])


@pytest.mark.parametrize(
    ("compact", "delete", "is_allowed"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_records_of_a_compacted_topic_are_not_deleted(compact: bool, delete: bool, is_allowed: bool) -> None:
    leader = Leader(compact=compact, delete=delete)
    if is_allowed:
        assert leader.deletion.check(3) == 3
    else:
        with pytest.raises(KafkaError) as raised:
            leader.deletion.check(3)
        assert raised.value.code is ErrorCode.POLICY_VIOLATION


def test_follower_deletes_nothing() -> None:
    leader = Leader()
    leader.is_leader = False
    with pytest.raises(KafkaError):
        leader.deletion.delete(3)


@pytest.mark.parametrize(
    ("starts", "eligible", "expected"),
    [
        ((-1, -1), (), -1),  # a member of the ISR that has not fetched yet
        ((1, -1), (), 1),  # the other one is dead
        ((1, 0), (3,), 0),
        ((9, 0), (), 2),
        ((9, 9), (3,), 2),
    ],
)
def test_low_watermark_is_the_lowest_start_of_those_that_may_lead(
    starts: tuple[int, int], eligible: tuple[int, ...], expected: int
) -> None:
    leader = Leader()
    leader.eligible = set(eligible)
    for broker_id, start in zip((2, 3), starts, strict=True):
        leader.progress[broker_id].log_start_offset = start
    assert leader.deletion.low_watermark == expected


def test_deletion_ends_when_followers_have_deleted_or_the_leader_resigns() -> None:
    leader = Leader()
    done: list[int] = []
    leader.progress[2].log_start_offset = 4
    leader.deletion.delete(6)
    for offset in (4, 5, 6):
        leader.deletion.when_deleted(offset, lambda offset=offset: done.append(offset))  # type: ignore[misc]
    assert done == [4]
    leader.deletion.release()
    assert done == [4]
    leader.progress[2].log_start_offset = 5
    leader.deletion.release()
    assert (done, len(leader.deletion.waiters)) == ([4, 5], 1)
    leader.is_leader = False
    leader.deletion.release()
    assert (done, leader.deletion.waiters) == ([4, 5, 6], [])
