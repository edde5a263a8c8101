"""The versions in which metadata records are written, by the finalized metadata.version. Pure.

Every replica of the log must be able to read them, and the finalized level says what all nodes can.
Source: Kafka's `MetadataVersion` (`registerBrokerRecordVersion`, `partitionRecordVersion`, …).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from odradek.kraft.metadata_records import VersionedRecord
from odradek.metadata.metadata_versions import CORDONED_SINCE, DIRECTORIES_SINCE, ELR_SINCE, METADATA_VERSIONS
from odradek.wire.messages import cluster_metadata as md

_SINCE: Final[dict[type, tuple[int, ...]]] = {
    md.RegisterBrokerRecord: (0, METADATA_VERSIONS["3.3-IV3"], METADATA_VERSIONS["3.4-IV0"], DIRECTORIES_SINCE,
                              CORDONED_SINCE),
    md.BrokerRegistrationChangeRecord: (0, METADATA_VERSIONS["3.3-IV3"], DIRECTORIES_SINCE, CORDONED_SINCE),
    md.PartitionRecord: (0, DIRECTORIES_SINCE, ELR_SINCE),
    md.PartitionChangeRecord: (0, DIRECTORIES_SINCE, ELR_SINCE),
}  # fmt: skip
"""The first metadata.version of each version of a record; other records have one version."""


def record_version(kind: type, metadata_version: int) -> int:
    """The version in which records of a class are written at this metadata.version."""
    return sum(since <= metadata_version for since in _SINCE.get(kind, (0,))) - 1


def versioned(records: Iterable[Any], metadata_version: int) -> Iterator[VersionedRecord]:
    """The records, objects of the generated classes, with the versions in which they are written."""
    versions: dict[type, int] = {}
    for record in records:
        kind = type(record)
        if kind not in versions:
            versions[kind] = record_version(kind, metadata_version)
        yield VersionedRecord(record, versions[kind])
