"""What a broker of a KRaft cluster has in the place of parts that only clusters with a store have.

No controller is in its process, and none pushes metadata to it: such requests are rejected before they get here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.controller.election_counts import ElectionCounts
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.controller.lease_table import Grant
from odradek.metadata.image import ClusterImage
from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.wire.acls import AclBinding, AclFilter
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.stop_replica import StopReplicaRequest
from odradek.wire.messages.update_metadata import UpdateMetadataRequest

if TYPE_CHECKING:
    from odradek.api.requests.long_work import LongWork


def _no_controller() -> NoReturn:
    raise KafkaError(ErrorCode.NOT_CONTROLLER, "The controllers of the KRaft quorum decide.")


def _no_pushes() -> NoReturn:
    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Brokers of a KRaft cluster fetch their metadata.")


class NoLocalController:
    """Implements `LocalController`: it is never active."""

    def __init__(self) -> None:
        self.is_active = False
        """See `LocalController`."""
        self.image = ClusterImage()
        """See `LocalController`."""
        self.elections = ElectionCounts()
        """See `LocalController`."""

    def share_turns(self, work: LongWork) -> None:
        """Nothing is decided here."""

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> Sequence[IsrChanged]:
        """Raises KafkaError NOT_CONTROLLER."""
        _no_controller()

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Sequence[PartitionKey]:
        """Raises KafkaError NOT_CONTROLLER."""
        _no_controller()

    async def lease(self, broker_id: int, broker_epoch: int) -> Grant:
        """Raises KafkaError NOT_CONTROLLER."""
        _no_controller()

    async def next_producer_id_block(self, broker_id: int, broker_epoch: int) -> range:
        """Raises KafkaError NOT_CONTROLLER."""
        _no_controller()


class NoPushes:
    """Implements `ClusterMember`: this broker reads the metadata log."""

    __slots__ = ("_view",)

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    @property
    def has_metadata(self) -> bool:
        """See `ClusterView.has_metadata`."""
        return self._view.has_metadata

    async def wait_for_metadata(self) -> None:
        """See `ClusterView.wait_for_metadata`."""
        await self._view.wait_for_metadata()

    async def leader_and_isr(self, request: LeaderAndIsrRequest, connection: int) -> dict[TopicIdPartition, ErrorCode]:
        """Raises KafkaError UNSUPPORTED_VERSION."""
        _no_pushes()

    async def update_metadata(self, request: UpdateMetadataRequest, connection: int) -> None:
        """Raises KafkaError UNSUPPORTED_VERSION."""
        _no_pushes()

    async def stop_replica(self, request: StopReplicaRequest, connection: int) -> dict[PartitionKey, ErrorCode]:
        """Raises KafkaError UNSUPPORTED_VERSION."""
        _no_pushes()


class NoAclChanges:
    """Implements `AclEditor`: the controllers change ACLs, and such requests are forwarded before they get here."""

    async def create(self, bindings: Sequence[AclBinding]) -> None:
        """Raises KafkaError NOT_CONTROLLER."""
        _no_controller()

    async def delete(self, filters: Sequence[AclFilter]) -> list[list[AclBinding]]:
        """Raises KafkaError NOT_CONTROLLER."""
        _no_controller()
