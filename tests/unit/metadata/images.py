"""Changes of a cluster image that tests make."""

from odradek.metadata.image import ClusterImage, PartitionState


def without_broker(image: ClusterImage, broker_id: int) -> ClusterImage:
    return image.with_brokers({i: broker for i, broker in image.brokers.items() if i != broker_id})


def with_partition(image: ClusterImage, topic: str, index: int, state: PartitionState) -> ClusterImage:
    found = image.topics[topic]
    partitions = list(found.partitions)
    partitions[index] = state
    return image.with_topics((found._replace(partitions=tuple(partitions)),))
