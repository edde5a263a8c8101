"""Decisions of the controller on images that were replayed from KRaft's records, and the records of these decisions."""

from __future__ import annotations

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.brokers import shutting_down
from odradek.metadata.image import Broker, ClusterImage, PartitionState, Topic
from odradek.metadata.kraft.difference import difference
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
