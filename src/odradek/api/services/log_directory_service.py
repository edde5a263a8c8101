"""What the API asks of the broker's log directories: what they hold, and moves between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from odradek.records.topic_partition import PartitionKey


class ReplicaUsage(NamedTuple):
    """A replica in a log directory; `lag` is in offsets, behind the high watermark or, of a future one, the current."""

    topic: str
    partition: int
    size_bytes: int
    lag: int
    is_future: bool


class DirectoryUsage(NamedTuple):
    """A log directory; sizes are of its file system, -1 where unknown. An offline one holds nothing."""

    path: str
    is_offline: bool
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool
    replicas: list[ReplicaUsage]


Wanted = Mapping[str, frozenset[int]] | None
"""Partitions by topic; None for all."""


class LogDirectoryService(Protocol):
    """The log directories of this broker."""

    async def advance_log_starts(self, starts: Mapping[PartitionKey, int], advance: Callable[[], None]) -> None:
        """Call `advance`, which moves the log starts of these partitions, when the new ones survive a crash."""
        ...

    async def describe(self, wanted: Wanted) -> list[DirectoryUsage]:
        """Each log directory with its replicas of the wanted partitions; sizes are read from the files."""
        ...

    def move(self, path: str, topic: str, partition: int) -> None:
        """Begin to move a replica to the log directory, or have it created there.

        Raises KafkaError LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, INVALID_REPLICA_ASSIGNMENT for a cordoned directory,
        UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE.
        """
        ...
