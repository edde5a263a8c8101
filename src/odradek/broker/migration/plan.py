"""What an import does with every partition and file, decided before anything is written.

Obstacles end an import. Gaps end it unless the user accepts a partial one. Notes are for the report.

A segment gets a second name (a hard link) only if no broker will ever change it in place: it is not the last one, and
it ends at or below both the recovery point, so that no check after a crash cuts it off, and the high watermark, so that
no new leader does. Everything else is copied: the last segment, which both brokers append to, and the small files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from odradek.broker.migration.producer_ids import batch_headers, next_producer_id
from odradek.broker.migration.settings import REMOTE_STORAGE, BrokerValue, settings_kept, topic_settings_kept
from odradek.broker.migration.source import SourceCluster, SourceFolder, SourcePartition
from odradek.log.directories.checkpoint_formats import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    CorruptCheckpoint,
    parse_leader_epochs,
)
from odradek.log.segments.files import (
    CLEANED,
    LEADER_EPOCHS,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    base_offset_of,
)
from odradek.metadata.image import SHARE_GROUP_STATE_TOPIC, ClusterImage, PartitionState, Topic
from odradek.ports.disk import Disk
from odradek.ports.foreign_files import ForeignFile, occupied_bytes
from odradek.ports.randomness import Random
from odradek.records.batch import MAGIC, MAGIC_POSITION
from odradek.wire.acls import AclBinding
from odradek.wire.primitives import ZERO_UUID

_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT, CLEANED, SWAP)
_NAMED: Final = 5
"""So many partitions are named in a line of the report."""
_FEATURES: Final = (("share.version", "share groups"), ("streams.version", "streams groups"))


class FilePlan(NamedTuple):
    """One file of a partition, by its name."""

    name: str
    size: int
    """Bytes that a copy takes: those of an index without its holes."""
    linked: bool


class PartitionPlan(NamedTuple):
    """A partition's directory and its files. `folder` is the number of the source folder."""

    source: SourcePartition
    folder: int
    files: Sequence[FilePlan]
    leader_epoch: int
    """The largest one in the log; -1 for none."""

    @property
    def name(self) -> str:
        """`TOPIC-N`, the name of the directory."""
        return f"{self.source.topic}-{self.source.number}"


class ImportPlan(NamedTuple):
    """`image` is the new cluster with one broker, `node_id`."""

    cluster_id: str
    node_id: int
    image: ClusterImage
    partitions: Sequence[PartitionPlan]
    next_producer_id: int
    is_clean: bool
    metadata: str
    notes: Sequence[str]
    gaps: Sequence[str]
    obstacles: Sequence[str]
    acls: frozenset[AclBinding] = frozenset()

    def size_bytes(self, *, linked: bool) -> int:
        """Bytes of the files that are linked, or copied."""
        return sum(file.size for each in self.partitions for file in each.files if file.linked is linked)


class Options(NamedTuple):
    """`node_id` None keeps the one of the source; `may_link` is false for `--copy`."""

    node_id: int | None = None
    may_link: bool = True


def make_plan(
    disk: Disk,
    random: Random,
    folders: Sequence[SourceFolder],
    cluster: SourceCluster,
    options: Options,
    broker_value: BrokerValue,
) -> ImportPlan:
    """Decide everything. Reads names, sizes and the first bytes of segments. Raises OSError."""
    notes = list(cluster.notes)
    gaps: list[str] = []
    obstacles: list[str] = []
    # Apache Kafka marks log.dirs alone: metadata.log.dir may be another folder, which holds no partitions.
    is_clean = all(folder.is_clean for folder in folders if folder.partitions)
    is_behind = cluster.may_be_behind and not is_clean
    chosen, skipped = _partitions(folders, cluster)
    if skipped and is_behind:
        gaps.append(
            f"{_listed(skipped)} would be left out: the metadata does not have it, which the crash may have cut off: "
            "start Apache Kafka, and stop it again"
        )
    elif skipped:
        notes.append(f"not in the metadata, as a deletion leaves it, and left out: {_listed(skipped)}")
    old_formats: list[str] = []
    plans = [_partition(disk, folders[number], number, each, options, old_formats) for number, each in chosen]
    if is_behind or not cluster.knows_settings:
        plans = [_with_epoch_of_log(each, is_clean=folders[each.folder].is_clean) for each in plans]
    if old_formats:
        obstacles.append(
            "message format 0 or 1, which only Kafka before 4.0 writes and Odradek does not read, in "
            f"{_listed(old_formats)}: have Kafka 3.x rewrite these topics first"
        )
    node_id = cluster.node_id if options.node_id is None else options.node_id
    image = _image(cluster, plans, node_id, broker_value, random, notes, gaps)
    if cluster.ends_with_broker and not is_clean and (shared := _in_sync_elsewhere(cluster, plans)):
        gaps.append(
            f"the broker was not stopped cleanly, and other replicas of {_listed(shared)} may have later records: "
            "start Apache Kafka, and stop this broker last"
        )
    notes += _general_notes(cluster, is_clean=is_clean)
    first_id = cluster.next_producer_id
    if is_behind or not first_id:
        first_id = max(first_id, next_producer_id(disk, [each.source for each in plans]))
    cluster_id = cluster.cluster_id or ""
    if not cluster_id:
        obstacles.append("meta.properties names no cluster.id: the folder is of Kafka before 0.10.1")
    return ImportPlan(
        cluster_id,
        node_id,
        image,
        plans,
        first_id,
        is_clean,
        cluster.metadata,
        notes,
        gaps,
        obstacles,
        cluster.acls,
    )


