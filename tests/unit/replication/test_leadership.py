"""When a broker may act as the leader of a partition."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState, Topic
from odradek.replication.leadership import Leadership, agrees, successors

ID = b"t" * 16


@dataclass
class Clock:
    """Seconds that the test moves."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Led:
    """A partition that broker 1 leads."""

    topic: str = "t"
    topic_id: bytes = ID
    index: int = 0
    leader_epoch: int = 4
    replicas: tuple[int, ...] = (1, 2, 3)
    isr: tuple[int, ...] = (1, 2)
    min_isr: int = 2
    counted_replicas: tuple[int, ...] = (1, 2)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def leadership(clock: Clock) -> Leadership:
    return Leadership(1, clock)


def image(leader: int, epoch: int = 4) -> ClusterImage:
    return ClusterImage("c").with_topics([Topic("t", ID, (PartitionState(leader, epoch, (1, 2, 3), (1, 2)),))])


def test_broker_without_a_lease_does_not_lead(leadership: Leadership) -> None:
    assert not leadership.may_lead(Led())


def test_lease_counts_from_the_question(leadership: Leadership, clock: Clock) -> None:
    leadership.extend(asked_at=99.0, seconds=2.0)
    assert leadership.may_lead(Led())
    clock.now = 101.0
    assert not leadership.may_lead(Led())


def test_surrendered_lease_is_over(leadership: Leadership) -> None:
    leadership.extend(99.0, 2.0)
    leadership.promised(2, 200.0, [(ID, 0)])
    leadership.surrender()
    assert not leadership.may_lead(Led())


def test_only_replica_needs_no_lease(leadership: Leadership) -> None:
    assert leadership.may_lead(Led(replicas=(1,), isr=(1,), min_isr=1, counted_replicas=(1,)))


def test_promises_of_all_successors_replace_the_lease(leadership: Leadership, clock: Clock) -> None:
    leadership.promised(2, until=101.0, places=[(ID, 0)])
    assert leadership.may_lead(Led())
    assert not leadership.may_lead(Led(isr=(1, 2, 3), counted_replicas=(1, 2, 3)))
    clock.now = 101.0
    assert not leadership.may_lead(Led())


def test_promise_counts_for_the_partitions_it_was_made_for(leadership: Leadership) -> None:
    """Of a partition that was denied, or that came after the question, nothing is promised."""
    leadership.promised(2, 200.0, [(ID, 1)])
    assert not leadership.may_lead(Led())
    assert leadership.may_lead(Led(index=1))


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (Led(), {2}),
        (Led(counted_replicas=(1, 2, 3)), {2, 3}),
        (Led(isr=(1,), counted_replicas=(1,)), {2, 3}),
        (Led(isr=(1,), counted_replicas=(1,), min_isr=1), set()),
    ],
    ids=["ISR", "proposed ISR", "below the minimum any replica may be eligible", "ISR alone"],
)
def test_successors_are_those_that_may_be_elected(partition: Led, expected: set[int]) -> None:
    assert successors(partition, 1) == expected


@pytest.mark.parametrize("old", [image(2), image(1, 3), ClusterImage("c")], ids=["another", "own epoch", "none"])
def test_new_leadership_waits_for_the_controller(leadership: Leadership, old: ClusterImage) -> None:
    leadership.extend(100.0, 2.0)
    leadership.follow(old, image(1, 5))
    assert not leadership.may_lead(Led())
    leadership.begin(leadership.sequence)
    assert leadership.may_lead(Led())


def test_unchanged_leadership_continues(leadership: Leadership) -> None:
    leadership.extend(100.0, 2.0)
    leadership.follow(image(1), image(1).with_brokers({}))
    leadership.follow(image(1), image(1))
    assert leadership.may_lead(Led())


def test_leadership_that_came_after_the_question_waits(leadership: Leadership) -> None:
    leadership.extend(100.0, 2.0)
    asked = leadership.sequence
    leadership.follow(image(2), image(1, 5))
    leadership.begin(asked)
    assert not leadership.may_lead(Led())


