"""Records and bytes by topic (Kafka's `BrokerTopicMetrics`): plain slots, written where the work is done."""

from __future__ import annotations


class TopicTraffic:
    """What this broker did for one topic since it started, or since the topic came."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "cold_reads",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "isr_expands",
        "isr_shrinks",
        "messages_in",
        "produces",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.messages_in = 0
        """Records appended as the leader, by clients and by coordinators."""
        self.bytes_in = 0
        """Their bytes, as they are in the log."""
        self.bytes_out = 0
        """Bytes of records sent to consumers."""
        self.cold_reads = 0
        """Reads for consumers that had to wait for the device."""
        self.produces = 0
        """Appends to partitions: a request counts once per partition."""
        self.failed_produces = 0
        """Appends that were rejected."""
        self.fetches = 0
        """Reads of partitions for consumers and followers that were answered."""
        self.failed_fetches = 0
        """Reads of partitions that were answered by an error."""
        self.replication_bytes_in = 0
        """Bytes of records appended as a follower."""
        self.replication_bytes_out = 0
        """Bytes of records sent to followers."""
        self.isr_shrinks = 0
        """Members that left the ISR of partitions led here, by changes of the ISR."""
        self.isr_expands = 0
        """Members that joined it, likewise."""

    def add(self, other: TopicTraffic) -> None:
        """Add another topic's numbers."""
        for slot in TopicTraffic.__slots__:
            setattr(self, slot, getattr(self, slot) + getattr(other, slot))


class BrokerTraffic:
    """The traffic of all topics; what deleted topics had stays in the broker's sum."""

    __slots__ = ("gone", "topics")

    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        """By topic."""
        self.gone = TopicTraffic()
        """The sum of deleted topics."""

    def of(self, topic: str) -> TopicTraffic:
        """The topic's counters, made if there are none."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self.gone.add(gone)
