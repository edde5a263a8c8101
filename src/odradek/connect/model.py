"""Values that sources, sinks and the worker exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from odradek.client.model import Headers
from odradek.records.topic_partition import TopicPartition


class Kind(StrEnum):
    """The direction of a connector."""

    SOURCE = "source"
    """Writes to topics."""
    SINK = "sink"
    """Reads topics."""


class State(StrEnum):
    """State of a connector or a task, as the REST interface shows it (Kafka Connect's AbstractStatus.State)."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"
    RESTARTING = "RESTARTING"


class Target(StrEnum):
    """What the user wants of a connector (Kafka Connect's TargetState)."""

    STARTED = "STARTED"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"


class SinkRecord(NamedTuple):
    """A record on its way out of a topic: key and value as converted, and as they were."""

    origin: TopicPartition
    """The partition that has the record, and by which positions are kept."""
    offset: int
    timestamp: int
    """In ms; -1 for none."""
    key: Any
    value: Any
    headers: Headers
    raw_key: bytes | None
    raw_value: bytes | None
    topic: str
    """The topic's name for the target: transforms may have changed it (Kafka Connect's KIP-793)."""

    @property
    def partition(self) -> int:
        """The number of the partition that has it."""
        return self.origin.partition


class SourceRecord(NamedTuple):
    """A record on its way into a topic, with the position in the source that follows it."""

    source_partition: Mapping[str, Any]
    """Which part of the source, such as `{"table": "orders"}`: the key of its offset."""
    source_offset: Mapping[str, Any]
    """Where reading continues after this record."""
    topic: str
    key: Any
    value: Any
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class Batch(NamedTuple):
    """Records in the order of their offsets within each partition, and the offsets after them.

    Records that were dropped or sent to a topic of dead letters are missing, so that offsets may have gaps.
    """

    records: Sequence[SinkRecord]
    ends: Mapping[TopicPartition, int]
    """The offset of the next record, of every partition that took part."""
