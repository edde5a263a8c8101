"""The source's two readers: batch and micro-batch. They plan on the driver; `reading` does the tasks' work."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from odradek.client.errors import ClientError
from odradek.client.model import OffsetAndMetadata
from odradek.client.offsets import Member, commit_offsets
from odradek.spark import clients
from odradek.spark.few_rows import SimpleReader, read_few
from odradek.spark.offsets import (
    OffsetRange,
    Offsets,
    Origin,
    SourceError,
    batch_ranges,
    from_json,
    group_small,
    limit_rows,
    new_rows,
    origin_of,
    split_ranges,
    to_json,
)
from odradek.spark.option_names import OptionError
from odradek.spark.options import SourceOptions
from odradek.spark.topics import Topics
from odradek.spark.workers import freeze_modules, keep_memory
from odradek.wire.errors import KafkaError

logger = logging.getLogger(__name__)


SMALL: Final = 100
"""A task costs Spark some 50 ms and two Python processes, whatever it has to do: partitions that have less than so many
records together share one. Not more, because rows may be expensive to work on, which wants tasks side by side."""


class RangePartition(InputPartition):
    """One task's ranges."""

    def __init__(self, ranges: list[OffsetRange]) -> None:
        super().__init__(tuple(map(tuple, ranges)))

    @property
    def ranges(self) -> list[OffsetRange]:
        """The offset ranges that the task reads."""
        return [OffsetRange(*each) for each in self.value]


def _with_ids(topics: Topics, ranges: list[OffsetRange]) -> RangePartition:
    """A task for all of the ranges, with the ids of their topics."""
    ids = topics.origin().topic_ids
    return RangePartition([each._replace(topic_id=ids.get(each.topic, "")) for each in ranges])


def _tasks(options: SourceOptions, topics: Topics, ranges: list[OffsetRange]) -> list[InputPartition]:
    split = split_ranges(_with_ids(topics, ranges).ranges, options.min_partitions, options.max_records_per_partition)
    if options.min_partitions is not None or options.max_records_per_partition is not None:
        return [RangePartition([each]) for each in split]
    return [RangePartition(each) for each in group_small(split, SMALL, lambda each: topics.leader(*each[:2]))]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """Record batches of a task; Spark hands over InputPartition(None) where there is nothing to read."""
    if not isinstance(partition, RangePartition):
        return
    from odradek.spark.reading import read_ranges

    keep_memory()
    yield from read_ranges(options, partition.ranges)
    freeze_modules(at_leisure=True)


class BatchReader(DataSourceReader):
    """All offsets between the starting and the ending position, as they are when the query is planned."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Divide the offsets of the query into tasks. Raises SourceError."""
        options = self._options
        topics = Topics(options)
        starts = topics.resolve(options.starting, "starting")
        ends = topics.resolve(options.ending, "ending")
        beyond = [] if options.ending.offsets is None else list(ends)
        log_ends = topics.log_ends(beyond)
        ranges = batch_ranges(starts, ends, log_ends, fail_on_data_loss=options.fail_on_data_loss)
        return _tasks(options, topics, ranges)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read a task's offset ranges on a worker."""
        return _read(self._options, partition)


