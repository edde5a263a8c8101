"""Whose a log directory is: `meta.properties`."""

from __future__ import annotations

from odradek.log.directories.checkpoint_formats import (
    META_PROPERTIES,
    STORE_FORMAT,
    CorruptCheckpoint,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from odradek.log.directories.log_directory import LogDirectoryError
from odradek.ports.disk import Disk
from odradek.ports.randomness import Random


def claim(disk: Disk, directory: str, exists: bool, own: MetaProperties, random: Random) -> bytes:
    """Make the directory, where the file `exists` or not, this node's, and answer its id.

    Raises LogDirectoryError when it is another's, OSError.
    """
    path = f"{directory}/{META_PROPERTIES}"
    found = MetaProperties(None, None, None)
    if exists:
        try:
            found = parse_meta_properties(disk.read_file(path))
        except CorruptCheckpoint as error:
            raise LogDirectoryError(f"{path}: {error}") from error
    if found.cluster_id not in (None, own.cluster_id):
        raise LogDirectoryError(
            f"{path} belongs to cluster {found.cluster_id}, and this broker to {own.cluster_id}: "
            "wrong directory or store?"
        )
    if found.node_id not in (None, own.node_id):
        raise LogDirectoryError(
            f"{path} belongs to node {found.node_id}, and this broker is configured as {own.node_id}"
        )
    directory_id = found.directory_id or random.uuid()
    complete = own._replace(directory_id=directory_id, format=STORE_FORMAT)
    if found != complete:
        disk.write_atomic(path, format_meta_properties(complete))
    return directory_id
