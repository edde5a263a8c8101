"""The controller as this broker reaches it: in this very process, or over the wire where another broker was elected.

A client's request that only the controller decides goes to it in an Envelope. What this broker wants for itself has its
request between brokers (AlterPartition, AllocateProducerIds, ControlledShutdown, CreateTopics for automatic creation).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from odradek.api.services.controller_service import NotTheController
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.peers import Peers, Purpose
from odradek.broker.cluster.remote_controller import ControllerAway, RemoteController, while_no_controller
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.described_configs import DescribedConfigs
from odradek.client.errors import TransportError
from odradek.controller.configs import AlteredResource, ResourceChanges
from odradek.controller.elections import Elected, elect_leaders
from odradek.controller.features import FeatureUpdate, UpdatedFeature, update_features
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.controller.internal_topics import creatable
from odradek.controller.lease_table import Grant
from odradek.controller.outcome import Decision
from odradek.controller.reassignments import Reassigned, Reassignment, alter_reassignments
from odradek.controller.topics import (
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from odradek.metadata.configs.described import Described
from odradek.metadata.image import NO_BROKER, ClusterImage
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.message import ApiMessage
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from odradek.wire.messages.envelope import EnvelopeRequest
from odradek.wire.messages.leadership_lease import LeadershipLeaseRequest, LeadershipLeaseResponse

if TYPE_CHECKING:
    from odradek.api.requests.declarations import Declaration

T = TypeVar("T")
Response = TypeVar("Response", bound=ApiMessage)

logger = logging.getLogger("odradek.broker.cluster.controller")


class ControllerLink:
    """Implements ControllerService for the APIs, and what the broker's own parts want of the controller."""

    __slots__ = ("_config", "_controller", "_described", "_node_id", "_peers", "_remote", "_view")

    def __init__(
        self,
        controller: Controller,
        view: ClusterView,
        peers: Peers,
        config: BrokerConfig,
    ) -> None:
        self._controller = controller
        self._view = view
        self._peers = peers
        self._config = config
        self._node_id = config.node_id
        self._described = DescribedConfigs(view, config)
        self._remote = RemoteController(config.node_id, self._ask, view, config)

    def _here(self) -> Controller:
        if not self._controller.is_active:
            raise NotTheController(ErrorCode.NOT_CONTROLLER, "This is not the controller.")
        return self._controller

    # --- ControllerService: changes that clients ask for ---

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Sequence[CreatedTopic]:
        """Implements ControllerService."""
        return await self._here().create_topics(topics, validate_only=validate_only)

    async def delete_topics(self, references: Sequence[TopicReference]) -> Sequence[DeletedTopic]:
        """Implements ControllerService."""
        return await self._here().delete_topics(references)

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Sequence[GrownTopic]:
        """Implements ControllerService."""
        return await self._here().create_partitions(topics, validate_only=validate_only)

    async def alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Sequence[AlteredResource]:
        """Implements ControllerService."""
        return await self._here().alter_configs(resources, validate_only=validate_only)

    async def change(self, decide: Callable[[ClusterImage], Decision[T]]) -> Sequence[T]:
        """Implements ControllerService."""
        return await self._here().change(decide)

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> Sequence[UpdatedFeature]:
        """Implements ControllerService."""
        return await self.change(lambda image: update_features(image, updates, validate_only=validate_only))

    async def elect_leaders(self, election_type: int, partitions: Sequence[PartitionKey] | None) -> Sequence[Elected]:
        """Implements ControllerService."""
        return await self.change(lambda image: elect_leaders(image, election_type, partitions, self._config))

    async def alter_reassignments(
        self, moves: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> Sequence[Reassigned]:
        """Implements ControllerService."""
        return await self.change(
            lambda image: alter_reassignments(
                image, moves, self._config, allow_replication_factor_change=allow_replication_factor_change
            )
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Implements ControllerService."""
        await self._here().unregister_broker(broker_id)

    # --- ControllerService: what is set ---

    def describe_configs(
        self, resource_type: int, name: str, keys: Iterable[str] | None = None, *, documentation: bool = False
    ) -> list[Described]:
        """Implements ControllerService."""
        return self._described.describe(resource_type, name, keys, documentation=documentation)

    def describe_new_topic(self, topic: CreatedTopic) -> list[Described]:
        """Implements ControllerService."""
        return self._described.describe_new_topic(topic)

    # --- a client's request, forwarded ---

    @property
    def is_here(self) -> bool:
        """See ControllerService."""
        return self._controller.is_active

    def is_forwarded(self, declared: Declaration) -> bool:
        """See ControllerService."""
        return declared.is_forwarded and not self._controller.is_active

    def accepts_forwarded(self, declared: Declaration) -> bool:
        """See ControllerService."""
        return declared.is_forwarded

    async def forward(self, envelope: EnvelopeRequest, timeout_ms: int) -> bytes:
        """See ControllerService."""
        return await self._remote.forward(envelope, timeout_ms)

    async def _ask(self, request: ApiMessage, kind: type[Response], timeout_ms: float, purpose: Purpose) -> Response:
        controller = self._view.image.controller_id
        if controller in (NO_BROKER, self._node_id):
            raise ControllerAway("There is no controller at the moment.")
        try:
            return await self._peers.request(purpose, controller, request, kind, int(request.MAX_VERSION), timeout_ms)
        except TransportError as error:
            raise ControllerAway(f"The controller cannot be reached: {error}") from error

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        """Another controller decides from now on: requests to the former one fail, instead of waiting for an answer.

        Clients' requests wait, since it may still answer these.
        """
        if old.controller_id not in (NO_BROKER, new.controller_id):
            self._peers.abandon(old.controller_id, (Purpose.OWN, Purpose.LEASES))

    # --- what this broker wants itself ---

    async def auto_create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """See ControllerService."""
        is_here = self._controller.is_active
        live = len((self._controller.image if is_here else self._view.image).live_brokers())
        wanted = [creatable(name, self._config, live) for name in dict.fromkeys(names)]
        try:
            return await (self._created_here(wanted) if is_here else self._remote.create_topics(wanted))
        except KafkaError as error:
            return dict.fromkeys(names, while_no_controller(error.code))

    async def _created_here(self, wanted: Sequence[NewTopic]) -> dict[str, ErrorCode]:
        failures: dict[str, ErrorCode] = {}
        for topic in await self._controller.create_topics(wanted):
            # Another request may have created it before: then it is there, as was asked.
            if topic.failure is not None and topic.failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                failures[topic.name] = topic.failure.code
                logger.info("cannot create topic %s: %s", topic.name, topic.failure.message or topic.failure.code.name)
        return failures

    async def next_producer_id_block(self) -> range:
        """Producer ids for this broker alone. Raises KafkaError."""
        if self._controller.is_active:
            return await self._controller.next_producer_id_block(self._node_id)
        return await self._remote.next_producer_id_block(self._view.broker_epoch)

    async def lease(self, timeout_ms: float) -> Grant:
        """Ask for a lease of leadership. Raises KafkaError, REQUEST_TIMED_OUT after `timeout_ms`."""
        epoch = self._view.broker_epoch
        if self._controller.is_active:
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    return await self._controller.lease(self._node_id, epoch)
            except TimeoutError:
                # A metadata store that is away answers late: the replicas' promises must be asked for before.
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the metadata store does not confirm a lease") from None
        request = LeadershipLeaseRequest(self._node_id, epoch)
        answer = await self._ask(request, LeadershipLeaseResponse, timeout_ms, Purpose.LEASES)
        _raise(answer.error_code)
        return Grant(answer.lease_ms / 1000, answer.may_begin, answer.is_ending)

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[IsrChanged]:
        """Ask for other in-sync replicas of partitions that this broker leads. Raises KafkaError."""
        epoch = self._view.broker_epoch
        if self._controller.is_active:
            return await self._controller.alter_partitions(self._node_id, epoch, changes)
        return await self._remote.alter_partitions(epoch, changes)

    async def controlled_shutdown(self) -> int:
        """Ask to be relieved of all leadership; how many partitions this broker leads still. Raises KafkaError."""
        epoch = self._view.broker_epoch
        if self._controller.is_active:
            return len(await self._controller.controlled_shutdown(self._node_id, epoch))
        request = ControlledShutdownRequest(self._node_id, epoch)
        answer = await self._ask(request, ControlledShutdownResponse, self._timeout_ms(), Purpose.OWN)
        _raise(answer.error_code)
        return len(answer.remaining_partitions)

    def _timeout_ms(self) -> int:
        return self._config.number("controller.socket.timeout.ms")


def _raise(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))
