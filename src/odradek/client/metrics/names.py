"""The names of all client metrics, and which numbers each one is made of."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Kind(Enum):
    """How a value follows from the numbers."""

    TOTAL = "total"
    """The sum since the client started."""
    RATE = "rate"
    """The growth per second."""
    HOURLY = "hourly"
    """The growth per hour."""
    AVERAGE = "average"
    """The growth, divided by that of the numbers in `per`."""
    HIGHEST = "highest"
    """The highest value; NaN where the numbers in `per` did not grow."""


class Name(NamedTuple):
    """A metric's name and source."""

    name: str
    kind: Kind
    numbers: tuple[str, ...]
    """Slots of the classes in `counts`."""
    description: str
    per: tuple[str, ...] = ()
    scale: float = 1.0
    """What the value is multiplied by: slots have seconds, most of Kafka's metrics milliseconds."""


Names = tuple[Name, ...]
_MS: Final = 1_000.0
_NS: Final = 1e9


def _meter(name: str, what: str, *numbers: str) -> Names:
    """A rate and a total."""
    return (
        Name(f"{name}-rate", Kind.RATE, numbers, f"{what}, per second"),
        Name(f"{name}-total", Kind.TOTAL, numbers, f"{what}, since the client started"),
    )


def _sizes(name: str, what: str, total: str, highest: str, per: str, scale: float = 1.0) -> Names:
    """An average and a maximum."""
    return (
        Name(f"{name}-avg", Kind.AVERAGE, (total,), f"{what}: average", (per,), scale),
        Name(f"{name}-max", Kind.HIGHEST, (highest,), f"{what}: maximum", (per,), scale),
    )


def _times(name: str, what: str, total: str, highest: str, per: str) -> Names:
    return _sizes(name, f"{what} in ms", total, highest, per, _MS)


def _hourly(name: str, what: str, number: str) -> Names:
    return (
        Name(f"{name}-rate-per-hour", Kind.HOURLY, (number,), f"{what}, per hour"),
        Name(f"{name}-total", Kind.TOTAL, (number,), f"{what}, since the client started"),
    )


def _nanoseconds(name: str, what: str, number: str) -> Name:
    return Name(f"{name}-time-ns-total", Kind.TOTAL, (number,), f"{what} in ns", scale=_NS)


NODE: Final = (
    *_meter("request", "Requests sent", "requests"),
    *_meter("response", "Responses received", "responses"),
    *_meter("outgoing-byte", "Bytes sent in requests", "request_bytes"),
    *_meter("incoming-byte", "Bytes received in responses", "response_bytes"),
    *_sizes("request-size", "Bytes of a request", "request_bytes", "largest_request", "requests"),
    *_times("request-latency", "Time from a request to its response", "latency", "longest_latency", "responses"),
)
"""`producer-node-metrics`, `consumer-node-metrics`, `admin-client-node-metrics`, by `node-id`."""

NETWORK: Final = (
    *NODE[:-2],
    *_meter("network-io", "Requests and responses", "requests", "responses"),
    *_meter("connection-creation", "Connections opened", "connections_opened"),
    *_meter("connection-close", "Connections closed", "connections_closed"),
    *_meter("successful-authentication", "Connections logged in by SASL", "authentications"),
    *_meter("failed-authentication", "Connections that SASL rejected", "failed_authentications"),
    *_meter("successful-reauthentication", "Logins repeated within a connection (KIP-368)", "reauthentications"),
    *_meter("failed-reauthentication", "Repeated logins that the broker rejected", "failed_reauthentications"),
    *_times("reauthentication-latency", "Time of a repeated login", "reauthentication_time",
            "longest_reauthentication", "reauthentications"),
)  # fmt: skip
"""In `producer-metrics`, `consumer-metrics`, `admin-client-metrics`, beside the gauge `connection-count`."""

PRODUCER: Final = (
    *_meter("batch-split", "Batches split because the broker found them too large", "splits"),
    *_meter("buffer-exhausted", "Records refused for lack of buffer memory", "exhausted"),
    *_times("request-latency", "Time from a produce request to its response", "latency", "longest_latency",
            "responses"),
    *_sizes("produce-throttle-time", "Throttle time of produce requests in ms", "throttle", "longest_throttle",
            "responses"),
    Name("bufferpool-wait-ratio", Kind.RATE, ("memory_wait",), "Part of the time that sends wait for buffer memory"),
    _nanoseconds("bufferpool-wait", "Time that sends waited for buffer memory", "memory_wait"),
    _nanoseconds("flush", "Time spent in flush", "flushing"),
    _nanoseconds("metadata-wait", "Time that sends waited for metadata", "metadata_wait"),
    _nanoseconds("txn-init", "Time spent on producer ids of transactions", "initializing"),
    _nanoseconds("txn-send-offsets", "Time spent sending offsets to transactions", "sending_offsets"),
    _nanoseconds("txn-commit", "Time spent committing transactions", "committing"),
    _nanoseconds("txn-abort", "Time spent aborting transactions", "aborting"),
)  # fmt: skip
"""`producer-metrics` of `Sends`."""

