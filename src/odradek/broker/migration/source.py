"""A stopped broker of Apache Kafka as its folders describe it: what an import may carry over. Nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek.broker.storage.stored_metadata_log import read_metadata_directory
from odradek.kraft.errors import CorruptMetadata
from odradek.log.directories.checkpoint_formats import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOCK,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    MetaProperties,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from odradek.log.directories.ownership import CLUSTER_METADATA, Owner, inspect, partition_names
from odradek.log.segments.files import PARTITION_METADATA
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metadata.kraft.stored_metadata import StoredMetadata
from odradek.ports.disk import Disk
from odradek.ports.foreign_files import HeldFolder, hold
from odradek.records.topic_partition import PartitionKey
from odradek.wire.acls import AclBinding

Signs = tuple[int | None, ...]
"""See `signs_of_use`."""
OFFSET_FILES: Final = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)


class ImportFailure(Exception):
    """The folders cannot be imported as they are; the text says why and what to do."""


class SourcePartition(NamedTuple):
    """A partition's directory. `topic_id` is None where the directory does not say."""

    topic: str
    number: int
    path: str
    topic_id: bytes | None


class SourceFolder(NamedTuple):
    """One of the log directories. `offsets` are its four checkpoints by name."""

    path: str
    meta: MetaProperties
    is_clean: bool
    offsets: Mapping[str, Mapping[PartitionKey, int]]
    partitions: Sequence[SourcePartition]


class SourceCluster(NamedTuple):
    """What is known of the cluster. `knows_settings` is false where topics come from the directories alone."""

    cluster_id: str | None
    node_id: int
    image: ClusterImage
    next_producer_id: int
    left_out: Mapping[str, int]
    metadata: str
    """Where the image comes from, for people."""
    knows_settings: bool = True
    notes: Sequence[str] = ()
    acls: frozenset[AclBinding] = frozenset()
    ends_with_broker: bool = False
    """Whether the metadata is that of the broker's own log, and has nothing of what happened since the broker ended."""
    may_be_behind: bool = False
    """Whether a crash may have cut the metadata off: Apache Kafka syncs a metadata log on voters of the quorum only."""


def hold_folders(paths: Sequence[str]) -> list[HeldFolder]:
    """Keep brokers from starting on the folders. Raises ImportFailure when one runs on them."""
    held: list[HeldFolder] = []
    for path in paths:
        try:
            lock = hold(f"{path}/{LOCK}")
        except BlockingIOError as error:
            for each in held:
                each.release()
            raise ImportFailure(f"{path}: a broker uses this folder (it holds {LOCK}): stop it first") from error
        if lock is not None:
            held.append(lock)
    return held


def signs_of_use(disk: Disk, path: str) -> Signs:
    """The times of the two files that a broker creates or removes when it starts and stops; None for a missing one.

    Raises OSError.
    """
    found = (f"{path}/{name}" for name in (LOCK, CLEAN_SHUTDOWN))
    return tuple(disk.modified_ms(each) if disk.exists(each) else None for each in found)


def read_folders(disk: Disk, paths: Sequence[str]) -> list[SourceFolder]:
    """The log directories of one broker of Apache Kafka. Raises ImportFailure, OSError."""
    folders = [_read_folder(disk, path) for path in paths]
    first = folders[0]
    for other in folders[1:]:
        if (other.meta.cluster_id, other.meta.node_id) != (first.meta.cluster_id, first.meta.node_id):
            raise ImportFailure(
                f"{first.path} is of node {first.meta.node_id} of cluster {first.meta.cluster_id}, and {other.path} of "
                f"node {other.meta.node_id} of cluster {other.meta.cluster_id}: name the folders of one broker"
            )
    seen: dict[PartitionKey, str] = {}
    for folder in folders:
        for each in folder.partitions:
            other_path = seen.setdefault((each.topic, each.number), each.path)
            if other_path != each.path:
                raise ImportFailure(f"{each.topic}-{each.number} has two directories, {other_path} and {each.path}")
    return folders


