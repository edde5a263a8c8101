"""The storage of a broker of a KRaft cluster at its start: directories locked, the metadata log followed, logs loaded.

What the directories hold is compared with the cluster only when the image has all committed metadata: a broker that
was away for long would mistake replicas of new topics for strays. Source: Kafka's `BrokerServer`, `SharedServer`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.peers import PeerLimits
from odradek.broker.cluster.stored_configs import without_leaders
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.quorum_addresses import controller_listener, quorum_servers
from odradek.broker.configuration.refusals import is_combined, metadata_directory
from odradek.broker.kraft.broker_logins import TO_CONTROLLERS, broker_login
from odradek.broker.kraft.controllers import Controllers
from odradek.broker.kraft.followed_metadata import FollowedMetadata
from odradek.broker.kraft.metadata_follower import MetadataFollower
from odradek.broker.kraft.metadata_snapshots import MetadataSnapshots
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.opening import QuorumMetadata, Storage, load_directories, lock_directories
from odradek.broker.ports import Ports
from odradek.broker.storage.replica_directories import ReplicaDirectories
from odradek.client.errors import TransportError
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_observer import MetadataObserver, ObserverIdentity, Server
from odradek.log.directories.checkpoint_formats import META_PROPERTIES, CorruptCheckpoint, parse_meta_properties
from odradek.log.directories.scan import last_epoch
from odradek.log.environment import LogEnvironment, StandaloneOwner
from odradek.metadata.features import BROKER_FEATURES, finalized
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.durable_log import DurableMetadataLog
from odradek.ports.disk import Disk
from odradek.ports.store import StoreError, WrongStore
from odradek.wire.errors import KafkaError
from odradek.wire.frames import ReceiveBuffers
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.primitives import ZERO_UUID

logger = logging.getLogger("odradek.broker.kraft")

_CONTROLLERS: Final = 2
"""The type of endpoints in DescribeCluster: a controller answers only to this one (KIP-919)."""
_ROUNDS_SECONDS: Final = 0.5


async def open_quorum_storage(
    config: BrokerConfig, ports: Ports, tls: TlsListeners, buffers: ReceiveBuffers, opened: AsyncExitStack
) -> Storage:
    """Open the storage; `opened` closes it again. Raises LogDirectoryError, ConfigError, StoreError."""
    directories, identity = lock_directories(config, ports, buffers, opened)
    name, _protocol = controller_listener(config)
    prove = broker_login(config, ports.random, name, TO_CONTROLLERS)
    controllers = Controllers(ports.network, config.node_id, tls.connector(name), prove, PeerLimits.of(config))
    opened.callback(controllers.close)
    servers = quorum_servers(config)
    patience = config.number("initial.broker.registration.timeout.ms") / 1000
    follower: FollowedMetadata
    if is_combined(config):
        # A broker whose controllers are other processes starts without the modules of one.
        from odradek.broker.quorum.local_opening import open_local_metadata

        cluster_id, follower = await open_local_metadata(config, ports, controllers)
    else:
        cluster_id = identity.cluster_id or await _cluster_id(config, ports, controllers, servers, patience)
        follower = await follow_log(config, ports, controllers, servers, cluster_id)
    opened.push_async_callback(follower.close)
    if not await follower.wait_until_caught_up(patience):
        raise StoreError(f"no controller has answered within {patience:g} s: {follower.problem or 'no answer'}")
    image = follower.image
    _check_features(image)
    previous_epoch = last_epoch(ports.disk, config.log_dirs)
    known = image.brokers.get(config.node_id)
    has_same_disks = known is not None and known.epoch == previous_epoch
    load_directories(directories, config, cluster_id, image, has_same_disks=has_same_disks)
    if directories.startup.records_may_be_lost:
        previous_epoch = -1
    view = ClusterView(config)
    view.begin(without_leaders(image))
    replicas = ReplicaDirectories(config.node_id, directories)
    metadata = QuorumMetadata(follower, controllers, previous_epoch)
    return Storage(directories, replicas, metadata, view, cluster_id)


async def _cluster_id(
    config: BrokerConfig, ports: Ports, controllers: Controllers, servers: Sequence[Server], patience: float
) -> str:
    """The cluster that the controllers are of, for a broker whose directories are empty. Raises StoreError."""
    deadline = ports.clock.monotonic() + patience
    request = DescribeClusterRequest(endpoint_type=_CONTROLLERS)
    timeout_ms = config.number("controller.quorum.request.timeout.ms")
    while True:
        for server in servers:
            try:
                answer = await controllers.fetch(server, request, DescribeClusterResponse, timeout_ms)
            except (TransportError, KafkaError) as error:
                problem = f"{server.host}:{server.port}: {error}"
                continue
            if not answer.error_code and answer.cluster_id:
                return answer.cluster_id
            problem = f"{server.host}:{server.port} answers DescribeCluster with error {answer.error_code}"
        if ports.clock.monotonic() >= deadline:
            raise StoreError(f"no controller has named the cluster within {patience:g} s: {problem}")
        await asyncio.sleep(_ROUNDS_SECONDS)


async def follow_log(
    config: BrokerConfig, ports: Ports, controllers: Controllers, servers: Sequence[Server], cluster_id: str
) -> MetadataFollower:
    """Open the metadata log, and fetch it from here on. Raises StoreError."""
    parent = metadata_directory(config)
    owner = StandaloneOwner(ports.disk, logger.warning)
    environment = LogEnvironment(ports.disk, ports.clock, ports.random, owner=owner)
    try:
        ports.disk.make_directories(parent)
        segment_bytes = config.number("metadata.log.segment.bytes")
        log = DurableMetadataLog.open(parent, environment, segment_bytes=segment_bytes)
        observer = MetadataObserver(
            ObserverIdentity(cluster_id, config.node_id, _directory_id(ports.disk, parent)),
            servers,
            start=log.start,
            epochs=log.epochs,
            end_offset=log.log_end.offset,
            retry_ms=config.number("controller.quorum.retry.backoff.ms"),
        )
        timeout_ms = config.number("controller.quorum.request.timeout.ms")
        snapshots = MetadataSnapshots(
            ports.clock,
            config.number("metadata.log.max.record.bytes.between.snapshots"),
            config.number("metadata.log.max.snapshot.interval.ms") / 1000,
        )
        follower = MetadataFollower(log, observer, controllers, ports.clock, snapshots, cluster_id, timeout_ms)
        await follower.start()
    except (CorruptMetadata, KafkaError, OSError) as error:
        raise StoreError(f"the metadata log in {parent} cannot be read: {error}") from error
    return follower


def _directory_id(disk: Disk, path: str) -> bytes:
    """The id in `meta.properties`; zeros before the first start: an observer needs no id."""
    try:
        return parse_meta_properties(disk.read_file(f"{path}/{META_PROPERTIES}")).directory_id or ZERO_UUID
    except (OSError, CorruptCheckpoint):
        return ZERO_UUID


def _check_features(image: ClusterImage) -> None:
    """Raise WrongStore where the cluster has finalized a feature that this version lacks: it would not be admitted."""
    known = {feature.name: feature for feature in BROKER_FEATURES}
    for name, level in sorted(finalized(image).levels.items()):
        feature = known.get(name)
        highest = 0 if feature is None else feature.max_level
        if level > highest:
            raise WrongStore(
                f"the cluster has finalized {name} at level {level}, and this version supports level {highest} at "
                f"most: `kafka-features.sh --bootstrap-server HOST:PORT downgrade --feature {name}={highest}` takes "
                "it back, where no group uses it"
            )
