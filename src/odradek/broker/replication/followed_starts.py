"""Log starts that followers take over from their leaders: reported to the leader once they are on the disk.

The leader answers DeleteRecords when its followers say that they have deleted, too. If they said so sooner, all of them
could be killed and one of them be elected with the records that are gone. Apache Kafka's followers write their log
starts once a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from odradek.broker.task_failures import logs_failure
from odradek.records.topic_partition import PartitionKey
from odradek.replication.partition import Partition
from odradek.wire.errors import KafkaError

logger = logging.getLogger("odradek.replication")
_log_failure = logs_failure(
    logger, "cannot persist log start offsets of followed partitions; the leader keeps older ones"
)

_RETRY_SECONDS: Final = 1.0

WriteStarts: TypeAlias = Callable[[Mapping[PartitionKey, int], Callable[[], None]], Awaitable[None]]
"""As `OffsetCheckpoints.advance_starts`."""


class FollowedStarts:
    """Persists log start offsets of followers, then calls `written`."""

    __slots__ = ("_task", "_wanted", "_write", "_writing", "_written")

    def __init__(self, write: WriteStarts, written: Callable[[Partition], None]) -> None:
        self._write = write
        self._written = written
        self._wanted: dict[Partition, int] = {}
        self._writing: dict[Partition, int] = {}
        self._task: asyncio.Task[None] | None = None

    def persist(self, partition: Partition, offset: int) -> None:
        """Persist a new log start offset of a followed partition, then report it to the leader."""
        self._wanted[partition] = offset
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(_log_failure)

    def close(self) -> None:
        """Persist nothing more."""
        self._wanted.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while self._wanted:
            self._writing, self._wanted = self._wanted, {}
            starts = {
                (partition.topic, partition.index): offset
                for partition, offset in self._writing.items()
                if not partition.log.is_offline  # deleted meanwhile: another topic may have its name
            }
            try:
                await self._write(starts, self._done)
            except KafkaError as error:
                logger.warning("cannot persist log starts of followers: %s; retrying", error.message)
                await asyncio.sleep(_RETRY_SECONDS)
                self._wanted = self._writing | self._wanted

    def _done(self) -> None:
        for partition, offset in self._writing.items():
            partition.replicated.start_persisted(offset)
            self._written(partition)
