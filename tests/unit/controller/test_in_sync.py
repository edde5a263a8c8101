"""ISR changes that a leader may propose, and the errors for others."""

from __future__ import annotations

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.in_sync import UNKNOWN_EPOCH, IsrChange, alter_partitions
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.ports.store import Put
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.metadata.images import without_broker

DEFAULTS = BrokerConfig({"min.insync.replicas": "2"})
ID = b"t" * 16


def cluster(state: PartitionState, fenced: tuple[int, ...] = ()) -> ClusterImage:
    brokers = {i: Broker(i, 10 + i, None, {}, i in fenced) for i in (1, 2, 3, 4)}
    return ClusterImage("c").with_controller(9, 7).with_brokers(brokers).with_topic(Topic("t", ID, (state,)))


BEFORE = PartitionState(1, 4, (1, 2, 3), (1, 2), 6, leader_broker_epoch=11)


def change(*isr: int, epoch: int = 4, partition_epoch: int = 6, broker_epoch: int = 10) -> IsrChange:
    return IsrChange(ID, 0, epoch, partition_epoch, tuple((i, broker_epoch + i) for i in isr))


def test_followers_come_and_go() -> None:
    grown = alter_partitions(cluster(BEFORE), 1, 11, [change(3, 1, 2)], DEFAULTS)
    (reply,) = grown.replies
    assert (reply.error, reply.state) == (ErrorCode.NONE, grown.image.partition("t", 0))
    assert reply.state == BEFORE._replace(isr=(1, 2, 3), partition_epoch=7, controller_epoch=7)
    (operation,) = grown.operations
    assert isinstance(operation, Put)
    assert operation.version == 6
    shrunk = alter_partitions(cluster(BEFORE), 1, 11, [change(1)], DEFAULTS).image.partition("t", 0)
    assert shrunk == BEFORE._replace(isr=(1,), elr=(2,), partition_epoch=7, controller_epoch=7)


def test_no_replica_is_eligible_where_a_broker_has_a_minimum_of_its_own() -> None:
    """Its partitions commit by that one: an eligible replica would lack what the leader has acknowledged alone."""
    image = cluster(BEFORE).with_broker_configs("1", {"min.insync.replicas": "1"})
    shrunk = alter_partitions(image, 1, 11, [change(1)], DEFAULTS).image
    assert shrunk.topics["t"].partitions[0].elr == ()
    of_topic = image.with_topic_configs("t", {"min.insync.replicas": "2"})
    assert alter_partitions(of_topic, 1, 11, [change(1)], DEFAULTS).image.topics["t"].partitions[0].elr == (2,)


