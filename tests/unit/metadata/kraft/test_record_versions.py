"""Versions of metadata records by the finalized metadata.version, as Kafka 4.3's `MetadataVersion` has them."""

import pytest

from odradek.kraft.metadata_records import RECORDS
from odradek.metadata.kraft.record_versions import record_version, versioned
from odradek.metadata.metadata_versions import METADATA_VERSIONS
from odradek.wire.messages import cluster_metadata as md

REGISTERED, CHANGED = md.RegisterBrokerRecord, md.BrokerRegistrationChangeRecord
PARTITION, PARTITION_CHANGED = md.PartitionRecord, md.PartitionChangeRecord


@pytest.mark.parametrize(
    ("level", "registered", "changed", "partition"),
    [(7, 1, 1, 0), (8, 2, 1, 0), (16, 2, 1, 0), (17, 3, 2, 1), (22, 3, 2, 1), (23, 3, 2, 2), (29, 3, 2, 2),
     (30, 4, 3, 2)],
)  # fmt: skip
def test_records_are_written_in_the_versions_of_the_level(
    level: int, registered: int, changed: int, partition: int
) -> None:
    assert record_version(REGISTERED, level) == registered
    assert record_version(CHANGED, level) == changed
    assert record_version(PARTITION, level) == record_version(PARTITION_CHANGED, level) == partition


def test_newest_level_has_the_newest_versions() -> None:
    newest = max(METADATA_VERSIONS.values())
    assert {name: record_version(kind, newest) for name, kind in RECORDS.items()} == {
        name: kind.MAX_VERSION for name, kind in RECORDS.items()
    }


def test_each_record_has_its_version() -> None:
    records = [md.PartitionRecord(), md.TopicRecord(), md.PartitionRecord()]
    assert [each.version for each in versioned(records, 17)] == [1, 0, 1]
