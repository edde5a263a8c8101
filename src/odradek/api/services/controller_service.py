"""What the API asks of the controller: changes of topics and configurations, and what is set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from odradek.api.requests.declarations import Declaration
from odradek.controller.configs import AlteredResource, ResourceChanges
from odradek.controller.elections import Elected
from odradek.controller.features import FeatureUpdate, UpdatedFeature
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

T = TypeVar("T")


class NotTheController(KafkaError):
    """Another broker is or becomes the controller: the dispatcher forwards the request to it."""


class ControllerService(Protocol):
    """Changes are in the image, and known to the broker, before the call returns.

    Each raises KafkaError if the whole request failed: the store could not be reached, or this is not the controller.
    """

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Sequence[CreatedTopic]:
        """Create topics, or only validate them; one reply for each."""
        ...

    async def delete_topics(self, references: Sequence[TopicReference]) -> Sequence[DeletedTopic]:
        """Delete topics by name or id; one reply for each."""
        ...

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Sequence[GrownTopic]:
        """Add partitions to topics, or only validate that; one reply for each."""
        ...

    async def alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Sequence[AlteredResource]:
        """Change configurations, or only validate that; one reply for each resource."""
        ...

    async def change(self, decide: Callable[[ClusterImage], Decision[T]]) -> Sequence[T]:
        """Let a pure decision on the newest image take effect; its replies."""
        ...

    async def update_features(
        self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False
    ) -> Sequence[UpdatedFeature]:
        """Change levels of features, all or none, or only check that; one reply for each."""
        ...

    async def elect_leaders(self, election_type: int, partitions: Sequence[PartitionKey] | None) -> Sequence[Elected]:
        """Elect leaders, of all partitions if None; one reply for each that needs an election or is named."""
        ...

    async def alter_reassignments(
        self, moves: Sequence[Reassignment], *, allow_replication_factor_change: bool
    ) -> Sequence[Reassigned]:
        """Begin, change or cancel moves of partitions; one reply for each."""
        ...

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker. Raises KafkaError BROKER_ID_NOT_REGISTERED.

        On a metadata store a registration ends with its broker: INVALID_REQUEST.
        """
        ...

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller."""
        ...

    def is_forwarded(self, declared: Declaration) -> bool:
        """Whether requests of an API go to the controller, which is not here."""
        ...

    def accepts_forwarded(self, declared: Declaration) -> bool:
        """Whether brokers pass requests of an API on to this controller in an Envelope."""
        ...

    async def forward(self, envelope: EnvelopeRequest, timeout_ms: int) -> bytes:
        """The controller's response to a client's request, as it is in the envelope's answer.

        Raises KafkaError: NotTheController after an election, NOT_CONTROLLER where no controller can be reached.
        """
        ...

    async def auto_create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Create those that are missing, internal ones with their settings; the names that could not be created."""
        ...

    async def next_producer_id_block(self) -> range:
        """Producer ids that no other call returns."""
        ...

    def describe_configs(
        self, resource_type: int, name: str, keys: Iterable[str] | None = None, *, documentation: bool = False
    ) -> list[Described]:
        """Raises KafkaError for a resource that does not exist or that another broker has to answer for."""
        ...

    def describe_new_topic(self, topic: CreatedTopic) -> list[Described]:
        """The configuration of a topic that may exist only in a validated request."""
        ...
