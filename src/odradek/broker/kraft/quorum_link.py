"""The active controller of a KRaft quorum, as APIs and the broker's own parts ask it.

Every change that a client asks for goes to it in an Envelope (KIP-590): no decision is made here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from odradek.api.services.controller_service import NotTheController
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.remote_controller import ControllerAway, RemoteController, while_no_controller
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.described_configs import DescribedConfigs
from odradek.broker.kraft.controllers import Controllers
from odradek.client.errors import RequestTimedOut
from odradek.controller.configs import AlteredResource, ResourceChanges
from odradek.controller.elections import Elected
from odradek.controller.features import FeatureUpdate, UpdatedFeature
from odradek.controller.in_sync import IsrChange, IsrChanged
from odradek.controller.internal_topics import creatable
from odradek.controller.outcome import Decision
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
from odradek.metadata.image import ClusterImage
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.envelope import EnvelopeRequest

if TYPE_CHECKING:
    from odradek.api.requests.declarations import Declaration

T = TypeVar("T")

logger = logging.getLogger("odradek.broker.kraft")

_FIRST_PAUSE_SECONDS: Final = 0.02
_MAX_PAUSE_SECONDS: Final = 0.5
"""Pauses between two attempts to reach the active controller."""


def _not_here() -> NoReturn:
    raise NotTheController(ErrorCode.NOT_CONTROLLER, "The controllers of the KRaft quorum decide.")


class QuorumLink:
    """Implements `BrokerLink`."""

    __slots__ = ("_config", "_described", "_remote", "_view")

    def __init__(self, controllers: Controllers, view: ClusterView, config: BrokerConfig) -> None:
        self._view = view
        self._config = config
        self._described = DescribedConfigs(view, config)
        self._remote = RemoteController(config.node_id, controllers.ask, view, config)

    # --- ControllerService: a client's request, forwarded ---

    @property
    def is_here(self) -> bool:
        """See ControllerService."""
        return False

    def is_forwarded(self, declared: Declaration) -> bool:
        """See ControllerService."""
        return declared.is_forwarded or declared.is_decided_by_quorum

    def accepts_forwarded(self, declared: Declaration) -> bool:
        """See ControllerService."""
        return False

    async def forward(self, envelope: EnvelopeRequest, timeout_ms: int) -> bytes:
        """See ControllerService. While the quorum elects a leader, the request waits, as in Kafka's brokers.

        A controller that ended may have carried the request out: the next one is asked all the same, as Kafka does.
        """
        pause, waited = _FIRST_PAUSE_SECONDS, 0.0
        while True:
            try:
                return await self._remote.forward(envelope, timeout_ms)
            except ControllerAway as error:
                if isinstance(error.__cause__, RequestTimedOut) or waited >= self._longest_wait_seconds():
                    raise
            await asyncio.sleep(pause)
            waited += pause
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _longest_wait_seconds(self) -> float:
        return self._config.number("request.timeout.ms") / 1000

    # --- ControllerService: no decision is made here ---

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Sequence[CreatedTopic]:
        """Raises NotTheController."""
        _not_here()

    async def delete_topics(self, references: Sequence[TopicReference]) -> Sequence[DeletedTopic]:
        """Raises NotTheController."""
        _not_here()

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Sequence[GrownTopic]:
        """Raises NotTheController."""
        _not_here()

    async def alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Sequence[AlteredResource]:
        """Raises NotTheController."""
        _not_here()

    async def change(self, decide: Callable[[ClusterImage], Decision[T]]) -> Sequence[T]:
        """Raises NotTheController."""
        _not_here()

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> Sequence[UpdatedFeature]:
        """Raises NotTheController."""
        _not_here()

    async def elect_leaders(self, election_type: int, partitions: Sequence[PartitionKey] | None) -> Sequence[Elected]:
        """Raises NotTheController."""
        _not_here()

    async def alter_reassignments(
        self, moves: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> Sequence[Reassigned]:
        """Raises NotTheController."""
        _not_here()

    async def unregister_broker(self, broker_id: int) -> None:
        """Raises NotTheController."""
        _not_here()

    # --- ControllerService: what is set ---

    def describe_configs(
        self, resource_type: int, name: str, keys: Iterable[str] | None = None, *, documentation: bool = False
    ) -> list[Described]:
        """See ControllerService."""
        return self._described.describe(resource_type, name, keys, documentation=documentation)

    def describe_new_topic(self, topic: CreatedTopic) -> list[Described]:
        """See ControllerService."""
        return self._described.describe_new_topic(topic)

    # --- what this broker wants itself ---

    async def auto_create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """See ControllerService."""
        live = len(self._view.image.live_brokers())
        wanted = [creatable(name, self._config, live) for name in dict.fromkeys(names)]
        try:
            return await self._remote.create_topics(wanted)
        except KafkaError as error:
            return dict.fromkeys(names, while_no_controller(error.code))

    async def next_producer_id_block(self) -> range:
        """Producer ids for this broker alone. Raises KafkaError."""
        return await self._remote.next_producer_id_block(self._view.broker_epoch)

    async def alter_partitions(self, changes: Sequence[IsrChange]) -> Sequence[IsrChanged]:
        """Ask for other in-sync replicas of partitions that this broker leads. Raises KafkaError."""
        return await self._remote.alter_partitions(self._view.broker_epoch, changes)
