"""The log cleaner: which log is dirtiest, and its compaction slice by slice (LogCleaner).

Owned by the event loop. Only reading and writing happen behind the Disk port; segments change places on the loop,
between two requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from odradek.log.cleaner.batch_filter import LastRecord
from odradek.log.cleaner.candidates import Cleanable, SegmentFacts, cleanable
from odradek.log.cleaner.segment_rewrite import (
    CleanedSegment,
    Compaction,
    CompactionResult,
    DamagedSegment,
    Plan,
    Progress,
)
from odradek.log.config import LONG_MAX, LogConfig
from odradek.log.directories.checkpoint_formats import RECOVERY_POINTS
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.partition_log import PartitionLog
from odradek.log.segments.segment import NO_TIMESTAMP, Segment
from odradek.ports.disk import Disk
from odradek.records.topic_partition import PartitionKey
from odradek.wire.errors import ErrorCode, KafkaError

LANE: Final = "cleaner"
"""Lanes of `Disk.run` that begin with this compact, one for each of `log.cleaner.threads`."""


class Cleaned(NamedTuple):
    """A finished compaction; sizes in bytes."""

    log: PartitionLog
    from_offset: int
    outcome: CompactionResult


class _Damage(NamedTuple):
    text: str
    truncations: int
    """Of the log until it was found."""
    oldest: int
    """The base offset of the log's first segment at that time."""


Throttle = Callable[[int], Awaitable[None]]
"""Called with the bytes that were read and written; waits until the cleaner may continue."""


class Cleaner:
    """Compacts the logs of a broker, one at a time in each lane."""

    __slots__ = ("_busy", "_directories", "_disk", "_failed", "_uncleanable")

    def __init__(self, directories: LogDirectories, disk: Disk) -> None:
        self._directories = directories
        self._disk = disk
        self._busy: set[PartitionKey] = set()
        self._uncleanable: dict[PartitionLog, _Damage] = {}
        # Logs whose disk has failed a compaction: the others come first.
        self._failed: set[PartitionLog] = set()

    @property
    def uncleanable(self) -> dict[PartitionKey, str]:
        """Partitions whose compaction has stopped because of damage, with a description of it."""
        return {
            (log.topic, log.partition): found.text for log, found in self._uncleanable.items() if _remains(found, log)
        }

    def dirtiest(
        self, candidates: Iterable[tuple[PartitionLog, int]], now_ms: int
    ) -> tuple[PartitionLog, Cleanable] | None:
        """The log most in need of compaction, of those that are due; each comes with its last stable offset."""
        best: tuple[PartitionLog, Cleanable] | None = None
        for log, stable_offset in candidates:
            key = (log.topic, log.partition)
            if not log.config.compact or log.is_offline or key in self._busy:
                continue
            damage = self._uncleanable.get(log)
            if log in self._failed or (damage is not None and _remains(damage, log)):
                continue
            if len(log.segments) < 2 or log.durability.has_queued:
                continue
            try:
                found = self._cleanable(log, stable_offset, now_ms)
            except KafkaError as error:
                # One log that cannot be looked at does not keep the others from being compacted.
                if not isinstance(error.__cause__, OSError):
                    self._give_up(log, error.message)
                continue
            if found.is_due(log.config) and (best is None or found.ratio > best[1].ratio):
                best = log, found
        return best

    def retry_failed(self) -> None:
        """Let `dirtiest` name logs again whose compaction has failed: no other is due."""
        self._failed.clear()

    def _cleanable(self, log: PartitionLog, stable_offset: int, now_ms: int) -> Cleanable:
        segments = facts(log)
        # Recovery takes gaps above its point for losses, and what is not synced may be lost with its compacted copy. A
        # segment is rewritten as a whole: aborted batches at its end are removed, too.
        synced = max(
            (each.base_offset for each in segments if each.base_offset <= log.durability.recovery_point), default=0
        )
        return cleanable(
            segments,
            log.config,
            now_ms,
            checkpoint=self._directories.cleaned_to(log.topic, log.partition),
            log_start_offset=log.log_start_offset,
            upper_offset=min(stable_offset, synced),
        )

    async def clean(
        self, log: PartitionLog, found: Cleanable, now_ms: int, map_bytes: int, throttle: Throttle, lane: int = 0
    ) -> Cleaned | None:
        """Compact the log; None when it was given up because the log changed, or is damaged or gone.

        Raises KafkaError KAFKA_STORAGE_ERROR if the disk fails: until `retry_failed`, `dirtiest` names other logs.
        """
        key = (log.topic, log.partition)
        self._busy.add(key)
        truncations = log.truncations
        try:
            outcome = await self._clean(log, plan(log, found, now_ms, map_bytes), throttle, f"{LANE} {lane}")
        except DamagedSegment as error:
            # What was read there may be of the next topic of that name, or have been cut off.
            if not log.is_offline and log.truncations == truncations:
                self._give_up(log, str(error))
            return None
        except KafkaError as error:
            if log.is_offline or isinstance(error.__cause__, OSError):
                self._failed.add(log)
                raise
            self._give_up(log, error.message)
            return None
        except OSError as error:
            if log.is_offline:
                return None
            self._failed.add(log)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.directory}: {error}") from error
        except Exception as error:
            # A mistake of ours, which would come again: the other logs are compacted, as by Apache Kafka.
            self._give_up(log, f"{type(error).__name__}: {error}")
            raise
        finally:
            self._busy.discard(key)
        if outcome is None:
            return None
        await self._directories.note_cleaned(log.topic, log.partition, outcome.end_offset)
        return Cleaned(log, found.first_dirty_offset, outcome)

    def _give_up(self, log: PartitionLog, damage: str) -> None:
        # Of a log that was deleted since, it says nothing of the next one of its name.
        self._uncleanable = {each: found for each, found in self._uncleanable.items() if _remains(found, each)}
        self._uncleanable[log] = _Damage(damage, log.truncations, log.segments[0].base_offset)
        self._directories.events.report(
            f"compaction of {log.topic}-{log.partition} stopped: {damage}; it is retried after a restart, and when the "
            "log is truncated or its oldest segment is deleted"
        )

    async def _clean(self, log: PartitionLog, planned: Plan, throttle: Throttle, lane: str) -> CompactionResult | None:
        truncations = log.truncations
        # What was compacted has gaps, and recovery must not mistake them for losses: it does not look below this.
        failure = await self._directories.checkpoints.persist(RECOVERY_POINTS)
        if failure is not None:
            raise failure
        compaction = Compaction(planned, self._disk)
        outcome = None
        try:
            outcome = await self._compact(log, compaction, truncations, throttle, lane)
        finally:
            if outcome is None:
                compaction.discard()
        return outcome

    async def _compact(
        self, log: PartitionLog, compaction: Compaction, truncations: int, throttle: Throttle, lane: str
    ) -> CompactionResult | None:
        while True:
            done = await self._step(compaction, lane)
            if log.is_offline:
                return None
            if isinstance(done, CompactionResult):
                return done if log.truncations == truncations else None
            if isinstance(done, CleanedSegment):
                if log.truncations != truncations or not log.replace_segments(done):
                    # Retention or a truncation removed the sources meanwhile; the next cleaning plans again.
                    return None
                await self._disk.run(lane, self._disk.sync_directory, log.directory)
            else:
                await throttle(done.transferred)

    async def _step(self, compaction: Compaction, lane: str) -> Progress:
        step = asyncio.ensure_future(self._disk.run(lane, compaction.step))
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            # The number of threads was lowered. Until this step ends no other thread may write its files.
            await asyncio.wait({step})
            if not step.cancelled():
                # Retrieved, or asyncio would log it as never retrieved: the next cleaning meets the same error.
                step.exception()
            raise


