"""The broker's side of its log directories: what they hold, replicas that move, logs that recover after a crash."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from odradek.api.services.log_directory_service import DirectoryUsage, ReplicaUsage, Wanted
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.storage.partitions import Partitions
from odradek.log.directories.checkpoint_formats import RECOVERY_POINTS
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.log_directory import LogDirectory
from odradek.log.segments.files import LOG
from odradek.metadata.image import ClusterImage
from odradek.ports.disk import Disk
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("odradek.directories")

LANE = "log directory sizes"
"""The lane of `Disk.run` that looks at the files of unopened partitions."""

_MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
RETRY_SECONDS = 1.0

Recovered = Callable[[str, int], None]


class _Replica(NamedTuple):
    """A replica whose size is to be found out."""

    topic: str
    partition: int
    path: str
    size_bytes: int
    """-1 to look at the files."""
    lag: int
    is_future: bool


class LogDirectoryRuntime:
    """Implements LogDirectoryService, and runs what moves and recovers in the background."""

    __slots__ = (
        "_config",
        "_directories",
        "_disk",
        "_image",
        "_partitions",
        "_recovered",
        "_tasks",
        "wanted",
    )

    def __init__(
        self,
        config: BrokerConfig,
        partitions: Partitions,
        directories: LogDirectories,
        disk: Disk,
        image: Callable[[], ClusterImage],
        recovered: Recovered,
    ) -> None:
        """`recovered` is called with each partition that was checked after an unclean stop."""
        self._config = config
        self._partitions = partitions
        self._directories = directories
        self._disk = disk
        self._image = image
        self._recovered = recovered
        self._tasks: list[asyncio.Task[None]] = []
        self.wanted = asyncio.Event()
        """Set when a move begins."""

    # --- requests ---

    async def advance_log_starts(self, starts: Mapping[PartitionKey, int], advance: Callable[[], None]) -> None:
        """Implements LogDirectoryService."""
        await self._directories.checkpoints.advance_starts(starts, advance)

    def move(self, path: str, topic: str, partition: int) -> None:
        """Implements LogDirectoryService."""
        directory = self._directories.placement.named(path)
        if self._directories.placement.is_cordoned(directory):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"log directory {path} is cordoned")
        held = self._directories.directory_of(topic, partition)
        if held is None:
            self._directories.placement.prefer(topic, partition, directory)
        elif held.offline is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, held.offline)
        found = self._partitions.require(topic, partition)
        self._directories.moves.begin(found.log, directory, found.topic_id)
        self.wanted.set()

    async def describe(self, wanted: Wanted) -> list[DirectoryUsage]:
        """Implements LogDirectoryService."""
        held: dict[str, list[_Replica]] = {directory.path: [] for directory in self._directories.directories}
        for topic, partition in self._directories.partitions():
            if _is_wanted(wanted, topic, partition):
                directory = self._directories.directory_of(topic, partition)
                if directory is not None and directory.offline is None:
                    held[directory.path].append(self._current(topic, partition, directory))
        for (topic, partition), move in self._directories.moves.under_way.items():
            if _is_wanted(wanted, topic, partition) and move.directory.offline is None:
                source = self._directories.log(topic, partition)
                lag = 0 if source is None else move.lag(source)
                size = -1 if move.log is None else move.log.size_bytes
                held[move.directory.path].append(_Replica(topic, partition, move.path, size, lag, True))
        return [
            await self._disk.run(LANE, self._measure, directory, held[directory.path])
            for directory in self._directories.directories
        ]

    def _current(self, topic: str, partition: int, directory: LogDirectory) -> _Replica:
        opened = self._directories.log(topic, partition)
        size = -1 if opened is None else opened.size_bytes
        return _Replica(topic, partition, f"{directory.path}/{topic}-{partition}", size, 0, False)

    def _measure(self, directory: LogDirectory, replicas: list[_Replica]) -> DirectoryUsage:
        """Runs in a thread: touches nothing but files, and the directory's path."""
        path = self._disk.absolute(directory.path)
        cordoned = self._directories.placement.is_cordoned(directory)
        if directory.offline is not None:
            return DirectoryUsage(path, True, -1, -1, cordoned, [])
        try:
            usable, total = self._disk.free_bytes(directory.path)
        except OSError:
            usable, total = -1, -1
        found = [
            ReplicaUsage(
                replica.topic,
                replica.partition,
                _segment_bytes(self._disk, replica.path) if replica.size_bytes < 0 else replica.size_bytes,
                replica.lag,
                replica.is_future,
            )
            for replica in replicas
        ]
        return DirectoryUsage(path, False, total, usable, cordoned, found)

    # --- jobs ---

    def start(self) -> None:
        """Begin with moves and recovery in tasks of their own."""
        self._tasks.append(asyncio.create_task(self._move_all(), name="replica moves"))
        lanes = self._config.number("num.recovery.threads.per.data.dir")
        pending = self._directories.recovery.unrecovered()
        if pending:
            queue = iter(self._internal_first(pending))
            for lane in range(min(lanes, len(pending))):
                self._tasks.append(asyncio.create_task(self._recover(queue, lane), name=f"recovery {lane}"))
        if self._directories.moves.under_way:
            self.wanted.set()

    def _internal_first(self, pending: list[PartitionKey]) -> list[PartitionKey]:
        """The coordinators' logs before the others: groups and transactions wait for them."""
        topics = self._image().topics
        return sorted(pending, key=lambda key: (key[0] not in topics or not topics[key[0]].is_internal, key))

    async def _recover(self, queue: Iterator[PartitionKey], lane: int) -> None:
        tried = set()
        for topic, partition in queue:
            if await self._recover_one(topic, partition, lane):
                tried.add((topic, partition))
        # As when no descriptor was free.
        while again := sorted(tried.intersection(self._directories.recovery.unrecovered())):
            await asyncio.sleep(RETRY_SECONDS)
            for topic, partition in again:
                if not await self._recover_one(topic, partition, lane):
                    tried.discard((topic, partition))
        # A crash from here on does not have it done again.
        await self._directories.checkpoints.persist(RECOVERY_POINTS)

    async def _recover_one(self, topic: str, partition: int, lane: int) -> bool:
        """Try it; False if there is no such topic."""
        settings = self._partitions.settings_of(topic)
        if settings is None:
            return False
        if await self._directories.recovery.recover(topic, partition, settings, lane):
            self._recovered(topic, partition)
        return True

    async def _move_all(self) -> None:
        while True:
            await self.wanted.wait()
            self.wanted.clear()
            while self._directories.moves.under_way:
                progress = False
                for topic, partition in list(self._directories.moves.under_way):
                    progress |= await self._move_one(topic, partition)
                if not progress:
                    await asyncio.sleep(RETRY_SECONDS)

    async def _move_one(self, topic: str, partition: int) -> bool:
        """Copy until the replica has taken over; False when it cannot continue for now."""
        try:
            found = self._partitions.find(topic, partition)
            if found is None:
                self._directories.moves.cancel(topic, partition)
                return True
            while (topic, partition) in self._directories.moves.under_way:
                copied = await self._directories.moves.copy(found.log)
                rate = self._config.number(_MOVE_RATE)
                if copied:
                    await asyncio.sleep(copied / rate if rate else RETRY_SECONDS)
                    continue
                moved = await self._directories.moves.exchange(found.log)
                if moved is not None:
                    found.replace_log(moved)
                    self._directories.events.replica_moved(topic, partition)
                    logger.info("%s-%d moved to %s", topic, partition, moved.directory)
                    await self._directories.checkpoints.persist(RECOVERY_POINTS)
        except KafkaError as error:
            logger.warning("cannot move %s-%d: %s; retrying", topic, partition, error.message)
            return False
        return True

    async def stop(self) -> None:
        """End the tasks of moves and recovery."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


def _is_wanted(wanted: Wanted, topic: str, partition: int) -> bool:
    return wanted is None or partition in wanted.get(topic, ())


def _segment_bytes(disk: Disk, path: str) -> int:
    try:
        return sum(disk.size(f"{path}/{name}") for name in disk.list(path) if name.endswith(LOG))
    except OSError:
        # Deleted or renamed meanwhile.
        return 0
