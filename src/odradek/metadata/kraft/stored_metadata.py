"""A cluster as the files of KRaft's metadata log describe it: the newest snapshot, then the records after it.

Source: Kafka's `MetadataBatchLoader`, `MetadataLoader`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from odradek.kraft.checkpoints import read_checkpoint
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import MetadataEntry, read_entries
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.known_acls import known_acls
from odradek.metadata.kraft.metadata_replay import MetadataReplay
from odradek.wire.acls import AclBinding


class StoredMetadata(NamedTuple):
    """What the log says up to its end.

    Where there are several controllers, the last records of a log may never have been committed.
    """

    image: ClusterImage
    end_offset: int
    unknown: dict[str, int]
    """The number of records that this version does not know, by what they are."""

    @property
    def known_acls(self) -> frozenset[AclBinding]:
        """The ACLs, without those whose codes this version does not know."""
        return frozenset(known_acls(self.image.acls.values()))


def read_stored_metadata(snapshot: bytes | None, snapshot_end: int, segments: Iterable[bytes]) -> StoredMetadata:
    """Replay a snapshot, whose records lie below `snapshot_end`, and the records of the log from there on.

    A last batch that was cut off, as a crash leaves it, is ignored. Raises CorruptMetadata, also where records are
    missing in between: the log is never compacted.
    """
    state = MetadataReplay()
    if snapshot is not None:
        for kept in read_checkpoint(snapshot).entries:
            state.read(kept)
        state.end_snapshot(snapshot_end)
    due = snapshot_end
    for segment in segments:
        for entry in read_entries(segment, whole=False):
            if entry.offset > due:
                raise CorruptMetadata(f"the log has no records from offset {due} to {entry.offset - 1}")
            due = max(due, entry.offset + 1)
            if isinstance(entry, MetadataEntry) and entry.offset >= snapshot_end:
                state.read(entry)
    return StoredMetadata(state.image, state.end_offset, dict(state.unknown))