def test_partition_is_pending_until_it_begins(leadership: Leadership) -> None:
    assert not leadership.is_pending("t", 0)
    leadership.follow(image(2), image(1, 5))
    assert leadership.is_pending("t", 0)
    assert not leadership.is_pending("t", 1)
    leadership.begin(leadership.sequence)
    assert not leadership.is_pending("t", 0)


def test_leadership_begins_by_its_election(leadership: Leadership) -> None:
    leadership.extend(100.0, 2.0)
    (first,) = leadership.follow(image(2), image(1, 5))
    assert (first.place, first.topic_id_partition, first.state.leader_epoch) == (("t", 0), (ID, 0), 5)
    (second,) = leadership.follow(image(1, 5), image(1, 6))
    assert not leadership.waits(first)
    assert leadership.waits(second)
    leadership.begin_elected({first.number})
    assert not leadership.may_lead(Led())
    leadership.begin_elected({second.number})
    assert leadership.may_lead(Led())
    assert not leadership.waits(second)


def test_leadership_waits_for_the_own_promise(leadership: Leadership, clock: Clock) -> None:
    leadership.extend(100.0, 10.0)
    leadership.promise([(ID, 0)], 1.0)
    leadership.follow(image(2), image(1, 5))
    leadership.begin(leadership.sequence)
    assert not leadership.may_lead(Led())
    clock.now = 101.0
    leadership.begin(leadership.sequence)
    assert leadership.may_lead(Led())


def test_leadership_begins_after_the_time_of_a_lease(leadership: Leadership, clock: Clock) -> None:
    """While the controller is silent; the right to lead is then a promise."""
    leadership.follow(image(2), image(1, 5))
    leadership.promised(2, until=110.0, places=[(ID, 0)])
    clock.now = 101.9
    leadership.begin_after(2.0)
    assert not leadership.may_lead(Led())
    clock.now = 102.0
    leadership.begin_after(2.0)
    assert leadership.may_lead(Led())


def test_leadership_that_comes_again_waits_for_the_time_of_a_lease_again(leadership: Leadership, clock: Clock) -> None:
    leadership.promised(2, until=110.0, places=[(ID, 0)])
    leadership.follow(image(2), image(1, 5))
    clock.now = 101.0
    leadership.follow(image(1, 5), image(2, 6))
    leadership.follow(image(2, 6), image(1, 7))
    clock.now = 102.5
    leadership.begin_after(2.0)
    assert not leadership.may_lead(Led())


def test_leadership_waits_for_the_own_promise_after_the_time_of_a_lease(leadership: Leadership, clock: Clock) -> None:
    leadership.extend(100.0, 10.0)
    leadership.promise([(ID, 0)], 2.5)
    leadership.follow(image(2), image(1, 5))
    clock.now = 102.1
    leadership.begin_after(2.0)
    assert not leadership.may_lead(Led())
    clock.now = 102.5
    leadership.begin_after(2.0)
    assert leadership.may_lead(Led())


def test_leadership_does_not_wait_for_a_promise_of_another_partition(leadership: Leadership) -> None:
    """A deposed leader asks for promises until it learns of its successor, which denies them."""
    leadership.extend(100.0, 10.0)
    leadership.promise([(ID, 1)], 1.0)
    leadership.follow(image(2), image(1, 5))
    leadership.begin(leadership.sequence)
    assert leadership.may_lead(Led())


def test_leadership_of_an_added_partition_waits(leadership: Leadership) -> None:
    first, second = PartitionState(2, 4, (1, 2), (1, 2)), PartitionState(1, 0, (1, 2), (1, 2))
    old = ClusterImage("c").with_topics([Topic("t", ID, (first,))])
    leadership.extend(100.0, 2.0)
    leadership.follow(old, old.with_topics([Topic("t", ID, (first, second))]))
    assert not leadership.may_lead(Led(index=1))


