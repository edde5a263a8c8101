"""Which rejections of reassignments are retried, and which moves stay rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from odradek.client.reports.moves import TRIES, listed, request_moves
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

A, B, C = (TopicPartition("t", index) for index in range(3))
TARGETS = {A: (1, 2), B: (2, 3), C: (3, 1)}


class Admin:
    """Rejects partitions with a code, as often as is given; before that whole requests, with these codes."""

    def __init__(self, rejects: dict[TopicPartition, tuple[ErrorCode, int]], *whole: ErrorCode) -> None:
        self.rejects = rejects
        self.whole = list(whole)
        self.asked: list[set[TopicPartition]] = []
        self.replicas = self

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, Any]:
        self.asked.append(set(targets))
        code = self.whole.pop(0) if self.whole else ErrorCode.NONE
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        outcome: dict[TopicPartition, KafkaError | None] = {}
        for place in targets:
            code, left = self.rejects.get(place, (ErrorCode.NONE, 0))
            outcome[place] = KafkaError(code) if left else None
            self.rejects[place] = (code, max(0, left - 1))
        return outcome


def request(admin: Admin, targets: Mapping[TopicPartition, Sequence[int] | None] = TARGETS) -> dict[Any, ErrorCode]:
    rejected = asyncio.run(request_moves(admin, targets, retry_seconds=0))  # type: ignore[arg-type]
    return {place: error.code for place, error in rejected.items()}


def test_every_rejected_move_is_returned() -> None:
    wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    admin = Admin({A: (wrong, 99), C: (wrong, 99)})
    assert request(admin) == {A: wrong, C: wrong}
    assert len(admin.asked) == 1


def test_move_is_retried_after_a_retriable_error() -> None:
    admin = Admin({B: (ErrorCode.REQUEST_TIMED_OUT, 2)})
    assert request(admin) == {}
    assert admin.asked == [{A, B, C}, {B}, {B}]


def test_move_that_is_rejected_every_time_is_returned() -> None:
    admin = Admin({B: (ErrorCode.REQUEST_TIMED_OUT, 99)})
    assert request(admin) == {B: ErrorCode.REQUEST_TIMED_OUT}
    assert len(admin.asked) == TRIES


def test_request_is_retried_after_a_retriable_error_of_the_whole() -> None:
    admin = Admin({}, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
    assert request(admin) == {}
    assert admin.asked == [{A, B, C}] * 3


def test_error_of_the_whole_request_that_stays_is_that_of_every_move() -> None:
    admin = Admin({}, *[ErrorCode.REQUEST_TIMED_OUT] * TRIES)
    assert request(admin) == dict.fromkeys(TARGETS, ErrorCode.REQUEST_TIMED_OUT)


def test_first_request_with_a_lasting_error_raises() -> None:
    with pytest.raises(KafkaError):
        request(Admin({}, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


def test_lasting_error_of_a_repetition_is_that_of_the_remaining_moves() -> None:
    """The moves that the first request began run: an exception would say nothing of them."""
    admin = Admin({B: (ErrorCode.REQUEST_TIMED_OUT, 1)}, ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert request(admin) == {B: ErrorCode.CLUSTER_AUTHORIZATION_FAILED}


def test_move_that_an_earlier_attempt_cancelled_is_cancelled() -> None:
    """The answer to the first attempt said that it may not have happened; it had."""
    admin = Admin({A: (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, 1)}, ErrorCode.REQUEST_TIMED_OUT)
    assert request(admin, {A: None}) == {}


def test_move_that_does_not_run_is_not_cancelled() -> None:
    admin = Admin({A: (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, 1)})
    assert request(admin, {A: None}) == {A: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}


def test_rejected_moves_are_listed_by_partition() -> None:
    errors = {B: KafkaError(ErrorCode.REQUEST_TIMED_OUT), A: KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT)}
    assert listed(errors).startswith("t-0: INVALID_REPLICA_ASSIGNMENT")
    assert "; t-1: REQUEST_TIMED_OUT" in listed(errors)
