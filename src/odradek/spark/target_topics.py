"""The topics that a write goes to: whether they exist, asked before rows or numbers of batches are sent."""

from __future__ import annotations

from typing import Final

from odradek.client.errors import CallTimedOut
from odradek.client.network.cluster import Cluster
from odradek.wire.errors import ErrorCode, KafkaError

PATIENCE_MS: Final = 5_000
"""For this long a topic that brokers do not know is asked for again: a new one needs some time to reach all of them."""


class TargetMissing(RuntimeError):
    """A topic that rows are to be written to does not exist, and brokers do not create it."""


async def partition_count(cluster: Cluster, topic: str) -> int:
    """The number of a topic's partitions. Brokers with auto.create.topics.enable create a missing one meanwhile.

    Raises TargetMissing, KafkaError (TOPIC_AUTHORIZATION_FAILED), CallTimedOut while no broker answers.
    """
    try:
        found = await cluster.topic(topic, PATIENCE_MS)
    except CallTimedOut as error:
        if isinstance(error.__cause__, KafkaError) and error.__cause__.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise TargetMissing(
                f"topic {topic} does not exist: create it, or let brokers do so (auto.create.topics.enable)"
            ) from error
        found = await cluster.topic(topic)
    return len(found.partitions)
