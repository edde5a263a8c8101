"""Who leads next: cases one by one. (Histories: test_controller_properties.)"""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.batching import MAX_OPERATIONS, batches, size_of
from odradek.controller.brokers import brokers_changed, recovered_partitions, replicas_offline, replicas_online
from odradek.controller.leader_balance import imbalanced_partitions, is_balanced
from odradek.controller.notices import Notice, difference, notice
from odradek.controller.partition_changes import Election, Rules, next_state
from odradek.controller.reassignments import Reassignment, alter_reassignments
from odradek.controller.topics import TopicReference, delete_topics
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from odradek.ports.store import Check, Create, Delete, Operation, Put
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode
from tests.unit.metadata.images import with_partition

DEFAULTS = BrokerConfig({"min.insync.replicas": "2"})


def brokers(*alive: int, leaving: tuple[int, ...] = (), restarted: tuple[int, ...] = ()) -> dict[int, Broker]:
    return {i: Broker(i, 20 if i in restarted else 10, None, {}, i in leaving) for i in alive}


def state(leader: int, *isr: int, elr: tuple[int, ...] = (), replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionState:
    return PartitionState(leader, 5, replicas, isr, 8, elr=elr, leader_broker_epoch=10 if leader > 0 else -1)


@pytest.mark.parametrize(
    ("before", "now", "election", "expected"),
    [
        # The leader is gone: the first in sync, in the order of assignment.
        (state(1, 3, 2, 1), brokers(2, 3), Election.ONLINE, (2, (3, 2), ())),
        (state(1, 1, 2), brokers(2, 3), Election.ONLINE, (2, (2,), (1,))),
        # No replica in sync is left.
        (state(1, 1, 3), brokers(2), Election.ONLINE, (NO_LEADER, (1, 3), ())),
        (state(1, 1, 3), brokers(2), Election.UNCLEAN, (2, (2,), ())),
        # An eligible one takes over, before anybody unclean does.
        (state(1, 1, elr=(3,)), brokers(2, 3), Election.UNCLEAN, (3, (3,), (1,))),
        (state(NO_LEADER, 1, elr=(2, 3)), brokers(3), Election.ONLINE, (3, (3,), (1, 2))),
        # A restarted leader gives way to live members, and leads again without them.
        (state(1, 1, 2, 3), brokers(1, 2, 3, restarted=(1,)), Election.ONLINE, (2, (1, 2, 3), ())),
        (state(1, 1), brokers(1, 2, 3, restarted=(1,)), Election.ONLINE, (1, (1,), ())),
        # Whoever shuts down hands over, or leads until it is gone.
        (state(1, 1, 2, 3), brokers(1, 2, 3, leaving=(1,)), Election.ONLINE, (2, (2, 3), ())),
        (state(1, 1), brokers(1, 2, leaving=(1,)), Election.UNCLEAN, (1, (1,), ())),
        (state(1, 1, elr=(2,)), brokers(1, 2, leaving=(1,)), Election.ONLINE, (2, (2,), (1,))),
        # The preferred one, if it is in sync.
        (state(2, 1, 2), brokers(1, 2, 3), Election.PREFERRED, (1, (1, 2), ())),
        (state(2, 2, 3), brokers(1, 2, 3), Election.PREFERRED, (2, (2, 3), ())),
    ],
)
def test_who_leads(
    before: PartitionState, now: dict[int, Broker], election: Election, expected: tuple[object, ...]
) -> None:
    after = next_state(before, before, Rules(now, 3, 2, election))
    assert (after.leader, after.isr, after.elr) == expected
    moved = after.leader != before.leader or (before.leader in now and now[before.leader].epoch == 20)
    assert after.leader_epoch == before.leader_epoch + moved
    assert after.partition_epoch == before.partition_epoch + (after != before)
    if after is before:
        return
    assert after.leader_broker_epoch == (now[after.leader].epoch if after.leader in now else -1)
    assert next_state(after, after, Rules(now, 3, 2, Election.ONLINE)) is after


def test_a_sole_replica_is_left_alone() -> None:
    before = PartitionState(1, 5, (1,), (1,), 8, leader_broker_epoch=3)
    for now in (brokers(2), brokers(1, restarted=(1,)), brokers(1, leaving=(1,))):
        assert next_state(before, before, Rules(now, 3, 2)) is before
    company = before._replace(replicas=(1, 2), adding_replicas=(2,))
    after = next_state(before, company, Rules(brokers(1, 2), 3, 2))
    assert (after.leader, after.leader_epoch, after.leader_broker_epoch) == (1, 5, 10)


def test_of_two_that_are_in_sync_and_dead_either_may_come_back() -> None:
    before = state(NO_LEADER, 1, 2)
    after = next_state(before, before, Rules(brokers(2), 3, 2))
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))


