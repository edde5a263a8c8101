"""The cluster as this broker knows it: one image, of which subscribers see each change once, in order.

With a metadata store, the controller pushes leaders and brokers (`ControllerRequests`), and the broker reads
configurations itself (`StoredConfigs`). In a KRaft cluster the metadata log has everything (`MetadataFollower`).
Source: Kafka's `ZkMetadataCache`, `KRaftMetadataCache`, `MetadataLoader`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.client.network.connections import retrieve_failure
from odradek.metadata.image import DEFAULT_BROKER, Broker, ClusterImage
from odradek.metrics.invariants import Invariant, InvariantCounters

T = TypeVar("T")
OnImage = Callable[[ClusterImage, ClusterImage], Awaitable[None] | None]


class ClusterView:
    """Owns this broker's image. `begin`, then what the controller says; subscribers see each change once, in order."""

    __slots__ = (
        "_config",
        "_failed",
        "_last",
        "_metadata_arrived",
        "_subscribers",
        "_whole",
        "broker_epoch",
        "image",
        "node_id",
    )

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self.node_id = config.node_id
        """Of this broker."""
        self._failed: Callable[[Exception], None] = lambda _error: None
        self._subscribers: list[OnImage] = []
        self._last: asyncio.Task[object] | None = None
        self._metadata_arrived: asyncio.Event = asyncio.Event()
        self._whole = True
        self.image = ClusterImage()
        self.broker_epoch = -1
        """Of this broker's newest registration."""

    def subscribe(self, on_image: OnImage) -> Callable[[], None]:
        """Call with (old, new) after every change, in the order of subscription, until the answer is called."""
        self._subscribers.append(on_image)
        return lambda: self._subscribers.remove(on_image)

    def watch_failures(self, failed: Callable[[Exception], None]) -> None:
        """Call back, instead of to an earlier one, when a subscriber raises: later ones do not see that image."""
        self._failed = failed

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

    # --- at the start ---

    def begin(self, image: ClusterImage) -> None:
        """Start with this image, before any part follows it."""
        self.image = image
        self._take_dynamic_configs()

    def _take_dynamic_configs(self) -> None:
        configs = self.image.broker_configs
        self._config.apply_dynamic(configs.get(DEFAULT_BROKER, {}), configs.get(str(self.node_id), {}))

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
        try:
            for on_image in tuple(self._subscribers):
                waiting = on_image(old, image)
                if waiting is not None:
                    await waiting
        except Exception as error:
            self._failed(error)
            raise


def controller_check(invariants: InvariantCounters) -> OnImage:
    """A subscriber that counts images of a controller that was replaced before."""

    def check(old: ClusterImage, new: ClusterImage) -> None:
        if new.controller_epoch < old.controller_epoch:
            found = f"epoch {new.controller_epoch} after {old.controller_epoch}"
            invariants.violated(Invariant.CONTROLLER_EPOCH_MONOTONIC, "the controller", found)

    return check
