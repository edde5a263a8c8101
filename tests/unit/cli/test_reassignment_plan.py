"""What `odradek reassign` and `cluster balance` report of moves and elections that the controller rejects."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.cli.actions.cluster_balance import execute, replicas_to_balance
from odradek.cli.actions.reassignment_plan import begin_moves
from odradek.cli.arguments.errors import CommandError
from odradek.client.admin import PartitionReassignment
from odradek.client.network.metadata import PartitionInfo, TopicInfo
from odradek.client.reports.balance_plan import Proposal
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

A, B, C = (TopicPartition("t", index) for index in range(3))
TARGETS = {A: (1, 2), B: (2, 3), C: (3, 1)}
WRONG = ErrorCode.INVALID_REPLICA_ASSIGNMENT


class Admin:
    """Rejects moves and elections with these codes; afterwards partitions have these replicas."""

    def __init__(
        self,
        rejects: dict[TopicPartition, ErrorCode],
        elections: dict[TopicPartition, ErrorCode] | None = None,
        replicas: dict[TopicPartition, tuple[int, ...]] | None = None,
    ) -> None:
        self.rejects = rejects
        self.elections = elections or {}
        self.found = {**TARGETS, **(replicas or {})}
        self.elected: list[TopicPartition] = []
        self.replicas = self
        self.log_dirs = self
        self.running: dict[TopicPartition, PartitionReassignment] = {}

    async def describe(self) -> dict[int, Any]:
        return {}

    async def reassign(self, targets: dict[TopicPartition, Any]) -> dict[TopicPartition, Any]:
        return {each: KafkaError(self.rejects[each]) if each in self.rejects else None for each in targets}

    async def reassignments(self) -> dict[TopicPartition, Any]:
        return self.running

    async def elect(self, places: list[TopicPartition]) -> dict[TopicPartition, Any]:
        self.elected += places
        return {each: KafkaError(self.elections[each]) if each in self.elections else None for each in places}

    async def describe_topics(self, names: list[str] | None) -> dict[str, Any]:
        partitions = [PartitionInfo(p.partition, 1, 0, list(found), [], []) for p, found in self.found.items()]
        return {name: TopicInfo(name, bytes(16), False, partitions) for name in names or ["t"]}

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(brokers=[])


def run(admin: Admin) -> None:
    proposals = [Proposal(place, (), after, 0) for place, after in TARGETS.items()]
    asyncio.run(execute(admin, proposals))  # type: ignore[arg-type]


def test_every_rejected_move_is_named() -> None:
    admin: Any = Admin({A: WRONG, C: WRONG})
    with pytest.raises(CommandError, match=r"^2 of 3 reassignments were rejected .*, the others run: t-0: .*; t-2: "):
        asyncio.run(begin_moves(admin, TARGETS))


def test_plan_of_which_every_move_is_rejected_is_reported_as_not_begun() -> None:
    admin: Any = Admin(dict.fromkeys(TARGETS, WRONG))
    with pytest.raises(CommandError, match=r"^3 of 3 reassignments were rejected .*, none runs: "):
        asyncio.run(begin_moves(admin, TARGETS))


def test_balance_elects_the_preferred_leaders_of_all_moves() -> None:
    admin = Admin({}, {A: ErrorCode.ELECTION_NOT_NEEDED})
    run(admin)
    assert set(admin.elected) == set(TARGETS)


def test_balance_names_elections_that_were_rejected() -> None:
    with pytest.raises(CommandError, match=r"1 partitions are not led by their preferred replica: t-1: "):
        run(Admin({}, {B: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}))


def test_balance_names_moves_that_were_cancelled_meanwhile() -> None:
    admin = Admin({}, replicas={C: (2, 1)})
    with pytest.raises(CommandError, match=r"^1 moves were cancelled meanwhile: t-2$"):
        run(admin)
    assert admin.elected == []


def test_balance_plans_running_reassignments_as_they_will_be() -> None:
    """Of two replicas that move, both brokers were counted: the plan left the partition with three replicas."""
    admin: Any = Admin({}, replicas={A: (1, 2, 3)})
    admin.running[A] = PartitionReassignment([1, 2, 3], [3], [2])
    found = asyncio.run(replicas_to_balance(admin, execute=False))
    assert {place: each.replicas for place, each in found.items()} == {A: (1, 3), B: (2, 3), C: (3, 1)}


def test_balance_moves_nothing_beside_other_reassignments() -> None:
    admin: Any = Admin({}, replicas={A: (1, 2, 3)})
    admin.running[A] = PartitionReassignment([1, 2, 3], [3], [2])
    with pytest.raises(CommandError, match="1 reassignments run"):
        asyncio.run(replicas_to_balance(admin, execute=True))
