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
from odradek.client.network.connections import retrieve_failure
from odradek.metadata.changes import load_configs, load_image
from odradek.metadata.configs.definitions import RefusedConfig
from odradek.metadata.configs.effect_rules import ensure_not_refused
from odradek.metadata.image import DEFAULT_BROKER, NO_LEADER, Broker, ClusterImage, Topic
from odradek.metadata.nodes import FEATURES
from odradek.metrics.invariants import Invariant, InvariantCounters
from odradek.ports.store import MetadataStore, StoreError

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
        "_metadata_arrived",
        "_node_id",
        "_stopped",
        "_store",
        "_subscribers",
        "_unwatch",
        "_whole",
        "broker_epoch",
        "image",
    )

    def __init__(self, store: MetadataStore, config: BrokerConfig) -> None:
        self._store = store
        self._config = config
        self._node_id = config.node_id
        self._subscribers: list[OnImage] = []
        self._last: asyncio.Task[object] | None = None
        self._unwatch: list[Callable[[], None]] = []
        self._again: asyncio.TimerHandle | None = None
        self._metadata_arrived: asyncio.Event = asyncio.Event()
        self._whole = True
        self.image = ClusterImage()
        self.broker_epoch = -1
        """Of this broker's newest registration."""

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
            await self.publish(image, is_whole=True)
            self.note_metadata()

        await self.in_turn(event)

    # --- from a controller elsewhere, see `ControllerRequests` ---

    def registered(self, broker: Broker) -> None:
        """This broker has registered: its requests and those of the controller carry the new epoch."""
        self.broker_epoch = broker.epoch

    def note_metadata(self) -> None:
        """A controller has sent its complete image."""
        self._metadata_arrived.set()

    # --- configurations ---

    def _config_changed(self, _path: str = "") -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        task = asyncio.get_running_loop().create_task(self.in_turn(self._read_configs))
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
        await self.publish(await load_configs(self._store, self.image))

    def _take_dynamic_configs(self) -> None:
        configs = self.image.broker_configs
        self._config.apply_dynamic(configs.get(DEFAULT_BROKER, {}), configs.get(str(self._node_id), {}))

    # --- one change at a time ---

    async def in_turn(self, event: Callable[[], Awaitable[T]]) -> T:
        """Run an event that changes the image after all earlier ones."""
        previous = self._last

        async def run() -> T:
            if previous is not None and not previous.done():
                await asyncio.wait({previous})
            return await event()

        task = self._last = asyncio.get_running_loop().create_task(run())
        task.add_done_callback(retrieve_failure)
        return await asyncio.shield(task)

    async def publish(self, image: ClusterImage, *, is_whole: bool | None = None) -> None:
        """Let the image be this broker's, only within an event; `is_whole` if that is known of it."""
        if is_whole is not None:
            self._whole = is_whole
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


def controller_check(invariants: InvariantCounters) -> OnImage:
    """A subscriber that counts images of a controller that was replaced before."""

    def check(old: ClusterImage, new: ClusterImage) -> None:
        if new.controller_epoch < old.controller_epoch:
            found = f"epoch {new.controller_epoch} after {old.controller_epoch}"
            invariants.violated(Invariant.CONTROLLER_EPOCH_MONOTONIC, "the controller", found)

    return check


def without_leaders(image: ClusterImage) -> ClusterImage:
    """The image without leaders of partitions and without brokers."""
    topics: Iterable[Topic] = (
        topic._replace(partitions=tuple(state._replace(leader=NO_LEADER) for state in topic.partitions))
        for topic in image.topics.values()
    )
    return image.with_topics(topics).with_brokers({})