def image(*states: PartitionState, now: dict[int, Broker]) -> ClusterImage:
    return ClusterImage("c").with_controller(9, 3).with_brokers(now).with_topic(Topic("t", b"t" * 16, states))


def test_unclean_member_yields_to_a_complete_one() -> None:
    now = brokers(2, 3)
    before = image(state(NO_LEADER, 1, elr=(2,)), now=brokers(3))
    unclean = {1: Broker(1, 30, None, {}, unclean=True)}
    waits = brokers_changed(before, {**brokers(3), **unclean}, DEFAULTS).image.topics["t"].partitions[0]
    assert (waits.leader, waits.isr, waits.elr) == (NO_LEADER, (2,), ())
    leads = brokers_changed(before, {**now, **unclean}, DEFAULTS).image.topics["t"].partitions[0]
    assert (leads.leader, leads.isr, leads.elr) == (2, (2,), ())
    alone = image(state(NO_LEADER, 1), now=brokers(3))
    last = brokers_changed(alone, {**brokers(3), **unclean}, DEFAULTS).image.topics["t"].partitions[0]
    assert (last.leader, last.isr) == (1, (1,)), "no replica has more"


def test_leader_of_an_unclean_election_stays_when_the_controller_changes() -> None:
    unclean = Broker(1, 30, None, {}, unclean=True)
    before = image(state(1, 1, 2)._replace(leader_broker_epoch=30), now={**brokers(2, 3), 1: unclean})
    assert recovered_partitions(before, DEFAULTS).operations == ()


def test_directories_fail_one_after_the_other() -> None:
    before = image(state(1, 1, 2, 3), state(2, 1, 2, 3), now=brokers(1, 2, 3))
    first = replicas_offline(
        before, 1, [TopicPartition("t", 0), TopicPartition("t", 0), TopicPartition("t", 7)], DEFAULTS
    )
    assert list(first.replies) == [TopicPartition("t", 0)]
    after = first.image.topics["t"].partitions[0]
    assert (after.leader, after.isr, after.offline_replicas) == (2, (2, 3), (1,))
    again = replicas_offline(first.image, 1, [TopicPartition("t", 0)], DEFAULTS)
    assert (list(again.replies), again.operations) == ([], ())
    third = replicas_offline(first.image, 3, [TopicPartition("t", 0)], DEFAULTS).image.topics["t"].partitions[0]
    assert (third.leader, third.isr, third.offline_replicas) == (2, (2,), (1, 3))


def test_move_must_leave_a_replica_in_sync() -> None:
    before = image(state(1, 1, replicas=(1, 2)), now=brokers(1, 2, 3))
    started = alter_reassignments(before, [Reassignment("t", 0, (3, 2))], DEFAULTS).image
    moving = started.topics["t"].partitions[0]
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ((3, 2, 1), (3,), (1,))
    assert (moving.leader, moving.leader_epoch, moving.partition_epoch) == (1, 5, 9)
    caught_up = image(moving._replace(isr=(3,), leader=3), now=brokers(1, 2, 3))
    (reply,) = alter_reassignments(caught_up, [Reassignment("t", 0, None)], DEFAULTS).replies
    assert reply.failure is not None
    assert reply.failure.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert alter_reassignments(caught_up, [Reassignment("t", 0, (2, 1))], DEFAULTS).operations == ()


def test_last_move_counts_when_a_partition_is_named_twice() -> None:
    """The second write expected the version of the first one, and the store rejected the request."""
    before = image(state(1, 1, 2, replicas=(1, 2)), now=brokers(1, 2, 3))
    moves = [Reassignment("t", 0, (3, 2)), Reassignment("t", 0, (2, 1))]
    decision = alter_reassignments(before, moves, DEFAULTS)
    (moved,) = decision.image.topics["t"].partitions
    assert (moved.replicas, moved.partition_epoch) == ((2, 1), 9)
    assert [reply.failure for reply in decision.replies] == [None]
    assert [each.version for each in decision.operations if isinstance(each, Put)] == [-1, 8]


