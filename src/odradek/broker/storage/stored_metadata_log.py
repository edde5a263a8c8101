"""The metadata log of a KRaft node that does not run, as its directory holds it. Nothing is written."""

from __future__ import annotations

from odradek.kraft.checkpoints import parse_file_name
from odradek.kraft.errors import CorruptMetadata
from odradek.log.directories.ownership import CLUSTER_METADATA
from odradek.log.segments.files import LOG, base_offset_of
from odradek.metadata.kraft.image_tree import Tree, image_tree
from odradek.metadata.kraft.stored_metadata import StoredMetadata, read_stored_metadata
from odradek.ports.disk import Disk


def read_metadata_directory(disk: Disk, directory: str) -> StoredMetadata:
    """The newest snapshot of a directory `__cluster_metadata-0`, and its log from there on.

    Raises CorruptMetadata, also where the log begins after the records of every snapshot, and OSError.
    """
    names = disk.list(directory)
    newest = max((known for name in names if (known := parse_file_name(name)) is not None), default=None)
    bases = sorted(base for name in names if name.endswith(LOG) and (base := base_offset_of(name)) is not None)
    end = 0 if newest is None else newest.end_offset
    if bases and bases[0] > end:
        raise CorruptMetadata(f"the log begins at offset {bases[0]}, and no snapshot reaches it")
    return read_stored_metadata(
        None if newest is None else disk.read_file(f"{directory}/{newest.file_name}"),
        end,
        (disk.read_file(f"{directory}/{base:020d}{LOG}") for base in bases),
    )


def tree_of_directory(disk: Disk, path: str) -> Tree:
    """The image of a metadata log as a tree. `path` is a log directory of a node, or the log in it.

    Raises CorruptMetadata, OSError.
    """
    inner = f"{path}/{CLUSTER_METADATA}"
    found = read_metadata_directory(disk, inner if disk.is_directory(inner) else path)
    if not found.end_offset:
        raise CorruptMetadata("there are no records of a metadata log")
    return {"image": image_tree(found.image, found.end_offset)}


def tree_of_snapshot(disk: Disk, path: str) -> Tree:
    """The image of a snapshot, a file `OFFSET-EPOCH.checkpoint`, as a tree. Raises CorruptMetadata, OSError."""
    name = parse_file_name(path.rpartition("/")[2])
    if name is None:
        raise CorruptMetadata("the name of a snapshot is OFFSET-EPOCH.checkpoint")
    found = read_stored_metadata(disk.read_file(path), name.end_offset, ())
    return {"image": image_tree(found.image, found.end_offset)}
