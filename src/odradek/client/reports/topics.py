"""Topics with partitions (KIP-966: eligible leader replicas) and settings."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from odradek.client.admin import Admin, ConfigResource, ConfigResourceType, raise_first
from odradek.client.network.cluster import error_of
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopic,
    DescribeTopicPartitionsResponse,
)

_MIN_ISR: Final = "min.insync.replicas"
_TOPICS_PER_REQUEST: Final = 2_000


class PartitionDetails(NamedTuple):
    """Broker ids; leader is -1 without a leader, elr None where the broker does not report it."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int]
    elr: Sequence[int] | None
    last_known_elr: Sequence[int] | None

    def row(self) -> dict[str, Any]:
        """The partition as a row of a table."""
        return {**self._asdict(), "leader": None if self.leader < 0 else self.leader}


class TopicDetails(NamedTuple):
    """configs: those that are not Kafka's defaults."""

    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionDetails]
    configs: Mapping[str, str | None]
    min_insync_replicas: str | None

    @property
    def replication_factor(self) -> int:
        """Copies of the first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0

    def row(self) -> dict[str, Any]:
        """The topic as a row of a table."""
        return {
            "topic": self.name,
            "topic_id": self.topic_id,
            "internal": self.internal,
            "partition_count": len(self.partitions),
            "replication_factor": self.replication_factor,
            "configs": dict(self.configs),
        }


async def describe_topics(admin: Admin, names: Sequence[str], partitions_per_answer: int) -> list[TopicDetails]:
    """Topics with partitions and settings, in the order of the names; a topic that is just deleted is left out."""
    if not names:
        return []
    if await admin.offers(DescribeTopicPartitionsRequest):
        found = await _pages(admin, names, partitions_per_answer)
    else:
        found = await _from_metadata(admin, names)
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names if name in found]
    described = await admin.describe_configs(resources)
    gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
    configs = raise_first({k: v for k, v in described.items() if not (isinstance(v, KafkaError) and v.code in gone)})
    topics = []
    for resource, entries in configs.items():
        own = {each.name: each.value for each in entries.values() if not each.is_default}
        minimum = entries[_MIN_ISR].value if _MIN_ISR in entries else None
        topics.append(found[resource.name]._replace(configs=own, min_insync_replicas=minimum))
    order = {name: at for at, name in enumerate(names)}
    return sorted(topics, key=lambda each: order[each.name])


async def _pages(admin: Admin, names: Sequence[str], limit: int) -> dict[str, TopicDetails]:
    cluster = admin.cluster
    found: dict[str, TopicDetails] = {}
    # The broker answers in the order of names and continues at the cursor.
    wanted = sorted(names)
    for start in range(0, len(wanted), _TOPICS_PER_REQUEST):
        cursor: DescribeTopicPartitionsRequestCursor | None = None
        part = wanted[start : start + _TOPICS_PER_REQUEST]
        while True:
            asked = part if cursor is None else [each for each in part if each >= cursor.topic_name]
            request = DescribeTopicPartitionsRequest(
                [DescribeTopicPartitionsRequestTopic(each) for each in asked], limit, cursor
            )
            response = await cluster.retrying(
                partial(cluster.request_any, request, DescribeTopicPartitionsResponse),
                "DescribeTopicPartitions",
            )
            for topic in response.topics:
                _take(topic, found)
            if response.next_cursor is None:
                break
            cursor = DescribeTopicPartitionsRequestCursor(
                response.next_cursor.topic_name, response.next_cursor.partition_index
            )
    return found


def _take(topic: Any, found: dict[str, TopicDetails]) -> None:
    """Add an answer's topic, or more partitions of one."""
    if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return
    if topic.error_code:
        raise error_of(topic.error_code, f"topic {topic.name}")
    partitions = [
        PartitionDetails(
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            each.replica_nodes,
            each.isr_nodes,
            each.offline_replicas,
            each.eligible_leader_replicas or [],
            each.last_known_elr or [],
        )
        for each in topic.partitions
    ]
    known = found.get(topic.name)
    if known is None:
        found[topic.name] = TopicDetails(topic.name, id_text(topic.topic_id), topic.is_internal, partitions, {}, None)
    else:
        known.partitions.extend(partitions)


async def _from_metadata(admin: Admin, names: Sequence[str]) -> dict[str, TopicDetails]:
    """From brokers before 3.8."""
    found: dict[str, TopicDetails] = {}
    for name, info in raise_first(await admin.describe_topics(names)).items():
        partitions = [
            PartitionDetails(e.partition, e.leader, e.leader_epoch, e.replicas, e.isr, e.offline_replicas, None, None)
            for e in info.partitions
        ]
        found[name] = TopicDetails(name, id_text(info.topic_id), info.is_internal, partitions, {}, None)
    return found


def id_text(topic_id: bytes) -> str:
    """A topic id as Kafka writes it: base64 for URLs without padding."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()