PRODUCER_RECORDS: Final = (
    *_meter("record-send", "Records sent, retries included", "records"),
    *_meter("record-retry", "Records sent again", "retries"),
    *_meter("record-error", "Records lost", "errors"),
)
_COMPRESSION = "Size of batches with compression, in relation to that without"
PRODUCER_BATCHES: Final = (
    *PRODUCER_RECORDS,
    *_sizes("batch-size", "Bytes of a batch as sent", "bytes", "largest_batch", "batches"),
    *_times("record-queue-time", "Time of a batch in the queue", "queue_time", "longest_queue_time", "batches"),
    Name("record-size-avg", Kind.AVERAGE, ("raw_bytes",), "Bytes of a record before compression: average",
         ("records",)),
    Name("records-per-request-avg", Kind.AVERAGE, ("records",), "Records of a request: average", ("requests",)),
    Name("compression-rate-avg", Kind.AVERAGE, ("bytes",), f"{_COMPRESSION}: average", ("raw_bytes",)),
)  # fmt: skip
"""`producer-metrics` of `Sends` and all `TopicSends`."""

PRODUCER_TOPIC: Final = (
    *PRODUCER_RECORDS,
    *_meter("byte", "Bytes of batches sent", "bytes"),
    Name("compression-rate", Kind.AVERAGE, ("bytes",), _COMPRESSION, ("raw_bytes",)),
)
"""`producer-topic-metrics`, by `topic`."""

CONSUMER: Final = (
    *_times("time-between-poll", "Time between two polls", "between_polls", "longest_between_polls", "polls"),
    Name(
        "poll-idle-ratio-avg", Kind.AVERAGE, ("idle",), "Part of the time that polls wait: average", ("between_polls",)
    ),
)
CONSUMER_TIMES: Final = (
    _nanoseconds("commit-sync", "Time that `commit` waited for the coordinator", "committing"),
    _nanoseconds("committed", "Time that `committed` waited for the coordinator", "asking_committed"),
)  # fmt: skip
"""`consumer-metrics`, beside the gauge `last-poll-seconds-ago`."""

FETCHES: Final = (
    *_meter("fetch", "Fetches answered", "fetches"),
    *_times("fetch-latency", "Time of a fetch", "latency", "longest_latency", "fetches"),
    *_sizes("fetch-size", "Bytes of a fetch", "fetched_bytes", "largest_fetch", "fetches"),
    *_sizes("fetch-throttle-time", "Throttle time of fetches in ms", "throttle", "longest_throttle", "fetches"),
)
"""`consumer-fetch-manager-metrics`, beside the gauges `records-lag-max` and `records-lead-min`."""

CONSUMED: Final = (
    *_meter("records-consumed", "Records returned", "records"),
    *_meter("bytes-consumed", "Bytes of the batches returned, as fetched", "bytes"),
)
"""What `consumer-fetch-manager-metrics` have in all and by `topic`."""

CONSUMED_OF_TOPIC: Final = (
    *CONSUMED,
    *_sizes("fetch-size", "Bytes of the topic in an answer", "answered_bytes", "largest_answer", "answers"),
    Name("records-per-request-avg", Kind.AVERAGE, ("records",), "Records of the topic in an answer: average",
         ("answers",)),
)  # fmt: skip
"""`consumer-fetch-manager-metrics`, by `topic`; answers without bytes of the topic do not count."""

CONSUMED_IN_ALL: Final = (
    *CONSUMED,
    Name("records-per-request-avg", Kind.AVERAGE, ("records",), "Records of a fetch: average", ("fetches",)),
)
"""`CONSUMED` of all topics."""

SHARE_FETCHES: Final = (
    Name("records-per-request-avg", Kind.AVERAGE, ("records",), "Records of a fetch: average", ("fetches",)),
    Name("records-per-request-max", Kind.HIGHEST, ("most_records",), "Records of a fetch: maximum", ("fetches",)),
    *_meter("records-consumed", "Records acquired", "records"),
    *_meter("bytes-consumed", "Bytes of the batches acquired from, as fetched", "bytes"),
    *_meter("acknowledgements-send", "Records acknowledged", "acknowledgements"),
    *_meter("acknowledgements-error", "Records whose acknowledgement failed", "failed_acknowledgements"),
)
"""`consumer-share-fetch-manager-metrics`, beside `FETCHES`."""

SHARE_COORDINATOR: Final = (
    *_meter("heartbeat", "Heartbeats answered", "heartbeats"),
    Name("heartbeat-response-time-max", Kind.HIGHEST, ("longest_heartbeat",),
         "Time from a heartbeat to its response in ms: maximum", ("heartbeats",), _MS),
    *_hourly("rebalance", "Changes of the assignment", "rebalances"),
)  # fmt: skip
"""`consumer-share-coordinator-metrics`, beside `last-heartbeat-seconds-ago`."""