def _read_folder(disk: Disk, path: str) -> SourceFolder:
    try:
        found = inspect(disk, path)
        names = disk.list(path)
    except OSError as error:
        raise ImportFailure(f"{path}: {error.strerror or error}") from error
    if found.owner in (Owner.ODRADEK, Owner.NEWER_ODRADEK, Owner.UNFINISHED_IMPORT):
        raise ImportFailure(f"{path} is a folder of Odradek: start it with `odradek serve --data-dir {path}`")
    if found.owner not in (Owner.APACHE_KRAFT, Owner.APACHE_ZOOKEEPER) or META_PROPERTIES not in names:
        raise ImportFailure(f"{path} is no data folder of Apache Kafka: it has no {META_PROPERTIES} of a broker")
    try:
        meta = parse_meta_properties(disk.read_file(f"{path}/{META_PROPERTIES}"))
    except CorruptCheckpoint as error:
        raise ImportFailure(f"{path}: {error}") from error
    offsets = {name: _read_offsets(disk, f"{path}/{name}") if name in names else {} for name in OFFSET_FILES}
    if meta.node_id is None:
        raise ImportFailure(f"{path}/{META_PROPERTIES} names no node.id or broker.id")
    partitions = [
        _read_partition(disk, path, name) for name in partition_names(disk, path, names) if name != CLUSTER_METADATA
    ]
    return SourceFolder(path, meta, CLEAN_SHUTDOWN in names, offsets, partitions)


def _read_offsets(disk: Disk, path: str) -> dict[PartitionKey, int]:
    try:
        return parse_offsets(disk.read_file(path))
    except CorruptCheckpoint as error:
        way = "start Apache Kafka and stop it again, which rewrites the file"
        raise ImportFailure(f"{path}: {error}: {way}") from error


def _read_partition(disk: Disk, folder: str, name: str) -> SourcePartition:
    topic, _, index = name.rpartition("-")
    path = f"{folder}/{name}"
    topic_id = None
    if disk.exists(f"{path}/{PARTITION_METADATA}"):
        try:
            topic_id = parse_partition_metadata(disk.read_file(f"{path}/{PARTITION_METADATA}"))
        except CorruptCheckpoint as error:
            raise ImportFailure(f"{path}: {error}") from error
    return SourcePartition(topic, int(index), path, topic_id)


def kraft_cluster(disk: Disk, folders: Sequence[SourceFolder]) -> SourceCluster | None:
    """The cluster as the newest metadata log in the folders has it; None where there is no such log.

    Raises ImportFailure, OSError.
    """
    logs = {}
    for place in (f"{folder.path}/{CLUSTER_METADATA}" for folder in folders):
        if disk.is_directory(place):
            try:
                logs[place] = read_metadata_directory(disk, place)
            except CorruptMetadata as error:
                raise ImportFailure(f"{place}: {error}") from error
    if not logs:
        return None
    # A change of metadata.log.dir leaves the former log where it was.
    place, found = max(logs.items(), key=lambda each: each[1].end_offset)
    meta = folders[0].meta
    notes = [f"the older metadata log {other} does not count" for other in logs if other != place]
    if len(found.image.controllers) > 1:
        several = ", ".join(map(str, sorted(found.image.controllers)))
        notes.append(
            f"the cluster has the controllers {several}: changes of its last moments may be in the log of this broker "
            "without being committed"
        )
    return SourceCluster(
        meta.cluster_id,
        meta.node_id or 0,
        found.image,
        found.image.next_producer_id,
        _left_out(found),
        f"metadata log {place} up to offset {found.end_offset}",
        notes=notes,
        acls=found.known_acls,
        ends_with_broker=True,
        may_be_behind=meta.node_id not in found.image.controllers,
    )


def _left_out(found: StoredMetadata) -> dict[str, int]:
    """The number of things that an import does not carry over, by what they are."""
    counts = {
        "ACL of a kind that this version does not know": len(set(found.image.acls.values())) - len(found.known_acls),
        "delegation token": len(found.image.tokens),
        **found.unknown,
    }
    return {name: count for name, count in counts.items() if count}


def cluster_of_directories(folders: Sequence[SourceFolder]) -> SourceCluster:
    """A cluster with ZooKeeper as far as the directories of one broker show it: names, ids, counts, no settings."""
    meta = folders[0].meta
    node = meta.node_id or 0
    counts: dict[str, int] = {}
    ids: dict[str, bytes] = {}
    held: set[PartitionKey] = set()
    for folder in folders:
        for each in folder.partitions:
            counts[each.topic] = max(counts.get(each.topic, 0), each.number + 1)
            held.add((each.topic, each.number))
            if each.topic_id is not None:
                known = ids.setdefault(each.topic, each.topic_id)
                if known != each.topic_id:
                    raise ImportFailure(
                        f"{each.path} is of another topic of that name than its neighbours: remove what is left over"
                    )
    topics = []
    for name, count in counts.items():
        # Who holds what is absent here is not known; the report counts it as missing.
        states = tuple(
            PartitionState(node, 0, (node,) if (name, index) in held else (), (node,)) for index in range(count)
        )
        topics.append(Topic(name, ids.get(name, b""), states))
    image = ClusterImage().with_topics(topics)
    place = ", ".join(folder.path for folder in folders)
    return SourceCluster(meta.cluster_id, node, image, 0, {}, f"directories of {place}", knows_settings=False)
