"""The controller's shell: one event at a time, from a decision through the store to the next image.

The shape is that of Kafka's `ControllerEventManager`: requests queue, and each is decided on the image that the one
before left behind. A change is in the store, then in the image, then known to those who subscribed, then answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from odradek.broker.config import BrokerConfig
from odradek.controller.configs import AlteredResource, ResourceChanges, ResourceType, alter_configs
from odradek.controller.internal_topics import creatable
from odradek.controller.outcome import Decision
from odradek.controller.topics import (
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    MorePartitions,
    NewTopic,
    TopicReference,
    create_partitions,
    create_topics,
    delete_topics,
)
from odradek.metadata.changes import deletion, load_image, read_subtree
from odradek.metadata.client_metrics import describe_client_metrics
from odradek.metadata.described import (
    Described,
    describe_broker,
    describe_broker_default,
    describe_group,
    describe_topic,
)
from odradek.metadata.image import DEFAULT_BROKER, Broker, ClusterImage
from odradek.metadata.nodes import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    PRODUCER_ID_BLOCK,
    BrokerNode,
    ClusterIdNode,
    ConfigNode,
    ControllerEpochNode,
    ControllerNode,
    DeletionNode,
    ProducerIdBlock,
    ProducerIdBlockNode,
    TopicNode,
    id_text,
)
from odradek.ports.clock import Clock
from odradek.ports.randomness import Random
from odradek.ports.store import Create, MetadataStore, Operation, Put, StoreError
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

PRODUCER_IDS_PER_BLOCK = 1000
MAX_PRODUCER_ID = (1 << 63) - 1

T = TypeVar("T")
OnImage = Callable[[ClusterImage, ClusterImage], Awaitable[None] | None]


class ControllerRuntime:
    """Owns the image. `start`, then `register` once the listeners are bound, `stop` at the end."""

    __slots__ = ("_clock", "_config", "_last", "_node_id", "_random", "_store", "_subscribers", "image")

    image: ClusterImage

    def __init__(self, store: MetadataStore, config: BrokerConfig, clock: Clock, random: Random) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._random = random
        self._node_id = config.node_id
        self._subscribers: list[OnImage] = []
        self._last: asyncio.Task[object] | None = None
        self.image = ClusterImage()

    # --- life ---

    async def start(self, cluster_id: str | None = None) -> ClusterImage:
        """Load the cluster, become its controller, finish what another controller left half done.

        A new cluster gets `cluster_id`, or a fresh one. Raises StoreError; CorruptNode among others, and also when
        `cluster_id` is not the one of this store: the data belongs to another cluster.
        """
        image = await load_image(self._store)
        if not image.cluster_id:
            chosen = cluster_id or id_text(self._random.uuid())
            await self._store.apply([Create(CLUSTER_ID, ClusterIdNode.encode(chosen))])
            image = image.with_cluster_id(chosen)
        elif cluster_id is not None and cluster_id != image.cluster_id:
            raise StoreError(f"the metadata is of cluster {image.cluster_id}, not of {cluster_id}")
        self.image = await self._finish_deletions(await self._elect(image))
        self._take_dynamic_configs()
        return self.image

    async def register(self, broker: Broker) -> ClusterImage:
        """Make this broker known to the cluster, or its new endpoints."""
        return await self._in_turn(lambda: self._register(broker))

    async def stop(self) -> None:
        """Wait for the events under way and end the session."""
        last = self._last
        if last is not None and not last.done():
            await asyncio.wait({last})
        await self._store.close()

    def subscribe(self, on_image: OnImage) -> None:
        """Call with (old, new) after every change, in the order of subscription, before the change is answered."""
        self._subscribers.append(on_image)

    # --- requests ---

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Sequence[CreatedTopic]:
        return await self._decide(
            lambda image: create_topics(image, topics, self._config, self._random, validate_only=validate_only)
        )

    async def delete_topics(self, references: Sequence[TopicReference]) -> Sequence[DeletedTopic]:
        return await self._decide(lambda image: delete_topics(image, references, self._config))

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Sequence[GrownTopic]:
        return await self._decide(
            lambda image: create_partitions(image, topics, self._random, validate_only=validate_only)
        )

    async def alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Sequence[AlteredResource]:
        return await self._decide(
            lambda image: alter_configs(image, resources, self._config, validate_only=validate_only)
        )

    async def auto_create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        live = len(self.image.live_brokers())
        created = await self.create_topics([creatable(name, self._config, live) for name in dict.fromkeys(names)])
        failures: dict[str, ErrorCode] = {}
        for topic in created:
            # Somebody else may have been quicker: then it is there, as was asked.
            if topic.failure is not None and topic.failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                failures[topic.name] = topic.failure.code
                logger.info("cannot create topic %s: %s", topic.name, topic.failure.message or topic.failure.code.name)
        return failures

    async def change(self, decide: Callable[[ClusterImage], Decision[T]]) -> Sequence[T]:
        return await self._decide(decide)

    async def unregister_broker(self, broker_id: int) -> None:
        if broker_id not in self.image.brokers:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
        # A registration here is a live session, not a record that outlasts its broker as in KRaft.
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is running; it is unregistered by its end")

    async def next_producer_id_block(self) -> range:
        return await self._in_turn(self._next_producer_id_block)

    # --- what is set ---

    def describe_configs(
        self, resource_type: int, name: str, keys: Iterable[str] | None = None, *, documentation: bool = False
    ) -> list[Described]:
        if resource_type == ResourceType.TOPIC:
            if name not in self.image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(self.image.topic_configs(name), self._config, keys, documentation=documentation)
        if resource_type == ResourceType.BROKER:
            if name == DEFAULT_BROKER:
                configs = self.image.broker_configs.get(name, {})
                return describe_broker_default(configs, keys, documentation=documentation)
            if not name.isascii() or not name.isdecimal():
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
            if int(name) != self._node_id:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Unexpected broker id, expected {self._node_id} or empty string, but received {name}",
                )
            return describe_broker(self._config, keys, documentation=documentation)
        if resource_type == ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            configs = self.image.group_configs.get(name, {})
            return describe_group(configs, self._config, keys, documentation=documentation)
        if resource_type == ResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return describe_client_metrics(self.image.client_metrics.get(name, {}), keys, documentation=documentation)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")

    def describe_new_topic(self, topic: CreatedTopic) -> list[Described]:
        return describe_topic({} if topic.topic is None else topic.topic.configs, self._config)

    # --- one event at a time ---

    async def _in_turn(self, event: Callable[[], Awaitable[T]]) -> T:
        """Run an event after all earlier ones. It goes on to its end even if the one who asked has gone."""
        previous = self._last

        async def run() -> T:
            if previous is not None and not previous.done():
                await asyncio.wait({previous})
            return await event()

        task = self._last = asyncio.get_running_loop().create_task(run())
        return await asyncio.shield(task)

    async def _decide(self, decide: Callable[[ClusterImage], Decision[T]]) -> Sequence[T]:
        async def event() -> Sequence[T]:
            decision = decide(self.image)
            if decision.operations:
                await self._apply(decision.operations)
                await self._publish(decision.image)
            return decision.replies

        return await self._in_turn(event)

    async def _apply(self, operations: Sequence[Operation]) -> None:
        try:
            await self._store.apply(operations)
        except StoreError as error:
            # Whether it took effect is open, and what we believed of the store may be wrong: look before going on.
            logger.warning("metadata store: %s", error)
            await self._reload()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store refused the change: {error}") from error

    async def _reload(self) -> None:
        try:
            image = await load_image(self._store, self.image.version + 1)
        except StoreError as error:
            logger.warning("metadata store cannot be read: %s", error)
            return
        await self._publish(image)

    async def _publish(self, image: ClusterImage) -> None:
        old, self.image = self.image, image
        if image.broker_configs is not old.broker_configs:
            self._take_dynamic_configs()
        for on_image in self._subscribers:
            waiting = on_image(old, image)
            if waiting is not None:
                await waiting

    def _take_dynamic_configs(self) -> None:
        configs = self.image.broker_configs
        self._config.apply_dynamic(configs.get(DEFAULT_BROKER, {}), configs.get(str(self._node_id), {}))

    # --- events ---

    async def _elect(self, image: ClusterImage) -> ClusterImage:
        epoch = image.controller_epoch + 1
        node = await self._store.get(CONTROLLER_EPOCH)
        data = ControllerEpochNode.encode(epoch)
        await self._store.apply(
            [
                Create(CONTROLLER, ControllerNode.encode(self._node_id, self._clock.now_ms()), ephemeral=True),
                Create(CONTROLLER_EPOCH, data) if node is None else Put(CONTROLLER_EPOCH, data, node.version),
            ]
        )
        return image.with_controller(self._node_id, epoch)

    async def _register(self, broker: Broker) -> ClusterImage:
        path = BrokerNode.path(broker.id)
        data = BrokerNode.encode(broker, self._clock.now_ms())
        known = broker.id in self.image.brokers
        await self._apply([Put(path, data) if known else Create(path, data, ephemeral=True)])
        await self._publish(self.image.with_broker(broker))
        return self.image

    async def _finish_deletions(self, image: ClusterImage) -> ClusterImage:
        names = sorted(image.topics_in_deletion)
        for name in names:
            nodes = dict(await read_subtree(self._store, TopicNode.path(name)))
            for path in (ConfigNode.topic_path(name), DeletionNode.path(name)):
                nodes.update(await read_subtree(self._store, path))
            await self._store.apply(deletion(nodes))
        return image.without_topics(names) if names else image

    async def _next_producer_id_block(self) -> range:
        node = await self._store.get(PRODUCER_ID_BLOCK)
        first = 0 if node is None else ProducerIdBlockNode.decode(node.data).last + 1
        last = first + PRODUCER_IDS_PER_BLOCK - 1
        if last > MAX_PRODUCER_ID:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used.")
        data = ProducerIdBlockNode.encode(ProducerIdBlock(self._node_id, first, last))
        await self._apply(
            [Create(PRODUCER_ID_BLOCK, data) if node is None else Put(PRODUCER_ID_BLOCK, data, node.version)]
        )
        return range(first, last + 1)
