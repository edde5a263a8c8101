"""The first producer id that no producer of an imported log can have.

Without the metadata of the old cluster it comes from the files: producer snapshots hold the producers of each log up
to its last roll or clean stop, the headers of later batches the rest, `__transaction_state` the ids that
transactional producers will ask for again. An id that is in none of them is in no state that a broker keeps.
Source: Kafka's `ProducerStateManager`, `TransactionLog`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from odradek.broker.migration.source import SourcePartition
from odradek.log.producers.state import CorruptSnapshot, decode_snapshot
from odradek.log.segments.files import LOG, SNAPSHOT, base_offset_of
from odradek.metadata.image import TRANSACTION_STATE_TOPIC
from odradek.ports.disk import Disk
from odradek.ports.foreign_files import ForeignFile
from odradek.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, check_batch, peek_header
from odradek.records.errors import CorruptRecords
from odradek.records.record import decode_records

BLOCK: Final = 1000
_SPARE_BLOCKS: Final = 100
"""A producer may have got an id and not written with it yet: the blocks that brokers hold are left free."""
_ID: Final = slice(2, 10)
"""Of a value in the transaction log: after its version, in all versions."""


def next_producer_id(disk: Disk, partitions: Iterable[SourcePartition]) -> int:
    """A multiple of 1,000 above every id in the files, with room for ids that are handed out. Raises OSError."""
    largest = -1
    for partition in partitions:
        for found in _ids(disk, partition):
            largest = max(largest, found)
    return (largest // BLOCK + 1 + _SPARE_BLOCKS) * BLOCK


def _ids(disk: Disk, partition: SourcePartition) -> Iterator[int]:
    names = disk.list(partition.path)
    covered = -1
    for name in names:
        offset = base_offset_of(name)
        if offset is None or not name.endswith(SNAPSHOT):
            continue
        try:
            yield from (entry.producer_id for entry in decode_snapshot(disk.read_file(f"{partition.path}/{name}")))
        except CorruptSnapshot:
            # The batches that it stood for are read instead.
            continue
        covered = max(covered, offset)
    logs = sorted((base, name) for name in names if name.endswith(LOG) and (base := base_offset_of(name)) is not None)
    is_transaction_log = partition.topic == TRANSACTION_STATE_TOPIC
    for at, (_, name) in enumerate(logs):
        end = logs[at + 1][0] if at + 1 < len(logs) else None
        if not is_transaction_log and end is not None and end <= covered:
            continue
        with ForeignFile(f"{partition.path}/{name}") as file:
            for position, header in batch_headers(file):
                yield header.producer_id
                if is_transaction_log:
                    yield from _transactional(file, position, header)


def batch_headers(file: ForeignFile) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch of a segment, up to the first bytes of another kind. Raises OSError."""
    position = 0
    while len(data := file.read(position, HEADER_SIZE)) == HEADER_SIZE:
        header = peek_header(memoryview(data))
        if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
            return
        yield position, header
        position += header.size


def _transactional(file: ForeignFile, position: int, header: BatchHeader) -> Iterator[int]:
    view = memoryview(file.read(position, header.size))
    try:
        check_batch(view, 0, from_client=False)
        records = decode_records(view, header)
    except CorruptRecords:
        return
    for record in records:
        if not header.is_control and record.value is not None:
            yield int.from_bytes(bytes(record.value[_ID]), "big", signed=True)