def test_leadership_waits_when_its_topic_was_created_again(leadership: Leadership) -> None:
    again = ClusterImage("c").with_topics([Topic("t", b"u" * 16, image(1).topics["t"].partitions)])
    leadership.extend(100.0, 2.0)
    leadership.follow(image(1), again)
    assert not leadership.may_lead(Led(topic_id=b"u" * 16))


def test_later_topics_are_followed_when_a_topic_is_unchanged(leadership: Leadership) -> None:
    same, before = image(1).topics["t"], PartitionState(2, 4, (1, 2), (1, 2))
    after = PartitionState(1, 5, (1, 2), (1, 2))
    old = ClusterImage("c").with_topics([same, Topic("u", b"u" * 16, (before, before))])
    leadership.extend(100.0, 2.0)
    leadership.follow(old, old.with_topics([Topic("u", b"u" * 16, (before, after))]))
    assert leadership.may_lead(Led())
    assert not leadership.may_lead(Led(topic="u", topic_id=b"u" * 16, index=1))


def test_leadership_waits_for_promises_of_the_process_before(leadership: Leadership, clock: Clock) -> None:
    """It may have promised any partition that another broker led."""
    leadership.promise_before(101.5)
    leadership.follow(ClusterImage("c"), image(1, 1))
    leadership.begin(leadership.sequence)
    clock.now = 101.4
    leadership.begin_after(1.0)
    assert leadership.is_pending("t", 0)
    clock.now = 101.5
    leadership.begin(leadership.sequence)
    assert not leadership.is_pending("t", 0)


def test_first_leader_waits_for_no_promise_of_the_process_before(leadership: Leadership) -> None:
    leadership.promise_before(200.0)
    leadership.follow(ClusterImage("c"), image(1, 0))
    leadership.begin(leadership.sequence)
    assert not leadership.is_pending("t", 0)


def test_longer_of_two_promises_counts(leadership: Leadership, clock: Clock) -> None:
    leadership.extend(100.0, 10.0)
    leadership.promise([(ID, 0)], 3.0)
    leadership.promise([(ID, 0)], 1.0)
    leadership.follow(image(2), image(1, 5))
    clock.now = 102.0
    leadership.begin(leadership.sequence)
    assert not leadership.may_lead(Led())


def test_leadership_that_ended_waits_no_longer(leadership: Leadership) -> None:
    leadership.follow(image(2), image(1, 5))
    assert leadership.has_pending
    leadership.follow(image(1, 5), image(2, 6))
    assert not leadership.has_pending


def test_deleted_topic_waits_no_longer(leadership: Leadership) -> None:
    leadership.follow(image(2), image(1, 5))
    leadership.follow(image(1, 5), image(1, 5).without_topics({"t"}))
    assert not leadership.has_pending


def test_clients_learn_of_no_leader_that_may_not_act(leadership: Leadership) -> None:
    shown = leadership.shown(image(1), lambda _topic, _index: False)
    assert [state.leader for state in shown.topics["t"].partitions] == [NO_LEADER]


def test_clients_learn_of_other_leaders(leadership: Leadership) -> None:
    known = image(2)
    assert leadership.shown(known, lambda _topic, _index: False) is known


def test_image_is_shown_as_it_is_during_the_lease(leadership: Leadership) -> None:
    leadership.extend(100.0, 2.0)
    known = image(1)
    assert leadership.shown(known, lambda _topic, _index: False) is known


def test_sole_replicas_are_shown_unexamined_after_the_lease(leadership: Leadership) -> None:
    """A lone broker asks for no lease; each Metadata request looked at all of its partitions."""
    sole = PartitionState(1, 4, (1,), (1,))
    known = ClusterImage("c").with_topics([Topic("t", ID, (sole, sole))])

    def may_lead(topic: str, index: int) -> bool:
        raise AssertionError(f"asked for {topic}-{index}")

    assert leadership.shown(known, may_lead) is known
    again = known.with_controller(1, 1)
    assert leadership.shown(again, may_lead) is again


