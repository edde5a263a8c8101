"""The small text files of log directories and partitions, in Kafka's formats (CheckpointFile, MetaProperties, …).

Each `parse_…` raises CorruptCheckpoint with the line; each `format_…` gives the bytes of the whole file.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from odradek.records.topic_partition import PartitionKey

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
STORE_FORMAT: Final = 1
"""`odradek.format` in `meta.properties`: grows when older versions could no longer read the directory."""
BOOT_ID: Final = ".odradek_boot"
"""The machine's start that the directory was last used in."""
BROKER_EPOCH: Final = ".odradek_epoch"
"""The registration that the directory was last used under: its epoch as in CLEAN_SHUTDOWN, and how many directories
were used with it."""
PROMISE: Final = ".odradek_promise"
"""When the last promises of this broker not to begin to lead end, in seconds of the machine's monotonic clock."""
LOCK: Final = ".lock"

_VERSION: Final = "0"
_RESERVED_IDS: Final = 100
"""Kafka keeps the lowest UUIDs for itself."""


class CorruptCheckpoint(ValueError):
    """A checkpoint file is not what its name says."""


def _rows(data: bytes, width: int) -> list[list[str]]:
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0].strip() != _VERSION:
        raise CorruptCheckpoint(
            f"expected version {_VERSION} in the first line, not {lines[0] if lines else 'nothing'!r}"
        )
    rows = [line.split() for line in lines[2:] if line.strip()]
    if lines[1].strip() != str(len(rows)):
        raise CorruptCheckpoint(f"{len(rows)} entries follow where {lines[1]!r} are announced")
    for row in rows:
        if len(row) != width:
            raise CorruptCheckpoint(f"malformed line {' '.join(row)!r}")
    return rows


