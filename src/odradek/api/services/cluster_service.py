"""What brokers ask of each other: the controller of a broker, and a broker of the controller."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.controller.lease_table import Grant
from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.stop_replica import StopReplicaRequest
from odradek.wire.messages.update_metadata import UpdateMetadataRequest


class ClusterMember(Protocol):
    """A broker that obeys the controller.

    Each raises KafkaError STALE_CONTROLLER_EPOCH for one that has been replaced, or has taken a newer connection than
    the one of that number, and STALE_BROKER_EPOCH for what was decided before this broker's newest registration.
    """

    @property
    def has_metadata(self) -> bool:
        """Whether a controller has sent its image since this broker started; until then it knows no broker."""
        ...

    async def wait_for_metadata(self) -> None:
        """Wait for that."""
        ...

    async def leader_and_isr(self, request: LeaderAndIsrRequest, connection: int) -> dict[TopicIdPartition, ErrorCode]:
        """Lead and follow; an error code for each partition by topic id."""
        ...

    async def update_metadata(self, request: UpdateMetadataRequest, connection: int) -> None:
        """Take over the brokers and partition states of the request."""
        ...

    async def stop_replica(self, request: StopReplicaRequest, connection: int) -> dict[PartitionKey, ErrorCode]:
        """Stop or delete replicas; an error code for each partition by name."""
        ...


class PromiseGiver(Protocol):
    """A broker that other leaders ask not to succeed them yet."""

    async def give(self, places: Collection[TopicIdPartition], seconds: float) -> None:
        """Promise not to begin to lead these partitions for that long. Raises KafkaError KAFKA_STORAGE_ERROR."""
        ...


class ElectedController(Protocol):
    """The controller, asked by brokers. Each raises KafkaError NOT_CONTROLLER, STALE_BROKER_EPOCH."""

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> Sequence[IsrChanged]:
        """Change ISRs as the broker proposes for the partitions that it leads; one reply for each."""
        ...

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Sequence[PartitionKey]:
        """Move leadership away from the broker; the partitions that it leads still."""
        ...

    async def lease(self, broker_id: int, broker_epoch: int) -> Grant:
        """The broker's leave to act as a leader for a while."""
        ...

    async def next_producer_id_block(self, broker_id: int, broker_epoch: int) -> range:
        """Producer ids that no other call returns."""
        ...
