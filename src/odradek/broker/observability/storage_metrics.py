"""Metrics of log directories: space, failures, write queues, syncs (Kafka's `LogManager` and `LogFlushStats`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from odradek.log.cleaner.log_cleaner import Cleaner
from odradek.log.directories.log_directories import LogDirectories
from odradek.metrics.definition import Family, Kind, Metric, Sample, counter, gauge, label, several, single
from odradek.metrics.histogram import QUANTILES, RecentCounts, quantile
from odradek.ports.disk import Disk

_DIRECTORY: Final = ("logDirectory",)
_MANAGER: Final = "kafka.log:type=LogManager,name="

OFFLINE_DIRECTORIES: Final = gauge(
    "kafka_log_logmanager_offlinelogdirectorycount",
    "Log directories that failed",
    f"{_MANAGER}OfflineLogDirectoryCount",
)
IS_OFFLINE: Final = gauge(
    "kafka_log_logmanager_logdirectoryoffline",
    "1 if the log directory failed",
    f"{_MANAGER}LogDirectoryOffline",
    _DIRECTORY,
)
FREE_BYTES: Final = gauge("odradek_log_directory_free_bytes", "Free bytes of the file system", "", _DIRECTORY)
TOTAL_BYTES: Final = gauge("odradek_log_directory_total_bytes", "Bytes of the file system", "", _DIRECTORY)
FLUSH_TIME: Final = Metric(
    "kafka_log_logflushstats_logflushrateandtimems",
    Kind.SUMMARY,
    ("quantile",),
    "Milliseconds until a log was synced; quantiles of the last minute or more",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
FLUSH_DURATION: Final = Metric(
    "odradek_flush_duration_seconds",
    Kind.HISTOGRAM,
    ("le",),
    "Time until a log was synced",
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
QUEUED_BYTES: Final = gauge(
    "odradek_write_queue_bytes", "Bytes of appends that wait for a thread to write them", "", _DIRECTORY
)
QUEUED_WRITES: Final = counter(
    "odradek_queued_writes", "Appends that a thread wrote: large ones, and all while the disk lags", "", _DIRECTORY
)
IS_SLOW: Final = gauge(
    "odradek_disk_lagging", "1 while the disk does not keep up and all appends are queued", "", _DIRECTORY
)
LAGS: Final = counter("odradek_disk_lags", "How often the disk began to lag", "", _DIRECTORY)
LONGEST_WRITE: Final = gauge(
    "odradek_longest_inline_write_seconds", "The longest write that the event loop waited for since the start"
)
UNCLEANABLE: Final = gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Partitions whose compaction has stopped because of damage",
    "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count",
    _DIRECTORY,
)
OPEN_LOGS: Final = gauge("odradek_open_logs", "Logs that are open; the others have not been used since the start")


class StorageMetrics:
    """Reads the log directories."""

    __slots__ = ("_cleaner", "_directories", "_disk", "_now", "_recent")

    metrics = (
        OFFLINE_DIRECTORIES,
        IS_OFFLINE,
        FREE_BYTES,
        TOTAL_BYTES,
        FLUSH_TIME,
        FLUSH_DURATION,
        QUEUED_BYTES,
        QUEUED_WRITES,
        IS_SLOW,
        LAGS,
        LONGEST_WRITE,
        UNCLEANABLE,
        OPEN_LOGS,
    )
    """See `Collector`."""

    def __init__(self, directories: LogDirectories, cleaner: Cleaner, disk: Disk, now: Callable[[], float]) -> None:
        """`now` is a monotonic clock in seconds."""
        self._directories = directories
        self._cleaner = cleaner
        self._disk = disk
        self._now = now
        self._recent = RecentCounts()

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        directories = self._directories.directories
        yield single(OFFLINE_DIRECTORIES, sum(each.offline is not None for each in directories))
        yield several(
            IS_OFFLINE, ((label("logDirectory", each.path), int(each.offline is not None)) for each in directories)
        )
        space = [(label("logDirectory", path), *found) for path, found in free_space(self._directories, self._disk)]
        yield several(FREE_BYTES, ((labels, free) for labels, free, _ in space))
        yield several(TOTAL_BYTES, ((labels, total) for labels, _, total in space))
        yield Family(FLUSH_TIME, self._flush_samples())
        yield Family(FLUSH_DURATION, self._directories.flusher.sync_times.samples(""))
        queues = [(label("logDirectory", path), queue) for path, queue in self._directories.writers.by_path().items()]
        yield several(QUEUED_BYTES, ((labels, queue.depth_bytes) for labels, queue in queues))
        yield several(QUEUED_WRITES, ((labels, queue.queued) for labels, queue in queues))
        yield several(IS_SLOW, ((labels, int(queue.slow)) for labels, queue in queues))
        yield several(LAGS, ((labels, queue.lags) for labels, queue in queues))
        yield single(LONGEST_WRITE, self._directories.writers.longest_write_s)
        uncleanable = Counter(self._directories.directory_of(*key) for key in self._cleaner.uncleanable)
        yield several(UNCLEANABLE, ((label("logDirectory", each.path), uncleanable[each]) for each in directories))
        yield single(OPEN_LOGS, self._directories.open_count)

    def _flush_samples(self) -> Iterator[Sample]:
        times = self._directories.flusher.sync_times
        recent = self._recent.since(times.counts, self._now())
        for wanted in QUANTILES:
            yield "", f'quantile="{wanted}"', 1000 * quantile(times.bounds, recent, wanted)
        yield "_count", "", times.count
        yield "_sum", "", 1000 * times.total


def free_space(directories: LogDirectories, disk: Disk) -> Iterator[tuple[str, tuple[int, int]]]:
    """(path, (free, total) bytes) of each log directory that is online and whose file system answers."""
    for directory in directories.directories:
        if directory.offline is None:
            try:
                yield directory.path, disk.free_bytes(directory.path)
            except OSError:
                continue
