"""A cluster as the files of KRaft's metadata log describe it: the newest snapshot, then the records after it.

Source: Kafka's `MetadataBatchLoader`, `MetadataLoader`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from odradek.kraft.checkpoints import read_checkpoint
from odradek.kraft.errors import CorruptMetadata, UnknownMetadata
from odradek.kraft.metadata_log import MetadataEntry, read_entries
from odradek.kraft.metadata_records import RECORDS, decode_metadata_record, parse_frame
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.replay import ReplayedImage
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.wire.messages import cluster_metadata as md

_DELIMITERS: Final = (md.BeginTransactionRecord, md.EndTransactionRecord, md.AbortTransactionRecord)


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
        return frozenset(
            each
            for each in self.image.acls.values()
            if each.resource_type > ResourceType.ANY
            and each.operation > AclOperation.ANY
            and each.permission > AclPermissionType.ANY
            and each.pattern_type > PatternType.MATCH
        )


def read_stored_metadata(snapshot: bytes | None, snapshot_end: int, segments: Iterable[bytes]) -> StoredMetadata:
    """Replay a snapshot, whose records lie below `snapshot_end`, and the records of the log from there on.

    A last batch that was cut off, as a crash leaves it, is ignored. Raises CorruptMetadata.
    """
    state = _StoredReplay()
    if snapshot is not None:
        for kept in read_checkpoint(snapshot).entries:
            state.read(kept)
        state.end_offset = snapshot_end
    for segment in segments:
        for entry in read_entries(segment, whole=False):
            if isinstance(entry, MetadataEntry) and entry.offset >= snapshot_end:
                state.read(entry)
    return StoredMetadata(state.image.image(), state.end_offset, dict(state.unknown))


class _StoredReplay:
    """Replays encoded records, and keeps those of a metadata transaction until it ends (KIP-868)."""

    def __init__(self) -> None:
        self.image = ReplayedImage(ClusterImage())
        self.end_offset = 0
        self.unknown: Counter[str] = Counter()
        self._pending: list[tuple[int, Any]] | None = None

    def read(self, entry: MetadataEntry) -> None:
        """Replay one record. Raises CorruptMetadata."""
        offset = entry.offset
        self.end_offset = offset + 1
        try:
            record = decode_metadata_record(entry.value).record
        except CorruptMetadata as error:
            record = self._unknown_type(entry.value)
            if record is None:
                raise CorruptMetadata(f"the metadata record at offset {offset}: {error}") from error
        if isinstance(record, _DELIMITERS):
            self._delimit(record)
        elif self._pending is not None:
            self._pending.append((offset, record))
        else:
            self._replay(offset, record)

    def _delimit(self, record: Any) -> None:
        pending, self._pending = self._pending or [], None
        if isinstance(record, md.BeginTransactionRecord):
            self._pending = []
        elif isinstance(record, md.EndTransactionRecord):
            for each in pending:
                self._replay(*each)

    def _replay(self, offset: int, record: Any) -> None:
        try:
            if isinstance(record, _UnknownType):
                raise UnknownMetadata(f"metadata record of the unknown type {record.number}")
            self.image.replay(record)
        except UnknownMetadata as error:
            self.unknown[str(error)] += 1
        except CorruptMetadata as error:
            raise CorruptMetadata(f"the {type(record).__name__} at offset {offset}: {error}") from error

    def _unknown_type(self, value: memoryview) -> _UnknownType | None:
        try:
            number = parse_frame(value).type
        except CorruptMetadata:
            return None
        return None if number in RECORDS else _UnknownType(number)


class _UnknownType(NamedTuple):
    """A record of a type that this version does not know."""

    number: int
