"""The controller of a cluster whose metadata are KRaft's records: an event in, records and the next image out.

The image advances with each event, before its records are committed, as Kafka's does: the next event decides on what
this one left. A controller that loses the leadership of the quorum drops its `RecordController`, since its last records
may never be committed; the next one makes a new one from the image that it has replayed. Brokers replay the records.

Without I/O, clock or session: the driver of the quorum appends the records, answers when they are committed, and
decides which brokers are silent. Source: Kafka's `QuorumController`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.controller import topics as topic_decisions
from odradek.controller.aliveness import BY_RECORDS
from odradek.controller.brokers import (
    TopicWalk,
    begin_shutdown,
    fencing_changed,
    leaders_sought,
    reconsidered,
    recovered_partitions,
    registered,
)
from odradek.controller.config_effects import UNCLEAN_ELECTION, topics_with_changed, with_effects
from odradek.controller.configs import AlteredResource, ResourceChanges, alter_configs
from odradek.controller.elections import Elected, ElectionType, elect_leaders
from odradek.controller.in_sync import IsrChange, IsrChanged, alter_partitions
from odradek.controller.leader_balance import imbalanced_partitions
from odradek.controller.outcome import Decision, Settings
from odradek.controller.producer_ids import producer_id_block
from odradek.controller.reassignments import Reassigned, Reassignment, alter_reassignments
from odradek.controller.registrations import (
    ReplicaDirectory,
    assign_directories,
    directories_failed,
    register_broker,
    unregister_broker,
)
from odradek.controller.topics import CreatedTopic, DeletedTopic, GrownTopic, MorePartitions, NewTopic, TopicReference
from odradek.metadata.features import KRAFT_VERSION
from odradek.metadata.image import Broker, ClusterImage, ControllerRegistration
from odradek.metadata.kraft.difference import difference
from odradek.ports.randomness import Random
from odradek.records.topic_partition import PartitionKey, TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import cluster_metadata as md

T = TypeVar("T")


class Recorded(NamedTuple, Generic[T]):
    """The outcome of one event."""

    records: Sequence[Any]
    """To be appended all or none, objects of the generated classes; empty where nothing changes."""
    image: ClusterImage
    """The image after the records."""
    replies: Sequence[T]
    """In the order of the request."""
    rest: Callable[[], Recorded[T]] | None = None
    """Decides the next part of a long decision, on the image that there is then; None where this is all of it.

    The caller takes all parts. Other events may come between two of them.
    """


class RecordController:
    """Decides on one image after the other. A method that raises leaves the image as it was."""

    __slots__ = ("_random", "_settings", "image")

    def __init__(self, image: ClusterImage, settings: Settings, random: Random) -> None:
        self.image = image
        """The image after the last event."""
        self._settings = settings
        self._random = random

    def step(self, decide: Callable[[ClusterImage], Decision[T]]) -> Recorded[T]:
        """Let a decision take effect that judges no leaders, as on quotas, credentials and features.

        Raises what the decision raises.
        """
        before = self.image
        decision = decide(before)
        records = () if decision.image is before else difference(before, decision.image)
        self.image = decision.image
        return Recorded(records, decision.image, decision.replies)

    def _part(
        self,
        first: Callable[[ClusterImage, TopicWalk], Decision[T]],
        more: Callable[[ClusterImage, TopicWalk], Decision[T]],
        walk: TopicWalk | None = None,
    ) -> Recorded[T]:
        """Let the first part of a long decision take effect; `more` decides each further one."""
        walk = TopicWalk(self.image) if walk is None else walk
        recorded = self.step(lambda image: first(image, walk))
        return recorded._replace(rest=lambda: self._part(more, more, walk)) if walk else recorded

    # --- the quorum ---

    def begin(self) -> Recorded[TopicPartition]:
        """A new leader of the quorum decides on all partitions, in parts; replies name those that changed."""

        def decide(image: ClusterImage, walk: TopicWalk) -> Decision[TopicPartition]:
            return recovered_partitions(image, self._settings, aliveness=BY_RECORDS, walk=walk)

        return self._part(decide, decide)

    # --- brokers ---

    def register_broker(self, broker: Broker, previous_epoch: int) -> Recorded[TopicPartition]:
        """See `registrations.register_broker`."""
        return self.step(lambda image: register_broker(image, broker, previous_epoch, self._settings))

    def unregister_broker(self, broker_id: int) -> Recorded[TopicPartition]:
        """Remove a registration; replies name the partitions that changed. Raises KafkaError."""
        return self.step(lambda image: unregister_broker(image, broker_id, self._settings))

    def fence_brokers(self, fence: Collection[int], release: Collection[int] = ()) -> Recorded[TopicPartition]:
        """Fence silent brokers, and release those that have caught up; replies name the partitions that changed.

        It is decided in parts, the first of which has the brokers.
        """

        def decide(image: ClusterImage, walk: TopicWalk) -> Decision[TopicPartition]:
            silent = [image.brokers[i] for i in fence if i in image.brokers and not image.brokers[i].fenced]
            ready = [image.brokers[i] for i in release if i in image.brokers and image.brokers[i].fenced]
            return fencing_changed(image, silent, ready, self._settings, aliveness=BY_RECORDS, walk=walk)

        return self._part(decide, self._reconsidering(frozenset((*fence, *release))))

    def _reconsidering(
        self, concerned: frozenset[int]
    ) -> Callable[[ClusterImage, TopicWalk], Decision[TopicPartition]]:
        """Decides what the partitions of brokers must look like, which have changed in the first part."""
        return lambda image, walk: reconsidered(
            image, self._settings, concerned, frozenset(), directories_are_good=False, aliveness=BY_RECORDS, walk=walk
        )

    def shut_down_broker(self, broker_id: int, broker_epoch: int) -> Recorded[TopicPartition]:
        """Begin a controlled shutdown, in parts; replies name the partitions that changed. Raises KafkaError."""

        def decide(image: ClusterImage, walk: TopicWalk) -> Decision[TopicPartition]:
            return begin_shutdown(image, broker_id, broker_epoch, self._settings, aliveness=BY_RECORDS, walk=walk)

        return self._part(decide, self._reconsidering(frozenset((broker_id,))))

    def fail_directories(self, broker_id: int, failed: Collection[bytes]) -> Recorded[TopicPartition]:
        """Take log directories of a broker offline; replies name the partitions that changed. Raises KafkaError."""
        return self.step(lambda image: directories_failed(image, broker_id, failed, self._settings))

    def assign_directories(
        self, broker_id: int, broker_epoch: int, assigned: Sequence[ReplicaDirectory]
    ) -> Recorded[ErrorCode]:
        """Note the directories of replicas; one reply for each. Raises KafkaError."""
        return self.step(lambda image: assign_directories(image, broker_id, broker_epoch, assigned, self._settings))

    def alter_partitions(self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> Recorded[IsrChanged]:
        """Change ISRs as their leader asks; one reply for each. Raises KafkaError."""
        return self.step(
            lambda image: alter_partitions(
                image, broker_id, broker_epoch, changes, self._settings, aliveness=BY_RECORDS
            )
        )

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> Recorded[int]:
        """Reserve a block of producer ids; the replies are the ids. Raises KafkaError.

        The record names the broker and its epoch, which no image keeps.
        """

        def decide(image: ClusterImage) -> Decision[int]:
            registered(image, broker_id, broker_epoch)
            block = producer_id_block(image.next_producer_id)
            return Decision((), image.with_next_producer_id(block.stop), block)

        recorded = self.step(decide)
        return recorded._replace(records=[md.ProducerIdsRecord(broker_id, broker_epoch, recorded.replies[-1] + 1)])

    def register_controller(self, registration: ControllerRegistration) -> Recorded[None]:
        """Note a controller of the quorum, its listeners and features (KIP-919); no replies."""

        def decide(image: ClusterImage) -> Decision[None]:
            if image.controllers.get(registration.id) == registration:
                return Decision((), image, ())
            return Decision((), image.with_controllers({**image.controllers, registration.id: registration}), ())

        return self.step(decide)

    # --- topics and partitions ---

    def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Recorded[CreatedTopic]:
        """Create topics; one reply for every distinct name."""
        return self.step(
            lambda image: topic_decisions.create_topics(
                image, topics, self._settings, self._random, validate_only=validate_only, aliveness=BY_RECORDS
            )
        )

    def delete_topics(self, references: Sequence[TopicReference]) -> Recorded[DeletedTopic]:
        """Delete topics; one reply for each."""
        return self.step(lambda image: topic_decisions.delete_topics(image, references, self._settings))

    def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Recorded[GrownTopic]:
        """Add partitions; one reply for every distinct name."""
        return self.step(
            lambda image: topic_decisions.create_partitions(
                image, topics, self._random, validate_only=validate_only, aliveness=BY_RECORDS
            )
        )

    def alter_reassignments(
        self, moves: Sequence[Reassignment], *, allow_replication_factor_change: bool = True
    ) -> Recorded[Reassigned]:
        """Begin or cancel moves of partitions; one reply for each."""
        return self.step(
            lambda image: alter_reassignments(
                image,
                moves,
                self._settings,
                allow_replication_factor_change=allow_replication_factor_change,
                aliveness=BY_RECORDS,
            )
        )

    def elect_leaders(self, election_type: int, partitions: Sequence[PartitionKey] | None) -> Recorded[Elected]:
        """Elect leaders on request; of all partitions (None) those that need no election are left out."""
        return self.step(
            lambda image: elect_leaders(image, election_type, partitions, self._settings, aliveness=BY_RECORDS)
        )

    def balance_leaders(self, percentage: int) -> Recorded[Elected]:
        """Elect preferred replicas of brokers of which more than the percentage of partitions is led elsewhere."""
        return self.elect_leaders(ElectionType.PREFERRED, imbalanced_partitions(self.image, percentage))

    # --- settings ---

    def note_kraft_version(self, level: int) -> None:
        """The voters have finalized this kraft.version, by a control record."""
        image = self.image
        self.image = image.with_features({**(image.features or {}), KRAFT_VERSION: level}, image.features_epoch + 1)

    def alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Recorded[AlteredResource]:
        """Change configurations, with their effects on partitions; one reply for each resource."""

        def decide(image: ClusterImage) -> Decision[AlteredResource]:
            altered = alter_configs(image, resources, self._settings, validate_only=validate_only)
            changed = with_effects(image, altered, self._settings)
            if topics_with_changed(UNCLEAN_ELECTION, image, changed.image):
                led = leaders_sought(changed.image, self._settings, aliveness=BY_RECORDS)
                changed = changed._replace(image=led.image)
            return changed

        return self.step(decide)
