"""Listeners of a consumer's assignment: objects with any of the three methods, which may be coroutines."""

from __future__ import annotations

from typing import Protocol

from odradek.records.topic_partition import TopicPartition


class OnPartitionsAssigned(Protocol):
    """Is notified of new partitions."""

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> object:
        """Partitions were added, and none of their records is read yet: the place to seek."""
        ...


class OnPartitionsRevoked(Protocol):
    """Is notified of partitions that another member will read."""

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> object:
        """Another member will read these partitions: the place to commit."""
        ...


class OnPartitionsLost(Protocol):
    """Is notified of partitions that the group took without notice."""

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> object:
        """Another member may read these partitions already: too late to commit.

        A listener without this method gets `on_partitions_revoked` instead, as in Kafka.
        """
        ...


class RebalanceListener(OnPartitionsAssigned, OnPartitionsRevoked, OnPartitionsLost, Protocol):
    """All three methods, called within `poll` when the assignment changes.

    Example:

        class Log:
            def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
                print("now here:", *partitions)

            async def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
                print("soon elsewhere:", *partitions)

        consumer = Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="readers", listener=Log())
        async with consumer:
            await consumer.poll(timeout_ms=1000)
    """


AnyListener = OnPartitionsAssigned | OnPartitionsRevoked | OnPartitionsLost
"""An object with one or more of the three methods."""