def _remains(damage: _Damage, log: PartitionLog) -> bool:
    """Whether the log still has what it had when the damage was found. The replica may have been copied again."""
    is_same = (damage.truncations, damage.oldest) == (log.truncations, log.segments[0].base_offset)
    return is_same and not log.is_offline


def facts(log: PartitionLog) -> list[SegmentFacts]:
    """What compaction decides by; timestamps only where the topic's settings ask for them. Raises KafkaError."""
    return log.reader.query(lambda segments: _facts(segments, log.config, log.end_offset))


def _facts(segments: Sequence[Segment], config: LogConfig, log_end_offset: int) -> list[SegmentFacts]:
    needs_largest = config.min_compaction_lag_ms > 0
    needs_first = config.max_compaction_lag_ms < LONG_MAX
    found = []
    for index, segment in enumerate(segments):
        end = segments[index + 1].base_offset if index + 1 < len(segments) else log_end_offset
        largest = segment.load_max_timestamp()[0] if needs_largest else NO_TIMESTAMP
        first = NO_TIMESTAMP
        if needs_first:
            first = next((batch.header.max_timestamp for batch in segment.scan(0)), NO_TIMESTAMP)
        entries = segment.size // max(1, config.index_interval_bytes) + 1
        found.append(SegmentFacts(segment.base_offset, segment.size, 8 * entries, largest, first, end))
    return found


def plan(log: PartitionLog, found: Cleanable, now_ms: int, map_bytes: int) -> Plan:
    """Everything that the thread needs to know. Raises KafkaError."""
    producers = {
        producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
        for producer_id, entry in log.history.producers.producers.items()
    }
    return Plan(
        log.directory,
        facts(log)[:-1],
        found,
        log.config,
        now_ms,
        log.reader.query(lambda segments: [each for segment in segments for each in segment.transactions.entries()]),
        producers,
        map_bytes,
    )
