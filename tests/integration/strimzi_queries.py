"""What Strimzi's three dashboards of Kafka ask for: names, selected labels and grouping, as facts.

The queries here are composed of them by this module. Labels of Kubernetes (`namespace`, `strimzi_io_cluster`,
`kubernetes_pod_name`, …) come from Prometheus' configuration of the target, those of the metric from the broker.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TARGET_LABELS: Final = {
    "namespace": "kafka",
    "strimzi_io_cluster": "cluster",
    "strimzi_io_name": "cluster-kafka",
    "kubernetes_pod_name": "cluster-kafka-0",
    "container": "kafka",
}
"""What Strimzi's PodMonitor adds to each series of a broker."""

_WINDOW: Final = "10s"


class Query(NamedTuple):
    """One query of a dashboard."""

    metric: str
    function: str = "sum"
    """The aggregation; empty for the series themselves."""
    by: tuple[str, ...] = ()
    """Labels of the grouping."""
    select: tuple[str, ...] = ()
    """Labels of the metric that variables of the dashboard select."""
    over_time: str = ""
    """The function over a time range; empty for the newest value."""
    has_topic: bool = False
    """Whether series without a topic are excluded."""
    comparison: str = ""
    """What each series is compared with or multiplied by."""

    @property
    def expression(self) -> str:
        """The query as Prometheus takes it, with each variable of the dashboard set to all of its values."""
        matchers = [f'{name}="{value}"' for name, value in TARGET_LABELS.items()]
        matchers += [f'{name}=~".*"' for name in self.select]
        matchers += ['topic!=""'] if self.has_topic else []
        series = f"{self.metric}{{{','.join(matchers)}}}"
        if self.over_time:
            series = f"{self.over_time}({series}[{_WINDOW}])"
        series += self.comparison
        grouping = f" by ({', '.join(self.by)})" if self.by else ""
        return f"{self.function}{grouping} ({series})" if self.function else series


_POD: Final = ("kubernetes_pod_name",)
_CONTROLLER: Final = "kafka_controller_"
_SERVER: Final = "kafka_server_"
_RAFT: Final = "kafka_server_raftmetrics_"
_CHANNEL: Final = "kafka_server_raftchannelmetrics_"
_TOPIC: Final = "kafka_topic_partition"
_GROUP: Final = "kafka_consumergroup_"

_NODE: Final = (
    Query("container_memory_usage_bytes", by=("pod",)),
    Query("container_cpu_usage_seconds_total", by=("pod",), over_time="rate"),
    Query("kubelet_volume_stats_available_bytes", by=("persistentvolumeclaim",)),
    Query("process_open_fds", by=_POD),
    Query("jvm_memory_used_bytes", by=_POD),
    Query("jvm_gc_collection_seconds_sum", by=_POD, over_time="rate"),
    Query("jvm_gc_collection_seconds_count", by=_POD, over_time="rate"),
    Query("jvm_threads_current", by=_POD),
)
"""Panels of pods, on two of the dashboards."""

KAFKA: Final = (
    Query(f"{_SERVER}replicamanager_leadercount", "count"),
    Query(f"{_CONTROLLER}kafkacontroller_activecontrollercount"),
    Query(f"{_CONTROLLER}controllerstats_uncleanleaderelections_total", over_time="irate"),
    Query(f"{_SERVER}replicamanager_partitioncount"),
    Query(f"{_SERVER}replicamanager_underreplicatedpartitions"),
    Query("kafka_cluster_partition_atminisr"),
    Query("kafka_cluster_partition_underminisr"),
    Query(f"{_CONTROLLER}kafkacontroller_offlinepartitionscount"),
    *_NODE,
    *(
        Query(f"{_SERVER}brokertopicmetrics_{stem}_total", select=("topic",), over_time="irate", has_topic=True)
        for stem in (
            "bytesin",
            "bytesout",
            "messagesin",
            "totalproducerequests",
            "failedproducerequests",
            "totalfetchrequests",
            "failedfetchrequests",
        )
    ),
    Query("kafka_network_socketserver_networkprocessoravgidle_percent", by=_POD, comparison=" * 100"),
    Query(f"{_SERVER}kafkarequesthandlerpool_requesthandleravgidle_percent", by=_POD, comparison=" * 100"),
    Query(f"{_SERVER}kafkaserver_linux_disk_write_bytes", by=_POD, over_time="irate"),
    Query(f"{_SERVER}kafkaserver_linux_disk_read_bytes", by=_POD, over_time="irate"),
    Query(f"{_SERVER}socket_server_metrics_connection_count", by=(*_POD, "listener")),
    Query("kafka_log_log_size", "", select=("topic", "partition")),
)
"""The dashboard of brokers."""

EXPORTER: Final = (
    Query(f"{_TOPIC}s", "count", select=("topic",)),
    Query(f"{_TOPIC}s", select=("topic",)),
    Query(f"{_TOPIC}_replicas", select=("topic",)),
    Query(f"{_TOPIC}_in_sync_replica", select=("topic",)),
    Query(f"{_TOPIC}_under_replicated_partition", select=("topic",)),
    Query("kafka_cluster_partition_atminisr", select=("topic",)),
    Query("kafka_cluster_partition_underminisr", select=("topic",)),
    Query(f"{_TOPIC}_leader_is_preferred", select=("topic",), comparison=" < bool 1"),
    Query(f"{_TOPIC}_current_offset", by=("topic",), select=("topic",), over_time="rate"),
    Query(
        f"{_GROUP}current_offset",
        by=("consumergroup", "topic"),
        select=("consumergroup", "topic"),
        over_time="delta",
        comparison=" / 10",
    ),
    Query(f"{_GROUP}lag", by=("consumergroup", "topic"), select=("consumergroup", "topic")),
    Query(f"{_GROUP}current_offset", by=("consumergroup", "partition", "topic"), select=("consumergroup", "topic")),
    Query(f"{_GROUP}lag", by=("consumergroup", "partition", "topic"), select=("consumergroup", "topic")),
    Query(f"{_TOPIC}s", by=("topic",), select=("topic",)),
    Query(f"{_TOPIC}_current_offset", by=("partition", "topic"), select=("topic",)),
    Query(f"{_TOPIC}_oldest_offset", by=("partition", "topic"), select=("topic",)),
)
"""The dashboard of Kafka Exporter."""

KRAFT: Final = (
    *_NODE,
    Query(f"{_RAFT}append_records_rate", by=_POD),
    Query(f"{_RAFT}fetch_records_rate", by=_POD),
    Query(f"{_RAFT}commit_latency_avg", by=_POD),
    Query(f"{_RAFT}current_state", "max", by=(*_POD, "current_state")),
    Query(f"{_RAFT}current_leader", by=_POD),
    Query(f"{_RAFT}current_vote", by=_POD),
    Query(f"{_RAFT}current_epoch", by=_POD),
    Query(f"{_CHANNEL}incoming_byte_total", by=_POD, over_time="irate"),
    Query(f"{_CHANNEL}outgoing_byte_total", by=_POD, over_time="irate"),
    Query(f"{_CHANNEL}request_total", by=_POD, over_time="irate"),
    Query(f"{_CHANNEL}response_total", by=_POD, over_time="irate"),
    Query(f"{_RAFT}high_watermark", by=_POD),
    Query(f"{_RAFT}log_end_offset", by=_POD),
)
"""The dashboard of KRaft."""

QUERIES: Final = (*KAFKA, *EXPORTER, *KRAFT)
