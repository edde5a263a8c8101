"""CreateTopics.

Version notes: 4 counts of -1 mean the broker's defaults; 5 the answer has counts and configurations; 6
THROTTLING_QUOTA_EXCEEDED (KIP-599); 7 topic ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek.api.requests.capabilities import HasClock, HasConfig, HasController, HasQuotas
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.throttling import Mutations
from odradek.controller.topics import DEFAULT, CreatedTopic, NewTopic
from odradek.wire.apis import ApiKey
from odradek.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
)

_THROTTLING_FROM = 6


class Uses(HasClock, HasConfig, HasController, HasQuotas, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.CREATE_TOPICS)
async def handle(request: CreateTopicsRequest, context: RequestContext[Uses]) -> CreateTopicsResponse:
    """Create topics, or only validate them; each has its own error.

    Partitions above the mutation quota get THROTTLING_QUOTA_EXCEEDED.
    """
    topics = [
        NewTopic(
            topic.name,
            topic.num_partitions,
            topic.replication_factor,
            [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
            [(config.name, config.value) for config in topic.configs],
        )
        for topic in request.topics
    ]
    mutations = Mutations(context, strict=context.version >= _THROTTLING_FROM)
    default = context.services.config.number("num.partitions")
    counts: dict[str, int] = {}
    refused: list[CreatedTopic] = []
    wanted: list[NewTopic] = []
    for topic in topics:
        count = len(topic.assignments) or (default if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0))
        if failure := mutations.take(count):
            refused.append(CreatedTopic(topic.name, failure, None))
        else:
            wanted.append(topic)
            counts[topic.name] = count
    created: Sequence[CreatedTopic] = []
    if wanted or not refused:
        created = await context.services.controller.create_topics(wanted, validate_only=request.validate_only)
    mutations.give_back(sum(counts[topic.name] for topic in created if topic.failure is not None))
    return CreateTopicsResponse(mutations.throttle_ms(), [_answer(topic, context) for topic in (*created, *refused)])


def _answer(created: CreatedTopic, context: RequestContext[Uses]) -> CreateTopicsResponseTopic:
    if created.failure is not None:
        code, message = created.failure
        return CreateTopicsResponseTopic(created.name, error_code=code, error_message=message, configs=[])
    topic = created.topic
    assert topic is not None
    if context.version < 5:
        return CreateTopicsResponseTopic(created.name, error_message=None)
    configs = [
        CreateTopicsResponseConfig(
            config.name, config.value, config.read_only, config.source, is_sensitive=config.is_sensitive
        )
        for config in context.services.controller.describe_new_topic(created)
    ]
    return CreateTopicsResponseTopic(
        created.name,
        topic.id,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=configs,
    )
