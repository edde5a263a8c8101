"""Requests of a controller on another broker: LeaderAndIsr, UpdateMetadata, StopReplica.

The controller pushes leaders and brokers; each request that is neither stale nor late becomes the next image of the
`ClusterView`. Source: Kafka's `KafkaApis` and `ReplicaManager` in ZooKeeper mode.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.metadata.controller_messages import broker_of, metadata_partition, replica_partition
from odradek.metadata.image import NO_BROKER, NO_LEADER, ClusterImage, PartitionState, Topic
from odradek.metadata.nodes import CONTROLLER_EPOCH, BrokerNode, ConfigNode, ControllerEpochNode, TopicNode
from odradek.ports.store import MetadataStore, StoreError
from odradek.records.topic_partition import PartitionKey, TopicIdPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrRequestPartitionState
from odradek.wire.messages.stop_replica import StopReplicaRequest
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.primitives import ZERO_UUID

FULL = 2
"""The type of a LeaderAndIsr or UpdateMetadata that names everything: what it does not name is gone."""
DELETED = -2
"""The leader of a partition whose topic is deleted (Kafka's LeaderDuringDelete)."""


class LocalReplicas(Protocol):
    """The replicas of this broker."""

    def is_offline(self, topic: str, index: int, /) -> bool:
        """Whether a replica lies in a directory that failed: the controller has to know."""
        ...

    def stop(self, places: Iterable[PartitionKey], /, delete: bool) -> None:
        """End replicas; with `delete`, their data goes, too."""
        ...


class ControllerRequests:
    """Obeys the elected controller. `connection` is the number of the one that a request came on, and these grow."""

    __slots__ = ("_line", "_node_id", "_replicas", "_store", "_view")

    def __init__(self, node_id: int, store: MetadataStore, view: ClusterView, replicas: LocalReplicas) -> None:
        self._node_id = node_id
        self._store = store
        self._view = view
        self._replicas = replicas
        # The controller epoch and the connection of the newest request from a controller.
        self._line = (-1, -1)

    @property
    def has_metadata(self) -> bool:
        """See `ClusterView.has_metadata`."""
        return self._view.has_metadata

    async def wait_for_metadata(self) -> None:
        """See `ClusterView.wait_for_metadata`."""
        await self._view.wait_for_metadata()

    async def leader_and_isr(self, request: LeaderAndIsrRequest, connection: int) -> dict[TopicIdPartition, ErrorCode]:
        """Take over leadership; every partition named, with KAFKA_STORAGE_ERROR where its directory has failed.

        Raises KafkaError STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH.
        """

        async def event() -> dict[TopicIdPartition, ErrorCode]:
            await self._check(request, connection)
            image = self._controlled(request.controller_id, request.controller_epoch)
            taken: list[Topic] = []
            for named in request.topic_states:
                topic = await self._topic(named.topic_name, named.topic_id)
                if not topic.partitions:
                    topic = topic._replace(partitions=await self._unnamed_partitions(topic))
                taken.append(_led(topic, named.partition_states))
            await self._view.publish(image.with_topics(taken), is_whole=False)
            return {
                (named.topic_id, p.partition_index): (
                    ErrorCode.KAFKA_STORAGE_ERROR
                    if self._replicas.is_offline(named.topic_name, p.partition_index)
                    else ErrorCode.NONE
                )
                for named in request.topic_states
                for p in named.partition_states
            }

        return await self._view.in_turn(event)

    async def update_metadata(self, request: UpdateMetadataRequest, connection: int) -> None:
        """Take over brokers and the states of partitions. Raises KafkaError as `leader_and_isr`."""

        async def event() -> None:
            await self._check(request, connection)
            image = self._controlled(request.controller_id, request.controller_epoch)
            image = image.with_brokers({broker.id: broker_of(broker) for broker in request.live_brokers})
            gone = set()
            taken = []
            for named in request.topic_states:
                if any(p.leader == DELETED for p in named.partition_states):
                    known = image.topics.get(named.topic_name)
                    if known is not None and known.id == named.topic_id:
                        gone.add(named.topic_name)
                    continue
                topic = await self._topic(named.topic_name, named.topic_id)
                states = {p.partition_index: metadata_partition(p) for p in named.partition_states}
                taken.append(_with_states(topic, states))
            if request.type == FULL:
                gone = set(image.topics) - {topic.name for topic in taken}
            if gone:
                image = image.without_topics(gone)
            await self._view.publish(image.with_topics(taken), is_whole=True)
            if request.type == FULL:
                self._view.note_metadata()

        await self._view.in_turn(event)

    async def stop_replica(self, request: StopReplicaRequest, connection: int) -> dict[PartitionKey, ErrorCode]:
        """Stop replicas, and drop the data of those that are to be deleted; FENCED_LEADER_EPOCH for what is newer here.

        Raises KafkaError as `leader_and_isr`.
        """

        async def event() -> dict[PartitionKey, ErrorCode]:
            await self._check(request, connection)
            answers: dict[PartitionKey, ErrorCode] = {}
            stopped: dict[bool, list[PartitionKey]] = {False: [], True: []}
            for named in request.topic_states:
                topic = self._view.image.topics.get(named.topic_name)
                is_over = topic is not None and named.topic_id not in (ZERO_UUID, topic.id)
                for p in named.partition_states:
                    place = (named.topic_name, p.partition_index)
                    if is_over:
                        # It ended before the present topic of that name began; the controller repeats the request.
                        answers[place] = ErrorCode.NONE
                        continue
                    known = self._view.image.partition(*place)
                    if known is not None and 0 <= p.leader_epoch < known.leader_epoch:
                        answers[place] = ErrorCode.FENCED_LEADER_EPOCH
                        continue
                    answers[place] = ErrorCode.NONE
                    stopped[p.delete_partition].append(place)
            for delete, places in stopped.items():
                if places:
                    self._replicas.stop(places, delete)
            return answers

        return await self._view.in_turn(event)

    async def _check(
        self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest, connection: int
    ) -> None:
        image, controller_epoch = self._view.image, request.controller_epoch
        known = image.controller_epoch
        same = controller_epoch == known
        if controller_epoch < known or (same and image.controller_id not in (request.controller_id, NO_BROKER)):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if same and image.controller_id == self._node_id:
            # The controller of this epoch is in this process, and does not send itself requests.
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if request.broker_epoch != self._view.broker_epoch and (
            request.broker_epoch < self._view.broker_epoch or request.broker_epoch != await self._stored_broker_epoch()
        ):
            # Decided for the process that ran here before, or by no controller. One that is greater is right while the
            # registration is in the store, and this broker does not know yet that it is.
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        if controller_epoch > known and controller_epoch != await self._stored_controller_epoch():
            # Only an elected controller has an epoch that the store knows.
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        line = (controller_epoch, connection)
        if line < self._line:
            # A controller has one connection to each broker at a time. What comes on an earlier one was given up there,
            # and has been said again, or something else since: obeyed now, it would undo what is newer.
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        self._line = line

    async def _stored_broker_epoch(self) -> int:
        path = BrokerNode.path(self._node_id)
        try:
            node = await self._store.get(path)
            return -1 if node is None else BrokerNode.decode(path, node.data).epoch
        except StoreError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path}: {error}") from error

    async def _stored_controller_epoch(self) -> int:
        try:
            node = await self._store.get(CONTROLLER_EPOCH)
        except StoreError as error:
            # Its election can be neither confirmed nor excluded: it sends the request again.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{CONTROLLER_EPOCH}: {error}") from error
        return -1 if node is None else ControllerEpochNode.decode(node.data)

    def _controlled(self, controller_id: int, controller_epoch: int) -> ClusterImage:
        image = self._view.image
        if (image.controller_id, image.controller_epoch) == (controller_id, controller_epoch):
            return image
        return image.with_controller(controller_id, controller_epoch)

    async def _topic(self, name: str, topic_id: bytes) -> Topic:
        """The known topic; a new topic gets its configuration, which the store has before any broker is notified."""
        known = self._view.image.topics.get(name)
        if known is not None and known.id == topic_id:
            return known
        path = ConfigNode.topic_path(name)
        try:
            node = await self._store.get(path)
        except StoreError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path}: {error}") from error
        return Topic(name, topic_id, (), {} if node is None else ConfigNode.decode(path, node.data))

    async def _unnamed_partitions(self, topic: Topic) -> tuple[PartitionState, ...]:
        """All partitions of a new topic, of which LeaderAndIsr names only those that are here.

        Which coordinator a group has, and where a producer writes a key, goes by their number.
        """
        path = TopicNode.path(topic.name)
        try:
            node = await self._store.get(path)
        except StoreError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{path}: {error}") from error
        if node is None:
            return ()
        content = TopicNode.decode(path, node.data)
        return (_UNKNOWN,) * len(content.replicas) if content.id == topic.id else ()


_UNKNOWN = PartitionState(NO_LEADER, -1, (), ())
"""A partition of which only the number is known: UpdateMetadata brings the rest."""


def _with_states(topic: Topic, states: dict[int, PartitionState]) -> Topic:
    """The topic with these partitions, unless what is known of one is newer."""
    partitions = list(topic.partitions)
    if states:
        partitions += [_UNKNOWN] * (max(states) + 1 - len(partitions))
    changed = len(partitions) != len(topic.partitions) or not topic.partitions
    for index, state in states.items():
        known = partitions[index]
        if state != known and (state.leader_epoch, state.partition_epoch) >= (
            known.leader_epoch,
            known.partition_epoch if known.replicas else -1,
        ):
            partitions[index] = state
            changed = True
    return topic._replace(partitions=tuple(partitions)) if changed else topic


def _led(topic: Topic, named: Iterable[LeaderAndIsrRequestPartitionState]) -> Topic:
    states = {}
    for each in named:
        index, state = each.partition_index, replica_partition(each)
        if index < len(topic.partitions):
            state = state._replace(offline_replicas=topic.partitions[index].offline_replicas)
        states[index] = state
    return _with_states(topic, states)
