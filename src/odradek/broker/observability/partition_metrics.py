"""Metrics of partitions: offsets, sizes, replicas; and what this broker leads and lacks (Kafka's `ReplicaManager`).

A partition has series on the broker that leads it, so that sums over brokers count it once; with
`odradek.metrics.partitions=all` its followers have those of their logs, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from odradek.broker.storage.partitions import Partitions
from odradek.log.directories.log_directories import LogDirectories
from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState
from odradek.metrics.definition import Family, Metric, gauge, label, several, single
from odradek.replication.partition import Partition

NONE: Final = "none"
LEADERS: Final = "leaders"
ALL: Final = "all"

_PARTITION: Final = ("topic", "partition")
_STEP: Final = 128
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


class Row(NamedTuple):
    """One partition of a scrape."""

    labels: str
    state: PartitionState
    min_isr: int
    partition: Partition | None
    """None while nothing has touched the replica since the start: its log is not open."""
    is_led: bool
    high_watermark: int
    """-1 if it is not known."""


class Summary(NamedTuple):
    """What this broker leads and lacks."""

    leaders: int = 0
    replicas: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    offline: int = 0
    reassigning: int = 0
    replica_lag: int = 0

    def plus(self, other: Summary) -> Summary:
        """The sum; of the lags the larger."""
        total = Summary(*(a + b for a, b in zip(self, other, strict=True)))
        return total._replace(replica_lag=max(self.replica_lag, other.replica_lag))


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
        rows: list[Row] = []
        total = Summary()
        looked_at = 0
        for number, (name, topic) in enumerate(list(self._image().topics.items())):
            is_shown = detail != NONE and number < self._most_topics()
            config = self._partitions.settings_of(name)
            least = 1 if config is None else config.min_insync_replicas
            for index, state in enumerate(topic.partitions):
                looked_at += 1
                if not looked_at % _STEP:
                    yield None
                if self._node_id not in state.replicas:
                    continue
                row = self._row(name, index, state, least)
                total = total.plus(self._summary(row, name, index))
                if is_shown and (row.is_led or detail == ALL):
                    rows.append(row)
        yield from _of_broker(total)
        yield from _of_logs(rows)
        yield from _of_leaders([row for row in rows if row.is_led])

    def _row(self, topic: str, index: int, state: PartitionState, least: int) -> Row:
        partition = self._partitions.opened_partition(topic, index)
        if partition is None:
            watermark = self._directories.high_watermark(topic, index)
            watermark = -1 if watermark is None else watermark
        else:
            watermark = partition.high_watermark
        return Row(
            f'{label("topic", topic)},partition="{index}"',
            state,
            min(least, len(state.replicas)),
            partition,
            state.leader == self._node_id,
            watermark,
        )

    def _summary(self, row: Row, topic: str, index: int) -> Summary:
        offline = int(self._directories.is_offline(topic, index))
        if not row.is_led:
            return Summary(replicas=1, offline=offline)
        state, in_sync = row.state, len(row.state.isr)
        lag = 0
        if row.partition is not None:
            end_offset = row.partition.log.end_offset
            lag = max((end_offset - max(0, each.end_offset) for each in row.partition.followers.values()), default=0)
        return Summary(
            1,
            1,
            int(in_sync < len(state.replicas)),
            int(in_sync < row.min_isr),
            int(in_sync == row.min_isr < len(state.replicas)),
            offline,
            int(bool(state.adding_replicas or state.removing_replicas)),
            lag,
        )


def _of_broker(total: Summary) -> Iterator[Family]:
    yield single(LEADER_COUNT, total.leaders)
    yield single(PARTITION_COUNT, total.replicas)
    yield single(UNDER_REPLICATED, total.under_replicated)
    yield single(UNDER_MIN_ISR, total.under_min_isr)
    yield single(AT_MIN_ISR, total.at_min_isr)
    yield single(OFFLINE_REPLICAS, total.offline)
    yield single(REASSIGNING, total.reassigning)
    yield single(REPLICA_LAG, total.replica_lag)


def _of_logs(rows: list[Row]) -> Iterator[Family]:
    opened = [(row.labels, row.partition.log) for row in rows if row.partition is not None]
    yield several(LOG_SIZE, ((labels, log.size_bytes) for labels, log in opened))
    yield several(LOG_START, ((labels, log.log_start_offset) for labels, log in opened))
    yield several(LOG_END, ((labels, log.end_offset) for labels, log in opened))
    yield several(LOG_SEGMENTS, ((labels, len(log.segments)) for labels, log in opened))
    yield several(CURRENT_OFFSET, ((r.labels, r.high_watermark) for r in rows if r.is_led and r.high_watermark >= 0))
    yield several(
        OLDEST_OFFSET, ((r.labels, r.partition.log.log_start_offset) for r in rows if r.is_led and r.partition)
    )


def _of_leaders(rows: list[Row]) -> Iterator[Family]:
    yield several(MIN_ISR_LACKS, ((r.labels, int(len(r.state.isr) < r.min_isr)) for r in rows))
    yield several(AT_MIN, ((r.labels, int(len(r.state.isr) == r.min_isr < len(r.state.replicas))) for r in rows))
    yield several(REPLICAS_COUNT, ((r.labels, len(r.state.replicas)) for r in rows))
    for metric in (PARTITION_LACKS, EXPORTED_LACKS):
        yield several(metric, ((r.labels, int(len(r.state.isr) < len(r.state.replicas))) for r in rows))
    yield several(IN_SYNC, ((r.labels, len(r.state.isr)) for r in rows))
    yield several(LEADER, ((r.labels, r.state.leader) for r in rows if r.state.leader != NO_LEADER))
    yield several(PREFERRED, ((r.labels, int(r.state.leader == r.state.replicas[0])) for r in rows))
    yield several(REPLICAS, ((r.labels, len(r.state.replicas)) for r in rows))
