"""The rows of a table to a producer, as encoded record batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from odradek.client.consumer.columns import ROWS_AT_ONCE, Columns, Parts, parts_of
from odradek.client.surroundings import surroundings
from odradek.records.arrow import encode_from_arrow
from odradek.records.arrow_partitions import choose_partitions, rows_by_partition
from odradek.records.builder import BatchFields
from odradek.records.compression import CODEC_NAMES
from odradek.records.errors import RecordTooLarge

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client.config import ProducerOptions
    from odradek.client.network.metadata import PartitionInfo
    from odradek.client.producer.accumulator import Delivery

_BATCH_BYTES: Final = 524_288
_ROUND_BYTES: Final = 4 * _BATCH_BYTES
"""A round has about so many bytes of the table, and more where it is divided among more partitions. Later rounds use
its memory again: fresh memory costs more than to encode the records."""
_ROUNDS_AHEAD: Final = 2
"""So many rounds of rows may wait for their acknowledgements while the next one is encoded."""


class BatchSender(Protocol):
    """What is used of a producer."""

    @property
    def config(self) -> ProducerOptions:
        """Its settings."""
        ...

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """As `Producer.partitions_for`."""
        ...

    async def send_batch(self, topic: str, partition: int, batches: Sequence[bytearray]) -> list[Delivery]:
        """As `Producer.send_batch`."""
        ...


async def write_table(
    producer: BatchSender, table: pa.Table, topic: str, columns: Columns, *, is_transactional: bool = False
) -> int:
    """Write all rows, a round of them at a time, and wait until they are acknowledged; the number of rows.

    Raises ValueError for columns that are missing or do not fit, RecordTooLarge, and as `Producer.send_batch`.
    """
    partitions = len(await producer.partitions_for(topic))
    rounds: deque[list[Delivery]] = deque()
    keyless = surroundings().random.randrange(partitions)
    is_divided = columns.key is not None or columns.partition is not None
    rows = _rows_of_a_round(table, max(_ROUND_BYTES, partitions * _BATCH_BYTES if is_divided else 0))
    for start in range(0, table.num_rows, rows):
        parts = parts_of(table.slice(start, rows), columns)
        keyless = (keyless + 1) % partitions
        chosen = choose_partitions(parts.partition, parts.key, len(parts.value), partitions, keyless)
        deliveries: list[Delivery] = []
        for partition, part in rows_by_partition(parts, chosen, partitions):
            batches = _encoded(producer, Parts(*part), is_transactional=is_transactional)
            deliveries += await producer.send_batch(topic, partition, batches)
        rounds.append(deliveries)
        if len(rounds) > _ROUNDS_AHEAD:
            await _acknowledged(rounds.popleft())
    while rounds:
        await _acknowledged(rounds.popleft())
    return int(table.num_rows)


def _rows_of_a_round(table: pa.Table, size: int) -> int:
    row_bytes = max(1, -(-table.nbytes // max(1, table.num_rows)))
    return max(1, min(ROWS_AT_ONCE, size // int(row_bytes)))


async def _acknowledged(deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        await delivery


def _encoded(producer: BatchSender, parts: Parts, *, is_transactional: bool) -> list[bytearray]:
    """Batches of a size that suits a request; a record that is larger than that goes alone."""
    config = producer.config
    largest: int = config["max_request_size"]
    timestamp = surroundings().clock.now_ms() if parts.timestamp is None else parts.timestamp
    if parts.timestamp is not None and parts.timestamp.null_count:
        raise ValueError("the column of the timestamps has nulls")

    def encode(limit: int) -> list[bytearray]:
        return encode_from_arrow(
            parts.key,
            parts.value,
            timestamp,
            parts.headers,
            compression=CODEC_NAMES[config["compression_type"]],
            level=config["compression_level"],
            max_batch_bytes=limit,
            fields=BatchFields(is_transactional=is_transactional),
        )

    try:
        return encode(min(_BATCH_BYTES, largest))
    except RecordTooLarge:
        return encode(largest)