def _general_notes(cluster: SourceCluster, *, is_clean: bool) -> Iterator[str]:
    """What to know of the source apart from its partitions."""
    if not is_clean:
        yield "the broker was not stopped cleanly: logs are checked when they are first opened"
    if cluster.left_out:
        found = ", ".join(f"{name} ({count})" for name, count in cluster.left_out.items())
        yield f"left out, because this version has no place for it: {found}"
    yield from _acl_notes(cluster.acls)
    if not cluster.knows_settings:
        yield (
            "settings of topics, quotas, ACLs and credentials are in ZooKeeper and are not known: set them after the "
            "import, or name it with --zookeeper. Without it a topic has the partitions up to the last one in the "
            "folders, and other brokers may have later ones, or later records"
        )
    if cluster.image.topics.get(SHARE_GROUP_STATE_TOPIC) is not None:
        yield f"{SHARE_GROUP_STATE_TOPIC} is kept, but share groups are not served"


def _acl_notes(acls: frozenset[AclBinding]) -> Iterator[str]:
    """What to know of ACLs that come along."""
    if acls:
        yield f"{len(acls)} ACL{'s' if len(acls) > 1 else ''} come along, and count with authorizer.class.name"
    networks = sum("/" in each.host for each in acls)
    if networks:
        yield f"{networks} of them have a network as host: Apache Kafka 4.3 matches no client with it, Odradek does"


def _partitions(
    folders: Sequence[SourceFolder], cluster: SourceCluster
) -> tuple[list[tuple[int, SourcePartition]], list[str]]:
    """Directories of partitions that the cluster has, with their folder's number, and names of the others."""
    chosen, skipped = [], []
    for number, folder in enumerate(folders):
        for each in folder.partitions:
            topic = cluster.image.topics.get(each.topic)
            is_known = topic is not None and each.number < len(topic.partitions)
            if topic is not None and is_known and each.topic_id in (None, topic.id):
                chosen.append((number, each))
            else:
                skipped.append(f"{each.topic}-{each.number}")
    return chosen, skipped


def _partition(
    disk: Disk,
    folder: SourceFolder,
    number: int,
    source: SourcePartition,
    options: Options,
    old_formats: list[str],
) -> PartitionPlan:
    key = (source.topic, source.number)
    final = min(folder.offsets[RECOVERY_POINTS].get(key, 0), folder.offsets[HIGH_WATERMARKS].get(key, 0))
    names = disk.list(source.path)
    bases = sorted(base for name in names if name.endswith(LOG) and (base := base_offset_of(name)) is not None)
    ends = dict(pairwise(bases))
    files = []
    for name in names:
        base = base_offset_of(name)
        if name not in (LEADER_EPOCHS, PARTITION_METADATA) and (base is None or not name.endswith(_SUFFIXES)):
            continue
        path = f"{source.path}/{name}"
        is_log = base is not None and name.endswith(LOG)
        if is_log and _has_old_format(path) and f"{source.topic}-{source.number}" not in old_formats:
            old_formats.append(f"{source.topic}-{source.number}")
        is_final = is_log and base in ends and ends[base] <= final
        # Apache Kafka fills the indexes of an active segment with zeros, which take no room.
        size = occupied_bytes(path) if name.endswith((OFFSET_INDEX, TIME_INDEX)) else disk.size(path)
        files.append(FilePlan(name, size, options.may_link and is_final))
    return PartitionPlan(source, number, files, _leader_epoch(disk, source.path, names))


