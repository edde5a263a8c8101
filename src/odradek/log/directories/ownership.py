"""Which program wrote a log directory: a start touches only directories of Odradek, and empty ones.

Odradek leaves three signs: `odradek.format` in `meta.properties` (which Apache Kafka ignores), the id of the machine's
start in `.odradek_boot`, and, in the first directory of a broker without ZooKeeper, the metadata file. One is enough:
folders of earlier versions have only the last two. `meta.properties` or partitions without any sign are another
product's, which a start would set aside as strays of its own. Source: Kafka's `MetaProperties`, `KafkaRaftServer`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from odradek.log.directories.checkpoint_formats import (
    BOOT_ID,
    META_PROPERTIES,
    STORE_FORMAT,
    CorruptCheckpoint,
    parse_meta_properties,
)
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.log.segments.files import LOG, PARTITION_METADATA
from odradek.ports.disk import Disk

METADATA_FILE: Final = "odradek-metadata.sqlite"
"""The embedded metadata store, in the first log directory unless the configuration names another place."""
IMPORT_MARKER: Final = ".odradek_import"
"""Lies in a directory from the first to the last step of an import into it, and names what the import writes."""
CLUSTER_METADATA: Final = "__cluster_metadata-0"
BOOTSTRAP: Final = "bootstrap.checkpoint"
"""The first records of a KRaft cluster, which `storage format` writes beside `meta.properties`."""

_PARTITION: Final = re.compile(r"^.+-\d+$")


class Owner(Enum):
    """Whose directory it is."""

    NONE = "nothing of a broker's"
    ODRADEK = "Odradek"
    NEWER_ODRADEK = "a newer Odradek"
    UNFINISHED_IMPORT = "an import that did not end"
    APACHE_KRAFT = "Apache Kafka (KRaft)"
    APACHE_ZOOKEEPER = "Apache Kafka (with ZooKeeper)"
    UNKNOWN_BROKER = "partitions without the name of the broker that wrote them"


class Ownership(NamedTuple):
    """Whose directory it is, and the names in it that say so."""

    owner: Owner
    signs: tuple[str, ...] = ()


def has_first_records(disk: Disk, path: str) -> bool:
    """Whether `storage format` has prepared the directory of a node of a KRaft cluster."""
    return disk.exists(f"{path}/{BOOTSTRAP}")


def inspect(disk: Disk, path: str) -> Ownership:
    """Look at the names in the directory and at `meta.properties`. A missing directory has no owner. Raises OSError."""
    try:
        names = set(disk.list(path))
    except FileNotFoundError:
        return Ownership(Owner.NONE)
    if IMPORT_MARKER in names:
        return Ownership(Owner.UNFINISHED_IMPORT, (IMPORT_MARKER,))
    kraft = tuple(name for name in (CLUSTER_METADATA, BOOTSTRAP) if name in names)
    format_, version = _meta(disk, path) if META_PROPERTIES in names else (None, None)
    if format_ is not None and format_ > STORE_FORMAT:
        return Ownership(Owner.NEWER_ODRADEK, (f"{META_PROPERTIES} with odradek.format={format_}",))
    if kraft:
        # Also in a directory of ours: Apache Kafka has used it since.
        return Ownership(Owner.APACHE_KRAFT, _with_meta(version, kraft))
    if format_ is not None or BOOT_ID in names or METADATA_FILE in names:
        return Ownership(Owner.ODRADEK)
    if version is not None:
        owner = Owner.APACHE_ZOOKEEPER if version == 0 else Owner.APACHE_KRAFT
        return Ownership(owner, _with_meta(version, ()))
    partitions = partition_names(disk, path, names)
    if partitions:
        first = partitions[0]
        more = f" and {len(partitions) - 1} more" if len(partitions) > 1 else ""
        return Ownership(Owner.UNKNOWN_BROKER, (f"{first}{more}",))
    return Ownership(Owner.NONE)


def _meta(disk: Disk, path: str) -> tuple[int | None, int | None]:
    """(`odradek.format`, version) of `meta.properties`; a broken file, or one of no broker, says neither."""
    try:
        found = parse_meta_properties(disk.read_file(f"{path}/{META_PROPERTIES}"))
    except CorruptCheckpoint:
        # The identity check reports it, with the line, before anything is written.
        return None, None
    return found.format, found.version


def _with_meta(version: int | None, names: Iterable[str]) -> tuple[str, ...]:
    if version is None:
        return tuple(names)
    ids = "broker.id" if version == 0 else "node.id"
    return (f"{META_PROPERTIES} version {version} with {ids}", *names)


def partition_names(disk: Disk, path: str, names: Iterable[str] | None = None) -> list[str]:
    """Names of the partitions' directories, sorted: `TOPIC-N` with a log or the id of a topic in it. Raises OSError."""
    found = []
    for name in sorted(disk.list(path) if names is None else names):
        if _PARTITION.match(name) and disk.is_directory(f"{path}/{name}"):
            inside = disk.list(f"{path}/{name}")
            if PARTITION_METADATA in inside or any(each.endswith(LOG) for each in inside):
                found.append(name)
    return found


def refuse_foreign(disk: Disk, path: str, *, adopts: bool = False, joins_quorum: bool = False) -> None:
    """Raise LogDirectoryError unless the directory is Odradek's or has no owner.

    With `joins_quorum`, a directory of a broker of Apache Kafka (KRaft) is accepted, too: its files are what this one
    continues, and the ids in `meta.properties` have to fit.
    With `adopts` (`odradek.adopt.partitions`), partitions that were copied into a directory without `meta.properties`
    are accepted. A directory that cannot be read is left to the start, which takes it offline.
    """
    try:
        found = inspect(disk, path)
    except OSError:
        return
    signs = ", ".join(found.signs)
    accepted = [Owner.NONE, Owner.ODRADEK]
    if adopts:
        accepted.append(Owner.UNKNOWN_BROKER)
    if joins_quorum:
        accepted.append(Owner.APACHE_KRAFT)
    if found.owner in accepted:
        return
    if found.owner is Owner.NEWER_ODRADEK:
        raise LogDirectoryError(
            f"{path} was written by a newer Odradek ({signs}, this version reads {STORE_FORMAT}): use that version"
        )
    if found.owner is Owner.UNFINISHED_IMPORT:
        raise LogDirectoryError(
            f"{path}: an import into this folder did not end ({signs}): repeat `odradek import`, which first removes "
            "what the unfinished one wrote"
        )
    raise LogDirectoryError(
        f"{path} holds {'' if found.owner is Owner.UNKNOWN_BROKER else 'data of '}{found.owner.value} ({signs}), which "
        f"Odradek does not change: copy it with `odradek import {path} --data-dir NEW`, or set log.dirs to another "
        "folder"
    )
