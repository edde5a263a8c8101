"""Carry out an import plan: a marker first, then the data, the small files and the metadata, and the marker goes last.

The marker names everything that the import is about to write into a directory, so that a repeat removes what an
interrupted one left, and nothing else. A start refuses a directory with a marker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.authorization.acl_index import grouped
from odradek.broker.migration.plan import ImportPlan, PartitionPlan
from odradek.broker.migration.source import OFFSET_FILES, ImportFailure, SourceFolder
from odradek.controller.producer_ids import PRODUCER_IDS_PER_BLOCK
from odradek.log.directories.checkpoint_formats import (
    BOOT_ID,
    CLEAN_SHUTDOWN,
    LOCK,
    META_PROPERTIES,
    STORE_FORMAT,
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
)
from odradek.log.directories.ownership import IMPORT_MARKER, METADATA_FILE
from odradek.log.segments.files import PARTITION_METADATA
from odradek.metadata.acl_nodes import AclNode
from odradek.metadata.changes import topic_creation
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import (
    CLUSTER_ID,
    FEATURES,
    PRODUCER_ID_BLOCK,
    ClusterIdNode,
    ConfigNode,
    FeatureNode,
    ProducerIdBlock,
    ProducerIdBlockNode,
)
from odradek.metadata.stores.sqlite_store import SqliteStore
from odradek.ports.disk import DirectoryLock, Disk
from odradek.ports.foreign_files import copy, link
from odradek.ports.randomness import Random
from odradek.ports.store import Create, Operation
from odradek.records.topic_partition import PartitionKey

_HARMLESS: Final = frozenset({LOCK, "lost+found"})
_SMALL_FILES: Final = (*OFFSET_FILES, META_PROPERTIES, BOOT_ID, CLEAN_SHUTDOWN)
_NO_BROKER_EPOCH: Final = -1

Progress = Callable[[PartitionPlan], None]


def lock_targets(disk: Disk, paths: Sequence[str]) -> list[DirectoryLock]:
    """Make the directories, lock them, and remove what an interrupted import left. Raises ImportFailure, OSError.

    Directories that hold anything else are left as they are.
    """
    locks: list[DirectoryLock] = []
    try:
        for path in paths:
            disk.make_directories(path)
            locks.append(_lock(disk, path))
        check_empty(disk, paths)
        # The first one last: its marker says what is in the others.
        for path, names in reversed(_leftovers(disk, paths).items()):
            _remove(disk, path, names)
    except BaseException:
        for lock in locks:
            lock.release()
        raise
    return locks


def _lock(disk: Disk, path: str) -> DirectoryLock:
    try:
        return disk.lock(f"{path}/{LOCK}")
    except BlockingIOError as error:
        raise ImportFailure(f"{path}: another process uses this folder (it holds {LOCK})") from error


def check_empty(disk: Disk, paths: Sequence[str]) -> None:
    """Raise ImportFailure unless an import may write into the directories: missing, empty, or left by one. OSError."""
    leftovers = _leftovers(disk, paths)
    for path in paths:
        if not disk.exists(path):
            continue
        if not disk.is_directory(path):
            raise ImportFailure(f"{path} is not a directory")
        written = leftovers.get(path, ())
        names = [name for name in disk.list(path) if name not in _HARMLESS and not _is_of_import(name, written)]
        if names:
            raise ImportFailure(f"{path} is not empty (it has {min(names)}): an import needs an empty folder")


def _leftovers(disk: Disk, paths: Sequence[str]) -> dict[str, list[str]]:
    """What an interrupted import wrote, or was about to, by directory: the first one's marker says it of all."""
    first = paths[0]
    if not disk.exists(f"{first}/{IMPORT_MARKER}"):
        return {}
    try:
        folders: dict[str, list[str]] = json.loads(disk.read_file(f"{first}/{IMPORT_MARKER}"))["folders"]
        found = {path: [*folders[here], IMPORT_MARKER] for path in paths if (here := disk.absolute(path)) in folders}
        if any("/" in name or name in (".", "..") for names in found.values() for name in names):
            raise ValueError("it names other places")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImportFailure(f"{first}/{IMPORT_MARKER} cannot be read ({error}): remove the folder yourself") from error
    return found


def _is_of_import(name: str, written: Sequence[str]) -> bool:
    """Whether an import that writes these names may have made this one: temporary files and SQLite's own are, too."""
    return name.removesuffix(".tmp") in written or (METADATA_FILE in written and name.startswith(METADATA_FILE))


def _remove(disk: Disk, path: str, names: Sequence[str]) -> None:
    """Remove what the import wrote, and its marker at the end."""
    for name in disk.list(path):
        place = f"{path}/{name}"
        if name != IMPORT_MARKER and _is_of_import(name, names):
            disk.remove_tree(place) if disk.is_directory(place) else disk.remove(place)
    disk.sync_directory(path)
    disk.remove(f"{path}/{IMPORT_MARKER}")
    disk.sync_directory(path)


