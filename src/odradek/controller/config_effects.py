"""What a change of configurations means for partitions. Pure decisions over the cluster image.

Source: Kafka's `ConfigurationControlManager` and `ReplicationControlManager` (KIP-966).
"""

from __future__ import annotations

from typing import TypeVar

from odradek.controller.outcome import Decision
from odradek.controller.partition_changes import PartitionChanges
from odradek.metadata.image import ClusterImage, Topic

T = TypeVar("T")

MIN_IN_SYNC = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


def topics_with_changed(name: str, before: ClusterImage, after: ClusterImage) -> list[Topic]:
    """Topics for which a setting may differ between the images, by their own configuration or by the brokers'."""
    brokers_differ = before.broker_configs is not after.broker_configs and any(
        before.broker_configs.get(broker, {}).get(name) != after.broker_configs.get(broker, {}).get(name)
        for broker in {*before.broker_configs, *after.broker_configs}
    )
    found = []
    for topic in after.topics.values():
        old = before.topics.get(topic.name)
        if old is None or (old is topic and not brokers_differ):
            continue
        if old.configs.get(name) != topic.configs.get(name) or (brokers_differ and name not in topic.configs):
            found.append(topic)
    return found


def with_effects(before: ClusterImage, decision: Decision[T]) -> Decision[T]:
    """The decision, and with it the end of all eligible leader replicas whose minimum changes.

    They were eligible since nothing is committed below the minimum: another minimum, another promise.
    """
    changes = PartitionChanges(decision.image)
    for topic in topics_with_changed(MIN_IN_SYNC, before, decision.image):
        for index, state in enumerate(topic.partitions):
            if state.elr:
                after = state._replace(
                    elr=(), partition_epoch=state.partition_epoch + 1, controller_epoch=before.controller_epoch
                )
                changes.put(topic, index, state, after)
    more: Decision[T] = changes.decision(())
    if not more.operations:
        return decision
    # The end of eligibility comes first: a controller that ends in between has promised too little, not too much.
    return Decision([*more.operations, *decision.operations], more.image, decision.replies)
