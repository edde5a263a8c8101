"""How a partition is identified; the only definitions, used by client, log, broker and simulator alike."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


PartitionKey: TypeAlias = tuple[str, int]
"""(topic, partition) as a plain tuple, for tables that requests look up: a TopicPartition is one and equals it."""

TopicIdPartition: TypeAlias = tuple[bytes, int]
"""(topic id, partition): unlike a PartitionKey it does not name the partition of a later topic with the same name."""
