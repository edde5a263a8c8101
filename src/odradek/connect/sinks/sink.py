"""The interface of sinks: where records of topics are written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol, runtime_checkable

from odradek.connect.errors import ConnectError
from odradek.connect.model import Batch
from odradek.records.topic_partition import TopicPartition


class Sink(Protocol):
    """One task's connection to the other system. The task calls one method at a time.

    All methods raise TargetAway where the same may succeed later, ConnectError where it will not.
    """

    @property
    def batch_records(self) -> int:
        """Records that the task gathers before it calls `write`."""
        ...

    @property
    def batch_wait_s(self) -> float:
        """How long the task gathers at most."""
        ...

    async def open(self) -> None:
        """Connect."""
        ...

    async def positions(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Offsets of the next records, of the partitions whose positions the target holds: exactly once.

        For the others, the positions are those that the consumer group has committed: at least once.
        """
        ...

    async def write(self, batch: Batch) -> None:
        """Write the records, so that they survive a crash. Raises RecordRejected, PositionMoved."""
        ...

    async def close(self) -> None:
        """Disconnect, after a write that is still under way. Raises nothing."""
        ...


@runtime_checkable
class TopicBoundSink(Protocol):
    """A sink whose target keeps the ids of topics beside positions: those of a former topic do not count."""

    def note_topics(self, topic_ids: Mapping[str, bytes]) -> None:
        """Take the ids of the topics that are read now, by name. Then `positions` raises ConnectError for a position in
        a topic of another id."""
        ...


@runtime_checkable
class MovableSink(Protocol):
    """A sink whose target holds positions that can be changed. For a sink without it they are what the target is.

    A position that was moved is one of no known topic until the next write.
    """

    async def move(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Set positions that the target holds, which `positions` has read; None removes one. Rows stay as they are."""
        ...


def of_a_former_topic(partition: TopicPartition, position: int, where: object) -> ConnectError:
    """The failure of a task whose target has the position of a topic that was deleted and created again."""
    return ConnectError(
        f"the position {position} of {partition} in {where} is that of a former topic: the topic was deleted and "
        "created again. Stop the connector, remove its offsets, and resume it"
    )
