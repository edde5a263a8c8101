"""A task's writing: Arrow batches of rows to record batches of topic partitions, without a Python object per row."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from odradek.client.producer.producer import Producer
from odradek.records.arrow import encode_from_arrow
from odradek.records.arrow_partitions import choose_partitions, rows_by_partition
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.compression import CODEC_NAMES
from odradek.records.errors import RecordTooLarge
from odradek.records.murmur import partition_for_key
from odradek.records.topic_partition import PartitionKey
from odradek.spark import clients
from odradek.spark.protocol import Encoded
from odradek.spark.target_topics import partition_count

ROWS_AT_ONCE: Final = 65_536
BYTES_AT_ONCE: Final = 32 * 1024 * 1024
BATCH_BYTES: Final = 524_288
FEW_ROWS: Final = 16
FEW_BYTES: Final = 32 * 1024
"""Up to these, rows one by one take less time than columns."""

PRODUCER_DEFAULTS: Final[dict[str, Any]] = {
    # Whole Arrow batches arrive at once, so requests are large and nothing waits for more.
    "batch_size": BATCH_BYTES,
    "linger_ms": 0,
    "max_request_size": 8 * 1024 * 1024,
    "buffer_memory": 64 * 1024 * 1024,
}


class RowError(ValueError):
    """A row cannot be written: it has no topic, no value column, or a partition that does not exist."""


class RowWriter:
    """Takes the rows of one task and hands record batches to their sender, a round of rows at a time.

    Within a round what is encoded is sent while the next partition is. At its end everything has to be
    acknowledged: the next rows may take any time, and others may wait for the partitions.
    """

    __slots__ = (
        "_bytes", "_codec", "_config", "_emit", "_end_round", "_fields", "_pending", "_producer", "_rows", "_sticky",
        "_task", "_topic", "counts",
    )  # fmt: skip

    def __init__(
        self,
        producer: Producer,
        topic: str | None,
        emit: Callable[[Encoded], None],
        end_round: Callable[[], None],
        *,
        task: int = 0,
        transactional: bool = False,
    ) -> None:
        """The producer only gives its settings and the topics' partitions. Each task begins with another of them."""
        self._producer = producer
        self._topic = topic
        self._emit = emit
        self._end_round = end_round
        self._task = task
        self._fields = BatchFields(is_transactional=transactional)
        self._config = producer.config
        self._codec = CODEC_NAMES[self._config["compression_type"]]
        self._pending: list[Any] = []
        self._rows = 0
        self._bytes = 0
        self._sticky = random.randrange(1 << 16)
        self.counts: dict[PartitionKey, int] = {}
        """Records handed over by topic and partition."""

    def add(self, rows: Any) -> None:
        """Take an Arrow batch; what is full is sent."""
        if not rows.num_rows:
            return
        self._pending.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._rows >= ROWS_AT_ONCE or self._bytes >= BYTES_AT_ONCE:
            self._send_pending()

    def flush(self) -> None:
        """Hand over what is left."""
        self._send_pending()

    def _send_pending(self) -> None:
        if not self._pending:
            return
        pending, self._pending = self._pending, []
        self._rows = self._bytes = 0
        rows = pending[0] if len(pending) == 1 else pa.Table.from_batches(pending).combine_chunks().to_batches()[0]
        for topic, group in self._by_topic(rows):
            self._send_topic(topic, group)
        self._end_round()

    def _by_topic(self, rows: Any) -> list[tuple[str, Any]]:
        if self._topic is not None:
            return [(self._topic, rows)]
        names = rows.column("topic")
        if names.null_count:
            raise RowError("a row has a null topic; the option topic writes all rows to one")
        codes = names.dictionary_encode()
        topics = codes.dictionary.to_pylist()
        if len(topics) == 1:
            return [(topics[0], rows)]
        return [(name, rows.filter(pc.equal(codes.indices, number))) for number, name in enumerate(topics)]

    def _send_topic(self, topic: str, rows: Any) -> None:
        count = clients.run(partition_count(self._producer.cluster, topic))
        names = rows.schema.names
        key = rows.column("key") if "key" in names else None
        self._sticky += 1
        keyless = self._sticky % count
        if self._is_few(rows, names):
            self._send_few(topic, key, rows.column("value"), count, keyless)
            return
        columns = [key, rows.column("value"), rows.column("headers") if "headers" in names else None]
        given = rows.column("partition") if "partition" in names else None
        try:
            chosen = choose_partitions(given, key, rows.num_rows, count, keyless)
        except ValueError as error:
            raise RowError(f"{topic}: {error}") from error
        for partition, part in rows_by_partition(columns, chosen, count, self._task):
            self._send_partition(topic, partition, part)

    def _is_few(self, rows: Any, names: list[str]) -> bool:
        """Whether the rows go one by one; each of them fits into a batch then."""
        if rows.num_rows > FEW_ROWS or "headers" in names or "partition" in names:
            return False
        return bool(rows.nbytes < min(FEW_BYTES, self._config["batch_size"] // 2))

    def _send_few(self, topic: str, key: Any, value: Any, count: int, keyless: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        values = _as_bytes(value)
        parts: dict[int, list[tuple[int, bytes | None, bytes | None, tuple[()]]]] = {}
        for each, content in zip([None] * len(values) if key is None else _as_bytes(key), values, strict=True):
            partition = keyless if each is None else partition_for_key(each, count)
            parts.setdefault(partition, []).append((now_ms, each, content, ()))
        for partition in sorted(parts, key=lambda number: (number - self._task) % count):
            records = parts[partition]
            batch = encode_batch(
                records, self._fields, compression=self._codec, level=self._config["compression_level"]
            )
            self._hand_over(topic, partition, len(records), [batch])

    def _hand_over(self, topic: str, partition: int, records: int, batches: list[bytearray]) -> None:
        self.counts[topic, partition] = self.counts.get((topic, partition), 0) + records
        self._emit(Encoded(topic, partition, records, batches))

    def _send_partition(self, topic: str, partition: int, columns: list[Any]) -> None:
        key, value, headers = columns
        now_ms = time.time_ns() // 1_000_000
        if key is None and value.null_count == len(value):
            # The encoder wants one column that is there.
            key = pa.nulls(len(value), pa.binary())
        try:
            batches = self._encode(key, value, headers, now_ms, self._config["batch_size"])
        except RecordTooLarge:
            # A record larger than a batch goes alone; the broker's limit decides.
            batches = self._encode(key, value, headers, now_ms, self._config["max_request_size"])
        self._hand_over(topic, partition, len(value), batches)

    def _encode(self, key: Any, value: Any, headers: Any, now_ms: int, limit: int) -> list[bytearray]:
        return encode_from_arrow(
            key,
            value,
            now_ms,
            headers,
            compression=self._codec,
            level=self._config["compression_level"],
            max_batch_bytes=limit,
            fields=self._fields,
        )


def _as_bytes(column: Any) -> list[bytes | None]:
    return [each.encode() if isinstance(each, str) else each for each in column.to_pylist()]