def _still_valid(begin: Offsets, was: Origin, now: Origin) -> Offsets:
    """The offsets without those of topics that were deleted and created again."""
    gone = set() if was.is_of_another_cluster(now) else was.recreated(now)
    return {key: offset for key, offset in begin.items() if key.topic not in gone}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches. One object lives on the driver for the whole query; tasks get copies of its options only."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._topics: Topics | None = None
        self._target: tuple[Offsets, Origin] | None = None
        self._last_trigger_s: float | None = None
        self._latest: tuple[Offsets, Origin] | None = None
        self._few: list[Any] = []

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(StreamReader(self._options))}

    def _find_latest(self) -> tuple[Offsets, Origin]:
        return self._known.latest(), self._known.origin()

    @property
    def _known(self) -> Topics:
        if self._topics is None:
            self._topics = Topics(self._options)
        return self._topics

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        """The offsets at which a new query starts, as `startingOffsets` says."""
        starting = self._options.starting
        offsets = self._known.resolve(starting, "starting")
        given, now = origin_of(starting.offsets or {}), self._known.origin()
        again = given.recreated(now)
        for topic in sorted(again):
            self._lost(f"startingOffsets are those of a topic {topic} that was deleted and created again")
        if again:
            offsets |= self._known.earliest([key for key in offsets if key.topic in again])
        return to_json(offsets, now._replace(resumed_from=given.resumed_from))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of a micro-batch, from `maxOffsetsPerTrigger` and its kin."""
        # Spark has no limit that is both; the minimum is then seen to in latestOffset.
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end offsets of a query with the trigger `availableNow`."""
        self._target = self._find_latest()

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """The end of the next micro-batch within the limit."""
        self._latest = self._find_latest()
        latest, origin = self._latest if self._target is None else self._target
        origin = origin._replace(resumed_from=origin_of(start).resumed_from)
        if isinstance(limit, ReadAllAvailable):
            return to_json(latest, origin)
        begin = _still_valid(from_json(start), origin_of(start), origin)
        if self._target is None and self._too_early(begin, latest):
            return start
        if isinstance(limit, ReadMaxRows):
            fresh = [key for key in latest if key not in begin]
            earliest = self._known.earliest(fresh) if fresh else {}
            latest = limit_rows(limit.max_rows, begin, latest, earliest)
        return to_json(latest, origin)

    def _too_early(self, begin: Offsets, latest: Offsets) -> bool:
        """Whether to wait for minOffsetsPerTrigger; not longer than maxTriggerDelay, and never at the first batch."""
        least = self._options.min_offsets_per_trigger
        if least is None:
            return False
        now = time.monotonic()
        waited_ms = None if self._last_trigger_s is None else (now - self._last_trigger_s) * 1000
        if waited_ms is not None and waited_ms < self._options.max_trigger_delay_ms and new_rows(begin, latest) < least:
            return True
        self._last_trigger_s = now
        return False

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """The current end offsets, for Spark's progress report."""
        return None if self._latest is None else to_json(*self._latest)

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[InputPartition]:
        """Divide the offsets of a micro-batch into tasks. Raises SourceError where records may have been lost."""
        begins, ends = self._of_the_same_topics(start, end)
        fresh = [key for key in ends if key not in begins]
        earliest = self._known.earliest(fresh) if fresh else {}
        for key in fresh:
            if key not in earliest:
                self._lost(f"{key} is gone before its first offset could be read")
            elif earliest[key] > 0:
                self._lost(f"the new partition {key} begins at offset {earliest[key]} instead of 0")
        gone = sorted(map(str, begins.keys() - ends.keys()))
        if gone:
            self._lost(f"{', '.join(gone)} are gone")
        begins = {**earliest, **begins}
        ranges = []
        for key, stop in sorted(ends.items()):
            if key not in begins:
                continue
            if stop < begins[key]:
                self._lost(f"the end of {key} went back from offset {begins[key]} to {stop}")
            elif stop > begins[key]:  # a fetch at the end of a log would wait for the next record
                ranges.append(OffsetRange(*key, begins[key], stop))
        if self._read_few(ranges):
            return [_with_ids(self._known, ranges)]
        return _tasks(self._options, self._known, ranges)

    def _read_few(self, ranges: list[OffsetRange]) -> bool:
        """Read the rows of the micro-batch now, if they are few: Spark takes them with the plan."""
        options = self._options
        given = options.min_partitions is not None or options.max_records_per_partition is not None
        if SimpleReader is None or given or not 0 < sum(each.end - each.start for each in ranges) < SMALL:
            return False
        try:
            found = read_few(options, _with_ids(self._known, ranges).ranges)
        except (KafkaError, ClientError, OSError) as error:
            logger.info("the rows of a small micro-batch are left to a task, which Spark repeats: %s", error)
            return False
        if found is None:
            return False
        self._few = found
        self.__class__ = _ReaderWithRows
        return True

    def _of_the_same_topics(
        self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]
    ) -> tuple[Offsets, Offsets]:
        """Where a micro-batch begins and ends in the topics that are there: not in those that had the same name."""
        was, planned, now = origin_of(start), origin_of(end), self._known.origin()
        if was.is_of_another_cluster(now) or planned.is_of_another_cluster(now):
            self._lost(f"the offsets are those of cluster {was.cluster or planned.cluster}, not of {now.cluster}")
            return from_json(start), from_json(end)
        before = was.recreated(planned)
        since = planned.recreated(now) | (was.recreated(now) - planned.topic_ids.keys())
        for topic in sorted(before | since):
            self._lost(f"topic {topic} was deleted and created again")
        begins = {key: offset for key, offset in from_json(start).items() if key.topic not in before | since}
        # A topic that was created after the batch was planned is read from its beginning by the next one.
        return begins, {key: offset for key, offset in from_json(end).items() if key.topic not in since}

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise SourceError(
                f"{what}: some data may have been missed (topics deleted or records expired before they were read). "
                "failOnDataLoss=false continues regardless"
            )
        logger.warning("%s: some data may have been missed", what)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read a task's offset ranges on a worker."""
        return _read(self._options, partition)

    def commit(self, end: dict[str, dict[str, int]]) -> None:
        """With commitOffsets: let the group's offsets follow, so that lag tools see the query. Best effort."""
        group = self._options.commit_group
        if group is None:
            return
        offsets = {key: OffsetAndMetadata(offset) for key, offset in from_json(end).items()}
        cluster = clients.consumer(self._options.client).cluster
        clients.run(commit_offsets(cluster, group, offsets, Member()))

    def stop(self) -> None:
        """Connections belong to the process and stay for the next query."""


if SimpleReader is not None:

    class _ReaderWithRows(StreamReader, SimpleReader):
        """What a reader is while it has rows for the plan: see `few_rows`."""

        def getCache(self, start: Any, end: Any) -> Iterator[Any]:  # noqa: N802 - Spark's name
            """The rows, once, as record batches."""
            self.__class__ = StreamReader
            rows, self._few = self._few, []
            return iter(rows)


class RejectedReader(DataSourceStreamReader):
    """Raises what is wrong with the options as soon as Spark asks for offsets.

    PySpark 4.3 covers what `streamReader` itself raises with an UnboundLocalError of its own.
    """

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        """Raises OptionError."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Raises OptionError."""
        raise self._error

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """Raises OptionError."""
        raise self._error

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[InputPartition]:
        """Raises OptionError."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Raises OptionError."""
        raise self._error
