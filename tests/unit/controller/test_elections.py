"""Elections and moves on request, with brokers that are there, fenced or gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.elections import elect_leaders
from odradek.controller.reassignments import Reassignment, alter_reassignments, list_reassignments
from odradek.metadata.changes import load_image, topic_creation
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.wire.errors import ErrorCode, KafkaError

PREFERRED, UNCLEAN = 0, 1
DEFAULTS = BrokerConfig({})


def cluster(*states: PartitionState, fenced: tuple[int, ...] = ()) -> ClusterImage:
    image = ClusterImage("c").with_controller(1, 7)
    for broker in (1, 2, 3):
        image = image.with_broker(Broker(broker, 1, None, {}, broker in fenced))
    return image.with_topic(Topic("t", b"t" * 16, states))


def state(leader: int, *replicas: int, isr: tuple[int, ...] | None = None) -> PartitionState:
    return PartitionState(leader, 4, replicas, replicas if isr is None else isr, 0)


@pytest.mark.parametrize(
    ("before", "election", "expected"),
    [
        (state(1, 1, 2), PREFERRED, ErrorCode.ELECTION_NOT_NEEDED),
        (state(2, 1, 2), PREFERRED, 1),
        (state(2, 1, 2, isr=(2,)), PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (state(2, 3, 2), PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (state(2, 1, 2), UNCLEAN, ErrorCode.ELECTION_NOT_NEEDED),
        (state(NO_LEADER, 3, 2, isr=(3,)), UNCLEAN, 2),
        (state(NO_LEADER, 3), UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_elections(before: PartitionState, election: int, expected: int) -> None:
    decision = elect_leaders(cluster(before, fenced=(3,)), election, [("t", 0)], DEFAULTS)
    (reply,) = decision.replies
    after = decision.image.partition("t", 0)
    assert after is not None
    if isinstance(expected, ErrorCode):
        assert reply.failure is not None
        assert reply.failure.code is expected
        assert after == before
    else:
        assert reply.failure is None
        assert (after.leader, after.leader_epoch, after.partition_epoch) == (expected, 5, 1)
        assert after.leader in after.isr
        assert len(decision.operations) == 1


def test_elections_of_what_does_not_exist() -> None:
    image = cluster(state(1, 1))
    replies = elect_leaders(image, PREFERRED, [("t", 1), ("u", 0), ("t", -1)], DEFAULTS).replies
    assert {reply.failure and reply.failure.code for reply in replies} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    with pytest.raises(KafkaError):
        elect_leaders(image, 2, None, DEFAULTS)


def test_an_election_of_all_names_those_that_needed_one() -> None:
    decision = elect_leaders(cluster(state(1, 1, 2), state(2, 1, 2)), PREFERRED, None, DEFAULTS)
    assert [(reply.topic, reply.partition, reply.failure) for reply in decision.replies] == [("t", 1, None)]


def test_the_store_takes_elections_and_moves() -> None:
    async def play() -> None:
        store = MemoryStore()
        image = cluster(state(2, 1, 2), state(2, 1, 2))
        await store.apply(topic_creation(image.topics["t"]))
        for decide in (
            lambda i: elect_leaders(i, PREFERRED, None, DEFAULTS),
            lambda i: alter_reassignments(i, [Reassignment("t", 1, (3, 1))], DEFAULTS),
        ):
            decision: Any = decide(image)
            await store.apply(decision.operations)
            image = decision.image
        loaded = await load_image(store)
        assert loaded.topics["t"].partitions == image.topics["t"].partitions
        moved = loaded.topics["t"].partitions[1]
        assert (moved.replicas, moved.adding_replicas, moved.removing_replicas) == ((3, 1, 2), (3,), (2,))

    asyncio.run(play())


def test_a_move_is_listed_until_it_is_given_up() -> None:
    image = cluster(state(1, 1, 2), state(1, 1, 2))
    image = alter_reassignments(image, [Reassignment("t", 0, (2, 3))], DEFAULTS).image
    (found,) = list_reassignments(image, None)["t"].values()
    assert (found.replicas, found.adding_replicas, found.removing_replicas) == ((2, 3, 1), (3,), (1,))
    assert list_reassignments(image, {"t": [1, 9], "u": [0]}) == {}
    other = alter_reassignments(image, [Reassignment("t", 0, (3, 1))], DEFAULTS).image.topics["t"].partitions[0]
    assert (other.adding_replicas, other.removing_replicas) == ((3,), (2,)), "the new wish takes the old one's place"
    decision = alter_reassignments(image, [Reassignment("t", 0, None), Reassignment("t", 1, None)], DEFAULTS)
    assert [reply.failure and reply.failure.code for reply in decision.replies] == [
        None,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    ]
    given_up = decision.image.topics["t"].partitions[0]
    assert (sorted(given_up.replicas), given_up.adding_replicas) == ([1, 2], ())
    assert list_reassignments(decision.image, None) == {}


def test_another_order_is_no_move() -> None:
    image = alter_reassignments(cluster(state(1, 1, 2)), [Reassignment("t", 0, (2, 1))], DEFAULTS).image
    assert image.topics["t"].partitions[0].replicas == (2, 1)
    assert list_reassignments(image, None) == {}


@pytest.mark.parametrize(
    ("move", "code"),
    [
        (Reassignment("u", 0, (1,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Reassignment("t", 5, (1,)), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Reassignment("t", 0, ()), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Reassignment("t", 0, (1, 1)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Reassignment("t", 0, (1, 9)), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (Reassignment("t", 0, (1, 2, 3)), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_moves_that_are_rejected(move: Reassignment, code: ErrorCode) -> None:
    decision = alter_reassignments(cluster(state(1, 1, 2)), [move], DEFAULTS, allow_replication_factor_change=False)
    (reply,) = decision.replies
    assert reply.failure is not None
    assert reply.failure.code is code
    assert not decision.operations
