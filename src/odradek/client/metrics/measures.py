"""Counts of producers and consumers, and the moments from which their gauges are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from odradek.client.metrics.counts import GroupWork, Reads, Sends, SharedReads, TopicReads, TopicSends
from odradek.client.metrics.windows import Windows
from odradek.records.topic_partition import PartitionKey


class SentBatch(Protocol):
    """The part of a batch that is counted."""

    key: PartitionKey
    """Topic and partition."""
    raw_size: int
    """Bytes of the batch before compression."""
    created_at: float
    """The time of the loop at which it was begun."""

    @property
    def size(self) -> int:
        """Bytes of the encoded batch."""
        ...

    @property
    def count(self) -> int:
        """The number of records."""
        ...


class ProducerMeasures:
    """The numbers of one producer."""

    __slots__ = ("_windows", "by_topic", "sends", "waiting")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.sends = windows.track(Sends())
        self.by_topic: dict[str, TopicSends] = {}
        self.waiting = 0
        """Sends that wait for buffer memory at this moment."""

    def of_topic(self, topic: str) -> TopicSends:
        """The numbers of a topic."""
        found = self.by_topic.get(topic)
        if found is None:
            found = self.by_topic[topic] = self._windows.track(TopicSends())
        return found

    @contextmanager
    def timing(self, number: str, clock: Callable[[], float]) -> Iterator[None]:
        """Add the time of the block to one of the numbers of `Sends`. Not for what happens per batch."""
        begun = clock()
        try:
            yield
        finally:
            setattr(self.sends, number, getattr(self.sends, number) + clock() - begun)

    @contextmanager
    def waiting_for_memory(self, clock: Callable[[], float]) -> Iterator[None]:
        """Count a send as waiting during the block."""
        self.waiting += 1
        try:
            with self.timing("memory_wait", clock):
                yield
        finally:
            self.waiting -= 1

    def requested(self, batches: Iterable[SentBatch], now: float) -> None:
        """Note a produce request with these encoded batches, at this time of the loop."""
        sends = self.sends
        sends.requests += 1
        for batch in batches:
            size = batch.size
            counted = self.of_topic(batch.key[0])
            counted.batches += 1
            counted.records += batch.count
            counted.bytes += size
            counted.raw_bytes += batch.raw_size
            waited = now - batch.created_at
            sends.queue_time += waited
            if size > sends.largest_batch:
                sends.largest_batch = size
            if waited > sends.longest_queue_time:
                sends.longest_queue_time = waited

    def answered(self, latency_s: float, throttle_ms: int) -> None:
        """Note the response to a produce request."""
        sends = self.sends
        sends.responses += 1
        sends.latency += latency_s
        if latency_s > sends.longest_latency:
            sends.longest_latency = latency_s
        if throttle_ms:
            sends.throttle += throttle_ms
            sends.longest_throttle = max(sends.longest_throttle, throttle_ms)


class ConsumerMeasures:
    """The numbers of one consumer."""

    __slots__ = ("_windows", "by_topic", "group", "last_heartbeat", "last_poll", "last_rebalance", "reads")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self.reads = windows.track(Reads())
        self.group = windows.track(GroupWork())
        self.by_topic: dict[str, TopicReads] = {}
        self.last_poll = self.last_heartbeat = self.last_rebalance = -1.0
        """The event loop's times, -1 before the first one."""

    def of_topic(self, topic: str) -> TopicReads:
        """The numbers of a topic."""
        found = self.by_topic.get(topic)
        if found is None:
            found = self.by_topic[topic] = self._windows.track(TopicReads())
        return found

    @contextmanager
    def timing(self, number: str, clock: Callable[[], float]) -> Iterator[None]:
        """Add the time of the block to one of the numbers of `Reads`. Not for what happens per poll."""
        begun = clock()
        try:
            yield
        finally:
            setattr(self.reads, number, getattr(self.reads, number) + clock() - begun)

    def polled(self, now: float) -> None:
        """Note a poll."""
        if self.last_poll >= 0:
            reads = self.reads
            between = now - self.last_poll
            reads.polls += 1
            reads.between_polls += between
            if between > reads.longest_between_polls:
                reads.longest_between_polls = between
        self.last_poll = now

    def fetched(self, latency_s: float, size: int, throttle_ms: int) -> None:
        """Note the response to a fetch."""
        reads = self.reads
        reads.fetches += 1
        reads.latency += latency_s
        if latency_s > reads.longest_latency:
            reads.longest_latency = latency_s
        reads.fetched_bytes += size
        if size > reads.largest_fetch:
            reads.largest_fetch = size
        if throttle_ms:
            reads.throttle += throttle_ms
            reads.longest_throttle = max(reads.longest_throttle, throttle_ms)

    def lagged(self, lag: int) -> None:
        """Note how far a partition's end was ahead of records that have arrived."""
        reads = self.reads
        if lag > reads.most_lag:
            reads.most_lag = lag

    def heartbeat(self, now: float, latency_s: float) -> None:
        """Note the response to a heartbeat."""
        self.group.took("heartbeats", "heartbeat_time", "longest_heartbeat", latency_s)
        self.last_heartbeat = now

    def rebalanced(self, now: float, seconds: float) -> None:
        """Note the end of a rebalance."""
        self.group.took("rebalances", "rebalance_time", "longest_rebalance", seconds)
        self.last_rebalance = now


class ShareMeasures:
    """The numbers of one share consumer."""

    __slots__ = ("consumer", "shared")

    def __init__(self, windows: Windows) -> None:
        self.consumer = ConsumerMeasures(windows)
        """Polls, fetches, heartbeats and rebalances."""
        self.shared = windows.track(SharedReads())

    def acquired(self, records: int, size: int) -> None:
        """Note the records of a response to a fetch, and the bytes of their batches."""
        shared = self.shared
        shared.records += records
        shared.bytes += size
        if records > shared.most_records:
            shared.most_records = records

    def acknowledged(self, count: int, *, failed: bool) -> None:
        """Note the outcome of acknowledgements."""
        self.shared.acknowledgements += count
        if failed:
            self.shared.failed_acknowledgements += count
