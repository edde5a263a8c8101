"""PartitionRecords read in one step: the same state as by the generic decoder, and only where the shape is usual."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_log import MetadataEntry
from odradek.kraft.metadata_records import decode_metadata_record, encode_metadata_record
from odradek.metadata.kraft.metadata_replay import MetadataReplay
from odradek.metadata.kraft.partition_records import partition_of
from odradek.metadata.kraft.usual_partitions import UsualPartition, read_usual_partition
from odradek.wire.messages.cluster_metadata import PartitionRecord, TopicRecord

TOPIC = b"t" * 16
DIRECTORIES = [bytes([number]) * 16 for number in range(130)]


def record(replicas: int, isr: int, **changed: Any) -> PartitionRecord:
    ids = list(range(1, replicas + 1))
    fields: dict[str, Any] = {
        "leader": 1,
        "leader_epoch": 7,
        "partition_epoch": 300,
        "directories": DIRECTORIES[:replicas],
    }
    return PartitionRecord(5, TOPIC, ids, ids[:isr], **(fields | changed))


def encoded(partition: PartitionRecord, version: int = 2) -> memoryview:
    return memoryview(encode_metadata_record(partition, version))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("replicas", "isr"), [(1, 1), (3, 3), (3, 1), (3, 0), (5, 4), (126, 126), (0, 0)])
def test_usual_partition_equals_that_of_the_generic_decoder(replicas: int, isr: int, version: int) -> None:
    value = encoded(record(replicas, isr), version)
    expected = partition_of(decode_metadata_record(value).record, {})
    assert read_usual_partition(value, {}) == UsualPartition(TOPIC, 5, expected)


@pytest.mark.parametrize(
    "changed",
    [
        {"removing_replicas": [2]},
        {"adding_replicas": [2]},
        {"directories": []},
        {"directories": DIRECTORIES[:2]},
        {"eligible_leader_replicas": [2]},
        {"last_known_elr": [2]},
        {"leader_recovery_state": 1},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_unusual_partition_is_left_to_the_generic_decoder(changed: dict[str, Any]) -> None:
    assert read_usual_partition(encoded(record(3, 2, **changed)), {}) is None


def test_lists_of_two_byte_counts_are_left_to_the_generic_decoder() -> None:
    assert read_usual_partition(encoded(record(127, 127)), {}) is None
    assert read_usual_partition(encoded(record(127, 1)), {}) is None


def test_other_records_and_versions_are_left_to_the_generic_decoder() -> None:
    assert read_usual_partition(memoryview(encode_metadata_record(TopicRecord("t" * 60, TOPIC), 0)), {}) is None
    assert read_usual_partition(encoded(record(3, 3, directories=[]), 0), {}) is None


def test_cut_off_partition_is_left_to_the_generic_decoder() -> None:
    value = encoded(record(3, 3))
    assert [size for size in range(len(value)) if read_usual_partition(value[:size], {}) is not None] == []
    assert read_usual_partition(memoryview(bytes(value) + b"\0"), {}) is None


def test_equal_lists_of_replicas_are_one_object() -> None:
    shared: dict[Any, Any] = {}
    first, second = (read_usual_partition(encoded(record(3, 3)), shared) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.state.replicas is second.state.replicas is first.state.isr
    assert first.state.directories is second.state.directories


def test_partition_of_a_missing_topic_is_reported_with_its_offset() -> None:
    with pytest.raises(CorruptMetadata, match="the PartitionRecord at offset 4: the topic with the id 7474"):
        MetadataReplay().read(MetadataEntry(4, 1, encoded(record(3, 3))))
