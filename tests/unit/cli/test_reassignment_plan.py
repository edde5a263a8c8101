"""What `odradek reassign` and `cluster balance` do with moves that the controller rejects."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from odradek.cli.actions import reassignment_plan
from odradek.cli.actions.reassignment_plan import begin_moves
from odradek.cli.arguments.errors import CommandError
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

A, B, C = (TopicPartition("t", index) for index in range(3))
TARGETS = {A: (1, 2), B: (2, 3), C: (3, 1)}


class Admin:
    """Rejects partitions with a code, as often as is given."""

    def __init__(self, rejects: dict[TopicPartition, tuple[ErrorCode, int]]) -> None:
        self.rejects = rejects
        self.asked: list[set[TopicPartition]] = []
        self.replicas = self

    async def reassign(self, targets: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, Any]:
        self.asked.append(set(targets))
        outcome: dict[TopicPartition, KafkaError | None] = {}
        for place in targets:
            code, left = self.rejects.get(place, (ErrorCode.NONE, 0))
            outcome[place] = KafkaError(code) if left else None
            self.rejects[place] = (code, max(0, left - 1))
        return outcome


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassignment_plan, "_RETRY_SECONDS", 0.0)


def begin(admin: Admin) -> None:
    asyncio.run(begin_moves(admin, TARGETS))  # type: ignore[arg-type]


def test_every_rejected_move_is_reported() -> None:
    admin = Admin({A: (ErrorCode.INVALID_REPLICA_ASSIGNMENT, 99), C: (ErrorCode.INVALID_REPLICA_ASSIGNMENT, 99)})
    with pytest.raises(CommandError, match=r"^2 of 3 reassignments were rejected .*t-0: .*; t-2: "):
        begin(admin)
    assert len(admin.asked) == 1


def test_move_is_retried_after_a_retriable_error() -> None:
    admin = Admin({B: (ErrorCode.REQUEST_TIMED_OUT, 2)})
    begin(admin)
    assert admin.asked == [{A, B, C}, {B}, {B}]


def test_move_that_is_rejected_every_time_is_reported() -> None:
    admin = Admin({B: (ErrorCode.REQUEST_TIMED_OUT, 99)})
    with pytest.raises(CommandError, match=r"^1 of 3 .*t-1: "):
        begin(admin)
    assert len(admin.asked) == 10
