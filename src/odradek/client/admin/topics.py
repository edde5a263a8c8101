"""Topics: create, delete, list, describe, add partitions, delete records, look up offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from odradek.client.admin.requests import AdminRequests, failure_of
from odradek.client.errors import UnsupportedByBroker
from odradek.client.model import IsolationLevel, OffsetAndTimestamp
from odradek.client.network.cluster import error_of
from odradek.client.network.metadata import MetadataCache, TopicInfo
from odradek.client.offsets import ask_leader, by_topic
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
    CreatePartitionsResponse,
)
from odradek.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestReplicaAssignment,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from odradek.wire.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
    DeleteRecordsResponse,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestState, DeleteTopicsResponse
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_STATES_SINCE = 6
_IDS_SINCE = 12
"""The version of DeleteTopics that takes ids beside names, in another field."""


class NewTopic(NamedTuple):
    """A topic to create. -1 takes the broker's default; replica_assignments gives broker ids by partition instead."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    replica_assignments: Mapping[int, list[int]] = {}


async def create_topics(
    requests: AdminRequests, topics: Iterable[NewTopic], *, validate_only: bool, timeout_ms: int
) -> dict[str, bytes | KafkaError]:
    """See `Admin.create_topics`."""
    request = CreateTopicsRequest(
        topics=[
            CreateTopicsRequestTopic(
                each.name,
                -1 if each.replica_assignments else each.num_partitions,
                -1 if each.replica_assignments else each.replication_factor,
                [CreateTopicsRequestReplicaAssignment(n, ids) for n, ids in each.replica_assignments.items()],
                [CreateTopicsRequestConfig(name, value) for name, value in each.configs.items()],
            )
            for each in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )
    response = await requests.to_controller(
        request, CreateTopicsResponse, codes=lambda answer: [t.error_code for t in answer.topics]
    )
    return {t.name: error_of(t.error_code, t.error_message) if t.error_code else t.topic_id for t in response.topics}


async def delete_topics(
    requests: AdminRequests, names: Iterable[str], *, timeout_ms: int
) -> dict[str, KafkaError | None]:
    """See `Admin.delete_topics`."""
    wanted = list(names)

    def adapt(request: Any, version: int) -> None:
        by_state = version >= _STATES_SINCE
        request.topics = [DeleteTopicsRequestState(name=each) for each in wanted] if by_state else []
        request.topic_names = [] if by_state else wanted

    response = await requests.to_controller(
        DeleteTopicsRequest(timeout_ms=timeout_ms),
        DeleteTopicsResponse,
        codes=lambda answer: [t.error_code for t in answer.responses],
        adapt=adapt,
    )
    for each in wanted:
        requests.cluster.metadata.topics.pop(each, None)
    return {t.name or "": failure_of(t.error_code, t.error_message) for t in response.responses}


async def delete_topics_by_id(
    requests: AdminRequests, ids: Iterable[bytes], *, timeout_ms: int
) -> dict[bytes, KafkaError | None]:
    """See `Admin.delete_topics_by_id`."""
    wanted = [DeleteTopicsRequestState(name=None, topic_id=each) for each in ids]

    def adapt(_request: Any, version: int) -> None:
        if version < _STATES_SINCE:
            raise UnsupportedByBroker("the broker deletes topics by name only")

    response = await requests.to_controller(
        DeleteTopicsRequest(topics=wanted, timeout_ms=timeout_ms),
        DeleteTopicsResponse,
        codes=lambda answer: [t.error_code for t in answer.responses],
        adapt=adapt,
    )
    for each in response.responses:
        requests.cluster.metadata.topics.pop(each.name or "", None)
    return {t.topic_id: failure_of(t.error_code, t.error_message) for t in response.responses}


async def describe_topics_by_id(requests: AdminRequests, ids: Iterable[bytes]) -> dict[bytes, TopicInfo | KafkaError]:
    """See `Admin.describe_topics_by_id`."""
    cluster = requests.cluster
    wanted = list(ids)
    request = MetadataRequest([MetadataRequestTopic(each, None) for each in wanted], False)

    async def attempt() -> dict[bytes, TopicInfo | KafkaError]:
        connection = await cluster.connections.any()
        if connection.version_of(MetadataRequest) < _IDS_SINCE:
            raise UnsupportedByBroker("the broker describes topics by name only")
        response = await cluster.ask(connection, request, MetadataResponse)
        cache = MetadataCache()
        cache.update(response, 0.0, asked=None)
        errors = {each.topic_id: each.error_code for each in response.topics if each.error_code}
        found: dict[bytes, TopicInfo | KafkaError] = {}
        for each in wanted:
            info = cache.topics.get(cache.names_by_id.get(each, ""))
            code = errors.get(each, ErrorCode.UNKNOWN_TOPIC_ID)
            found[each] = error_of(code, f"topic id {each.hex()}") if info is None else info
        return found

    return await cluster.retrying(attempt, "Metadata")


async def describe_topics(requests: AdminRequests, names: Collection[str] | None) -> dict[str, TopicInfo | KafkaError]:
    """See `Admin.describe_topics`."""
    cluster = requests.cluster

    async def attempt() -> dict[str, TopicInfo | KafkaError]:
        errors = await cluster.fetch_topics(names)
        found: dict[str, TopicInfo | KafkaError] = {}
        for name in sorted(cluster.metadata.topics if names is None else names):
            info = cluster.metadata.topics.get(name)
            if name in errors or info is None:
                found[name] = error_of(errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), f"topic {name}")
            else:
                found[name] = info
        return found

    return await cluster.retrying(attempt, "describe topics")


