"""What a consumer without a group reads: every partition of its topics."""

from __future__ import annotations

import re
from collections.abc import Collection

from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.positions import PartitionState
from odradek.client.network.cluster import Cluster
from odradek.records.topic_partition import TopicPartition


async def assign_every_partition(
    cluster: Cluster, fetcher: Fetcher, topics: Collection[str] | re.Pattern[str], exclude_internal: bool
) -> None:
    """Have the fetcher fetch every partition of the topics, or of those whose names match; others keep their state.

    `exclude_internal` leaves out Kafka's own topics that match. Raises KafkaError, CallTimedOut.
    """
    if isinstance(topics, re.Pattern):
        if not cluster.metadata.version:
            await cluster.retrying(cluster.refresh_metadata, "Metadata")
        names = {
            name
            for name, info in cluster.metadata.topics.items()
            if topics.fullmatch(name) is not None and not (info.is_internal and exclude_internal)
        }
    else:
        await _find_topics(cluster, topics, may_wait=not fetcher.states)
        names = set(topics)
    found = [
        TopicPartition(name, each.partition)
        for name in sorted(names)
        if name in cluster.metadata.topics
        for each in cluster.metadata.topics[name].partitions
    ]
    if len(found) != len(fetcher.states) or any(key not in fetcher.states for key in found):
        fetcher.states = {key: fetcher.states.get(key) or PartitionState(key) for key in found}


async def _find_topics(cluster: Cluster, topics: Collection[str], *, may_wait: bool) -> None:
    """Wait for the topics, or only look for missing ones from time to time, while others are read."""
    for topic in topics:
        if may_wait:
            await cluster.topic(topic)
        elif topic not in cluster.metadata.topics:
            cluster.add_topic(topic)
            if cluster.metadata_age() * 1000 >= cluster.options["retry_backoff_max_ms"]:
                cluster.want_metadata()
