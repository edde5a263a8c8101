"""Formatting the directories of a KRaft node before its first start, and reading how they are formatted.

A directory is formatted once `meta.properties` is in it; the file is written last. Source: Kafka's `StorageTool`,
`Formatter`, `MetaPropertiesEnsemble`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.quorum_addresses import advertised_controller_listeners, controller_listener
from odradek.broker.configuration.refusals import has_static_voters, is_controller_only, metadata_directory
from odradek.broker.storage.bootstrap_records import InvalidFormat, first_records
from odradek.broker.storage.initial_voters import (
    FIRST_SNAPSHOT,
    InitialVoter,
    first_snapshot,
    parse_initial_voters,
    sole_voter,
)
from odradek.log.directories.checkpoint_formats import (
    META_PROPERTIES,
    CorruptCheckpoint,
    MetaProperties,
    decode_uuid,
    encode_uuid,
    format_meta_properties,
    is_reserved_uuid,
    parse_meta_properties,
)
from odradek.log.directories.ownership import BOOTSTRAP, CLUSTER_METADATA, has_first_records
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random

_UUID: Final = re.compile(r"[A-Za-z0-9_-]{22}")


class UnfitDirectories(Exception):
    """The directories cannot be formatted as they are: one line that says why."""


class FormatRequest(NamedTuple):
    """What `storage format` is asked for, as texts of its options."""

    cluster_id: str
    features: Sequence[str] = ()
    release: str | None = None
    users: Sequence[str] = ()
    ignore_formatted: bool = False
    is_standalone: bool = False
    initial_controllers: str | None = None
    has_no_initial_controllers: bool = False


class FormatPlan(NamedTuple):
    """What will be written, into directories that are not formatted yet."""

    metadata_directory: str
    release: str
    """The metadata.version by name."""
    bootstrap: bytes
    properties: Mapping[str, bytes]
    """Directory -> its `meta.properties`."""
    snapshot: bytes | None = None
    """The first snapshot of the metadata log, which has the voters; None where they are in the configuration."""
    is_voter: bool = False
    """Whether this node is one of those voters."""

    def kind_of(self, path: str) -> str:
        """What the directory is for, in the words of Apache's tool."""
        if path != self.metadata_directory:
            return "data"
        return "metadata" if self.snapshot is None else f"dynamic metadata{' voter' * self.is_voter}"


class StorageInfo(NamedTuple):
    """How the directories of a node are formatted."""

    directories: Sequence[str]
    """Those that exist."""
    properties: Mapping[str, str] | None
    """The fields of the first `meta.properties`; None if no directory is formatted."""
    problems: Sequence[str]


class _Found(NamedTuple):
    """A directory and its `meta.properties`, None where it is not formatted."""

    path: str
    properties: MetaProperties | None = None


def is_formatted(config: BrokerConfig, disk: Disk) -> bool:
    """Whether the directory of the metadata log is. Raises UnfitDirectories for that of a broker with a store."""
    path = metadata_directory(config)
    if not disk.exists(f"{path}/{META_PROPERTIES}"):
        return False
    if not has_first_records(disk, path):
        raise UnfitDirectories(f"{path} holds the data of a broker that is not of a quorum")
    return True


def new_cluster_id(random: Random) -> str:
    """A random id for a new cluster, in Kafka's form of a UUID."""
    return encode_uuid(random.uuid())


# --- format ---


def plan_format(config: BrokerConfig, disk: Disk, clock: Clock, random: Random, request: FormatRequest) -> FormatPlan:
    """Check everything and write nothing. Raises InvalidFormat, UnfitDirectories."""
    if not (config.joins_quorum or is_controller_only(config)):
        raise InvalidFormat(_not_formatted(config))
    _check_cluster_id(request.cluster_id)
    decides, is_static = "controller" in config.words("process.roles"), has_static_voters(config)
    _check_voters(request, decides=decides, is_static=is_static)
    first = first_records(
        request.features,
        request.release,
        request.users,
        random,
        for_controller=decides,
        has_static_voters=is_static,
    )
    voters = _initial_voters(config, random, request)
    own_id = next((each.directory_id for each in voters if each.node_id == config.node_id), None)
    directories = [_inspected(disk, path) for path in _directories(config, disk)]
    used = _checked(directories, request.cluster_id, config.node_id)
    formatted = [each.path for each in directories if each.properties is not None]
    if formatted and not request.ignore_formatted:
        text = "--ignore-formatted skips it and formats the others"
        raise UnfitDirectories(f"{formatted[0]} is already formatted: {text}")
    used |= {each.directory_id for each in voters}
    properties = {}
    for each in directories:
        if each.properties is None:
            is_metadata = each.path == metadata_directory(config)
            directory_id = own_id if is_metadata and own_id is not None else _unused_id(random, used)
            own = MetaProperties(request.cluster_id, config.node_id, directory_id)
            properties[each.path] = format_meta_properties(own)
    now_ms = clock.now_ms()
    snapshot = first_snapshot(voters, controller_listener(config)[0], now_ms) if voters else None
    return FormatPlan(
        metadata_directory(config), first.release, first.file_content(now_ms), properties, snapshot, own_id is not None
    )