def mark(disk: Disk, sources: Sequence[str], plans: Mapping[str, Sequence[PartitionPlan]]) -> None:
    """Write the markers, the first directory's first: it names what follows in all of them. Raises OSError."""
    first = next(iter(plans))
    folders = {
        disk.absolute(path): [
            *_SMALL_FILES,
            *([METADATA_FILE] if path == first else []),
            *(each.name for each in partitions),
        ]
        for path, partitions in plans.items()
    }
    document = json.dumps({"version": 1, "sources": list(sources), "folders": folders}).encode()
    for path in plans:
        disk.write_atomic(f"{path}/{IMPORT_MARKER}", document)


def write_partition(disk: Disk, target: str, plan: PartitionPlan, topic_id: bytes) -> int:
    """Link and copy the files of a partition, synced; how many bytes were copied. Raises OSError."""
    directory = f"{target}/{plan.name}"
    disk.make_directories(directory)
    copied = 0
    for file in plan.files:
        source, place = f"{plan.source.path}/{file.name}", f"{directory}/{file.name}"
        if not (file.linked and link(source, place)):
            copy(source, place)
            copied += file.size
    if plan.source.topic_id is None:
        disk.write_atomic(f"{directory}/{PARTITION_METADATA}", format_partition_metadata(topic_id))
    disk.sync_directory(directory)
    return copied


def write_small_files(
    disk: Disk,
    target: str,
    plan: ImportPlan,
    folders: Sequence[SourceFolder],
    held: Mapping[PartitionKey, int],
    random: Random,
) -> None:
    """Checkpoints of the partitions that are here, and whose directory it is. Raises OSError.

    `held` has the number of the source folder of each partition.
    """
    for name in OFFSET_FILES:
        # Another folder may have offsets of a replica that has left it.
        offsets = {
            key: folders[folder].offsets[name][key]
            for key, folder in held.items()
            if key in folders[folder].offsets[name]
        }
        disk.write_atomic(f"{target}/{name}", format_offsets(offsets))
    meta = MetaProperties(plan.cluster_id, plan.node_id, random.uuid(), STORE_FORMAT)
    disk.write_atomic(f"{target}/{META_PROPERTIES}", format_meta_properties(meta))
    # Everything is synced: only a later start of the machine may lose records.
    disk.write_atomic(f"{target}/{BOOT_ID}", disk.boot_id().encode())
    if plan.is_clean:
        disk.write_atomic(f"{target}/{CLEAN_SHUTDOWN}", format_clean_shutdown(_NO_BROKER_EPOCH))


def finish(disk: Disk, target: str) -> None:
    """The folder is complete: remove the marker. Raises OSError."""
    disk.sync_directory(target)
    disk.remove(f"{target}/{IMPORT_MARKER}")
    disk.sync_directory(target)


async def write_store(disk: Disk, path: str, plan: ImportPlan) -> None:
    """Write the embedded metadata store. Raises StoreError."""
    store = await SqliteStore.open(path, disk)
    try:
        await store.apply(store_content(plan))
    finally:
        await store.close()


def store_content(plan: ImportPlan) -> list[Operation]:
    """Every node of the new cluster."""
    operations: list[Operation] = [Create(CLUSTER_ID, ClusterIdNode.encode(plan.cluster_id))]
    for topic in plan.image.topics.values():
        operations += topic_creation(topic)
    operations += _settings(plan.image)
    by_pattern = grouped(plan.acls)
    operations += [Create(AclNode.path(each), AclNode.encode(each, acls)) for each, acls in sorted(by_pattern.items())]
    if plan.image.features:
        operations.append(Create(FEATURES, FeatureNode.encode(plan.image.features)))
    if plan.next_producer_id > 0:
        first = max(0, plan.next_producer_id - PRODUCER_IDS_PER_BLOCK)
        block = ProducerIdBlock(plan.node_id, first, plan.next_producer_id - 1)
        operations.append(Create(PRODUCER_ID_BLOCK, ProducerIdBlockNode.encode(block)))
    return operations


def _settings(image: ClusterImage) -> list[Operation]:
    nodes: dict[str, Mapping[str, str]] = {}
    for broker, configs in image.broker_configs.items():
        nodes[ConfigNode.broker_path(broker)] = configs
    for group, configs in image.group_configs.items():
        nodes[ConfigNode.group_path(group)] = configs
    for name, configs in image.client_metrics.items():
        nodes[ConfigNode.client_metrics_path(name)] = configs
    for entity, configs in image.client_configs.items():
        nodes[ConfigNode.client_path(entity)] = configs
    # The node of a user comes before those of the user's clients, which would make it without content.
    return [
        Create(path, ConfigNode.encode(configs))
        for path, configs in sorted(nodes.items(), key=lambda n: n[0].count("/"))
    ]