def _has_old_format(path: str) -> bool:
    with ForeignFile(path) as file:
        data = file.read(0, MAGIC_POSITION + 1)
    # A file that was preallocated, or cut off by a crash, is no older format.
    return len(data) > MAGIC_POSITION and any(data) and data[MAGIC_POSITION] < MAGIC


def _leader_epoch(disk: Disk, path: str, names: Sequence[str]) -> int:
    if LEADER_EPOCHS not in names:
        return -1
    try:
        return max((epoch for epoch, _ in parse_leader_epochs(disk.read_file(f"{path}/{LEADER_EPOCHS}"))), default=-1)
    except CorruptCheckpoint:
        # The log rebuilds it from its batches when it is opened.
        return -1


def _with_epoch_of_log(plan: PartitionPlan, *, is_clean: bool) -> PartitionPlan:
    """The plan with the epoch of the last batches, where no metadata has one and the file of epochs may lack it.

    Apache Kafka does not sync that file: after a power loss it may be older than the log, or damaged.
    """
    if is_clean and plan.leader_epoch >= 0:
        return plan
    logs = sorted((each.name for each in plan.files if each.name.endswith(LOG) and each.size), reverse=True)
    for name in logs:
        with ForeignFile(f"{plan.source.path}/{name}") as file:
            complete = (header for at, header in batch_headers(file) if at + header.size <= file.size)
            found = max((header.partition_leader_epoch for header in complete), default=-1)
        if found >= 0:
            return plan._replace(leader_epoch=max(plan.leader_epoch, found))
    return plan


# --- the new cluster ---


def _image(
    cluster: SourceCluster,
    plans: Sequence[PartitionPlan],
    node_id: int,
    broker_value: BrokerValue,
    random: Random,
    notes: list[str],
    gaps: list[str],
) -> ClusterImage:
    """The cluster's image with this broker as the only replica and leader of every partition."""
    held = {(each.source.topic, each.source.number): each for each in plans}
    missing: list[str] = []
    behind: list[str] = []
    topics, reduced, remote = [], 0, []
    for topic in cluster.image.topics.values():
        states = []
        for number, state in enumerate(topic.partitions):
            plan = held.get((topic.name, number))
            complete = cluster.node_id in (*state.isr, *state.elr) or state.replicas == (cluster.node_id,)
            if plan is None:
                missing.append(f"{topic.name}-{number}")
            elif not complete:
                behind.append(f"{topic.name}-{number}")
            reduced += len(state.replicas) > 1
            # Above every epoch that the logs have: markers and fetchers of the old cluster's leaders stay behind it.
            epoch = max(state.leader_epoch, -1 if plan is None else plan.leader_epoch) + 1
            states.append(PartitionState(node_id, epoch, (node_id,), (node_id,)))
        if topic.configs.get(REMOTE_STORAGE, "").lower() == "true":
            remote.append(topic.name)
        configs = topic_settings_kept(topic.name, topic.configs, broker_value, notes)
        topic_id = topic.id if topic.id not in (b"", ZERO_UUID) else random.uuid()
        topics.append(Topic(topic.name, topic_id, tuple(states), configs))
    if missing:
        gaps.append(f"this broker does not have {_listed(missing)}: they would begin empty")
    if behind:
        gaps.append(f"this broker is not in the ISR of {_listed(behind)}: the last records may be missing")
    if remote:
        gaps.append(
            f"{_listed(remote)} use tiered storage, which Odradek does not read: only local segments come along"
        )
    if reduced:
        notes.append(f"{reduced} partitions had more than one replica and have one now")
    for feature, what in _FEATURES:
        if (cluster.image.features or {}).get(feature, 0) > 0:
            notes.append(f"{what} ({feature}) are not served")
    settings = settings_kept(cluster.image, cluster.node_id, broker_value, notes)
    if node_id != cluster.node_id:
        own = settings.broker_configs.get(str(cluster.node_id), {})
        settings = settings.with_broker_configs(str(node_id), own).with_broker_configs(str(cluster.node_id), {})
    return settings.with_topics(topics)


def _in_sync_elsewhere(cluster: SourceCluster, plans: Sequence[PartitionPlan]) -> list[str]:
    """The partitions here that another broker could lead, as far as the metadata shows."""
    found = []
    for plan in plans:
        state = cluster.image.topics[plan.source.topic].partitions[plan.source.number]
        if any(replica != cluster.node_id for replica in (*state.isr, *state.elr)):
            found.append(plan.name)
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
