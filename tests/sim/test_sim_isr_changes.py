"""Which changes of an ISR the simulator rejects."""

from __future__ import annotations

import pytest

from odradek.metadata.image import PartitionState
from odradek.sim.checkers.history import Violation
from odradek.sim.checkers.isr_changes import LeaderKnowledge, check_isr_change

KEY = ("t", 0)
BEFORE = PartitionState(1, 4, (1, 2, 3), (1, 2), partition_epoch=7)
KNOWS = LeaderKnowledge(stays=True, leader_epoch=4, proposal=frozenset((1, 2, 3)))
DEPOSED = BEFORE._replace(leader=2, leader_epoch=5, isr=(2,), partition_epoch=8)
EXPANDED = BEFORE._replace(isr=(1, 2, 3), partition_epoch=8)


def verdict(after: PartitionState, leader: LeaderKnowledge | None, before: PartitionState = BEFORE) -> str:
    try:
        check_isr_change(KEY, before, after, leader)
    except Violation as violation:
        return violation.invariant
    return ""


def test_leader_that_stays_must_not_leave_the_isr() -> None:
    assert verdict(DEPOSED, KNOWS) == "a leader that stays is in the ISR"


@pytest.mark.parametrize("leader", [None, KNOWS._replace(stays=False)])
def test_leader_may_leave_the_isr_when_its_broker_goes(leader: LeaderKnowledge | None) -> None:
    assert verdict(DEPOSED, leader) == ""


def test_leader_may_leave_the_isr_when_its_replica_is_moved() -> None:
    moved = DEPOSED._replace(replicas=(2, 3), isr=(2, 3))
    moving = BEFORE._replace(removing_replicas=(1,))
    assert verdict(moved, KNOWS) == ""
    assert verdict(DEPOSED, KNOWS, before=moving) == ""


def test_isr_expands_when_the_leader_of_the_epoch_proposes_it() -> None:
    assert verdict(EXPANDED, KNOWS) == ""


@pytest.mark.parametrize(
    "leader",
    [
        KNOWS._replace(leader_epoch=3),
        KNOWS._replace(leader_epoch=-1),
        KNOWS._replace(proposal=frozenset()),
        KNOWS._replace(proposal=frozenset((1, 2))),
    ],
)
def test_isr_must_not_expand_when_its_leader_does_not_propose_it(leader: LeaderKnowledge) -> None:
    assert verdict(EXPANDED, leader) == "only the leader expands the ISR"


def test_isr_must_not_expand_before_its_leader_has_begun() -> None:
    waits = KNOWS._replace(has_begun=False)
    assert verdict(EXPANDED, waits) == "a leader has begun before it expands the ISR"
    assert verdict(BEFORE._replace(isr=(1,), partition_epoch=8), waits) == ""


def test_isr_may_expand_when_the_leader_cannot_be_asked() -> None:
    assert verdict(EXPANDED, None) == ""
