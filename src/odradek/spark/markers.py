"""Which micro-batch of a query was committed last, written in the batch's own transaction.

It is kept twice. As a committed offset of the group `__eos-<transactional id>` it is quick to read before every batch,
but it expires (offsets.retention.minutes, a week by default). As the last record under the transactional id in a
compacted topic it does not; that one is read where the offset is missing. Without it, a query that died between the end
of its transaction and Spark's note of it, and came back later than the retention, would write its last batch twice.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.client.admin import Admin, ConfigResource, ConfigResourceType, NewTopic
from odradek.client.consumer.consumer import Consumer
from odradek.client.model import LATEST, READ_UNCOMMITTED, OffsetAndMetadata
from odradek.client.offsets import fetch_committed, list_offsets
from odradek.client.producer.transactions import TransactionalProducer
from odradek.client.reports.spark_queries import marker_group
from odradek.records.murmur import partition_for_key
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

PARTITIONS: Final = 16
"""Of the marker topic. A query keeps to one, so that those who read one wait only for few others' transactions."""
_SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024), "compression.type": "producer"}


class MarkerError(RuntimeError):
    """The number of the last committed batch cannot be known, or could not be kept; nothing was written."""


class Recorded(NamedTuple):
    """The last committed batch and the query that it belongs to."""

    batch_id: int
    query_id: str


class Markers:
    """The markers of one query. `options` are those of any client; `topic` None keeps only the offset."""

    __slots__ = ("_ensured", "_options", "_topic", "_wait_ms")

    def __init__(self, options: Mapping[str, Any], topic: str | None, wait_ms: int) -> None:
        """`wait_ms`: how long others' transactions may be open."""
        self._options = dict(options)
        self._topic = topic
        self._wait_ms = wait_ms
        self._ensured = False

    async def find(self, producer: TransactionalProducer) -> Recorded | None:
        """The last batch that was committed. Raises MarkerError, KafkaError, ClientError."""
        group = marker_group(producer.transactional_id)
        committed = await fetch_committed(producer.producer.cluster, group, None, require_stable=True)
        found = None
        for at in committed.values():
            if found is None or at.offset > found.batch_id:
                found = Recorded(at.offset, json.loads(at.metadata or "{}").get("query", ""))
        if found is None and self._topic is not None:
            await self._ensure_topic(self._topic)
            found = await self._read(self._topic, producer.transactional_id.encode())
        return found

    async def add(self, producer: TransactionalProducer, recorded: Recorded, topic: str, records: int) -> None:
        """Put a batch's number into the producer's transaction. The offset is one of `topic`, which has to exist."""
        content = {"query": recorded.query_id, "records": records}
        marker = OffsetAndMetadata(recorded.batch_id, json.dumps(content, separators=(",", ":")))
        if self._topic is not None:
            await self._ensure_topic(self._topic)
            key = producer.transactional_id.encode()
            value = json.dumps({"batch": recorded.batch_id, **content}, separators=(",", ":")).encode()
            await producer.send(self._topic, value, key, partition=partition_for_key(key, PARTITIONS))
        await producer.send_offsets(marker_group(producer.transactional_id), {TopicPartition(topic, 0): marker})

    async def _ensure_topic(self, topic: str) -> None:
        """Create the topic, or see that it is one that keeps records for good."""
        if self._ensured:
            return
        async with Admin(**self._options) as admin:
            found = (await admin.describe_topics([topic]))[topic]
            if isinstance(found, KafkaError):
                await self._create_topic(admin, topic)
            else:
                await _check_topic(admin, topic, len(found.partitions))
        self._ensured = True

    async def _create_topic(self, admin: Admin, topic: str) -> None:
        failure = (await admin.create_topics([NewTopic(topic, PARTITIONS, configs=_SETTINGS)]))[topic]
        if isinstance(failure, KafkaError) and failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise MarkerError(
                f"the topic {topic}, which keeps the numbers of committed batches, cannot be made: {failure}. "
                f"Create it with {PARTITIONS} partitions and cleanup.policy=compact, name another with the option "
                "markerTopic, or give an empty one: then a query must not be restarted later than "
                "offsets.retention.minutes"
            ) from failure

    async def _read(self, topic: str, key: bytes) -> Recorded | None:
        """The last committed record under the key, behind all transactions that were open on the partition."""
        place = TopicPartition(topic, partition_for_key(key, PARTITIONS))
        options = {**self._options, "isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        found = None
        async with Consumer(**options) as consumer:
            ends = await list_offsets(consumer.cluster, {place: LATEST}, isolation_level=READ_UNCOMMITTED)
            consumer.assign([place])
            loop = asyncio.get_running_loop()
            deadline = loop.time() + self._wait_ms / 1000
            while await consumer.position(place) < ends[place].offset:
                for record in await consumer.poll(1000, max_records=100_000):
                    if record.key == key:
                        assert isinstance(record.value, bytes)
                        content = json.loads(record.value)
                        found = Recorded(content["batch"], content["query"])
                if loop.time() > deadline:
                    raise MarkerError(f"a transaction of another query on {place} does not end")
        return found


async def _check_topic(admin: Admin, topic: str, partitions: int) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    settings = (await admin.describe_configs([resource], keys=["cleanup.policy"]))[resource]
    if isinstance(settings, KafkaError):
        raise settings
    policy = settings["cleanup.policy"].value
    if policy != "compact" or partitions < PARTITIONS:
        raise MarkerError(
            f"the topic {topic}, which keeps the numbers of committed batches, must have cleanup.policy=compact and at "
            f"least {PARTITIONS} partitions, not {policy} and {partitions}"
        )