async def create_partitions(
    requests: AdminRequests,
    counts: Mapping[str, int],
    *,
    assignments: Mapping[str, list[list[int]]] | None,
    validate_only: bool,
    timeout_ms: int,
) -> dict[str, KafkaError | None]:
    """See `Admin.create_partitions`."""
    topics = []
    for name, count in counts.items():
        given = (assignments or {}).get(name)
        brokers = None if given is None else [CreatePartitionsRequestAssignment(each) for each in given]
        topics.append(CreatePartitionsRequestTopic(name, count, brokers))
    response = await requests.to_controller(
        CreatePartitionsRequest(topics, timeout_ms, validate_only),
        CreatePartitionsResponse,
        codes=lambda answer: [t.error_code for t in answer.results],
    )
    return {t.name: failure_of(t.error_code, t.error_message) for t in response.results}


async def delete_records(
    requests: AdminRequests, offsets: Mapping[TopicPartition, int], *, timeout_ms: int
) -> dict[TopicPartition, int | KafkaError]:
    """See `Admin.delete_records`."""

    async def ask(node_id: int, keys: list[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
        topics = [
            DeleteRecordsRequestTopic(
                topic, [DeleteRecordsRequestPartition(p, offsets[TopicPartition(topic, p)]) for p in partitions]
            )
            for topic, partitions in by_topic(keys).items()
        ]
        request = DeleteRecordsRequest(topics, timeout_ms)
        response = await requests.cluster.request(node_id, request, DeleteRecordsResponse)
        found: dict[TopicPartition, int | KafkaError] = {}
        for answer in response.topics:
            for each in answer.partitions:
                key = TopicPartition(answer.name, each.partition_index)
                found[key] = error_of(each.error_code, f"{key}") if each.error_code else each.low_watermark
        return found

    return await requests.to_leaders(offsets, "DeleteRecords", ask)


async def list_offsets(
    requests: AdminRequests, timestamps: Mapping[TopicPartition, int], *, isolation_level: IsolationLevel
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
    """See `Admin.list_offsets`."""

    async def ask(node_id: int, keys: list[TopicPartition]) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        return await ask_leader(requests.cluster, node_id, keys, timestamps, isolation_level)

    return await requests.to_leaders(timestamps, "ListOffsets", ask)
