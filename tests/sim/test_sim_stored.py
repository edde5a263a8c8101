"""What the simulator thinks of a controller's writes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek.metadata.image import PartitionState
from odradek.metadata.nodes import CONTROLLER_EPOCH, TOPICS, ControllerEpochNode, DeletionNode, PartitionNode, TopicNode
from odradek.ports.store import Create, Delete, Operation, Put
from odradek.sim.checkers.stored_metadata import StoredStates

TOPIC_ID = b"t" * 16
FIRST = PartitionState(1, 0, (3, 1, 5), (1,), controller_epoch=1, elr=(3,))


def stored(*transactions: Sequence[Operation]) -> StoredStates:
    states = StoredStates(frozenset())
    states.applied([Create(CONTROLLER_EPOCH, ControllerEpochNode.encode(1))])
    for operations in transactions:
        states.applied(operations)
    return states


def made() -> list[Operation]:
    return [Create(TopicNode.path("t"), TopicNode.encode(TOPIC_ID, [FIRST])), written(FIRST)]


def written(state: PartitionState) -> Operation:
    return Create(PartitionNode.path("t", 0), PartitionNode.encode(state))


def broken(states: StoredStates) -> str:
    return "" if states.broken is None else states.broken.invariant


def test_a_controller_that_has_been_replaced_must_not_write() -> None:
    elected = [Put(CONTROLLER_EPOCH, ControllerEpochNode.encode(2))]
    after = FIRST._replace(isr=(1, 3), elr=(), partition_epoch=1)
    assert broken(stored(made())) == ""
    assert broken(stored(made(), elected, [written(after._replace(controller_epoch=2))])) == ""
    assert broken(stored(made(), elected, [written(after)])) == "only the elected controller writes"


@pytest.mark.parametrize(
    ("elr", "verdict"),
    [((3, 1), ""), ((3,), "leader elected among those in sync"), ((), "leader elected among those in sync")],
)
def test_replica_may_lead_when_the_leader_that_added_it_leaves_in_one_step(elr: tuple[int, ...], verdict: str) -> None:
    after = PartitionState(5, 1, (3, 1, 5), (5,), partition_epoch=1, controller_epoch=1, elr=elr)
    assert broken(stored(made(), [written(after)])) == verdict


@pytest.mark.parametrize(("replicas", "verdict"), [((3, 5), ""), ((3, 1, 5), "leader elected among those in sync")])
def test_replica_may_lead_when_the_leader_that_added_it_moves_in_one_step(
    replicas: tuple[int, ...], verdict: str
) -> None:
    after = PartitionState(5, 1, replicas, (5,), partition_epoch=1, controller_epoch=1, elr=(3,))
    moved = Put(TopicNode.path("t"), TopicNode.encode(TOPIC_ID, [after]))
    assert broken(stored(made(), [written(after), moved])) == verdict


def test_it_is_known_which_topics_are_to_be_deleted() -> None:
    states = stored(made(), [Create(DeletionNode.path("t"), b"")])
    assert states.deletions == {"t"}
    states.applied([Delete(f"{TOPICS}/t"), Delete(DeletionNode.path("t"))])
    assert states.deletions == set()
    assert states.topics == {}
