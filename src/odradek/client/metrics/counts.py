"""What the clients count where the work is done: plain numbers, raised inline, once per batch or request.

Slots named in HIGHS are the highest value of the current window (`Windows` resets them); all others only grow.
Sizes are in bytes, times in seconds, throttle times in milliseconds as brokers report them.
"""

from __future__ import annotations

from typing import ClassVar


class NodeTraffic:
    """Requests of this client to one broker, over all its connections."""

    __slots__ = (
        "authentications", "connections_closed", "connections_opened", "failed_authentications",
        "failed_reauthentications", "largest_request", "latency", "longest_latency", "longest_reauthentication",
        "reauthentication_time", "reauthentications", "request_bytes", "requests", "response_bytes", "responses",
    )  # fmt: skip
    HIGHS: ClassVar[tuple[str, ...]] = ("largest_request", "longest_latency", "longest_reauthentication")

    def __init__(self) -> None:
        self.requests = self.request_bytes = self.largest_request = 0
        self.responses = self.response_bytes = 0
        self.latency = self.longest_latency = 0.0
        self.connections_opened = self.connections_closed = 0
        self.authentications = self.failed_authentications = 0
        self.reauthentications = self.failed_reauthentications = 0
        self.reauthentication_time = self.longest_reauthentication = 0.0

    def reauthenticated(self, seconds: float) -> None:
        """Count a login within a connection that took this time."""
        self.reauthentications += 1
        self.reauthentication_time += seconds
        self.longest_reauthentication = max(self.longest_reauthentication, seconds)


class TopicSends:
    """What a producer sends to one topic; retries count again, as in Kafka's Sender."""

    __slots__ = ("batches", "bytes", "errors", "raw_bytes", "records", "retries")
    HIGHS: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.batches = self.records = self.retries = self.errors = 0
        self.bytes = self.raw_bytes = 0


class Sends:
    """What a producer sends, except for what `TopicSends` has by topic."""

    __slots__ = (
        "aborting", "committing", "exhausted", "flushing", "initializing", "largest_batch", "latency",
        "longest_latency", "longest_queue_time", "longest_throttle", "memory_wait", "metadata_wait", "queue_time",
        "requests", "responses", "sending_offsets", "splits", "throttle",
    )  # fmt: skip
    HIGHS: ClassVar[tuple[str, ...]] = ("largest_batch", "longest_latency", "longest_queue_time", "longest_throttle")

    def __init__(self) -> None:
        self.requests = self.responses = self.splits = self.exhausted = 0
        self.largest_batch = 0
        self.queue_time = self.longest_queue_time = 0.0
        self.latency = self.longest_latency = 0.0
        self.throttle = self.longest_throttle = 0
        self.flushing = self.metadata_wait = self.memory_wait = 0.0
        self.initializing = self.sending_offsets = self.committing = self.aborting = 0.0


class TopicReads:
    """What a consumer fetches and returns of one topic: records without their batch headers, bytes as fetched."""

    __slots__ = ("answered_bytes", "answers", "bytes", "largest_answer", "records")
    HIGHS: ClassVar[tuple[str, ...]] = ("largest_answer",)

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.answers = self.answered_bytes = self.largest_answer = 0

    def fetched(self, size: int) -> None:
        """Count an answer with this many bytes of the topic."""
        self.answers += 1
        self.answered_bytes += size
        self.largest_answer = max(self.largest_answer, size)


class Reads:
    """Fetches and polls of a consumer."""

    __slots__ = (
        "asking_committed", "between_polls", "committing", "fetched_bytes", "fetches", "idle", "largest_fetch",
        "latency", "longest_between_polls", "longest_latency", "longest_throttle", "most_lag", "polls", "throttle",
    )  # fmt: skip
    HIGHS: ClassVar[tuple[str, ...]] = (
        "largest_fetch", "longest_between_polls", "longest_latency", "longest_throttle", "most_lag",
    )  # fmt: skip

    def __init__(self) -> None:
        self.fetches = self.fetched_bytes = self.largest_fetch = 0
        self.latency = self.longest_latency = 0.0
        self.throttle = self.longest_throttle = 0
        self.polls = self.most_lag = 0
        self.between_polls = self.longest_between_polls = self.idle = 0.0
        self.committing = self.asking_committed = 0.0


class SharedReads:
    """What a share consumer acquires and acknowledges."""

    __slots__ = ("acknowledgements", "bytes", "failed_acknowledgements", "most_records", "records")
    HIGHS: ClassVar[tuple[str, ...]] = ("most_records",)

    def __init__(self) -> None:
        self.records = self.bytes = self.most_records = 0
        self.acknowledgements = self.failed_acknowledgements = 0


class GroupWork:
    """A consumer's dealings with its group: commits, joins, heartbeats, calls of the listener."""

    __slots__ = (
        "assigned_calls", "assigning", "commit_time", "commits", "failed_rebalances", "heartbeat_time", "heartbeats",
        "join_time", "joins", "longest_assigning", "longest_commit", "longest_heartbeat", "longest_join",
        "longest_losing", "longest_rebalance", "longest_revoking", "longest_sync", "losing", "lost_calls",
        "rebalance_time", "rebalances", "revoked_calls", "revoking", "sync_time", "syncs",
    )  # fmt: skip
    HIGHS: ClassVar[tuple[str, ...]] = (
        "longest_assigning", "longest_commit", "longest_heartbeat", "longest_join", "longest_losing",
        "longest_rebalance", "longest_revoking", "longest_sync",
    )  # fmt: skip

    def __init__(self) -> None:
        self.commits = self.joins = self.syncs = self.heartbeats = 0
        self.rebalances = self.failed_rebalances = 0
        self.assigned_calls = self.revoked_calls = self.lost_calls = 0
        self.commit_time = self.join_time = self.sync_time = self.heartbeat_time = self.rebalance_time = 0.0
        self.assigning = self.revoking = self.losing = 0.0
        self.longest_commit = self.longest_join = self.longest_sync = self.longest_heartbeat = 0.0
        self.longest_rebalance = self.longest_assigning = self.longest_revoking = self.longest_losing = 0.0

    def took(self, count: str, total: str, longest: str, seconds: float) -> None:
        """Note one occurrence that took some time. For rare ones only: it goes by names of slots."""
        setattr(self, count, getattr(self, count) + 1)
        setattr(self, total, getattr(self, total) + seconds)
        setattr(self, longest, max(getattr(self, longest), seconds))


Counts = NodeTraffic | TopicSends | Sends | TopicReads | Reads | SharedReads | GroupWork
"""An object of numbers."""
