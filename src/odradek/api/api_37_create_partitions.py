"""CreatePartitions: more partitions for topics. The versions differ in nothing that a handler sees."""

from __future__ import annotations

from odradek.api.context import RequestContext
from odradek.api.registry import api
from odradek.controller.topics import MorePartitions
from odradek.wire.apis import ApiKey
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
)


@api(ApiKey.CREATE_PARTITIONS)
async def handle(request: CreatePartitionsRequest, context: RequestContext) -> CreatePartitionsResponse:
    topics = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]
    grown = await context.services.controller.create_partitions(topics, validate_only=request.validate_only)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponseTopic(topic.name)
            if topic.failure is None
            else CreatePartitionsResponseTopic(topic.name, topic.failure.code, topic.failure.message)
            for topic in grown
        ]
    )
