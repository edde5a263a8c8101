"""Decisions of the controller on images that were replayed from KRaft's records, and the records of these decisions."""

from __future__ import annotations

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.brokers import shutting_down
from odradek.controller.in_sync import IsrChange, alter_partitions
from odradek.controller.reassignments import Reassignment, alter_reassignments
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.kraft.difference import difference
from odradek.metadata.kraft.replay import replay
from odradek.wire.messages import cluster_metadata as md

CONFIG = BrokerConfig({"min.insync.replicas": "1"})
TOPIC_ID = b"t" * 16


def cluster(*states: PartitionState) -> ClusterImage:
    image = ClusterImage().with_brokers({i: Broker(i, 10 + i, None, {}) for i in (1, 2, 3)})
    return image.with_topic(Topic("t", TOPIC_ID, states))


def test_controlled_shutdown_is_recorded_as_such_and_not_as_a_fence() -> None:
    image = cluster(PartitionState(1, 4, (1, 2), (1, 2), 7, leader_broker_epoch=11))
    after = shutting_down(image, 1, 11, CONFIG).image
    assert difference(image, after) == [
        md.BrokerRegistrationChangeRecord(1, 11, in_controlled_shutdown=1),
        md.PartitionChangeRecord(0, TOPIC_ID, isr=[2], leader=2),
    ]


def test_finished_move_leaves_one_directory_for_each_replica() -> None:
    state = PartitionState(1, 4, (1, 2), (1, 2), 7, leader_broker_epoch=11, directories=(b"a" * 16, b"b" * 16))
    image = cluster(state).with_broker(Broker(3, 13, None, {}, log_dirs=(b"c" * 16,)))
    moving = alter_reassignments(image, [Reassignment("t", 0, (3, 1))], CONFIG).image
    (during,) = moving.topics["t"].partitions
    assert (during.replicas, during.directories) == ((3, 1, 2), (b"c" * 16, b"a" * 16, b"b" * 16))
    change = IsrChange(TOPIC_ID, 0, 4, during.partition_epoch, ((1, 11), (2, 12), (3, 13)))
    ended = alter_partitions(moving, 1, 11, [change], CONFIG).image
    (after,) = ended.topics["t"].partitions
    assert (after.replicas, after.directories) == ((3, 1), (b"c" * 16, b"a" * 16))
    for before, now in ((image, moving), (moving, ended)):
        assert replay(difference(before, now), before).topics == now.topics
