"""The cluster as this broker knows it: one image from the controller, with configurations read from the store.

The controller pushes leaders and brokers (LeaderAndIsr, UpdateMetadata, StopReplica); configurations, quotas and
features every broker reads by itself, as in Kafka's ZooKeeper mode. Where this broker is the controller, its image is
taken as it is. At the start no partition has a leader: the leaders in the store are from before its registration.
Source: Kafka's `ZkMetadataCache`, `KafkaApis`, `ConfigHandler`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.client.connections import retrieve_failure
from odradek.metadata.changes import load_configs, load_image
from odradek.metadata.configs.definitions import RefusedConfig
from odradek.metadata.configs.effect_rules import ensure_not_refused
from odradek.metadata.controller_messages import broker_of, metadata_partition, replica_partition
from odradek.metadata.image import DEFAULT_BROKER, NO_BROKER, NO_LEADER, ClusterImage, PartitionState, Topic
from odradek.metadata.nodes import CONTROLLER_EPOCH, FEATURES, BrokerNode, ConfigNode, ControllerEpochNode, TopicNode
from odradek.ports.store import MetadataStore, StoreError
from odradek.records.topic_partition import PartitionKey, TopicIdPartition, TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrRequestPartitionState
from odradek.wire.messages.stop_replica import StopReplicaRequest
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.primitives import ZERO_UUID

logger = logging.getLogger(__name__)

CONFIG = "/config"
FULL = 2
"""The type of a LeaderAndIsr or UpdateMetadata that names everything: what it does not name is gone."""
DELETED = -2
"""The leader of a partition whose topic is deleted (Kafka's LeaderDuringDelete)."""

_AGAIN_SECONDS = 1.0
"""After which what could not be read is read again."""

T = TypeVar("T")
OnImage = Callable[[ClusterImage, ClusterImage], Awaitable[None] | None]


class ClusterView:
    """Owns this broker's image. `load`, then what the controller says; subscribers see each change once, in order."""

    __slots__ = (
        "_again",
        "_config",
        "_last",
        "_line",
        "_metadata_arrived",
        "_node_id",
        "_stopped",
        "_store",
        "_subscribers",
        "_unwatch",
        "_whole",
        "broker_epoch",
        "image",
        "is_offline",
        "on_stopped",
    )

    def __init__(self, store: MetadataStore, config: BrokerConfig) -> None:
        self._store = store
        self._config = config
        self._node_id = config.node_id
        self._subscribers: list[OnImage] = []
        self._last: asyncio.Task[object] | None = None
        # The controller epoch and the connection of the newest request from a controller.
        self._line = (-1, -1)
        self._unwatch: list[Callable[[], None]] = []
        self._again: asyncio.TimerHandle | None = None
        self._metadata_arrived: asyncio.Event = asyncio.Event()
        self._whole = True
        self.image = ClusterImage()
        self.broker_epoch = -1
        """Of this broker's newest registration."""
        self.on_stopped: Callable[[list[PartitionKey], bool], None] = lambda _places, _delete: None
        """Replicas that StopReplica ends here, and whether their data goes."""
        self.is_offline: Callable[[str, int], bool] = lambda _topic, _partition: False
        """Whether a replica here lies in a directory that failed: the controller has to know."""

    async def load(self) -> ClusterImage:
        """Read what the store has, without leaders, and follow its configurations. Raises StoreError."""
        image = await load_image(self._store)
        self.image = without_leaders(image)
        self._take_dynamic_configs()
        for resource in (DEFAULT_BROKER, str(self._node_id)):
            try:
                ensure_not_refused(self.image.broker_configs.get(resource, {}))
            except RefusedConfig as error:
                # Stored by an earlier version. A broker that did not start for it could not have it deleted either.
                logger.warning(
                    "stored settings of %s are ignored: %s", f"broker {resource}" if resource else "all brokers", error
                )
        return self.image

    def follow_configs(self) -> None:
        """Read configurations and features again whenever they change, and now: they may have since `load`."""
        for path in (CONFIG, FEATURES):
            self._unwatch.append(self._store.watch(path, self._config_changed))
        self._config_changed()

    def close(self) -> None:
        """Follow configurations in the store no longer."""
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        if self._again is not None:
            self._again.cancel()

    def subscribe(self, on_image: OnImage) -> Callable[[], None]:
        """Call with (old, new) after every change, in the order of subscription, until the answer is called."""
        self._subscribers.append(on_image)
        return lambda: self._subscribers.remove(on_image)

    @property
    def has_metadata(self) -> bool:
        """Whether a controller has sent its complete image; until then this broker knows no broker, not even itself."""
        return self._metadata_arrived.is_set()

    @property
    def is_whole(self) -> bool:
        """Whether what is not in the image does not exist: LeaderAndIsr names what is here, UpdateMetadata the rest."""
        return self._whole

    async def wait_for_metadata(self) -> None:
        """Wait until a controller has sent its complete image."""
        await self._metadata_arrived.wait()

    # --- from the controller in this process ---

    async def take(self, image: ClusterImage) -> None:
        """The newest image of the controller, which decides on nothing older."""

        async def event() -> None:
            if image.controller_epoch < self.image.controller_epoch:
                # A newer controller notified this broker before the controller in this process noticed its election.
                return
            self._whole = True
            await self._publish(image)
            self._metadata_arrived.set()

        await self._in_turn(event)

    # --- from a controller elsewhere; `connection` is the number of the one it came on, and these grow ---

    def offline_replicas(self, image: ClusterImage) -> list[TopicPartition]:
        """Replicas of this broker whose directory has failed."""
        return [
            TopicPartition(name, index)
            for name, topic in image.topics.items()
            for index, state in enumerate(topic.partitions)
            if self._node_id in state.replicas and self.is_offline(name, index)
        ]

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
            self._whole = False
            await self._publish(image.with_topics(taken))
            return {
                (named.topic_id, p.partition_index): (
                    ErrorCode.KAFKA_STORAGE_ERROR
                    if self.is_offline(named.topic_name, p.partition_index)
                    else ErrorCode.NONE
                )
                for named in request.topic_states
                for p in named.partition_states
            }

        return await self._in_turn(event)

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
            self._whole = True
            await self._publish(image.with_topics(taken))
            if request.type == FULL:
                self._metadata_arrived.set()

        await self._in_turn(event)

    async def stop_replica(self, request: StopReplicaRequest, connection: int) -> dict[PartitionKey, ErrorCode]:
        """Stop replicas, and drop the data of those that are to be deleted; FENCED_LEADER_EPOCH for what is newer here.

        Raises KafkaError as `leader_and_isr`.
        """

        async def event() -> dict[PartitionKey, ErrorCode]:
            await self._check(request, connection)
            answers: dict[PartitionKey, ErrorCode] = {}
            stopped: dict[bool, list[PartitionKey]] = {False: [], True: []}
            for named in request.topic_states:
                topic = self.image.topics.get(named.topic_name)
                is_over = topic is not None and named.topic_id not in (ZERO_UUID, topic.id)
                for p in named.partition_states:
                    place = (named.topic_name, p.partition_index)
                    if is_over:
                        # It ended before the present topic of that name began; the controller repeats the request.
                        answers[place] = ErrorCode.NONE
                        continue
                    known = self.image.partition(*place)
                    if known is not None and 0 <= p.leader_epoch < known.leader_epoch:
                        answers[place] = ErrorCode.FENCED_LEADER_EPOCH
                        continue
                    answers[place] = ErrorCode.NONE
                    stopped[p.delete_partition].append(place)
            for delete, places in stopped.items():
                if places:
                    self.on_stopped(places, delete)
            return answers

        return await self._in_turn(event)

    async def _check(
        self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest, connection: int
    ) -> None:
        controller_epoch, known = request.controller_epoch, self.image.controller_epoch
        same = controller_epoch == known
        if controller_epoch < known or (same and self.image.controller_id not in (request.controller_id, NO_BROKER)):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if same and self.image.controller_id == self._node_id:
            # The controller of this epoch is in this process, and does not send itself requests.
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
        if request.broker_epoch != self.broker_epoch and (
            request.broker_epoch < self.broker_epoch or request.broker_epoch != await self._stored_broker_epoch()
        ):
            # Decided for the process that ran here before, or by no controller. One that is greater is right while the
            # registration is in the store, and this broker does not know yet that it is.
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        if controller_epoch > known and controller_epoch != await self._stored_controller_epoch():
            # Nobody but an elected controller has an epoch that the store knows.
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
        image = self.image
        if (image.controller_id, image.controller_epoch) == (controller_id, controller_epoch):
            return image
        return image.with_controller(controller_id, controller_epoch)

    async def _topic(self, name: str, topic_id: bytes) -> Topic:
        """The known topic; a new topic gets its configuration, which the store has before any broker is notified."""
        known = self.image.topics.get(name)
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

    # --- configurations ---

    def _config_changed(self, _path: str = "") -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        task = asyncio.get_running_loop().create_task(self._in_turn(self._read_configs))
        task.add_done_callback(self._configs_read)

    def _configs_read(self, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        logger.warning("cannot read the configurations from the metadata store: %s; reading them again later", error)
        if isinstance(error, StoreError) and self._unwatch and self._again is None:
            # The store notifies of a change once.
            self._again = asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._config_changed)

    async def _read_configs(self) -> None:
        await self._publish(await load_configs(self._store, self.image))

    def _take_dynamic_configs(self) -> None:
        configs = self.image.broker_configs
        self._config.apply_dynamic(configs.get(DEFAULT_BROKER, {}), configs.get(str(self._node_id), {}))

    # --- one change at a time ---

    async def _in_turn(self, event: Callable[[], Awaitable[T]]) -> T:
        previous = self._last

        async def run() -> T:
            if previous is not None and not previous.done():
                await asyncio.wait({previous})
            return await event()

        task = self._last = asyncio.get_running_loop().create_task(run())
        task.add_done_callback(retrieve_failure)
        return await asyncio.shield(task)

    async def _publish(self, image: ClusterImage) -> None:
        old = self.image
        if image is old:
            return
        self.image = image
        if image.broker_configs is not old.broker_configs:
            self._take_dynamic_configs()
        for on_image in tuple(self._subscribers):
            waiting = on_image(old, image)
            if waiting is not None:
                await waiting


def without_leaders(image: ClusterImage) -> ClusterImage:
    """The image with no partition led by anybody, and no brokers."""
    topics: Iterable[Topic] = (
        topic._replace(partitions=tuple(state._replace(leader=NO_LEADER) for state in topic.partitions))
        for topic in image.topics.values()
    )
    return image.with_topics(topics).with_brokers({})


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
