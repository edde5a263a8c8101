"""The active controller of a quorum as the handlers of requests ask it.

Clients' requests arrive in Envelopes of brokers, and from tools that connect to a controller (KIP-919).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.api.services.controller_service import NotTheController
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.described_configs import DescribedConfigs
from odradek.broker.quorum.quorum_controller import QuorumController
from odradek.controller.configs import AlteredResource, ResourceChanges
from odradek.controller.elections import Elected
from odradek.controller.features import FeatureUpdate, UpdatedFeature, update_features
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.controller.lease_table import Grant
from odradek.controller.outcome import Decision, Failure
from odradek.controller.reassignments import Reassigned, Reassignment
from odradek.controller.topics import (
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from odradek.metadata.configs.described import Described
from odradek.metadata.features import KRAFT_VERSION
from odradek.metadata.image import ClusterImage
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.envelope import EnvelopeRequest

if TYPE_CHECKING:
    from odradek.api.requests.declarations import Declaration

T = TypeVar("T")


class DecidingController:
    """Implements `ControllerService` and `ElectedController`; changes raise NotTheController where it is not active."""

    __slots__ = ("_controller", "_described")

    def __init__(self, controller: QuorumController, view: ClusterView, config: BrokerConfig) -> None:
        self._controller = controller
        self._described = DescribedConfigs(view, config)

    # --- ControllerService: changes ---

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Sequence[CreatedTopic]:
        """See ControllerService."""
        return await self._controller.decide(lambda c: c.create_topics(topics, validate_only=validate_only))

    async def delete_topics(self, references: Sequence[TopicReference]) -> Sequence[DeletedTopic]:
        """See ControllerService."""
        return await self._controller.decide(lambda c: c.delete_topics(references))

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Sequence[GrownTopic]:
        """See ControllerService."""
        return await self._controller.decide(lambda c: c.create_partitions(topics, validate_only=validate_only))

    async def alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Sequence[AlteredResource]:
        """See ControllerService."""
        return await self._controller.decide(lambda c: c.alter_configs(resources, validate_only=validate_only))

    async def change(self, decide: Callable[[ClusterImage], Decision[T]]) -> Sequence[T]:
        """See ControllerService; of decisions that judge no leaders."""
        return await self._controller.decide(lambda c: c.step(decide))

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> Sequence[UpdatedFeature]:
        """See ControllerService. The voters decide on kraft.version, after all other updates are found valid."""
        level = next((each.level for each in updates if each.name == KRAFT_VERSION), None)
        if level is None:
            return await self.change(lambda image: update_features(image, updates, validate_only=validate_only))
        checked = await self.change(lambda image: update_features(image, updates, validate_only=True))
        if any(each.failure for each in checked):
            return checked
        try:
            await self._controller.upgrade_kraft_version(level, validate_only=validate_only)
        except NotTheController:
            raise
        except KafkaError as error:
            failed = UpdatedFeature(KRAFT_VERSION, Failure(error.code, error.message))
            return [failed if each.name == KRAFT_VERSION else each for each in checked]
        return await self.change(lambda image: update_features(image, updates, validate_only=validate_only))

    async def elect_leaders(self, election_type: int, partitions: Sequence[PartitionKey] | None) -> Sequence[Elected]:
        """See ControllerService."""
        return await self._controller.decide(lambda c: c.elect_leaders(election_type, partitions))

    async def alter_reassignments(
        self, moves: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> Sequence[Reassigned]:
        """See ControllerService."""
        return await self._controller.decide(
            lambda c: c.alter_reassignments(moves, allow_replication_factor_change=allow_replication_factor_change)
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """See ControllerService."""
        await self._controller.decide(lambda c: c.unregister_broker(broker_id))
        self._controller.sessions.remove(broker_id)

    # --- ControllerService: requests ---

    @property
    def is_here(self) -> bool:
        """See ControllerService."""
        return self._controller.is_active

    def is_forwarded(self, declared: Declaration) -> bool:
        """See ControllerService: a controller that is not active answers NOT_CONTROLLER."""
        return False

    def accepts_forwarded(self, declared: Declaration) -> bool:
        """See ControllerService."""
        return declared.is_forwarded or declared.is_decided_by_quorum

    async def forward(self, envelope: EnvelopeRequest, timeout_ms: int) -> bytes:
        """Raises NotTheController: controllers forward nothing."""
        raise NotTheController(ErrorCode.NOT_CONTROLLER)

    async def auto_create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Create nothing: a controller serves no clients that name topics."""
        return dict.fromkeys(names, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def next_producer_id_block(self, broker_id: int = -1, broker_epoch: int = -1) -> range:
        """See ElectedController."""
        block = await self._controller.decide(lambda c: c.allocate_producer_ids(broker_id, broker_epoch))
        return range(block[0], block[-1] + 1)

    # --- ControllerService: what is set ---

    def describe_configs(
        self, resource_type: int, name: str, keys: Iterable[str] | None = None, *, documentation: bool = False
    ) -> list[Described]:
        """See ControllerService."""
        return self._described.describe(resource_type, name, keys, documentation=documentation)

    def describe_new_topic(self, topic: CreatedTopic) -> list[Described]:
        """See ControllerService."""
        return self._described.describe_new_topic(topic)

    # --- ElectedController ---

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> Sequence[IsrChanged]:
        """See ElectedController."""
        return await self._controller.decide(lambda c: c.alter_partitions(broker_id, broker_epoch, changes))

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Collection[PartitionKey]:
        """Raises KafkaError: brokers of a KRaft cluster ask in their heartbeats."""
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)

    async def lease(self, broker_id: int, broker_epoch: int) -> Grant:
        """Raises KafkaError: brokers of a KRaft cluster lead by their sessions."""
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