def _check_voters(request: FormatRequest, *, decides: bool, is_static: bool) -> None:
    """Raise InvalidFormat where the options for voters do not fit the configuration."""
    given = "--standalone" if request.is_standalone else "--initial-controllers"
    has_voters = request.is_standalone or request.initial_controllers is not None
    if has_voters and is_static:
        text = "the voters are in controller.quorum.voters: remove that setting, or format without this option"
        raise InvalidFormat(f"{given}: {text}")
    if request.is_standalone and not decides:
        raise InvalidFormat("--standalone: process.roles has no controller")
    if decides and not (has_voters or is_static or request.has_no_initial_controllers):
        text = "--standalone, --initial-controllers or --no-initial-controllers"
        raise InvalidFormat(f"controller.quorum.voters is not set: a controller is formatted with {text}")


def _initial_voters(config: BrokerConfig, random: Random, request: FormatRequest) -> list[InitialVoter]:
    """The voters of the first snapshot; empty if the file names none. Raises InvalidFormat."""
    if request.is_standalone:
        listeners = advertised_controller_listeners(config)
        return [sole_voter(config.node_id, listeners[0], _unused_id(random, set()))]
    if request.initial_controllers is None:
        return []
    voters = parse_initial_voters(request.initial_controllers)
    is_named = any(each.node_id == config.node_id for each in voters)
    if is_named and "controller" not in config.words("process.roles"):
        raise InvalidFormat(f"--initial-controllers names node {config.node_id}: its process.roles has no controller")
    return voters


def _unused_id(random: Random, used: set[bytes]) -> bytes:
    """A random id of a directory; it is added to the used ones."""
    directory_id = random.uuid()
    while directory_id in used or is_reserved_uuid(directory_id):
        directory_id = random.uuid()
    used.add(directory_id)
    return directory_id


def format_directories(disk: Disk, plan: FormatPlan) -> Iterator[str]:
    """Format the directories of a plan, each durable before it is yielded. Raises OSError."""
    for path, properties in plan.properties.items():
        _make_durable_directory(disk, path)
        disk.write_atomic(f"{path}/{BOOTSTRAP}", plan.bootstrap)
        if plan.snapshot is not None and path == plan.metadata_directory:
            _make_durable_directory(disk, f"{path}/{CLUSTER_METADATA}")
            disk.write_atomic(f"{path}/{CLUSTER_METADATA}/{FIRST_SNAPSHOT.file_name}", plan.snapshot)
        disk.write_atomic(f"{path}/{META_PROPERTIES}", properties)
        yield path


def _not_formatted(config: BrokerConfig) -> str:
    roles = ",".join(config.words("process.roles"))
    if not roles:
        return "process.roles is not set: only nodes of a KRaft cluster are formatted"
    return (
        f"process.roles={roles} with a sole voter keeps its metadata in SQLite here: it starts without being formatted"
    )


def _check_cluster_id(text: str) -> None:
    if not _UUID.fullmatch(text):
        form = "22 characters of URL-safe base64, as `odradek storage random-uuid` prints"
        raise InvalidFormat(f"--cluster-id {text!r} is not a UUID: {form}")
    if is_reserved_uuid(decode_uuid(text)):
        raise InvalidFormat(f"--cluster-id {text} is reserved by Kafka")


def _inspected(disk: Disk, path: str) -> _Found:
    """Raises UnfitDirectories where the directory cannot be used or judged."""
    try:
        if not disk.exists(path):
            return _Found(path)
        if not disk.is_directory(path):
            raise UnfitDirectories(f"{path} is not a directory")
        if not disk.exists(f"{path}/{META_PROPERTIES}"):
            if disk.exists(f"{path}/{CLUSTER_METADATA}") and not _was_interrupted(disk, path):
                text = f"{path} has a metadata log ({CLUSTER_METADATA}) and no {META_PROPERTIES}"
                raise UnfitDirectories(f"{text}: restore that file, or remove the log")
            return _Found(path)
        return _Found(path, parse_meta_properties(disk.read_file(f"{path}/{META_PROPERTIES}")))
    except CorruptCheckpoint as error:
        raise UnfitDirectories(f"{path}: {error}") from error
    except OSError as error:
        raise UnfitDirectories(f"{error.filename or path}: {error.strerror or error}") from error


