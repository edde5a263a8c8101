"""What registrations, fences, shutdowns and failed directories mean for the partitions of a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.brokers import (
    BrokerChanges,
    _without_unclean,
    broker_changes,
    brokers_changed,
    fencing_changed,
    leaders_sought,
    recovered_partitions,
    registered,
    replicas_offline,
    replicas_online,
    shutting_down,
    with_states_of,
)
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, PartitionState, Topic
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

DEFAULTS = BrokerConfig({"min.insync.replicas": "1"})
NONE: frozenset[int] = frozenset()


def broker(broker_id: int, epoch: int = 0, **fields: Any) -> Broker:
    return Broker(broker_id, epoch or 10 + broker_id, None, {}, **fields)


def brokers(*ids: int) -> dict[int, Broker]:
    return {each: broker(each) for each in ids}


def state(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...] = (), **fields: Any) -> PartitionState:
    elected = 10 + leader if leader != NO_LEADER else -1
    return PartitionState(leader, 4, replicas, isr or replicas, 7, leader_broker_epoch=elected)._replace(**fields)


def cluster(*states: PartitionState, known: dict[int, Broker] | None = None) -> ClusterImage:
    """Topics t (all states) and u (the last one), of brokers 1 to 3."""
    topics = [Topic("t", b"t" * 16, states), Topic("u", b"u" * 16, states[-1:])]
    return ClusterImage("c").with_brokers(known or brokers(1, 2, 3)).with_topics(topics)


def leaders(image: ClusterImage, topic: str = "t") -> list[int]:
    return [each.leader for each in image.topics[topic].partitions]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (BrokerChanges(NONE, NONE, NONE), False),
        (BrokerChanges(frozenset({1}), NONE, NONE), True),
        (BrokerChanges(NONE, frozenset({1}), NONE), True),
        (BrokerChanges(NONE, NONE, frozenset({1})), True),
    ],
)
def test_any_change_of_brokers_is_one(changes: BrokerChanges, expected: bool) -> None:
    assert bool(changes) is expected


def test_brokers_end_start_and_restart() -> None:
    after = {2: broker(2), 3: broker(3, 99), 4: broker(4)}
    assert broker_changes(brokers(1, 2, 3), after) == BrokerChanges(frozenset({1}), frozenset({4}), frozenset({3}))


def test_state_of_a_registration_stays_and_that_of_another_goes() -> None:
    before = {
        1: broker(1, fenced=True),
        2: broker(2, in_controlled_shutdown=True),
        3: broker(3, fenced=True),
        4: broker(4),
    }
    found = with_states_of(before, {**brokers(1, 2, 4, 5), 3: broker(3, 99)})
    assert found == {1: before[1], 2: before[2], 3: broker(3, 99), 4: broker(4), 5: broker(5)}


def test_partitions_of_an_ended_broker_get_other_leaders() -> None:
    image = cluster(state(1, (1, 2)), state(2, (2, 3)), state(1, (1, 3)))
    decision = brokers_changed(image, brokers(2, 3), DEFAULTS)
    assert leaders(decision.image) == [2, 2, 3]
    assert list(decision.replies) == [TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 0)]


def test_restarted_broker_leaves_the_isr_while_another_one_is_in_it() -> None:
    image = cluster(state(2, (1, 2)), state(2, (2, 1), (1, 2)), state(1, (1, 3), (1,)))
    after = brokers_changed(image, {**brokers(1, 2, 3), 1: broker(1, 99)}, DEFAULTS).image
    assert [each.isr for each in after.topics["t"].partitions] == [(2,), (2,), (1,)]


def test_restarted_leader_leaves_the_isr_for_a_new_controller() -> None:
    """The broker registered again while no controller was active, so only the states name its old registration."""
    known = {**brokers(2, 3), 1: broker(1, 99)}
    image = cluster(state(1, (1, 2, 3)), state(2, (1, 2)), state(1, (1, 2), (1,)), known=known)
    after = recovered_partitions(image, DEFAULTS).image
    states = after.topics["t"].partitions
    assert [(each.leader, each.isr) for each in states] == [(2, (2, 3)), (2, (1, 2)), (1, (1,))]
    assert recovered_partitions(after, DEFAULTS).operations == ()


def test_registration_presumes_all_directories_good() -> None:
    offline = {"offline_replicas": (1, 2)}
    image = cluster(state(3, (3, 1, 2), (3,), **offline), state(3, (3, 2), (3,), offline_replicas=(2,)))
    after = brokers_changed(image, {**brokers(1, 2, 3), 1: broker(1, 99)}, DEFAULTS).image
    assert [each.offline_replicas for each in after.topics["t"].partitions] == [(2,), (2,)]
    sole = cluster(state(NO_LEADER, (1,), (1,), offline_replicas=(1,)))
    found = brokers_changed(sole, {**brokers(1, 2, 3), 1: broker(1, 99)}, DEFAULTS).image.partition("t", 0)
    assert found is not None
    assert (found.leader, found.offline_replicas) == (1, ())


def test_failed_directory_has_still_failed_when_a_fence_ends() -> None:
    image = cluster(
        state(NO_LEADER, (1,), (1,), offline_replicas=(1,)), known={**brokers(2, 3), 1: broker(1, fenced=True)}
    )
    after = fencing_changed(image, (), [image.brokers[1]], DEFAULTS).image
    assert not after.brokers[1].fenced
    assert leaders(after) == [NO_LEADER]


def test_fenced_broker_loses_its_leaderships_and_stays_without_them() -> None:
    image = cluster(state(1, (1, 2)), state(3, (3, 1)), state(3, (3,)))
    fenced = fencing_changed(image, [image.brokers[1]], (), DEFAULTS)
    assert fenced.image.brokers[1].fenced
    assert leaders(fenced.image) == [2, 3, 3]
    assert [each.isr for each in fenced.image.topics["t"].partitions] == [(2,), (3,), (3,)]
    assert list(fenced.replies) == [TopicPartition("t", 0), TopicPartition("t", 1)]
    again = fencing_changed(fenced.image, (), [fenced.image.brokers[1]], DEFAULTS)
    assert not again.image.brokers[1].fenced
    assert leaders(again.image) == [2, 3, 3]


def test_controlled_shutdown_names_what_the_broker_still_leads() -> None:
    image = cluster(state(1, (1, 2)), state(1, (1, 3), (1,)), state(1, (1,)), state(2, (2, 3)), state(2, (2, 1)))
    decision = shutting_down(image, 1, 11, DEFAULTS)
    assert decision.image.brokers[1].in_controlled_shutdown
    assert leaders(decision.image) == [2, 1, 1, 2, 2]
    assert list(decision.replies) == [TopicPartition("t", 1)], "a sole replica stays, and is not waited for"
    assert decision.image.topics["t"].partitions[4].isr == (2,)


@pytest.mark.parametrize(
    ("broker_id", "epoch", "code"),
    [(9, 19, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, 10, ErrorCode.STALE_BROKER_EPOCH)],
)
def test_request_under_another_registration_is_rejected(broker_id: int, epoch: int, code: ErrorCode) -> None:
    image = cluster(state(1, (1, 2)))
    for call in (lambda: registered(image, broker_id, epoch), lambda: shutting_down(image, broker_id, epoch, DEFAULTS)):
        with pytest.raises(KafkaError) as raised:
            call()
        assert raised.value.code is code


def test_failed_directory_takes_leaderships_of_its_replicas_only() -> None:
    image = cluster(state(1, (1, 2)), state(1, (1, 3)), state(2, (2, 3)))
    asked = [TopicPartition("missing", 0), TopicPartition("t", 2), TopicPartition("t", 9), TopicPartition("t", 0)]
    decision = replicas_offline(image, 1, [*asked, TopicPartition("t", 0)], DEFAULTS)
    assert leaders(decision.image) == [2, 1, 2]
    assert decision.image.topics["t"].partitions[0].offline_replicas == (1,)
    assert list(decision.replies) == [TopicPartition("t", 0)]
    more = replicas_offline(decision.image, 2, [TopicPartition("t", 0)], DEFAULTS)
    assert more.image.topics["t"].partitions[0].offline_replicas == (1, 2)
    assert leaders(more.image) == [NO_LEADER, 1, 2]
    known = replicas_offline(more.image, 1, [TopicPartition("t", 0)], DEFAULTS)
    assert not known.replies
    back = replicas_online(
        more.image, 2, [TopicPartition("missing", 0), TopicPartition("t", 1), TopicPartition("t", 0)], DEFAULTS
    )
    assert back.image.topics["t"].partitions[0].offline_replicas == (1,)
    assert leaders(back.image) == [2, 1, 2]
    assert list(back.replies) == [TopicPartition("t", 0)]


def test_new_controller_completes_what_the_one_before_left() -> None:
    never = PartitionState(NO_LEADER, -1, (2, 3), ())
    image = cluster(state(1, (1, 2)), state(9, (9, 3), (9, 3)), never)
    decision = recovered_partitions(image, DEFAULTS)
    assert leaders(decision.image) == [1, 3, 2]
    assert list(decision.replies) == [TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0)]


def test_unclean_broker_is_out_of_sync_for_a_new_controller_only() -> None:
    known = {**brokers(2, 3), 1: broker(1, unclean=True)}
    image = cluster(state(2, (1, 2)), known=known)
    assert recovered_partitions(image, DEFAULTS).image.topics["t"].partitions[0].isr == (2,)
    assert leaders_sought(image, DEFAULTS).image.topics["t"].partitions[0].isr == (1, 2)


def test_sole_leader_without_failed_directory_is_not_reconsidered() -> None:
    image = cluster(state(1, (1,)), state(1, (1, 2)))
    after = brokers_changed(image, brokers(2, 3), DEFAULTS)
    assert leaders(after.image) == [1, 2]
    assert list(after.replies) == [TopicPartition("t", 1), TopicPartition("u", 0)]


@pytest.mark.parametrize(
    ("isr", "elr", "unclean", "expected"),
    [
        ((1, 2), (), {1}, ((2,), ())),
        ((1, 2), (3,), {1, 3}, ((2,), ())),
        ((1,), (2, 3), {1}, ((2, 3), ())),
        ((1,), (2,), {1, 2}, ((1,), (2,))),
        ((1,), (), {1}, ((1,), ())),
    ],
)
def test_broker_after_a_crash_yields_to_replicas_with_all_records(
    isr: tuple[int, ...], elr: tuple[int, ...], unclean: set[int], expected: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """It stays in the ISR where no other replica has them: an empty ISR elects no leader."""
    aliveness = SimpleNamespace(has_led=lambda *_: False)
    rules: Any = SimpleNamespace(unclean=frozenset(unclean), aliveness=aliveness, brokers={})
    found = _without_unclean(state(NO_LEADER, (1, 2, 3), isr, elr=elr), rules)
    assert (found.isr, found.elr) == expected