COORDINATOR: Final = (
    *_meter("commit", "Offset commits", "commits"),
    *_times("commit-latency", "Time of an offset commit", "commit_time", "longest_commit", "commits"),
    *_meter("heartbeat", "Heartbeats answered", "heartbeats"),
    Name("heartbeat-response-time-max", Kind.HIGHEST, ("longest_heartbeat",),
         "Time from a heartbeat to its response in ms: maximum", ("heartbeats",), _MS),
    *_meter("join", "Joins of the group", "joins"),
    *_times("join-time", "Time of a join", "join_time", "longest_join", "joins"),
    *_meter("sync", "Assignments received from the group's leader", "syncs"),
    *_times("sync-time", "Time of a sync", "sync_time", "longest_sync", "syncs"),
    *_hourly("rebalance", "Rebalances completed", "rebalances"),
    *_hourly("failed-rebalance", "Rebalances failed", "failed_rebalances"),
    *_times("rebalance-latency", "Time of a rebalance", "rebalance_time", "longest_rebalance", "rebalances"),
    Name("rebalance-latency-total", Kind.TOTAL, ("rebalance_time",), "Time spent in rebalances in ms", scale=_MS),
    *_times("partition-assigned-latency", "Time of on_partitions_assigned", "assigning", "longest_assigning",
            "assigned_calls"),
    *_times("partition-revoked-latency", "Time of on_partitions_revoked", "revoking", "longest_revoking",
            "revoked_calls"),
    *_times("partition-lost-latency", "Time of on_partitions_lost", "losing", "longest_losing", "lost_calls"),
)  # fmt: skip
"""`consumer-coordinator-metrics`, beside gauges of the last heartbeat, the last rebalance and the assignment."""

GAUGES: Final = {
    "assigned-partitions": "Partitions that are assigned to the consumer",
    "buffer-available-bytes": "Bytes of buffer_memory that are free",
    "buffer-total-bytes": "buffer_memory in bytes",
    "connection-count": "Connections that are open",
    "last-heartbeat-seconds-ago": "Seconds since the last heartbeat was answered, -1 before the first",
    "last-poll-seconds-ago": "Seconds since the last poll, -1 before the first",
    "last-rebalance-seconds-ago": "Seconds since the last rebalance, -1 before the first",
    "metadata-age": "Age of the metadata in seconds",
    "preferred-read-replica": "Follower that the partition is fetched from, -1 for the leader",
    "records-lag": "Records between the position and the partition's end",
    "records-lag-max": "Most records between a position and its partition's end",
    "records-lead": "Records between the partition's start and the position",
    "records-lead-min": "Fewest records between a partition's start and its position",
    "requests-in-flight": "Produce requests without a response",
    "waiting-threads": "Sends that wait for buffer memory",
}
"""Values of the moment, with their descriptions."""


def _rows(names: Names, *gauges: str) -> tuple[tuple[str, str], ...]:
    return (*((each.name, each.description) for each in names), *((each, GAUGES[each]) for each in gauges))


GROUPS: Final = (
    ("producer-metrics", (), _rows(
        PRODUCER_BATCHES + PRODUCER, "requests-in-flight", "metadata-age", "buffer-total-bytes",
        "buffer-available-bytes", "waiting-threads",
    )),
    ("producer-topic-metrics", ("topic",), _rows(PRODUCER_TOPIC)),
    ("consumer-metrics", (), _rows(CONSUMER + CONSUMER_TIMES, "last-poll-seconds-ago")),
    ("consumer-fetch-manager-metrics", (), _rows(
        FETCHES + CONSUMED_IN_ALL, "records-lag-max", "records-lead-min"
    )),
    ("consumer-fetch-manager-metrics", ("topic",), _rows(CONSUMED_OF_TOPIC)),
    ("consumer-fetch-manager-metrics", ("topic", "partition"), _rows(
        (), "records-lag", "records-lead", "preferred-read-replica"
    )),
    ("consumer-coordinator-metrics", (), _rows(
        COORDINATOR, "assigned-partitions", "last-heartbeat-seconds-ago", "last-rebalance-seconds-ago"
    )),
    ("consumer-share-metrics", (), _rows(CONSUMER, "last-poll-seconds-ago")),
    ("consumer-share-fetch-manager-metrics", (), _rows(FETCHES + SHARE_FETCHES)),
    ("consumer-share-coordinator-metrics", (), _rows(SHARE_COORDINATOR, "last-heartbeat-seconds-ago")),
    ("(producer, consumer, consumer-share, admin-client)-metrics", (), _rows(NETWORK, "connection-count")),
    ("(producer, consumer, consumer-share, admin-client)-node-metrics", ("node-id",), _rows(NODE)),
)  # fmt: skip
"""Group, tags besides `client-id`, names with their meanings: the pages of the reference."""
