"""The controller as this broker reaches it: in this very process, or over the wire where another broker was elected.

A client's request that only the controller decides goes to it in an Envelope. What this broker wants for itself has its
request between brokers (AlterPartition, AllocateProducerIds, ControlledShutdown, CreateTopics for automatic creation).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from odradek.api.services.controller_service import NotTheController
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.peers import Peers, Purpose
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.described_configs import DescribedConfigs
from odradek.client.errors import TransportError
from odradek.controller.configs import AlteredResource, ResourceChanges
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.controller.internal_topics import creatable
from odradek.controller.lease_table import Grant
from odradek.controller.outcome import Decision
from odradek.controller.topics import (
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from odradek.metadata.configs.described import Described
from odradek.metadata.image import NO_BROKER, ClusterImage, PartitionState
from odradek.wire.apis import APIS, ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.message import ApiMessage
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestBrokerState,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
)
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from odradek.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.wire.messages.leadership_lease import LeadershipLeaseRequest, LeadershipLeaseResponse

T = TypeVar("T")

logger = logging.getLogger("odradek.broker.cluster.controller")

_CREATE_TOPICS_VERSION = 7
_ENVELOPE_VERSION = 0
_KNOWN_WITHIN_SECONDS = 5.0
"""How long a broker that had a topic created waits for it in its image."""
_ELECTED_WITHIN_SECONDS = 5.0
"""How long a broker whose controller has resigned waits for the next one before the client has to ask again."""


class ControllerLink:
    """Implements ControllerService for the APIs, and what the broker's own parts want of the controller."""

    __slots__ = ("_config", "_controller", "_described", "_node_id", "_peers", "_view")

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

    async def forward(self, envelope: EnvelopeRequest, timeout_ms: int) -> bytes:
        """See ControllerService."""
        asked = self._view.image.controller_epoch
        timeout_ms = max(timeout_ms, self._config.number("request.timeout.ms"))
        answer = await self._ask(envelope, EnvelopeResponse, _ENVELOPE_VERSION, timeout_ms, Purpose.FORWARDED)
        assert isinstance(answer, EnvelopeResponse)
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            await self._wait_until(lambda image: image.controller_epoch > asked, _ELECTED_WITHIN_SECONDS)
            raise NotTheController(ErrorCode.NOT_CONTROLLER)
        _raise(answer.error_code)
        if answer.response_data is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "The controller's envelope is empty.")
        return answer.response_data

    async def _ask(
        self,
        request: ApiMessage,
        kind: type[ApiMessage],
        version: int,
        timeout_ms: float,
        purpose: Purpose = Purpose.OWN,
    ) -> ApiMessage:
        controller = self._view.image.controller_id
        if controller in (NO_BROKER, self._node_id):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "There is no controller at the moment.")
        try:
            return await self._peers.request(purpose, controller, request, kind, version, timeout_ms)
        except TransportError as error:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, f"The controller cannot be reached: {error}") from error

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
            return await (self._created_here(wanted) if is_here else self._created_elsewhere(wanted))
        except KafkaError as error:
            return dict.fromkeys(names, _while_no_controller(error.code))

    async def _created_here(self, wanted: Sequence[NewTopic]) -> dict[str, ErrorCode]:
        failures: dict[str, ErrorCode] = {}
        for topic in await self._controller.create_topics(wanted):
            # Another request may have created it before: then it is there, as was asked.
            if topic.failure is not None and topic.failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                failures[topic.name] = topic.failure.code
                logger.info("cannot create topic %s: %s", topic.name, topic.failure.message or topic.failure.code.name)
        return failures

    async def _created_elsewhere(self, wanted: Sequence[NewTopic]) -> dict[str, ErrorCode]:
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequestTopic(
                    name=topic.name,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    configs=[CreateTopicsRequestConfig(name, value) for name, value in topic.configs],
                )
                for topic in wanted
            ],
            timeout_ms=self._config.number("request.timeout.ms"),
        )
        answer = await self._ask(
            request, CreateTopicsResponse, _CREATE_TOPICS_VERSION, request.timeout_ms, Purpose.FORWARDED
        )
        assert isinstance(answer, CreateTopicsResponse)
        failures = {
            topic.name: ErrorCode(topic.error_code)
            for topic in answer.topics
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }
        created = [topic.name for topic in wanted if topic.name not in failures]
        await self._wait_until(lambda image: all(name in image.topics for name in created), _KNOWN_WITHIN_SECONDS)
        return failures

    async def _wait_until(self, is_met: Callable[[ClusterImage], bool], at_most_seconds: float) -> None:
        """Wait until this broker's image meets a condition, or that long."""
        if is_met(self._view.image):
            return
        met = asyncio.Event()

        def look(_old: ClusterImage, new: ClusterImage) -> None:
            if is_met(new):
                met.set()

        unsubscribe = self._view.subscribe(look)
        try:
            async with asyncio.timeout(at_most_seconds):
                await met.wait()
        except TimeoutError:
            return  # the client learns that the topic or the controller is not known yet, and asks again
        finally:
            unsubscribe()

    async def next_producer_id_block(self) -> range:
        """Producer ids for this broker alone. Raises KafkaError."""
        if self._controller.is_active:
            return await self._controller.next_producer_id_block(self._node_id)
        request = AllocateProducerIdsRequest(self._node_id, self._view.broker_epoch)
        answer = await self._ask(request, AllocateProducerIdsResponse, APIS[67].max_version, self._timeout_ms())
        assert isinstance(answer, AllocateProducerIdsResponse)
        _raise(answer.error_code)
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

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
        answer = await self._ask(
            request, LeadershipLeaseResponse, APIS[ApiKey.LEADERSHIP_LEASE].max_version, timeout_ms, Purpose.LEASES
        )
        assert isinstance(answer, LeadershipLeaseResponse)
        _raise(answer.error_code)
        return Grant(answer.lease_ms / 1000, answer.may_begin)

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[IsrChanged]:
        """Ask for other in-sync replicas of partitions that this broker leads. Raises KafkaError."""
        epoch = self._view.broker_epoch
        if self._controller.is_active:
            return await self._controller.alter_partitions(self._node_id, epoch, changes)
        by_topic: dict[bytes, list[AlterPartitionRequestPartition]] = {}
        for change in changes:
            by_topic.setdefault(change.topic_id, []).append(
                AlterPartitionRequestPartition(
                    partition_index=change.partition,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[AlterPartitionRequestBrokerState(*member) for member in change.isr],
                    partition_epoch=change.partition_epoch,
                )
            )
        request = AlterPartitionRequest(
            self._node_id,
            epoch,
            [AlterPartitionRequestTopic(topic_id, partitions) for topic_id, partitions in by_topic.items()],
        )
        answer = await self._ask(request, AlterPartitionResponse, APIS[56].max_version, self._timeout_ms())
        assert isinstance(answer, AlterPartitionResponse)
        _raise(answer.error_code)
        return [
            IsrChanged(topic.topic_id, p.partition_index, ErrorCode(p.error_code), self._state(topic.topic_id, p))
            for topic in answer.topics
            for p in topic.partitions
        ]

    def _state(self, topic_id: bytes, reply: object) -> PartitionState | None:
        code, leader, epoch, isr, partition_epoch, index = (
            getattr(reply, name)
            for name in ("error_code", "leader_id", "leader_epoch", "isr", "partition_epoch", "partition_index")
        )
        name = self._view.image.topic_names.get(topic_id)
        known = None if name is None else self._view.image.partition(name, index)
        if code or known is None:
            return None
        return known._replace(leader=leader, leader_epoch=epoch, isr=tuple(isr), partition_epoch=partition_epoch)

    async def controlled_shutdown(self) -> int:
        """Ask to be relieved of all leadership; how many partitions this broker leads still. Raises KafkaError."""
        epoch = self._view.broker_epoch
        if self._controller.is_active:
            return len(await self._controller.controlled_shutdown(self._node_id, epoch))
        request = ControlledShutdownRequest(self._node_id, epoch)
        answer = await self._ask(request, ControlledShutdownResponse, APIS[7].max_version, self._timeout_ms())
        assert isinstance(answer, ControlledShutdownResponse)
        _raise(answer.error_code)
        return len(answer.remaining_partitions)

    def _timeout_ms(self) -> int:
        return self._config.number("controller.socket.timeout.ms")


def _raise(code: int) -> None:
    if code:
        raise KafkaError(ErrorCode(code))


def _while_no_controller(code: ErrorCode) -> ErrorCode:
    """The error for a client that asked for metadata: one after which it retries."""
    return ErrorCode.LEADER_NOT_AVAILABLE if code is ErrorCode.NOT_CONTROLLER else code
