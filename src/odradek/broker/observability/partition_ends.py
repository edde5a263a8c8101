"""High watermarks of partitions wherever they are led, and the age of the first record that a group has not read.

Of replicas on this broker both are exact: the age is that of the record's batch. For partitions without a replica here
the leaders are asked, and the age is known from what they answered earlier, to the interval of asking.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from odradek.broker.cluster.peers import Purpose
from odradek.client.errors import TransportError
from odradek.metadata.image import NO_LEADER, ClusterImage
from odradek.ports.clock import Clock
from odradek.records.batch import HEADER_SIZE, peek_header
from odradek.records.topic_partition import PartitionKey
from odradek.replication.partition import Partition
from odradek.wire.errors import KafkaError
from odradek.wire.message import ApiMessage
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)

logger = logging.getLogger("odradek.metrics")

ASK_SECONDS: Final = 5.0
"""Leaders elsewhere are asked no more often than this."""
_PATIENCE_MS: Final = 2000.0
_LIST_OFFSETS_VERSION: Final = 7
_LATEST: Final = -1
_CONSUMER: Final = -1
_KEPT: Final = 720
"""Answers that are kept of a partition elsewhere: an hour's worth of changes."""


class Replicas(Protocol):
    """The replicas of this broker."""

    def opened_partition(self, topic: str, index: int) -> Partition | None:
        """The replica if it is open."""
        ...


class Brokers(Protocol):
    """The other brokers."""

    async def request(
        self,
        purpose: Purpose,
        broker_id: int,
        request: ApiMessage,
        response_type: type[ListOffsetsResponse],
        version: int,
        timeout_ms: float,
    ) -> ListOffsetsResponse:
        """The broker's answer. Raises TransportError."""
        ...


class PartitionEnd(NamedTuple):
    """Where a partition ends for consumers, and how to find the age of a record in it."""

    high_watermark: int
    partition: Partition | None
    """None for one without an open replica here."""


class _Elsewhere:
    """High watermarks of one partition without a replica here, with the times at which they were learned."""

    __slots__ = ("learned",)

    def __init__(self) -> None:
        self.learned: deque[tuple[int, int]] = deque(maxlen=_KEPT)

    def add(self, offset: int, now_ms: int) -> None:
        if not self.learned or self.learned[-1][0] != offset:
            self.learned.append((offset, now_ms))

    def known_since(self, offset: int) -> int | None:
        """When the record at the offset was first known to be there, in ms since the epoch."""
        place = bisect_right(self.learned, offset, key=lambda each: each[0])
        return self.learned[place][1] if place < len(self.learned) else None


class PartitionEnds:
    """Finds ends of partitions for a scrape."""

    __slots__ = ("_asked", "_brokers", "_clock", "_elsewhere", "_image", "_node_id", "_replicas", "_timestamps")

    def __init__(
        self, node_id: int, replicas: Replicas, image: Callable[[], ClusterImage], brokers: Brokers, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._replicas = replicas
        self._image = image
        self._brokers = brokers
        self._clock = clock
        self._elsewhere: dict[PartitionKey, _Elsewhere] = {}
        self._timestamps: dict[PartitionKey, tuple[int, int]] = {}
        self._asked = float("-inf")

    def find(self, key: PartitionKey) -> PartitionEnd | None:
        """The partition's end; None if it is not known."""
        partition = self._replicas.opened_partition(*key)
        if partition is not None:
            return PartitionEnd(partition.high_watermark, partition)
        known = self._elsewhere.get(key)
        return PartitionEnd(known.learned[-1][0], None) if known is not None and known.learned else None

    def age_ms(self, key: PartitionKey, offset: int, end: PartitionEnd) -> int | None:
        """Milliseconds since the record at the offset was produced; 0 if the partition ends there; None if unknown."""
        if offset >= end.high_watermark:
            return 0
        if end.partition is None:
            since = self._elsewhere[key].known_since(offset)
        else:
            since = self._timestamp(key, offset, end.partition)
        return None if since is None else max(0, self._clock.now_ms() - since)

    def _timestamp(self, key: PartitionKey, offset: int, partition: Partition) -> int | None:
        """The record's timestamp, read from its batch the first time."""
        known = self._timestamps.get(key)
        if known is not None and known[0] == offset:
            return known[1]
        timestamp = _timestamp_at(partition, max(offset, partition.log.log_start_offset))
        if timestamp is not None:
            self._timestamps[key] = offset, timestamp
        return timestamp

    async def refresh(self, keys: Iterable[PartitionKey]) -> None:
        """Ask the leaders of those partitions that have no replica here, at most every ASK_SECONDS."""
        now = self._clock.monotonic()
        if now - self._asked < ASK_SECONDS:
            return
        self._asked = now
        image = self._image()
        by_leader: dict[int, dict[str, list[int]]] = {}
        wanted = set(keys)
        for topic, index in wanted:
            if self._replicas.opened_partition(topic, index) is not None:
                continue
            state = image.partition(topic, index)
            if state is not None and state.leader not in (NO_LEADER, self._node_id):
                by_leader.setdefault(state.leader, {}).setdefault(topic, []).append(index)
        for known in (self._elsewhere, self._timestamps):
            for key in [key for key in known if key not in wanted]:
                del known[key]
        await asyncio.gather(*(self._ask(leader, topics) for leader, topics in by_leader.items()))

    async def _ask(self, leader: int, topics: dict[str, list[int]]) -> None:
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=[
                ListOffsetsRequestTopic(topic, [ListOffsetsRequestPartition(index, -1, _LATEST) for index in indexes])
                for topic, indexes in topics.items()
            ],
        )
        try:
            response = await self._brokers.request(
                Purpose.METRICS, leader, request, ListOffsetsResponse, _LIST_OFFSETS_VERSION, _PATIENCE_MS
            )
        except TransportError as error:
            logger.debug("broker %d did not answer where its partitions end: %s; asking again later", leader, error)
            return
        now_ms = self._clock.now_ms()
        for topic in response.topics:
            for answer in topic.partitions:
                if not answer.error_code:
                    key = topic.name, answer.partition_index
                    self._elsewhere.setdefault(key, _Elsewhere()).add(answer.offset, now_ms)


def _timestamp_at(partition: Partition, offset: int) -> int | None:
    """The timestamp of the record at the offset, in ms since the epoch: that of the first record of a batch exactly,
    later ones in proportion; None if the batch cannot be read.
    """
    try:
        found = partition.log.reader.read(offset, 1, upper_offset=partition.high_watermark, min_one_batch=True)
        if not found.ranges:
            return None
        first = found.ranges[0]
        data = first.file.read(first.position, HEADER_SIZE)
    except (KafkaError, OSError):
        return None
    if len(data) < HEADER_SIZE:
        return None
    header = peek_header(memoryview(data))
    if header.timestamp_type or not header.last_offset_delta:
        return header.max_timestamp
    share = max(0, offset - header.base_offset) / header.last_offset_delta
    return header.base_timestamp + int(share * (header.max_timestamp - header.base_timestamp))