def test_leaders_are_given_back_where_many_are_elsewhere() -> None:
    home, away = state(1, 1, 2, 3), state(2, 1, 2, 3)
    mostly_home = image(*[home] * 9, away, now=brokers(1, 2, 3))
    assert imbalanced_partitions(mostly_home, 10) == []
    assert imbalanced_partitions(mostly_home, 9) == [("t", 9)]
    assert not is_balanced(mostly_home)
    out_of_sync, moving = state(2, 2, 3), away._replace(adding_replicas=(3,))
    assert imbalanced_partitions(image(away, out_of_sync, moving, now=brokers(1, 2, 3)), 10) == [("t", 0)]
    assert is_balanced(image(away, now=brokers(2, 3))), "nothing to do as long as the preferred one is away"


def test_a_topic_made_again_is_another_one() -> None:
    old = image(state(1, 1, 2, 3), now=brokers(1, 2, 3))
    again = Topic("t", b"u" * 16, (state(1, 1, 2, 3), state(2, 2, 1, 3)))
    news = notice(difference(old, old.without_topics(["t"]).with_topic(again)), 3)
    assert [(s.topic.id, s.partition, s.leader_epoch) for s in news.stop] == [(b"t" * 16, 0, -2)]
    assert [(p.topic.id, p.partition, p.is_new) for p in news.lead] == [(b"u" * 16, 0, True), (b"u" * 16, 1, True)]
    assert [topic.id for topic in news.deleted] == [b"t" * 16]


def test_a_replica_that_is_moved_away_is_stopped_with_or_without_a_leader() -> None:
    for leader in (2, NO_LEADER):
        before = image(state(leader, 2, 3), now=brokers(1, 2, 3))
        after = with_partition(before, "t", 0, state(leader, 2, 3)._replace(replicas=(2, 3), leader_epoch=6))
        news = notice(difference(before, after), 1)
        assert [(s.partition, s.leader_epoch) for s in news.stop] == [(0, 6)]
        assert not news.lead
        assert notice(difference(before, after), 2).stop == []


def test_large_topics_are_marked_before_they_go() -> None:
    large = image(*[state(1, 1, 2, 3)] * 501, now=brokers(1, 2, 3))
    decision = delete_topics(large, [TopicReference("t")], DEFAULTS)
    assert decision.operations[0] == Create("/admin/delete_topics/t", b"")
    assert decision.operations[-1] == Delete("/admin/delete_topics/t")
    assert len(decision.cuts) > 500
    assert all(sum(map(size_of, batch)) <= 10_000 for batch in batches(decision.operations, decision.cuts, 10_000))
    small = delete_topics(image(state(1, 1), now=brokers(1)), [TopicReference("t")], DEFAULTS)
    assert (list(small.cuts), len(small.operations)) == ([], 5)


def test_batches_keep_what_must_not_be_cut() -> None:
    operations: list[Operation] = [Put("/a", b"x" * 100), Delete("/b"), Check("/c", 1), Create("/d", b"y" * 100)]
    assert list(batches(operations, [1, 3], 0)) == [operations]
    assert list(batches(operations, [1, 3], 200)) == [operations[:1], operations[1:3], operations[3:]]
    assert list(batches(operations, [3], 200)) == [operations[:3], operations[3:]]
    assert list(batches(operations, [], 10)) == [operations], "what cannot be cut stays whole"
    assert list(batches([], [], 0)) == []
    many: list[Operation] = [Delete(f"/{i}") for i in range(MAX_OPERATIONS + 1)]
    assert [len(batch) for batch in batches(many, range(1, len(many)), 0)] == [MAX_OPERATIONS, 1]
    assert size_of(operations[0]) > size_of(operations[1])


def test_replicas_that_answer_again_are_offline_no_longer() -> None:
    before = image(state(2, 2, 3)._replace(offline_replicas=(1, 3)), now=brokers(1, 2, 3))
    found = replicas_online(
        before, 1, [TopicPartition("t", 0), TopicPartition("t", 7), TopicPartition("u", 0)], DEFAULTS
    )
    assert list(found.replies) == [TopicPartition("t", 0)]
    assert found.image.topics["t"].partitions[0].offline_replicas == (3,)


def test_replicas_that_were_online_need_no_change() -> None:
    before = image(state(2, 2, 3)._replace(offline_replicas=(3,)), now=brokers(1, 2, 3))
    assert replicas_online(before, 1, [TopicPartition("t", 0)], DEFAULTS).operations == ()


@pytest.mark.parametrize("part", ["stop", "lead", "know", "deleted", "full", "brokers_changed"])
def test_notice_with_one_part_is_sent(part: str) -> None:
    nothing = Notice(False, (), (), (), (), False)
    assert not nothing
    parts: dict[str, Any] = {part: True if part in ("full", "brokers_changed") else (object(),)}
    assert nothing._replace(**parts)