def _was_interrupted(disk: Disk, path: str) -> bool:
    """Whether the metadata log has only what an earlier `storage format` wrote, which did not come to its end."""
    names = disk.list(f"{path}/{CLUSTER_METADATA}")
    return disk.exists(f"{path}/{BOOTSTRAP}") and all(each.startswith(FIRST_SNAPSHOT.file_name) for each in names)


def _checked(directories: Sequence[_Found], cluster_id: str, node_id: int) -> set[bytes]:
    """The ids of formatted directories. Raises UnfitDirectories for one of another cluster or node."""
    owners: dict[bytes, str] = {}
    for path, found in directories:
        if found is None:
            continue
        if found.version == 0:
            raise UnfitDirectories(
                f"{path} is formatted for a broker with ZooKeeper: `odradek import` takes its data over"
            )
        if found.cluster_id != cluster_id:
            raise UnfitDirectories(f"{path} belongs to cluster {found.cluster_id}, and --cluster-id is {cluster_id}")
        if found.node_id != node_id:
            raise UnfitDirectories(f"{path} belongs to node {found.node_id}, and node.id is {node_id}")
        if found.directory_id is None:
            continue
        if is_reserved_uuid(found.directory_id):
            raise UnfitDirectories(f"{path} has the reserved directory.id {encode_uuid(found.directory_id)}")
        if found.directory_id in owners:
            same = owners[found.directory_id]
            raise UnfitDirectories(f"{path} and {same} have the same directory.id: one is a copy of the other")
        owners[found.directory_id] = path
    return set(owners)


def _directories(config: BrokerConfig, disk: Disk) -> list[str]:
    """Log directories and that of the metadata log, sorted, each once."""
    found = {disk.absolute(path).rstrip("/") or "/": path for path in (*config.log_dirs, metadata_directory(config))}
    return sorted(found.values())


def _make_durable_directory(disk: Disk, path: str) -> None:
    """Create the directory; the names of all that had to be created survive a power loss."""
    missing = []
    current = disk.absolute(path).rstrip("/")
    while current and not disk.exists(current):
        missing.append(current)
        current = current.rpartition("/")[0]
    disk.make_directories(path)
    for each in missing:
        disk.sync_directory(each.rpartition("/")[0] or "/")


# --- info ---


def describe_storage(config: BrokerConfig, disk: Disk) -> StorageInfo:
    """How the directories are formatted, and what is wrong with them. Raises nothing for what lies on the disk."""
    existing: list[str] = []
    problems: list[str] = []
    first: MetaProperties | None = None
    for path in _directories(config, disk):
        try:
            if not disk.is_directory(path):
                problems.append(f"{path} {'is not a directory' if disk.exists(path) else 'does not exist'}")
                continue
            existing.append(path)
            if not disk.exists(f"{path}/{META_PROPERTIES}"):
                problems.append(f"{path} is not formatted.")
                continue
            found = parse_meta_properties(disk.read_file(f"{path}/{META_PROPERTIES}"))
        except (CorruptCheckpoint, OSError) as error:
            problems.append(f"Error loading {path}/{META_PROPERTIES}: {error}")
            continue
        if first is None:
            first = found
        elif first.cluster_id != found.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif first.node_id != found.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    if first is not None and first.node_id not in (None, config.node_id):
        problems.append(f"The directories are of node {first.node_id}, and node.id is {config.node_id}.")
    if first is not None and first.version == 0 and config.words("process.roles"):
        problems.append("The directories are formatted for a broker with ZooKeeper, and process.roles is set.")
    return StorageInfo(existing, None if first is None else _fields(first), problems)


def _fields(found: MetaProperties) -> dict[str, str]:
    node = "node.id" if found.version else "broker.id"
    fields = {
        "cluster.id": found.cluster_id,
        "directory.id": None if found.directory_id is None else encode_uuid(found.directory_id),
        node: None if found.node_id is None else str(found.node_id),
        "version": str(found.version),
    }
    return {name: value for name, value in sorted(fields.items()) if value is not None}