def _text(rows: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode()


def parse_offsets(data: bytes) -> dict[PartitionKey, int]:
    """Any of the four offset checkpoints of a directory. Apache Kafka leaves one empty that it never wrote to."""
    if not data:
        return {}
    try:
        return {(topic, int(partition)): int(offset) for topic, partition, offset in _rows(data, 3)}
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error


def format_offsets(offsets: Mapping[PartitionKey, int]) -> bytes:
    """Format an offset checkpoint: a line `topic partition offset` for each partition."""
    return _text([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def parse_leader_epochs(data: bytes) -> list[tuple[int, int]]:
    """(epoch, start offset) of each line."""
    if not data.endswith(b"\n"):
        # It is not synced at once: a power loss may leave all lines and not all digits of the last one.
        raise CorruptCheckpoint("the last line is cut off")
    try:
        entries = [(int(epoch), int(offset)) for epoch, offset in _rows(data, 2)]
    except ValueError as error:
        raise CorruptCheckpoint(str(error)) from error
    if any(epoch < 0 or offset < 0 for epoch, offset in entries):
        raise CorruptCheckpoint("a leader epoch or its offset is negative")
    return entries


def format_leader_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Format `leader-epoch-checkpoint`: a line `epoch start-offset` for each epoch."""
    return _text([f"{epoch} {offset}" for epoch, offset in entries])


class MetaProperties(NamedTuple):
    """Who a log directory belongs to. `directory_id` is 16 bytes, or None where the file has none."""

    cluster_id: str | None
    node_id: int | None
    directory_id: bytes | None
    format: int | None = None
    """`odradek.format` of a directory that Odradek wrote; None in one of Apache Kafka, which ignores the field."""
    version: int = 1
    """0 in a directory of Kafka with ZooKeeper (`broker.id`), 1 since KRaft (`node.id`)."""


def parse_meta_properties(data: bytes) -> MetaProperties:
    """Version 0 (broker.id, of ZooKeeper-based clusters) and version 1 (node.id)."""
    try:
        found = _properties(data.decode("latin-1"))
        version = found.get("version", "0")
        if version not in ("0", "1"):
            raise CorruptCheckpoint(f"unknown version {version}")
        node = found.get("node.id", found.get("broker.id"))
        directory, written_as = found.get("directory.id"), found.get("odradek.format")
        return MetaProperties(
            found.get("cluster.id"),
            None if node is None else int(node),
            decode_uuid(directory) if directory else None,
            None if written_as is None else int(written_as),
            int(version),
        )
    except ValueError as error:
        raise CorruptCheckpoint(f"{META_PROPERTIES}: {error}") from error


def _properties(text: str) -> dict[str, str]:
    """Java's properties syntax. Raises ValueError."""
    if "\\" in text:
        import javaproperties  # a tenth of a start, and neither we nor Kafka write what needs it

        escaped: dict[str, str] = javaproperties.loads(text)
        return escaped
    found = {}
    for line in text.splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            name, equals, value = line.partition("=")
            if not equals:
                name, _, value = line.partition(":")
            found[name.strip()] = value.strip()
    return found


def format_meta_properties(properties: MetaProperties) -> bytes:
    """Format `meta.properties`."""
    fields = {"version": "1"}
    if properties.node_id is not None:
        fields["node.id"] = str(properties.node_id)
    if properties.cluster_id is not None:
        fields["cluster.id"] = _escaped(properties.cluster_id)
    if properties.directory_id is not None:
        fields["directory.id"] = encode_uuid(properties.directory_id)
    if properties.format is not None:
        fields["odradek.format"] = str(properties.format)
    return "".join(f"{name}={value}\n" for name, value in fields.items()).encode("latin-1")


def _escaped(value: str) -> str:
    if value.isascii() and value.isprintable() and not set(value) & set("\\ :=#!"):
        return value
    import javaproperties

    text: str = javaproperties.escape(value)
    return text


def encode_uuid(uuid: bytes) -> str:
    """Kafka's form of a UUID: URL-safe base64 without padding, 22 characters."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode()


def is_reserved_uuid(uuid: bytes) -> bool:
    """Whether Kafka keeps the UUID for itself, of clusters as of directories (`DirectoryId.reserved`)."""
    return int.from_bytes(uuid) < _RESERVED_IDS


def decode_uuid(text: str) -> bytes:
    """Sixteen bytes; ValueError for anything else."""
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a UUID")
    return raw


def parse_partition_metadata(data: bytes) -> bytes:
    """The topic id of a `partition.metadata` file."""
    fields = dict(line.split(":", 1) for line in data.decode("utf-8", "replace").splitlines() if ":" in line)
    try:
        if fields["version"].strip() != "0":
            raise CorruptCheckpoint(f"unknown version {fields['version'].strip()}")
        return decode_uuid(fields["topic_id"].strip())
    except KeyError as error:
        raise CorruptCheckpoint(f"partition.metadata has no {error.args[0]}") from error
    except ValueError as error:
        raise CorruptCheckpoint(f"partition.metadata: {error}") from error


def format_partition_metadata(topic_id: bytes) -> bytes:
    """Format `partition.metadata`, which names the topic by its id."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def parse_clean_shutdown(data: bytes) -> int:
    """The epoch of a registration, in CLEAN_SHUTDOWN or BROKER_EPOCH; -1 in a file that does not say it."""
    try:
        epoch = json.loads(data or b"{}").get("brokerEpoch", -1)
    except (ValueError, AttributeError):
        return -1
    return epoch if isinstance(epoch, int) else -1


def parse_last_use(data: bytes) -> tuple[int, int]:
    """The epoch and the number of directories in BROKER_EPOCH; -1 for what the file does not say."""
    try:
        directories = json.loads(data or b"{}").get("directories", -1)
    except (ValueError, AttributeError):
        return -1, -1
    return parse_clean_shutdown(data), directories if isinstance(directories, int) else -1


def parse_promise(data: bytes) -> float:
    """The time in PROMISE; infinity in a file that does not say it."""
    try:
        return float(data)
    except ValueError:
        return inf


def format_promise(until: float) -> bytes:
    """Format `.odradek_promise`."""
    return f"{until:.3f}".encode()


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """Format `.kafka_cleanshutdown`, with the epoch of a registration."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def format_last_use(broker_epoch: int, directories: int) -> bytes:
    """Format `.odradek_epoch`: the epoch of a registration, and the number of directories that are used with it."""
    content = {"version": 0, "brokerEpoch": broker_epoch, "directories": directories}
    return json.dumps(content, separators=(",", ":")).encode()
