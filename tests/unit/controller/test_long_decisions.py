"""Decisions on the partitions of a broker, which are made in parts so that none of them holds the event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.aliveness import BY_RECORDS, BY_SESSIONS, Aliveness
from odradek.controller.brokers import TopicWalk, _Healthy, reconsidered
from odradek.controller.partition_changes import NEVER_LED
from odradek.controller.record_controller import RecordController, Recorded
from odradek.controller.topics import TopicReference
from odradek.metadata.directories import LOST, UNASSIGNED
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.kraft.partition_records import carried
from odradek.metadata.kraft.replay import replay
from odradek.ports.randomness import SeededRandom

CONFIG = BrokerConfig({"min.insync.replicas": "2"})
BROKERS = (0, 1, 2)
TOPICS = 120
"""More partitions of broker 0 than one part of a decision changes."""


def directory(broker: int) -> bytes:
    return bytes(15) + bytes([100 + broker])


def cluster() -> ClusterImage:
    """Each topic has one partition with all three brokers, and its own leader."""
    image = ClusterImage().with_brokers(
        {each: Broker(each, 10 + each, None, {}, log_dirs=(directory(each),)) for each in BROKERS}
    )
    image = image.with_features({"metadata.version": 30}, 1)
    topics = []
    for number in range(TOPICS):
        replicas = tuple((number + copy) % 3 for copy in range(3))
        state = PartitionState(
            replicas[0], 4, replicas, replicas, directories=tuple(directory(each) for each in replicas)
        )
        topics.append(Topic(f"t{number}", (1 << 64 | number).to_bytes(16, "big"), (state,)))
    return image.with_topics(topics)


def parts(recorded: Recorded[Any]) -> list[Recorded[Any]]:
    """All parts of a decision."""
    found = [recorded]
    while found[-1].rest is not None:
        found.append(found[-1].rest())
    return found


def states(image: ClusterImage) -> dict[str, list[PartitionState]]:
    return {name: list(map(carried, topic.partitions)) for name, topic in image.topics.items()}


LONG: dict[str, Callable[[RecordController], Recorded[Any]]] = {
    "fence": lambda controller: controller.fence_brokers([0]),
    "shut down": lambda controller: controller.shut_down_broker(0, 10),
}


@pytest.mark.parametrize("what", LONG)
def test_long_decision_is_made_in_parts(what: str) -> None:
    image = cluster()
    controller = RecordController(image, CONFIG, SeededRandom(1))
    found = parts(LONG[what](controller))
    assert len(found) > 1
    assert all(0 < len(each.records) <= 101 for each in found)
    records = [record for each in found for record in each.records]
    assert states(replay(records, image)) == states(controller.image)
    concerned = frozenset((0,))
    whole = reconsidered(controller.image, CONFIG, concerned, frozenset(), aliveness=BY_RECORDS)
    assert not whole.replies, "a part was left out"
    assert not any(state.leader == 0 or 0 in state.isr for [state] in states(controller.image).values())
    assert len({name for each in found for name in each.replies}) == TOPICS


@pytest.mark.parametrize("what", LONG)
def test_next_controller_completes_a_long_decision(what: str) -> None:
    """The first part was committed, and then its controller ended."""
    before = cluster()
    whole = RecordController(before, CONFIG, SeededRandom(1))
    parts(LONG[what](whole))
    recorded = LONG[what](RecordController(before, CONFIG, SeededRandom(1)))
    assert recorded.rest is not None
    successor = RecordController(replay(recorded.records, before), CONFIG, SeededRandom(1))
    parts(successor.begin())
    assert states(successor.image) == states(whole.image)


def test_other_decisions_come_between_two_parts() -> None:
    controller = RecordController(cluster(), CONFIG, SeededRandom(1))
    first = controller.fence_brokers([0])
    controller.delete_topics([TopicReference(f"t{TOPICS - 1}")])
    assert first.rest is not None
    parts(first.rest())
    assert len(controller.image.topics) == TOPICS - 1
    assert not any(state.leader == 0 for [state] in states(controller.image).values())


def test_broker_that_returns_between_two_parts_keeps_what_it_still_leads() -> None:
    controller = RecordController(cluster(), CONFIG, SeededRandom(1))
    first = controller.fence_brokers([0])
    assert first.rest is not None
    parts(controller.fence_brokers([], [0]))
    parts(first.rest())
    led = [state for [state] in states(controller.image).values() if state.leader == 0]
    assert led
    assert all(0 in state.isr for state in led)


def test_decision_on_a_small_cluster_has_one_part() -> None:
    image = cluster()
    controller = RecordController(image.without_topics(list(image.topics)[10:]), CONFIG, SeededRandom(1))
    assert controller.fence_brokers([0]).rest is None


def test_walk_leaves_out_topics_that_are_deleted_meanwhile() -> None:
    image = cluster()
    walk = TopicWalk(image)
    first = next(walk.topics(image))
    rest = list(walk.topics(image.without_topics(["t1"])))
    assert [first.name, *(topic.name for topic in rest)] == ["t0", *(f"t{number}" for number in range(2, TOPICS))]
    assert not walk


def brokers() -> st.SearchStrategy[dict[int, Broker]]:
    def of(broker: int) -> st.SearchStrategy[Broker | None]:
        return st.none() | st.builds(
            lambda fenced, leaving, epoch, has_directory: Broker(
                broker, epoch, None, {}, fenced=fenced, in_controlled_shutdown=leaving,
                log_dirs=(directory(broker),) if has_directory else (bytes(15) + b"\xff",),
            ),
            st.booleans(), st.booleans(), st.integers(0, 1), st.booleans(),
        )  # fmt: skip

    return st.tuples(*map(of, BROKERS)).map(lambda found: {each.id: each for each in found if each is not None})


@st.composite
def partitions(draw: st.DrawFn) -> PartitionState:
    replicas = tuple(draw(st.lists(st.sampled_from(BROKERS), min_size=2, max_size=3, unique=True)))
    isr = tuple(each for each in replicas if draw(st.integers(0, 3)))
    elr = tuple(each for each in replicas if each not in isr and draw(st.booleans()))
    known = draw(st.booleans())
    return PartitionState(
        draw(st.sampled_from((*isr, *replicas, NO_LEADER))),
        draw(st.sampled_from((NEVER_LED, 3, 3, 3))),
        replicas,
        isr,
        adding_replicas=replicas[-1:] if not draw(st.integers(0, 5)) else (),
        elr=elr,
        leader_broker_epoch=draw(st.integers(0, 1)),
        offline_replicas=replicas[:1] if not draw(st.integers(0, 5)) else (),
        directories=tuple(draw(st.sampled_from((directory(b), directory(b), UNASSIGNED, LOST))) for b in replicas)
        if known
        else (),
    )


@pytest.mark.parametrize("aliveness", [BY_RECORDS, BY_SESSIONS], ids=["records", "sessions"])
@given(registered=brokers(), state=partitions())
def test_quick_look_finds_only_partitions_that_need_no_decision(
    aliveness: Aliveness, registered: dict[int, Broker], state: PartitionState
) -> None:
    """The decision is the same where each partition is decided by `next_state`."""
    image = ClusterImage().with_brokers(registered).with_topic(Topic("t", b"t" * 16, (state,)))
    quick = reconsidered(image, CONFIG, None, frozenset(), aliveness=aliveness)
    with mock.patch.object(_Healthy, "has_settled", return_value=False):
        slow = reconsidered(image, CONFIG, None, frozenset(), aliveness=aliveness)
    assert quick.image.topics["t"].partitions == slow.image.topics["t"].partitions
    assert quick.replies == slow.replies
