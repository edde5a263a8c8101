"""Giving leadership back to preferred replicas (`auto.leader.rebalance.enable`). Pure decisions over the image.

Source: Kafka's `KafkaController.checkAndTriggerAutoLeaderRebalance`.
"""

from __future__ import annotations

from odradek.controller.elections import can_lead_as_preferred
from odradek.metadata.image import ClusterImage
from odradek.records.topic_partition import PartitionKey

MAX_ELECTIONS_AT_ONCE = 1000


def imbalanced_partitions(image: ClusterImage, percentage: int) -> list[PartitionKey]:
    """Where to elect the preferred replica: partitions of brokers of which more than the percentage is led elsewhere.

    At most MAX_ELECTIONS_AT_ONCE, so that clients are not all sent to new leaders in one moment.
    """
    preferred: dict[int, int] = {}
    elsewhere: dict[int, list[PartitionKey]] = {}
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            broker = state.replicas[0]
            preferred[broker] = preferred.get(broker, 0) + 1
            if state.leader != broker:
                elsewhere.setdefault(broker, []).append((topic.name, index))
    found: list[PartitionKey] = []
    for broker, partitions in sorted(elsewhere.items()):
        if len(partitions) * 100 <= preferred[broker] * percentage:
            continue
        for name, index in partitions:
            state = image.topics[name].partitions[index]
            if not state.adding_replicas and can_lead_as_preferred(image, state):
                found.append((name, index))
    return found[:MAX_ELECTIONS_AT_ONCE]


def is_balanced(image: ClusterImage) -> bool:
    """Whether every partition is led by its preferred replica, as far as that is alive: nothing to look at later."""
    return all(
        state.leader == state.replicas[0] or state.replicas[0] not in image.brokers
        for topic in image.topics.values()
        for state in topic.partitions
    )
