"""CreateTopics.

Version notes: 4 counts of -1 mean the broker's defaults; 5 the answer has counts and configurations; 7 topic ids.
"""

from __future__ import annotations

from odradek.api.context import RequestContext
from odradek.api.registry import api
from odradek.controller.topics import CreatedTopic, NewTopic
from odradek.wire.apis import ApiKey
from odradek.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    CreateTopicsResponseConfig,
    CreateTopicsResponseTopic,
)


@api(ApiKey.CREATE_TOPICS)
async def handle(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
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
    created = await context.services.controller.create_topics(topics, validate_only=request.validate_only)
    return CreateTopicsResponse(topics=[_answer(topic, context) for topic in created])


def _answer(created: CreatedTopic, context: RequestContext) -> CreateTopicsResponseTopic:
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
