"""The metadata of a cluster of Apache Kafka that keeps it in ZooKeeper; nothing is written there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.migration.source import ImportFailure, SourceCluster, SourceFolder
from odradek.metadata.acl_nodes import EXTENDED_ACLS, LITERAL_ACLS, AclNode
from odradek.metadata.changes import load_image
from odradek.metadata.nodes import PRODUCER_ID_BLOCK, CorruptNode, ProducerIdBlockNode
from odradek.metadata.stores.zookeeper_access import OPEN_ACCESS, ZooKeeperAccess, zookeeper_access
from odradek.metadata.token_nodes import TOKENS
from odradek.ports.disk import Disk
from odradek.ports.installation import install_hint
from odradek.ports.store import MetadataStore, NotAllowed, WrongStore
from odradek.wire.acls import AclBinding

_SESSION_MS = 10_000
_CONNECT: Final = "zookeeper.connect"
_ACCESS: Final = (
    "zookeeper.ssl.",
    "zookeeper.sasl.",
    "zookeeper.server.",
    "java.security.",
    "odradek.zookeeper.digest",
)
"""How the names of settings begin that say how a broker reaches ZooKeeper. Its other settings are not read."""


class Ensemble(NamedTuple):
    """Where a cluster keeps its metadata."""

    connect: str
    """As `zookeeper.connect`: `HOST:PORT,…/chroot`."""
    access: ZooKeeperAccess = OPEN_ACCESS
    """TLS and the login."""


def ensemble(connect: str | None, settings: Mapping[str, str]) -> Ensemble:
    """The ensemble at `connect`, else at `zookeeper.connect` of a broker's settings, with TLS and login of these.

    Raises ImportFailure for settings that cannot be followed.
    """
    place = connect or settings.get(_CONNECT, "").strip()
    if not place:
        raise ImportFailure(f"--zookeeper-config has no {_CONNECT}: name the ensemble with --zookeeper")
    try:
        config = BrokerConfig({name: value for name, value in settings.items() if name.startswith(_ACCESS)})
        return Ensemble(place, zookeeper_access(config))
    except (ConfigError, WrongStore) as error:
        raise ImportFailure(f"--zookeeper-config: {error}") from error


async def zookeeper_cluster(where: Ensemble, disk: Disk, folders: Sequence[SourceFolder]) -> SourceCluster:
    """The metadata of a cluster. Raises ImportFailure when it is not that of the folders, StoreError."""
    try:
        from odradek.metadata.stores.zookeeper_store import ZooKeeperStore
    except ImportError as error:
        raise ImportFailure(f"--zookeeper: {error.name} is not installed: {install_hint('zookeeper')}") from error
    connect, access = where
    hosts, slash, chroot = connect.partition("/")
    if slash and chroot.strip("/"):
        # Opening a chroot that does not exist would make it.
        root = await ZooKeeperStore.open(hosts, disk, session_timeout_ms=_SESSION_MS, access=access)
        try:
            if await root.get(f"/{chroot.strip('/')}") is None:
                raise ImportFailure(f"--zookeeper {connect}: there is no node /{chroot.strip('/')}")
        finally:
            await root.close()
    store = await ZooKeeperStore.open(connect, disk, session_timeout_ms=_SESSION_MS, access=access)
    try:
        return await read_cluster(store, connect, folders)
    except NotAllowed as error:
        raise ImportFailure(
            f"--zookeeper {connect}: only its brokers may read all of it: name the settings of one with "
            "--zookeeper-config"
        ) from error
    finally:
        await store.close()


async def read_cluster(store: MetadataStore, place: str, folders: Sequence[SourceFolder]) -> SourceCluster:
    """What the store says of the cluster of these folders. Raises ImportFailure, StoreError."""
    image = await load_image(store)
    meta = folders[0].meta
    if image.cluster_id != meta.cluster_id:
        raise ImportFailure(
            f"--zookeeper {place} has cluster {image.cluster_id or '(none)'}, and the folders are of {meta.cluster_id}"
        )
    if image.brokers:
        raise ImportFailure(
            f"--zookeeper {place}: brokers {', '.join(map(str, sorted(image.brokers)))} are running: stop them first"
        )
    block = await store.get(PRODUCER_ID_BLOCK)
    next_id = 0 if block is None else ProducerIdBlockNode.decode(block.data).last + 1
    image = image.without_topics(image.topics_in_deletion)
    acls = await _read_acls(store, place)
    tokens = sum(path != TOKENS for path in await store.subtree(TOKENS))
    left_out = {"delegation token": tokens} if tokens else {}
    found = f"ZooKeeper at {place}"
    return SourceCluster(meta.cluster_id, meta.node_id or 0, image, next_id, left_out, found, acls=acls)


async def _read_acls(store: MetadataStore, place: str) -> frozenset[AclBinding]:
    """Raises ImportFailure for a node that cannot be read: it may deny something. StoreError."""
    found: set[AclBinding] = set()
    for root in (LITERAL_ACLS, EXTENDED_ACLS):
        for path, node in (await store.subtree(root)).items():
            if not AclNode.is_path(path):
                continue
            try:
                found |= AclNode.decode(path, node.data)[1]
            except CorruptNode as error:
                raise ImportFailure(f"--zookeeper {place}: cannot read ACLs: {error}") from error
    return frozenset(found)
