"""The storage of a broker at its start: log directories locked and loaded, the metadata store opened and read."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.membership import cluster_id
from odradek.broker.cluster.stored_configs import StoredConfigs
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.ports import Ports
from odradek.broker.storage.replica_directories import ReplicaDirectories
from odradek.log.directories.checkpoint_formats import MetaProperties
from odradek.log.directories.events import DirectoryEvents
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.ownership import METADATA_FILE, partition_names
from odradek.log.directories.placed_logs import DirectorySettings
from odradek.log.directories.scan import stored_identity
from odradek.log.segments.files import most_kept_open
from odradek.log.writing.write_queue import WriteSettings
from odradek.metadata.directories import is_unassigned
from odradek.metadata.image import ClusterImage
from odradek.metadata.stores.selection import open_store
from odradek.ports.store import MetadataStore, SessionExpired, StoreError
from odradek.wire.frames import ReceiveBuffers

if TYPE_CHECKING:
    from odradek.broker.kraft.controllers import Controllers
    from odradek.broker.kraft.followed_metadata import FollowedMetadata

logger = logging.getLogger("odradek.broker")


class StoreMetadata(NamedTuple):
    """The metadata of a cluster in a store: SQLite or ZooKeeper."""

    store: MetadataStore
    """The store, in a session of this broker."""
    configs: StoredConfigs
    """Configurations of the store on their way to the image."""

    async def close(self) -> None:
        """End the session."""
        try:
            await self.store.close()
        except StoreError as error:
            logger.warning("cannot close the metadata store: %s", error)


class QuorumMetadata(NamedTuple):
    """The metadata of a cluster in the log of a KRaft quorum."""

    follower: FollowedMetadata
    """The log, fetched and replayed."""
    controllers: Controllers
    """Connections to the quorum's controllers."""
    previous_broker_epoch: int
    """Of the process that ran here before, if it shut down cleanly; else -1."""

    async def close(self) -> None:
        """Stop fetching."""
        await self.follower.close()
        self.controllers.close()


class Storage(NamedTuple):
    """The data of a broker, and the cluster as its metadata has it."""

    directories: LogDirectories
    """Log directories, locked and loaded."""
    replicas: ReplicaDirectories
    """The directories of this broker's replicas."""
    metadata: StoreMetadata | QuorumMetadata
    """Where the metadata of the cluster lies."""
    view: ClusterView
    """The cluster image as this broker knows it."""
    cluster_id: str
    """The cluster to which the data belongs."""


async def open_storage(config: BrokerConfig, ports: Ports, buffers: ReceiveBuffers, opened: AsyncExitStack) -> Storage:
    """Open the storage; `opened` closes it again. Raises LogDirectoryError, ConfigError, StoreError.

    Appends that wait for a slow disk count as bytes of requests that are not served yet.
    """
    directories, identity = lock_directories(config, ports, buffers, opened)
    paths = config.log_dirs
    store = ports.store or await open_store(config, ports.disk, f"{paths[0]}/{METADATA_FILE}")
    opened.push_async_callback(store.close)
    view = ClusterView(config)
    metadata = StoreMetadata(store, StoredConfigs(store, view))
    cluster, image = await _read_cluster(config, ports, metadata, identity.cluster_id)
    load_directories(directories, config, cluster, image, may_be_new=True)
    return Storage(directories, ReplicaDirectories(config.node_id, directories), metadata, view, cluster)


def lock_directories(
    config: BrokerConfig, ports: Ports, buffers: ReceiveBuffers, opened: AsyncExitStack
) -> tuple[LogDirectories, MetaProperties]:
    """The directories, locked, and whose they are. Raises LogDirectoryError."""
    events = DirectoryEvents(logger.warning, buffers.adjust)
    settings = _directory_settings(config)
    paths = config.log_dirs
    directories = LogDirectories(
        ports.disk,
        ports.clock,
        ports.random,
        paths,
        open_files=most_kept_open(ports.process.figures().most_descriptors),
        settings=settings,
        events=events,
    )
    # The lock comes first, so that a second broker on this folder fails by it and not by a consequence.
    directories.startup.lock()
    opened.push_async_callback(directories.close, clean=False)
    return directories, stored_identity(ports.disk, paths)


def _directory_settings(config: BrokerConfig) -> DirectorySettings:
    writes = WriteSettings(
        config.number("odradek.write.inline.max.bytes"),
        config.number("odradek.write.stall.ms") / 1000,
        config.number("odradek.write.probation.ms") / 1000,
    )
    return DirectorySettings(
        writes,
        config.flag("odradek.adopt.partitions"),
        lambda: config.words("cordoned.log.dirs"),
        config.joins_quorum,
    )


async def _read_cluster(
    config: BrokerConfig, ports: Ports, metadata: StoreMetadata, expected_id: str | None
) -> tuple[str, ClusterImage]:
    """The cluster id and the image; an expired session is opened again. Raises StoreError."""

    def holds_partitions() -> bool:
        try:
            return any(partition_names(ports.disk, path) for path in config.log_dirs)
        except OSError:
            return False

    while True:
        try:
            found = await cluster_id(metadata.store, ports.random, expected_id, holds_data=holds_partitions)
            return found, await metadata.configs.load()
        except SessionExpired:
            logger.warning("the session with the metadata store expired; opening another one")
            await metadata.store.reopen()


def load_directories(
    directories: LogDirectories,
    config: BrokerConfig,
    cluster: str,
    image: ClusterImage,
    *,
    has_same_disks: bool = False,
    may_be_new: bool = False,
) -> None:
    """Load the directories, and compare what they hold with the replicas that the image gives to this broker.

    `has_same_disks`: no disk was replaced since this broker registered. A replica without a directory, of which the
    cluster knows none either, is then one that this broker has not created yet. `may_be_new`: the cluster
    knows no directories, and what `DirectoriesStartup.expect` finds decides.
    """
    node_id = config.node_id
    directories.startup.load(
        cluster_id=cluster,
        node_id=node_id,
        topic_id_of=lambda name: None if (topic := image.topics.get(name)) is None else topic.id,
    )
    directories.startup.set_aside_strays(
        lambda topic, index: (state := image.partition(topic, index)) is not None and node_id in state.replicas
    )
    directories.startup.expect(
        (
            (topic.name, index)
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
            if (node_id in state.isr or node_id in state.elr) and not (has_same_disks and is_unassigned(state, node_id))
        ),
        may_be_new=may_be_new,
    )
