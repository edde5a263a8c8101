"""What a balanced cluster is planned from: the replicas of all partitions and their sizes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from odradek.client.admin import raise_first
from odradek.client.reports.balance_plan import Replica
from odradek.client.reports.cluster import topics_of
from odradek.records.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.client.admin import Admin


async def sized_replicas(admin: Admin) -> dict[TopicPartition, Replica]:
    """All partitions with their replicas and the size of the largest one. Raises KafkaError, ClientError."""
    sizes: dict[TopicPartition, int] = defaultdict(int)
    for directories in raise_first(await admin.log_dirs.describe()).values():
        for directory in directories.values():
            for place, replica in directory.replicas.items():
                sizes[place] = max(sizes[place], replica.size_bytes)
    return {
        place: Replica(tuple(each.replicas), sizes[place])
        for topic in await topics_of(admin)
        for each in topic.partitions
        for place in (TopicPartition(topic.name, each.partition),)
    }
