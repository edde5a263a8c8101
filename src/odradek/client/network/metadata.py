"""A client's view of the cluster: brokers, topics, partitions and their leaders (Kafka's ClientMetadata)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from odradek.client.network.connections import BrokerAddress
from odradek.wire.errors import ErrorCode, error_code
from odradek.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from odradek.wire.primitives import ZERO_UUID

NO_LEADER: Final = -1


class PartitionInfo(NamedTuple):
    """Broker ids; leader is -1 without a leader, leader_epoch -1 where the broker does not report it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int]
    error_code: ErrorCode = ErrorCode.NONE


class TopicInfo:
    """One topic. `available` are the partitions that have a leader.

    Example:

        topic = raise_first(await admin.describe_topics(["orders"]))["orders"]
        print(topic.name, len(topic.partitions), [each.leader for each in topic.partitions])
    """

    __slots__ = ("available", "is_internal", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, is_internal: bool, partitions: list[PartitionInfo]) -> None:
        self.name = name
        self.topic_id = topic_id
        self.is_internal = is_internal
        self.partitions = partitions
        self.available = [each.partition for each in partitions if each.leader >= 0]


class MetadataCache:
    """The newest answers of Metadata, merged. Pure: answers in, look-ups out.

    An older leader epoch never replaces a newer one (a broker that lags behind answers with old leaders), unless the
    topic was deleted and created again, as a new id shows.
    """

    __slots__ = (
        "_broker_racks",
        "brokers",
        "cluster_id",
        "controller_id",
        "names_by_id",
        "topics",
        "updated_at",
        "version",
    )

    def __init__(self) -> None:
        self._broker_racks: dict[int, str] = {}
        self.brokers: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.names_by_id: dict[bytes, str] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.version = 0
        self.updated_at = float("-inf")

    def leader(self, topic: str, partition: int) -> int:
        """Broker id of the partition's leader, -1 when unknown."""
        info = self.partition(topic, partition)
        return NO_LEADER if info is None else info.leader

    def leader_epoch(self, topic: str, partition: int) -> int:
        """The partition's leader epoch, -1 when unknown."""
        info = self.partition(topic, partition)
        return -1 if info is None else info.leader_epoch

    def partition(self, topic: str, partition: int) -> PartitionInfo | None:
        """The partition, None when unknown."""
        info = self.topics.get(topic)
        return info.partitions[partition] if info is not None and 0 <= partition < len(info.partitions) else None

    def racks(self, topic: str) -> list[frozenset[str]]:
        """For each partition of a known topic, the racks of its replicas.

        A broker that is away counts with the rack that it had.
        """
        of_brokers = self._broker_racks
        return [
            frozenset(of_brokers[node_id] for node_id in each.replicas if node_id in of_brokers)
            for each in self.topics[topic].partitions
        ]

    def topic_id(self, topic: str) -> bytes:
        """Sixteen bytes, zeros when unknown."""
        info = self.topics.get(topic)
        return ZERO_UUID if info is None else info.topic_id

    def forget_brokers(self) -> None:
        """The brokers are of no use; topics stay until the next answer."""
        self.brokers = {}
        self.controller_id = -1

    def update(self, response: MetadataResponse, now: float, *, asked: Iterable[str] | None) -> dict[str, int]:
        """Merge an answer; `asked` are the topics of the request, None for all. Returns error codes by topic.

        Topics that were asked for and do not exist are forgotten; with a transient error the old knowledge stays.
        """
        self.brokers = {e.node_id: BrokerAddress(e.node_id, e.host, e.port, e.rack) for e in response.brokers}
        for broker in response.brokers:
            self._broker_racks.pop(broker.node_id, None)
            if broker.rack:
                self._broker_racks[broker.node_id] = broker.rack
        self.cluster_id = response.cluster_id
        self.controller_id = response.controller_id
        errors: dict[str, int] = {}
        found: set[str] = set()
        for topic in response.topics:
            name = topic.name or ""
            found.add(name)
            if topic.error_code:
                errors[name] = topic.error_code
                if topic.error_code in (3, 17, 29, 100):  # no such topic, bad name, not authorized, no such id
                    self._forget(name)
            else:
                self._replace(topic, name)
        for name in list(self.topics) if asked is None else asked:
            if name not in found:
                self._forget(name)
        self.version += 1
        self.updated_at = now
        return errors

    def update_leader(self, topic: str, partition: int, leader: int, leader_epoch: int) -> bool:
        """Set a newer leader that a Produce or Fetch answer named (KIP-951); return whether it was newer."""
        info = self.partition(topic, partition)
        if info is None or leader < 0 or leader_epoch <= info.leader_epoch or leader not in self.brokers:
            return False
        partitions = list(self.topics[topic].partitions)
        partitions[partition] = info._replace(leader=leader, leader_epoch=leader_epoch)
        known = self.topics[topic]
        self.topics[topic] = TopicInfo(topic, known.topic_id, known.is_internal, partitions)
        self.version += 1
        return True

    def _forget(self, name: str) -> None:
        known = self.topics.pop(name, None)
        if known is not None:
            self.names_by_id.pop(known.topic_id, None)

    def _replace(self, topic: MetadataResponseTopic, name: str) -> None:
        known = self.topics.get(name)
        if known is not None and known.topic_id != topic.topic_id:
            self._forget(name)
            known = None
        old = {} if known is None else {each.partition: each for each in known.partitions}
        partitions: list[PartitionInfo] = []
        for each in sorted(topic.partitions, key=lambda p: p.partition_index):
            info = PartitionInfo(
                each.partition_index,
                each.leader_id if each.error_code != 5 else NO_LEADER,  # LEADER_NOT_AVAILABLE
                each.leader_epoch,
                each.replica_nodes,
                each.isr_nodes,
                each.offline_replicas,
                error_code(each.error_code) if each.error_code else ErrorCode.NONE,
            )
            before = old.get(info.partition)
            if before is not None and -1 < info.leader_epoch < before.leader_epoch:
                info = before
            partitions.append(info)
        self.topics[name] = TopicInfo(name, topic.topic_id, topic.is_internal, partitions)
        if topic.topic_id != ZERO_UUID:
            self.names_by_id[topic.topic_id] = name
