"""The job that compacts logs: picks the dirtiest, again and again, within the limits of `log.cleaner.*`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.storage.partitions import Partitions
from odradek.log.cleaner.candidates import Cleanable
from odradek.log.cleaner.log_cleaner import Cleaner
from odradek.log.partition_log import PartitionLog
from odradek.log.turns import AT_ONCE, in_turns
from odradek.ports.clock import Clock
from odradek.replication.partition import Partition
from odradek.wire.errors import KafkaError

logger = logging.getLogger("odradek.cleaner")


class CompactionJob:
    """As many workers as `log.cleaner.threads`; each takes the dirtiest log that no other worker cleans."""

    __slots__ = ("_changed", "_cleaner", "_clock", "_config", "_partitions", "_tasks")

    def __init__(self, config: BrokerConfig, partitions: Partitions, cleaner: Cleaner, clock: Clock) -> None:
        self._config = config
        self._partitions = partitions
        self._cleaner = cleaner
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        config.on_change(("log.cleaner.threads",), lambda _: self._adjust())
        config.on_change(("log.cleaner.backoff.ms",), lambda _: self._changed.set())

    def start(self) -> None:
        """Begin to compact in tasks of their own."""
        self._adjust()

    def _adjust(self) -> None:
        wanted = self._config.number("log.cleaner.threads") if self._config.flag("log.cleaner.enable") else 0
        while len(self._tasks) > wanted:
            self._tasks.pop().cancel()
        while len(self._tasks) < wanted:
            lane = len(self._tasks)
            self._tasks.append(asyncio.create_task(self._work(lane), name=f"cleaner {lane}"))

    async def _work(self, lane: int) -> None:
        while True:
            try:
                found = await self.clean_one(lane)
            except KafkaError as error:
                # The log's directory has gone offline, or will when it is used; the others are compacted.
                logger.warning("cannot compact a log: %s; continuing with others", error.message)
                found = False
            except Exception:
                logger.exception("the compaction of a log failed; continuing with others")
                found = False
            if not found:
                await self._back_off()

    async def _back_off(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(self._config.number("log.cleaner.backoff.ms") / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def clean_one(self, lane: int = 0) -> bool:
        """Compact the log most in need of it; False when none is, or it is no cleaner than before.

        Raises KafkaError KAFKA_STORAGE_ERROR.
        """
        now_ms = self._clock.now_ms()
        found = await self._dirtiest(now_ms)
        if found is None:
            self._cleaner.retry_failed()
            return False
        dirtiest, cleanable = found
        threads = max(1, self._config.number("log.cleaner.threads"))
        map_bytes = self._config.number("log.cleaner.dedupe.buffer.size") // threads
        began = self._clock.monotonic()
        done = await self._cleaner.clean(dirtiest, cleanable, now_ms, map_bytes, self._throttle, lane)
        if done is not None:
            logger.info(
                "compacted %s-%d from offset %d to %d: %d keys, %d of %d bytes kept in %.1f s",
                dirtiest.topic,
                dirtiest.partition,
                done.from_offset,
                done.outcome.end_offset,
                done.outcome.keys,
                done.outcome.kept_bytes,
                done.outcome.read_bytes,
                self._clock.monotonic() - began,
            )
        return done is not None and done.outcome.end_offset > done.from_offset

    async def _dirtiest(self, now_ms: int) -> tuple[PartitionLog, Cleanable] | None:
        opened = self._partitions.opened()
        dirtiest: tuple[PartitionLog, Cleanable] | None = None
        async for several in in_turns(opened):
            found = self._cleaner.dirtiest(_candidates(several), now_ms)
            if found is not None and (dirtiest is None or found[1].ratio > dirtiest[1].ratio):
                dirtiest = found
        if dirtiest is None or len(opened) <= AT_ONCE:
            return dirtiest
        # The log may have changed, or another worker have begun with it, while others were served.
        log, _ = dirtiest
        return self._cleaner.dirtiest(_candidates(each for each in opened if each.log is log), now_ms)

    async def _throttle(self, transferred: int) -> None:
        rate = self._config.real("log.cleaner.io.max.bytes.per.second")
        await asyncio.sleep(min(transferred / rate, 60.0) if rate > 0 else 60.0)

    async def stop(self) -> None:
        """End the tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()


def _candidates(partitions: Iterable[Partition]) -> list[tuple[PartitionLog, int]]:
    """Logs that may be compacted, with their last stable offsets."""
    return [
        (partition.log, partition.last_stable_offset)
        for partition in partitions
        if partition.log.config.compact and not partition.log.is_offline
    ]
