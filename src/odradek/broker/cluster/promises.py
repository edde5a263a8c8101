"""The promises of this broker not to begin to lead, which outlast its process.

A leader that counts on a promise does not learn that the process which gave it has ended. So a note in a log directory
says until when there are promises, and the next process of this broker begins no leadership before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from odradek.api.requests.context import Configuration
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.scan import note_promise
from odradek.ports.clock import Clock
from odradek.ports.disk import Disk
from odradek.records.topic_partition import TopicIdPartition
from odradek.replication.leadership import NEVER, Leadership
from odradek.wire.errors import ErrorCode, KafkaError

LANE: Final = "promises"
_NOTED_TIMES: Final = 2
"""The note covers so many times the promise: a leader asks again before the promise ends, and not each one is noted."""


class Promises:
    """Gives promises, and keeps those of the process before."""

    __slots__ = ("_clock", "_directories", "_disk", "_leadership", "_noted_until", "_noting")

    def __init__(
        self, config: Configuration, disk: Disk, clock: Clock, directories: LogDirectories, leadership: Leadership
    ) -> None:
        """The directories are loaded."""
        self._disk = disk
        self._clock = clock
        self._directories = directories
        self._leadership = leadership
        self._noting = asyncio.Lock()
        self._noted_until = NEVER
        # No promise is longer than the lease that it stands for.
        lease_ends = clock.monotonic() + config.number("odradek.leadership.lease.ms") / 1000
        leadership.promise_before(min(directories.startup.promised_until, lease_ends))

    async def give(self, places: Collection[TopicIdPartition], seconds: float) -> None:
        """Promise not to begin to lead these partitions for that long. It holds when this returns.

        Raises KafkaError KAFKA_STORAGE_ERROR if no log directory takes the note.
        """
        if not places:
            return
        self._leadership.promise(places, seconds)
        until = self._clock.monotonic() + seconds
        async with self._noting:
            if until <= self._noted_until:
                return
            noted = until + (_NOTED_TIMES - 1) * seconds
            paths = [each.path for each in self._directories.directories if each.offline is None]
            if not await self._disk.run(LANE, note_promise, self._disk, paths, noted):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no log directory takes the note of a promise")
            self._noted_until = noted
