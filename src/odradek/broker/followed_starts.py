"""Log starts as followers take them over from their leaders: seen, and told to the leader, once they are on the disk.

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
from odradek.replication.partition import Partition
from odradek.wire.errors import KafkaError

log = logging.getLogger("odradek.replication")
_log_failure = logs_failure(log, "log starts are not taken over any more")

_RETRY_SECONDS: Final = 1.0

Advance: TypeAlias = Callable[[Mapping[tuple[str, int], int], Callable[[], None]], Awaitable[None]]
"""As `OffsetCheckpoints.advance_starts`."""


class FollowedStarts:
    """`told` what a leader's log begins with; `changed` hears of each partition whose log begins there, too."""

    __slots__ = ("_advance", "_changed", "_task", "_told", "_writing")

    def __init__(self, advance: Advance, changed: Callable[[Partition], None]) -> None:
        self._advance = advance
        self._changed = changed
        self._told: dict[Partition, int] = {}
        self._writing: dict[Partition, int] = {}
        self._task: asyncio.Task[None] | None = None

    def told(self, partition: Partition, offset: int) -> None:
        if offset <= max(self._told.get(partition, 0), self._writing.get(partition, 0)):
            return
        self._told[partition] = offset
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._take_over())
            self._task.add_done_callback(_log_failure)

    def close(self) -> None:
        self._told.clear()
        if self._task is not None:
            self._task.cancel()

    async def _take_over(self) -> None:
        while self._told:
            self._writing, self._told = self._told, {}
            starts = {(partition.topic, partition.index): offset for partition, offset in self._writing.items()}
            try:
                await self._advance(starts, self._written)
            except KafkaError as error:
                log.warning("log starts of leaders are not taken over for now: %s", error.message)
                await asyncio.sleep(_RETRY_SECONDS)
                self._told = self._writing | self._told
            finally:
                self._writing = {}

    def _written(self) -> None:
        for partition, offset in self._writing.items():
            try:
                moved = partition.follow_start(offset)
            except KafkaError as error:
                # Its log has failed, or is being closed.
                log.info("%s-%d does not begin at %d: %s", partition.topic, partition.index, offset, error.message)
            else:
                if moved:
                    self._changed(partition)
