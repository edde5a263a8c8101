"""Encoded records of the metadata log, replayed one after the other: metadata transactions, and what is not known.

Source: Kafka's `MetadataBatchLoader`, KIP-868.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, NamedTuple

from odradek.kraft.errors import CorruptMetadata, UnknownMetadata
from odradek.kraft.metadata_log import ControlEntry, MetadataEntry
from odradek.kraft.metadata_records import RECORDS, decode_metadata_record, parse_frame
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.replay import ReplayedImage
from odradek.wire.messages import cluster_metadata as md
from odradek.wire.messages.control_records import KRaftVersionRecord, VotersRecord

_DELIMITERS: Final = (md.BeginTransactionRecord, md.EndTransactionRecord, md.AbortTransactionRecord)


class MetadataReplay:
    """The image after the records so far; those of a metadata transaction count from its end (KIP-868)."""

    def __init__(self, image: ClusterImage | None = None) -> None:
        """Continue from the image, or from an empty one."""
        self._image = image or ClusterImage()
        self._changes: ReplayedImage | None = None
        self._pending: list[tuple[int, Any]] | None = None
        self.end_offset = 0
        """The offset after the last record."""
        self._controls: dict[type, Any] = {}
        self.unknown: Counter[str] = Counter()
        """The number of records that this version does not know, by what they are."""

    @property
    def image(self) -> ClusterImage:
        """The image after the records so far. Raises CorruptMetadata for a topic without some of its partitions."""
        if self._changes is not None:
            self._image, self._changes = self._changes.image(), None
        return self._image

    @property
    def is_in_transaction(self) -> bool:
        """Whether records of a metadata transaction wait for its end."""
        return self._pending is not None

    def read(self, entry: MetadataEntry | ControlEntry) -> None:
        """Replay one record. Raises CorruptMetadata."""
        offset = entry.offset
        self.end_offset = offset + 1
        if isinstance(entry, ControlEntry):
            self.read_control(entry.message)
            return
        if self._pending is None and self._replay_usual_partition(offset, entry.value):
            return
        try:
            record = decode_metadata_record(entry.value).record
        except CorruptMetadata as error:
            record = _unknown_type(entry.value)
            if record is None:
                raise CorruptMetadata(f"the metadata record at offset {offset}: {error}") from error
        if isinstance(record, _DELIMITERS):
            self._delimit(record)
        elif self._pending is not None:
            self._pending.append((offset, record))
        else:
            self._replay(offset, record)

    def read_control(self, message: Any | None) -> None:
        """Note a control record that snapshots hold, too."""
        if isinstance(message, KRaftVersionRecord | VotersRecord):
            self._controls[type(message)] = message
        if isinstance(message, KRaftVersionRecord):
            self._begun().finalize_kraft_version(message.k_raft_version)

    @property
    def controls(self) -> list[Any]:
        """The newest kraft.version and voters, where the log has any (KIP-853)."""
        return [self._controls[kind] for kind in (KRaftVersionRecord, VotersRecord) if kind in self._controls]

    def end_snapshot(self, end_offset: int) -> None:
        """The records so far are those of a snapshot, which holds all below the offset."""
        self.end_offset = end_offset

    def _delimit(self, record: Any) -> None:
        pending, self._pending = self._pending or [], None
        if isinstance(record, md.BeginTransactionRecord):
            self._pending = []
        elif isinstance(record, md.EndTransactionRecord):
            for each in pending:
                self._replay(*each)

    def _replay_usual_partition(self, offset: int, value: memoryview) -> bool:
        try:
            return self._begun().replay_usual_partition(value)
        except CorruptMetadata as error:
            raise CorruptMetadata(f"the PartitionRecord at offset {offset}: {error}") from error

    def _begun(self) -> ReplayedImage:
        if self._changes is None:
            self._changes = ReplayedImage(self._image)
        return self._changes

    def _replay(self, offset: int, record: Any) -> None:
        changes = self._begun()
        try:
            if isinstance(record, _UnknownType):
                raise UnknownMetadata(f"metadata record of the unknown type {record.number}")
            changes.replay(record)
        except UnknownMetadata as error:
            self.unknown[str(error)] += 1
        except CorruptMetadata as error:
            raise CorruptMetadata(f"the {type(record).__name__} at offset {offset}: {error}") from error


class _UnknownType(NamedTuple):
    """A record of a type that this version does not know."""

    number: int


def _unknown_type(value: memoryview) -> _UnknownType | None:
    try:
        number = parse_frame(value).type
    except CorruptMetadata:
        return None
    return None if number in RECORDS else _UnknownType(number)