def test_repeated_change_is_accepted() -> None:
    for partition_epoch in (6, 5):
        decision = alter_partitions(cluster(BEFORE), 1, 11, [change(2, 1, partition_epoch=partition_epoch)], DEFAULTS)
        assert decision.replies[0].state == BEFORE
        assert decision.operations == ()


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (change(1, 3, epoch=5), ErrorCode.NOT_CONTROLLER),
        (change(1, 3, partition_epoch=7), ErrorCode.NOT_CONTROLLER),
        (change(1, 3, epoch=3), ErrorCode.FENCED_LEADER_EPOCH),
        (change(1, 3, partition_epoch=5), ErrorCode.INVALID_UPDATE_VERSION),
        (change(2, 3), ErrorCode.INVALID_REQUEST),
        (change(1, 2, 2), ErrorCode.INVALID_REQUEST),
        (change(1, 4), ErrorCode.INVALID_REQUEST),
        (change(), ErrorCode.INVALID_REQUEST),
        (change(1, 3, broker_epoch=9), ErrorCode.INELIGIBLE_REPLICA),
        (change(1)._replace(topic_id=b"u" * 16), ErrorCode.UNKNOWN_TOPIC_ID),
        (change(1)._replace(partition=1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (change(1)._replace(partition=-1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_rejected(asked: IsrChange, code: ErrorCode) -> None:
    decision = alter_partitions(cluster(BEFORE), 1, 11, [asked], DEFAULTS)
    assert [(reply.error, reply.state) for reply in decision.replies] == [(code, None)]
    assert decision.operations == ()
    assert decision.image.partition("t", 0) == BEFORE


def test_who_asks_must_be_the_leader_under_its_registration() -> None:
    image = cluster(BEFORE)
    (reply,) = alter_partitions(image, 2, 12, [change(1, 2, 3)], DEFAULTS).replies
    assert reply.error is ErrorCode.INVALID_REQUEST
    for broker, epoch, code in ((1, 10, ErrorCode.STALE_BROKER_EPOCH), (7, 1, ErrorCode.BROKER_ID_NOT_REGISTERED)):
        with pytest.raises(KafkaError) as raised:
            alter_partitions(image, broker, epoch, [change(1)], DEFAULTS)
        assert raised.value.code is code


def test_who_leaves_or_has_no_directory_does_not_join() -> None:
    leaving = alter_partitions(cluster(BEFORE, fenced=(3,)), 1, 11, [change(1, 2, 3)], DEFAULTS)
    assert leaving.replies[0].error is ErrorCode.INELIGIBLE_REPLICA
    offline = cluster(BEFORE._replace(offline_replicas=(3,)))
    assert (
        alter_partitions(offline, 1, 11, [change(1, 2, 3)], DEFAULTS).replies[0].error is ErrorCode.INELIGIBLE_REPLICA
    )
    away = without_broker(cluster(BEFORE), 3)
    assert alter_partitions(away, 1, 11, [change(1, 2, 3)], DEFAULTS).replies[0].error is ErrorCode.INELIGIBLE_REPLICA
    unknown = IsrChange(ID, 0, 4, 6, tuple((i, UNKNOWN_EPOCH) for i in (1, 2, 3)))
    assert alter_partitions(cluster(BEFORE), 1, 11, [unknown], DEFAULTS).replies[0].error is ErrorCode.NONE


def test_the_change_that_ends_a_move() -> None:
    moving = BEFORE._replace(replicas=(3, 2, 1), adding_replicas=(3,), removing_replicas=(1,))
    decision = alter_partitions(cluster(moving), 1, 11, [change(1, 2, 3)], DEFAULTS)
    assert decision.replies[0].error is ErrorCode.NEW_LEADER_ELECTED
    after = decision.image.partition("t", 0)
    assert after == PartitionState(3, 5, (3, 2), (3, 2), 7, controller_epoch=7, leader_broker_epoch=13)
    staying = BEFORE._replace(replicas=(1, 3, 2), adding_replicas=(3,), removing_replicas=(2,))
    decision = alter_partitions(cluster(staying), 1, 11, [change(1, 2, 3)], DEFAULTS)
    # A removed replica must not continue as a follower of the same epoch.
    assert decision.replies[0].error is ErrorCode.NEW_LEADER_ELECTED
    after = decision.image.partition("t", 0)
    assert after == PartitionState(1, 5, (1, 3), (1, 3), 7, controller_epoch=7, leader_broker_epoch=11)
    waiting = alter_partitions(cluster(staying), 1, 11, [change(1)], DEFAULTS).image.partition("t", 0)
    assert waiting is not None
    assert (waiting.replicas, waiting.adding_replicas) == ((1, 3, 2), (3,))


def test_several_changes_in_one_request() -> None:
    image = cluster(BEFORE)
    topic = image.topics["t"]
    image = image.with_topic(topic._replace(partitions=(BEFORE, BEFORE, BEFORE)))
    changes = [change(1)._replace(partition=i) for i in (0, 2)]
    decision = alter_partitions(image, 1, 11, [*changes, change(1, epoch=3)._replace(partition=1)], DEFAULTS)
    assert [reply.error for reply in decision.replies] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
    ]
    assert [s.isr for s in decision.image.topics["t"].partitions] == [(1,), (1, 2), (1,)]