def test_a_second_replica_needs_a_lease(leadership: Leadership) -> None:
    sole, shared = PartitionState(1, 4, (1,), (1,)), PartitionState(1, 4, (1, 2), (1, 2))
    known = ClusterImage("c").with_topics([Topic("t", ID, (sole, sole))])
    assert not leadership.is_lease_needed(known)
    grown = known.with_topics([Topic("t", ID, (sole, shared))])
    assert leadership.is_lease_needed(grown)
    assert not leadership.is_lease_needed(known)
    shown = leadership.shown(grown, lambda _topic, index: index == 0)
    assert [state.leader for state in shown.topics["t"].partitions] == [1, NO_LEADER]


def test_look_at_the_leaders_counts_for_ten_times_as_long_as_it_took(leadership: Leadership, clock: Clock) -> None:
    known, looks = image(1), 0

    def may_lead(_topic: str, _index: int) -> bool:
        nonlocal looks
        looks += 1
        clock.now += 0.25
        return False

    first = leadership.shown(known, may_lead)
    clock.now = 102.4
    assert leadership.shown(known, may_lead) is first
    assert looks == 1
    clock.now = 102.5
    leadership.shown(known, may_lead)
    leadership.shown(image(1), may_lead)
    assert looks == 3


@pytest.mark.parametrize(("epoch", "expected"), [(3, False), (4, True), (5, True)])
def test_replica_agrees_with_the_newest_leader_only(epoch: int, expected: bool) -> None:
    assert agrees(image(2, 4), ID, 0, epoch) is expected


def test_replica_agrees_where_it_knows_no_topic() -> None:
    assert agrees(ClusterImage("c"), ID, 0, 0)


def test_lease_ends_at_its_last_moment(leadership: Leadership, clock: Clock) -> None:
    leadership.extend(100.0, 2.0)
    known = image(1)
    clock.now = 101.99
    assert leadership.may_lead(Led())
    clock.now = 102.0
    assert not leadership.may_lead(Led())
    assert leadership.shown(known, lambda _topic, _index: False) is not known


def test_shorter_lease_does_not_replace_a_longer_one(leadership: Leadership) -> None:
    leadership.extend(100.0, 5.0)
    leadership.extend(100.0, 2.0)
    assert leadership.lease_until == 105.0


@pytest.mark.parametrize(("until", "is_promised"), [(100.0, False), (100.1, True)])
def test_promise_of_another_broker_ends_at_its_last_moment(
    leadership: Leadership, until: float, is_promised: bool
) -> None:
    leadership.promised(2, until, [(ID, 0)])
    assert leadership.may_lead(Led()) is is_promised


def test_own_promise_ends_at_its_last_moment(leadership: Leadership, clock: Clock) -> None:
    leadership.promise([(ID, 0)], 5.0)
    leadership.follow(image(2), image(1))
    assert leadership.has_pending
    clock.now = 104.9
    leadership.begin(leadership.sequence)
    assert leadership.has_pending
    clock.now = 105.0
    leadership.begin(leadership.sequence)
    assert not leadership.has_pending


def test_only_own_partitions_without_a_right_are_hidden(leadership: Leadership) -> None:
    states = tuple(PartitionState(leader, 4, (1, 2, 3), (1, 2)) for leader in (1, 2, 1))
    known = ClusterImage("c").with_topics([Topic("t", ID, states), Topic("u", b"u" * 16, states[1:2])])
    shown = leadership.shown(known, lambda _topic, index: index == 2)
    assert [state.leader for state in shown.topics["t"].partitions] == [NO_LEADER, 2, 1]
    assert shown.topics["u"] is known.topics["u"]
    assert leadership.shown(image(2), lambda _topic, _index: False).topics["t"].partitions[0].leader == 2
