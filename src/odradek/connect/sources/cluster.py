"""Topics of another cluster as records, exactly once: keys, values, timestamps, headers and partitions are kept.

A source offset has the id of its topic beside it: a topic that was created again is read from its beginning.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from odradek.client.admin.admin import Admin
from odradek.client.config import ADMIN_DEFAULTS
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientError
from odradek.client.network.metadata import TopicInfo
from odradek.connect.client_failures import failure_of
from odradek.connect.errors import ConnectError
from odradek.connect.model import SourceRecord
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.connect.sources.source import StoredOffsets
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID

logger = logging.getLogger(__name__)

PREFIX: Final = "source."
_TOPIC_ID: Final = "topic.id"
"""The id of the topic in a source offset, where the cluster has ids."""
_DEFAULT_CONSUMER: Final[Mapping[str, Any]] = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
"""A consumer of the other cluster, unless the configuration says otherwise, as MirrorMaker's."""
SETTINGS: Final = (
    Setting("source.bootstrap.servers", Type.STRING, REQUIRED, "brokers of the other cluster; further settings of "
            "clients as source.NAME", Importance.HIGH, group="Source"),
    Setting("topics", Type.LIST, [], "topics to read", Importance.HIGH, group="Source"),
    Setting("topics.regex", Type.STRING, "", "regular expression of topics to read: the complete name matches",
            Importance.HIGH, group="Source"),
    Setting("topic.format", Type.STRING, "${topic}", "name of a topic on this cluster", group="Source"),
    Setting("refresh.topics.interval.ms", Type.LONG, 60_000, "how often new topics and partitions are looked for",
            minimum=1, group="Source"),
    Setting("batch.size", Type.INT, 5_000, "most records of one transaction", minimum=1, group="Source"),
)  # fmt: skip


def check(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with settings that are right one by one."""
    if bool(values["topics"]) == bool(values["topics.regex"]):
        return {"topics": ["topics: either topics or topics.regex expected"]}
    try:
        re.compile(values["topics.regex"])
    except re.error as error:
        return {"topics.regex": [f"topics.regex: {error}"]}
    return {}


class ClusterSource:
    """One task's consumer. See `Source`."""

    def __init__(self, values: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        """`options` are those of a consumer of the other cluster."""
        self._options = dict(options)
        self._topics: list[str] = values["topics"]
        self._pattern = re.compile(values["topics.regex"]) if values["topics.regex"] else None
        self._layout: str = values["topic.format"]
        self._refresh_s = values["refresh.topics.interval.ms"] / 1000
        self._limit: int = values["batch.size"]
        self._consumer: Consumer[Any, Any] | None = None
        self._offsets = StoredOffsets()
        self._assigned: set[TopicPartition] = set()
        self._ids: dict[str, str] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._looked = 0.0

    async def open(self, offsets: StoredOffsets) -> None:
        """See `Source`."""
        await self.close()
        self._offsets = offsets
        self._assigned = set()
        self._ids = {}
        self._ends = {}
        self._consumer = Consumer(**{**_DEFAULT_CONSUMER, **self._options})
        try:
            await self._consumer.start()
            await self._look()
        except (KafkaError, ClientError) as error:
            raise failure_of(error, "the other cluster") from error

    async def poll(self) -> Sequence[SourceRecord]:
        """See `Source`."""
        assert self._consumer is not None
        try:
            if time.monotonic() - self._looked > self._refresh_s:
                await self._look()
            if not self._assigned:
                return []
            records = await self._consumer.poll(timeout_ms=500, max_records=self._limit)
        except (KafkaError, ClientError) as error:
            raise failure_of(error, "the other cluster") from error
        again = self._read_again({each.topic for each in records})
        for each in records:
            if each.topic not in again:
                self._check_continues(each.topic_partition, each.offset)
        return [
            SourceRecord(
                {"partition": each.partition, "topic": each.topic},
                {"offset": each.offset + 1, **self._mark(each.topic)},
                self._layout.replace("${topic}", each.topic),
                each.key,
                each.value,
                each.partition,
                each.timestamp if each.timestamp >= 0 else None,
                each.headers,
            )
            for each in records
            if each.topic not in again
        ]

    async def close(self) -> None:
        """See `Source`."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with contextlib.suppress(KafkaError, ClientError):
                await consumer.close()

    def _id_of(self, topic: str) -> str:
        """The id of a topic as the consumer reads it; empty if the cluster has none."""
        assert self._consumer is not None
        topic_id = self._consumer.cluster.metadata.topic_id(topic)
        return "" if topic_id == ZERO_UUID else topic_id.hex()

    def _mark(self, topic: str) -> dict[str, str]:
        return {_TOPIC_ID: self._ids[topic]} if self._ids.get(topic) else {}

    def _read_again(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics that were created again since they were assigned; they are read from their beginning."""
        assert self._consumer is not None
        found = {each for each in topics if self._ids.get(each) and self._id_of(each) not in ("", self._ids[each])}
        for topic in found:
            logger.warning("topic %s of the other cluster was created again: reading it from its beginning", topic)
            self._ids[topic] = self._id_of(topic)
            partitions = [each for each in self._assigned if each.topic == topic]
            for each in partitions:
                self._ends.pop(each, None)
            self._consumer.seek_to_beginning(partitions)
        return found

    def _check_continues(self, partition: TopicPartition, offset: int) -> None:
        """Raises ConnectError for a record that was read before: the consumer was reset."""
        read = self._ends.get(partition, 0)
        if offset < read:
            raise ConnectError(
                f"{partition} of the other cluster is read again from offset {offset}, but was read up to {read}: "
                "the log was truncated, or the topic was created again. Stop the connector, set or remove its offsets, "
                "and resume it"
            )
        self._ends[partition] = offset + 1

    async def _look(self) -> None:
        """Add partitions that are new."""
        consumer = self._consumer
        assert consumer is not None
        found = {
            TopicPartition(topic, each.partition)
            for topic in await self._names()
            for each in await consumer.partitions_for(topic)
        }
        self._looked = time.monotonic()
        new = found - self._assigned
        if not new:
            return
        positions = {key: at.offset for key, at in consumer.positions().items() if key in self._assigned}
        self._assigned |= new
        consumer.assign(self._assigned)
        for topic in {each.topic for each in new}:
            self._ids.setdefault(topic, self._id_of(topic))
        for key in self._assigned:
            stored = self._offsets.of({"partition": key.partition, "topic": key.topic})
            if key in positions:
                consumer.seek(key, positions[key])
            elif stored is not None and self._ids[key.topic] in ("", stored.get(_TOPIC_ID, self._ids[key.topic])):
                self._ends[key] = int(stored["offset"])
                consumer.seek(key, self._ends[key])
            else:
                if stored is not None:
                    logger.warning("%s of the other cluster was created again: reading it from its beginning", key)
                consumer.seek_to_beginning([key])

    async def _names(self) -> list[str]:
        """The topics that there are, of those to read."""
        own = {name: value for name, value in self._options.items() if name in ADMIN_DEFAULTS}
        async with Admin(**own) as admin:
            found = await admin.describe_topics(None if self._pattern else self._topics)
        if self._pattern is not None:
            return [
                name
                for name, topic in found.items()
                if isinstance(topic, TopicInfo) and not topic.is_internal and self._pattern.fullmatch(name)
            ]
        for name, topic in found.items():
            if isinstance(topic, KafkaError):
                if topic.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise topic
                logger.warning(
                    "the other cluster has no topic %s: it is looked for again after %.0f s", name, self._refresh_s
                )
        return [name for name, topic in found.items() if isinstance(topic, TopicInfo)]
