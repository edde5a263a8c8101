"""What a broker reads of the metadata store itself: the image at its start, then configurations, quotas and features.

Kafka's brokers did so with ZooKeeper. At the start no partition has a leader: the leaders in the store are from before
the registration of this broker. Source: Kafka's `ZkMetadataCache`, `ConfigHandler`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.metadata.changes import load_configs, load_image
from odradek.metadata.image import NO_LEADER, ClusterImage, Topic
from odradek.metadata.nodes import FEATURES
from odradek.ports.store import MetadataStore, StoreError

logger = logging.getLogger("odradek.broker.cluster.cluster_view")

_CONFIG = "/config"
_AGAIN_SECONDS = 1.0
"""After which what could not be read is read again."""


class StoredConfigs:
    """`load` at the start; after `follow`, each change of configurations or features becomes an image of the view."""

    __slots__ = ("_again", "_is_queued", "_store", "_unwatch", "_view")

    def __init__(self, store: MetadataStore, view: ClusterView) -> None:
        self._store = store
        self._view = view
        self._unwatch: list[Callable[[], None]] = []
        self._again: asyncio.TimerHandle | None = None
        self._is_queued = False
        """Whether a reading has been asked for that has not begun."""

    async def load(self) -> ClusterImage:
        """Let the view begin with what the store has, without leaders. Raises StoreError."""
        image = without_leaders(await load_image(self._store))
        self._view.begin(image)
        return image

    def follow(self) -> None:
        """Read configurations and features again whenever they change, and now: they may have since `load`."""
        for path in (_CONFIG, FEATURES):
            self._unwatch.append(self._store.watch(path, self._config_changed))
        self._config_changed()

    def close(self) -> None:
        """Follow configurations in the store no longer."""
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        if self._again is not None:
            self._again.cancel()

    def _config_changed(self, _path: str = "") -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._is_queued:
            # It will read this change, too: a request for a thousand topics makes as many notices.
            return
        self._is_queued = True
        task = asyncio.get_running_loop().create_task(self._view.in_turn(self._read_configs))
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
        self._is_queued = False
        await self._view.publish(await load_configs(self._store, self._view.image))


def without_leaders(image: ClusterImage) -> ClusterImage:
    """The image without leaders of partitions and without brokers."""
    topics: Iterable[Topic] = (
        topic._replace(partitions=tuple(state._replace(leader=NO_LEADER) for state in topic.partitions))
        for topic in image.topics.values()
    )
    return image.with_topics(topics).with_brokers({})
