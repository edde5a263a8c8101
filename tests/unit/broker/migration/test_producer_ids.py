"""Which producer ids an import finds in the files of a partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.migration.producer_ids import next_producer_id
from odradek.broker.migration.source import SourcePartition
from odradek.ports.disk import SystemDisk
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.control import encode_end_transaction

EMPTY = 100_000
"""The first id after folders without a producer."""


def next_id(path: Path, *batches: bytes) -> int:
    (path / "00000000000000000000.log").write_bytes(b"".join(batches))
    return next_producer_id(SystemDisk(), [SourcePartition("orders", 0, str(path), None)])


def batch(producer_id: int, value: bytes | None) -> bytes:
    fields = BatchFields(producer_id=producer_id, producer_epoch=0, base_sequence=0)
    return bytes(encode_batch([(0, None, value, ())], fields))


def marker(producer_id: int) -> bytes:
    return bytes(
        encode_end_transaction(
            commit=False, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
        )
    )


def test_partition_without_producers_leaves_room_for_ids(tmp_path: Path) -> None:
    """Producers may have ids with which they have not written yet."""
    assert next_id(tmp_path, batch(-1, b"value")) == EMPTY


@pytest.mark.parametrize("value", [None, b"", b"a value that makes the batch longer than all its headers"])
def test_id_of_the_shortest_batch_is_found(tmp_path: Path, value: bytes | None) -> None:
    """An id that were given again would be a second producer's: its records were rejected as duplicates."""
    assert next_id(tmp_path, batch(-1, b"value"), batch(5999, value)) == EMPTY + 6000


def test_id_of_a_marker_is_found_and_of_the_batch_behind_it(tmp_path: Path) -> None:
    assert next_id(tmp_path, marker(7000)) == EMPTY + 8000
    assert next_id(tmp_path, marker(7000), batch(8000, b"v")) == EMPTY + 9000
