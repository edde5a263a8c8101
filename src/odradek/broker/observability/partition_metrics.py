"""Metrics of partitions: offsets, sizes, replicas; and what this broker leads and lacks (Kafka's `ReplicaManager`).

A partition has series on the broker that leads it, so that sums over brokers count it once; with
`odradek.metrics.partitions=all` its followers have those of their logs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from odradek.broker.storage.partitions import Partitions
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import ClusterImage, PartitionState
from odradek.metrics.definition import Family, Metric, counter, gauge, label, several, single
from odradek.replication.partition import Partition, check_offsets

NONE: Final = "none"
LEADERS: Final = "leaders"
ALL: Final = "all"

_PARTITION: Final = ("topic", "partition")
_STEP: Final = 32
"""Partitions that are looked at in one step."""

_RM: Final = "kafka.server:type=ReplicaManager,name="
LEADER_COUNT: Final = gauge("kafka_server_replicamanager_leadercount", "Partitions led here", f"{_RM}LeaderCount")
PARTITION_COUNT: Final = gauge("kafka_server_replicamanager_partitioncount", "Replicas here", f"{_RM}PartitionCount")
UNDER_REPLICATED: Final = gauge(
    "kafka_server_replicamanager_underreplicatedpartitions",
    "Partitions led here with replicas outside the ISR",
    f"{_RM}UnderReplicatedPartitions",
)
UNDER_MIN_ISR: Final = gauge(
    "kafka_server_replicamanager_underminisrpartitioncount",
    "Partitions led here whose ISR is below min.insync.replicas",
    f"{_RM}UnderMinIsrPartitionCount",
)
AT_MIN_ISR: Final = gauge(
    "kafka_server_replicamanager_atminisrpartitioncount",
    "Partitions led here whose ISR is as large as min.insync.replicas, of those that have more replicas",
    f"{_RM}AtMinIsrPartitionCount",
)
OFFLINE_REPLICAS: Final = gauge(
    "kafka_server_replicamanager_offlinereplicacount",
    "Replicas here in log directories that failed",
    f"{_RM}OfflineReplicaCount",
)
REASSIGNING: Final = gauge(
    "kafka_server_replicamanager_reassigningpartitions",
    "Partitions led here that are being reassigned",
    f"{_RM}ReassigningPartitions",
)
INVARIANTS: Final = counter(
    "odradek_invariant_violations",
    "How often an invariant of replication was violated here, by its name: 0 unless there was an unclean election, or "
    "software, disk or memory are defective. The log names the partitions",
    labels=("invariant",),
)
REPLICA_LAG: Final = gauge(
    "odradek_replica_lag_records",
    "Largest lag of a follower behind a partition led here, in records",
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
)

LOG_SIZE: Final = gauge("kafka_log_log_size", "Bytes of the log's segments", "kafka.log:type=Log,name=Size", _PARTITION)
LOG_START: Final = gauge(
    "kafka_log_log_logstartoffset",
    "First offset of the log",
    "kafka.log:type=Log,name=LogStartOffset",
    _PARTITION,
)
LOG_END: Final = gauge(
    "kafka_log_log_logendoffset", "End offset of the log", "kafka.log:type=Log,name=LogEndOffset", _PARTITION
)
LOG_SEGMENTS: Final = gauge(
    "kafka_log_log_numlogsegments", "Segments of the log", "kafka.log:type=Log,name=NumLogSegments", _PARTITION
)
MIN_ISR_LACKS: Final = gauge(
    "kafka_cluster_partition_underminisr",
    "1 if the ISR is below min.insync.replicas",
    "kafka.cluster:type=Partition,name=UnderMinIsr",
    _PARTITION,
)
PARTITION_LACKS: Final = gauge(
    "kafka_cluster_partition_underreplicated",
    "1 if replicas are outside the ISR",
    "kafka.cluster:type=Partition,name=UnderReplicated",
    _PARTITION,
)
AT_MIN: Final = gauge(
    "kafka_cluster_partition_atminisr",
    "1 if the ISR is exactly as large as min.insync.replicas",
    "kafka.cluster:type=Partition,name=AtMinIsr",
    _PARTITION,
)
REPLICAS_COUNT: Final = gauge(
    "kafka_cluster_partition_replicascount",
    "Replicas of the partition",
    "kafka.cluster:type=Partition,name=ReplicasCount",
    _PARTITION,
)


def _exporter(name: str, meaning: str) -> Metric:
    full = f"kafka_topic_partition_{name}"
    return gauge(full, meaning, f"kafka_exporter: {full}", _PARTITION)


CURRENT_OFFSET: Final = _exporter("current_offset", "High watermark: the offset behind the last committed record")
OLDEST_OFFSET: Final = _exporter("oldest_offset", "First offset that consumers can read")
IN_SYNC: Final = _exporter("in_sync_replica", "Members of the ISR")
LEADER: Final = _exporter("leader", "Id of the leader")
PREFERRED: Final = _exporter("leader_is_preferred", "1 if the leader is the first replica")
REPLICAS: Final = _exporter("replicas", "Replicas of the partition")
EXPORTED_LACKS: Final = _exporter("under_replicated_partition", "1 if replicas are outside the ISR")


class _Totals:
    """What this broker leads and lacks."""

    __slots__ = (
        "at_min_isr",
        "leaders",
        "offline",
        "reassigning",
        "replica_lag",
        "replicas",
        "under_min_isr",
        "under_replicated",
    )

    def __init__(self) -> None:
        self.leaders = self.replicas = self.offline = 0
        self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.reassigning = self.replica_lag = 0

    def add_led(self, state: PartitionState, min_isr: int, partition: Partition | None) -> None:
        in_sync = len(state.isr)
        self.leaders += 1
        self.under_replicated += in_sync < len(state.replicas)
        self.under_min_isr += in_sync < min_isr
        self.at_min_isr += in_sync == min_isr < len(state.replicas)
        self.reassigning += bool(state.adding_replicas or state.removing_replicas)
        if partition is not None and partition.followers.progress:
            end_offset = partition.log.end_offset
            slowest = min(follower.end_offset for follower in partition.followers.progress.values())
            self.replica_lag = max(self.replica_lag, end_offset - max(0, slowest))


class _Columns:
    """The partitions of one scrape, a list per figure: an object for each would bring on a full garbage collection."""

    __slots__ = ("labels", "led", "min_isr", "partitions", "states", "watermarks")

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.states: list[PartitionState] = []
        self.min_isr: list[int] = []
        self.partitions: list[Partition | None] = []
        """None while nothing has touched the replica since the start: its log is not open."""
        self.led: list[bool] = []
        self.watermarks: list[int] = []
        """High watermarks, -1 where none is known."""

    def logs(self) -> Iterator[tuple[str, PartitionLog]]:
        """(labels, log) of the open logs."""
        for labels, partition in zip(self.labels, self.partitions, strict=True):
            if partition is not None:
                yield labels, partition.log

    def led_logs(self) -> Iterator[tuple[str, PartitionLog]]:
        """(labels, log) of the open logs of leaders."""
        for labels, partition, is_led in zip(self.labels, self.partitions, self.led, strict=True):
            if is_led and partition is not None:
                yield labels, partition.log

    def led_states(self) -> Iterator[tuple[str, PartitionState, int]]:
        """(labels, state, least ISR) of the partitions that are led here."""
        for labels, state, min_isr, is_led in zip(self.labels, self.states, self.min_isr, self.led, strict=True):
            if is_led:
                yield labels, state, min_isr


class PartitionMetrics:
    """Reads the replicas of a broker."""

    __slots__ = ("_detail", "_directories", "_image", "_most_topics", "_node_id", "_partitions")

    metrics = (
        LEADER_COUNT,
        PARTITION_COUNT,
        UNDER_REPLICATED,
        UNDER_MIN_ISR,
        AT_MIN_ISR,
        OFFLINE_REPLICAS,
        REASSIGNING,
        REPLICA_LAG,
        INVARIANTS,
        LOG_SIZE,
        LOG_START,
        LOG_END,
        LOG_SEGMENTS,
        MIN_ISR_LACKS,
        PARTITION_LACKS,
        AT_MIN,
        REPLICAS_COUNT,
        CURRENT_OFFSET,
        OLDEST_OFFSET,
        IN_SYNC,
        LEADER,
        PREFERRED,
        REPLICAS,
        EXPORTED_LACKS,
    )
    """See `Collector`."""

    def __init__(
        self,
        node_id: int,
        image: Callable[[], ClusterImage],
        partitions: Partitions,
        directories: LogDirectories,
        detail: Callable[[], str],
        most_topics: Callable[[], int],
    ) -> None:
        """`detail` is `odradek.metrics.partitions`; of at most `most_topics` topics partitions have series."""
        self._node_id = node_id
        self._image = image
        self._partitions = partitions
        self._directories = directories
        self._detail = detail
        self._most_topics = most_topics

    def collect(self) -> Iterator[Family | None]:
        """See `Collector`."""
        detail = self._detail()
        most_topics = self._most_topics()
        columns, totals = _Columns(), _Totals()
        looked_at = 0
        for number, (name, topic) in enumerate(list(self._image().topics.items())):
            is_shown = detail != NONE and number < most_topics
            config = self._partitions.settings_of(name)
            least = 1 if config is None else config.min_insync_replicas
            of_topic = label("topic", name)
            for index, state in enumerate(topic.partitions):
                looked_at += 1
                if not looked_at % _STEP:
                    yield None
                if self._node_id not in state.replicas:
                    continue
                partition = self._partitions.opened_partition(name, index)
                is_led = state.leader == self._node_id
                min_isr = min(least, len(state.replicas))
                totals.replicas += 1
                totals.offline += self._directories.is_offline(name, index)
                if partition is not None:
                    check_offsets(partition, self._partitions.invariants)
                if is_led:
                    totals.add_led(state, min_isr, partition)
                if is_shown and (is_led or detail == ALL):
                    columns.labels.append(f'{of_topic},partition="{index}"')
                    columns.states.append(state)
                    columns.min_isr.append(min_isr)
                    columns.partitions.append(partition)
                    columns.led.append(is_led)
                    columns.watermarks.append(self._high_watermark(name, index, partition))
        yield from _of_broker(totals)
        counts = self._partitions.invariants.counts
        yield several(INVARIANTS, [(label("invariant", each.value), count) for each, count in counts.items()])
        yield from _of_logs(columns)
        yield from _of_leaders(columns)

    def _high_watermark(self, topic: str, index: int, partition: Partition | None) -> int:
        if partition is not None:
            return partition.high_watermark
        watermark = self._directories.high_watermark(topic, index)
        return -1 if watermark is None else watermark


def _of_broker(total: _Totals) -> Iterator[Family]:
    yield single(LEADER_COUNT, total.leaders)
    yield single(PARTITION_COUNT, total.replicas)
    yield single(UNDER_REPLICATED, total.under_replicated)
    yield single(UNDER_MIN_ISR, total.under_min_isr)
    yield single(AT_MIN_ISR, total.at_min_isr)
    yield single(OFFLINE_REPLICAS, total.offline)
    yield single(REASSIGNING, total.reassigning)
    yield single(REPLICA_LAG, total.replica_lag)


def _of_logs(c: _Columns) -> Iterator[Family]:
    yield several(LOG_SIZE, ((labels, log.size_bytes) for labels, log in c.logs()))
    yield several(LOG_START, ((labels, log.log_start_offset) for labels, log in c.logs()))
    yield several(LOG_END, ((labels, log.end_offset) for labels, log in c.logs()))
    yield several(LOG_SEGMENTS, ((labels, len(log.segments)) for labels, log in c.logs()))
    ends = zip(c.labels, c.watermarks, c.led, strict=True)
    yield several(CURRENT_OFFSET, ((labels, end) for labels, end, is_led in ends if is_led and end >= 0))
    yield several(OLDEST_OFFSET, ((labels, log.log_start_offset) for labels, log in c.led_logs()))


def _of_leaders(c: _Columns) -> Iterator[Family]:
    yield several(MIN_ISR_LACKS, ((labels, int(len(s.isr) < least)) for labels, s, least in c.led_states()))
    yield several(AT_MIN, ((labels, int(len(s.isr) == least < len(s.replicas))) for labels, s, least in c.led_states()))
    yield several(REPLICAS_COUNT, ((labels, len(s.replicas)) for labels, s, _ in c.led_states()))
    for metric in (PARTITION_LACKS, EXPORTED_LACKS):
        yield several(metric, ((labels, int(len(s.isr) < len(s.replicas))) for labels, s, _ in c.led_states()))
    yield several(IN_SYNC, ((labels, len(s.isr)) for labels, s, _ in c.led_states()))
    yield several(LEADER, ((labels, s.leader) for labels, s, _ in c.led_states()))
    yield several(PREFERRED, ((labels, int(s.leader == s.replicas[0])) for labels, s, _ in c.led_states()))
    yield several(REPLICAS, ((labels, len(s.replicas)) for labels, s, _ in c.led_states()))
