"""The metadata of a cluster of Apache Kafka that keeps it in ZooKeeper; nothing is written there."""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.migration.source import ImportFailure, SourceCluster, SourceFolder
from odradek.metadata.acl_nodes import EXTENDED_ACLS, LITERAL_ACLS, AclNode
from odradek.metadata.changes import load_image
from odradek.metadata.nodes import PRODUCER_ID_BLOCK, CorruptNode, ProducerIdBlockNode
from odradek.ports.disk import Disk
from odradek.ports.installation import install_hint
from odradek.ports.store import MetadataStore
from odradek.wire.acls import AclBinding

_SESSION_MS = 10_000


async def zookeeper_cluster(connect: str, disk: Disk, folders: Sequence[SourceFolder]) -> SourceCluster:
    """The cluster at `HOST:PORT,…/chroot`. Raises ImportFailure when it is not that of the folders, StoreError."""
    try:
        from odradek.metadata.stores.zookeeper_store import ZooKeeperStore
    except ImportError as error:
        raise ImportFailure(f"--zookeeper: {error.name} is not installed: {install_hint('zookeeper')}") from error
    hosts, slash, chroot = connect.partition("/")
    if slash and chroot.strip("/"):
        # Opening a chroot that does not exist would make it.
        root = await ZooKeeperStore.open(hosts, disk, session_timeout_ms=_SESSION_MS)
        try:
            if await root.get(f"/{chroot.strip('/')}") is None:
                raise ImportFailure(f"--zookeeper {connect}: there is no node /{chroot.strip('/')}")
        finally:
            await root.close()
    store = await ZooKeeperStore.open(connect, disk, session_timeout_ms=_SESSION_MS)
    try:
        return await read_cluster(store, connect, folders)
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
    return SourceCluster(meta.cluster_id, meta.node_id or 0, image, next_id, {}, f"ZooKeeper at {place}", acls=acls)


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
