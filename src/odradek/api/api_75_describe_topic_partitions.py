"""DescribeTopicPartitions (KIP-966): topics in the order of their names, a page of partitions at a time."""

from __future__ import annotations

from typing import Protocol

from odradek.api.api_03_metadata import TOPIC_OPERATIONS
from odradek.api.data.new_leaders import reachable_image
from odradek.api.requests.capabilities import (
    HasAuthorization,
    HasConfig,
    HasImage,
    HasLeadership,
    HasPartitions,
    HasUnreachable,
)
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.controller.names import name_problem
from odradek.metadata.image import NO_LEADER, ClusterImage, PartitionState, Topic
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


class Uses(HasAuthorization, HasConfig, HasImage, HasLeadership, HasPartitions, HasUnreachable, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def handle(request: DescribeTopicPartitionsRequest, context: RequestContext[Uses]) -> DescribeTopicPartitionsResponse:
    """Describe partitions from the cursor on, up to `response_partition_limit`, with a cursor for the next page.

    Raises KafkaError INVALID_REQUEST for a negative partition in the cursor, and for a cursor in a topic that the
    request does not list among others. Source: Kafka's `DescribeTopicPartitionsRequestHandler`.
    """
    image = reachable_image(context)
    names = sorted({topic.name for topic in request.topics} or image.topics)
    access = None if context.services.authorization is None else context.access
    if access is not None and not request.topics:
        names = [name for name in names if access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)]
    first_partition = 0
    if request.cursor is not None:
        first_partition = request.cursor.partition_index
        if first_partition < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"DescribeTopicPartitionsRequest cursor partition must be valid: {first_partition}",
            )
        names = [name for name in names if name >= request.cursor.topic_name]
        if request.topics and request.cursor.topic_name not in names:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "DescribeTopicPartitionsRequest topic list should contain the cursor topic: "
                + request.cursor.topic_name,
            )
        if names and names[0] != request.cursor.topic_name:
            # The topic that the page ended in has gone meanwhile.
            first_partition = 0
    limit = context.services.config.number("max.request.partition.size.limit")
    limit = max(1, min(limit, request.response_partition_limit))
    denied: list[str] = []
    if access is not None and request.topics:
        wanted, names = names, []
        for name in wanted:
            (names if access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name) else denied).append(name)
    response = _page(image, names, first_partition, limit, asked=bool(request.topics))
    for name in denied:
        response.topics.append(DescribeTopicPartitionsResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name))
    if access is not None:
        for topic in response.topics:
            if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = access.operations(ResourceType.TOPIC, topic.name)
    return response


def _page(
    image: ClusterImage, names: list[str], first_partition: int, limit: int, *, asked: bool
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    for name in names:
        if limit <= 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, 0)
            break
        topic = image.topics.get(name)
        if topic is None:
            if asked:
                response.topics.append(_missing(name))
            continue
        last = min(len(topic.partitions), first_partition + limit)
        response.topics.append(_described(topic, image, range(first_partition, last)))
        limit -= max(0, last - first_partition)
        if last < len(topic.partitions):
            response.next_cursor = DescribeTopicPartitionsResponseCursor(name, last)
            break
        first_partition = 0
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name_problem(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return DescribeTopicPartitionsResponseTopic(code, name)


def _described(topic: Topic, image: ClusterImage, indexes: range) -> DescribeTopicPartitionsResponseTopic:
    partitions = [_partition(index, topic.partitions[index], image) for index in indexes]
    return DescribeTopicPartitionsResponseTopic(
        0, topic.name, topic.id, topic.is_internal, partitions, TOPIC_OPERATIONS
    )


def _partition(index: int, state: PartitionState, image: ClusterImage) -> DescribeTopicPartitionsResponsePartition:
    brokers = image.brokers
    return DescribeTopicPartitionsResponsePartition(
        0 if state.leader in brokers else ErrorCode.LEADER_NOT_AVAILABLE,
        index,
        state.leader if state.leader in brokers else NO_LEADER,
        state.leader_epoch,
        list(state.replicas),
        list(state.isr),
        [],
        [],
        [replica for replica in state.replicas if replica not in brokers],
    )
