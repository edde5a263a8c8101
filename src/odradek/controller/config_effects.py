"""What a change of configurations means for partitions. Pure decisions over the cluster image.

Source: Kafka's `ConfigurationControlManager` and `ReplicationControlManager` (KIP-966).
"""

from __future__ import annotations

from typing import TypeVar

from odradek.controller.outcome import Decision
from odradek.controller.partition_changes import Defaults, PartitionChanges, min_in_sync
from odradek.metadata.image import ClusterImage, Topic
from odradek.metadata.topic_changes import changed_topics

T = TypeVar("T")

MIN_IN_SYNC = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"


def topics_with_changed(name: str, before: ClusterImage, after: ClusterImage) -> list[Topic]:
    """Topics for which a setting may differ between the images, by their own configuration or by the brokers'."""
    brokers_differ = before.broker_configs is not after.broker_configs and any(
        before.broker_configs.get(broker, {}).get(name) != after.broker_configs.get(broker, {}).get(name)
        for broker in {*before.broker_configs, *after.broker_configs}
    )
    if brokers_differ:
        known = [(topic, before.topics.get(topic.name)) for topic in after.topics.values()]
    else:
        known = list(changed_topics(before, after))
    return [
        topic
        for topic, old in known
        if old is not None
        and (old.configs.get(name) != topic.configs.get(name) or (brokers_differ and name not in topic.configs))
    ]


def with_effects(before: ClusterImage, decision: Decision[T], defaults: Defaults) -> Decision[T]:
    """The decision, and with it the end of eligible leader replicas where another minimum lets the ISR commit alone.

    They were eligible since nothing is committed below the minimum. That goes for partitions without a leader, too: a
    deposed one that does not know it yet may still commit. `defaults` are those before the change: a topic that goes by
    a changed default loses its eligible replicas in any case.
    """
    changes = PartitionChanges(decision.image)
    for topic in topics_with_changed(MIN_IN_SYNC, before, decision.image):
        follows_default = MIN_IN_SYNC not in topic.configs
        minimum = 0 if follows_default else min_in_sync(topic, defaults)
        for index, state in enumerate(topic.partitions):
            if state.elr and len(state.isr) >= min(minimum, len(state.replicas)):
                after = state._replace(
                    elr=(), partition_epoch=state.partition_epoch + 1, controller_epoch=before.controller_epoch
                )
                changes.put(topic, index, state, after)
    more: Decision[T] = changes.decision(())
    if more.image is decision.image:
        return decision
    # The end of eligibility comes first: a controller that ends in between has promised too little, not too much.
    return Decision([*more.operations, *decision.operations], more.image, decision.replies)
