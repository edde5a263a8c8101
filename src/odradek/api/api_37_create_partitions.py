"""CreatePartitions: more partitions for topics. Version 3 knows THROTTLING_QUOTA_EXCEEDED (KIP-599)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek.api.requests.capabilities import HasClock, HasController, HasImage, HasQuotas
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.throttling import Mutations
from odradek.controller.topics import GrownTopic, MorePartitions
from odradek.wire.apis import ApiKey
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsResponseTopic,
)

_THROTTLING_FROM = 3


class Uses(HasClock, HasController, HasImage, HasQuotas, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.CREATE_PARTITIONS)
async def handle(request: CreatePartitionsRequest, context: RequestContext[Uses]) -> CreatePartitionsResponse:
    """Add partitions to topics, or only validate that; each has its own error.

    Those above the mutation quota get THROTTLING_QUOTA_EXCEEDED.
    """
    topics = [
        MorePartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
        )
        for topic in request.topics
    ]
    mutations = Mutations(context, strict=context.version >= _THROTTLING_FROM)
    known = context.services.image().topics
    added: dict[str, int] = {}
    refused: list[GrownTopic] = []
    wanted: list[MorePartitions] = []
    for asked in topics:
        found = known.get(asked.name)
        count = 0 if found is None else max(0, asked.total - len(found.partitions))
        if count and (failure := mutations.take(count)):
            refused.append(GrownTopic(asked.name, failure))
        else:
            wanted.append(asked)
            added[asked.name] = count
    grown: Sequence[GrownTopic] = []
    if wanted or not refused:
        grown = await context.services.controller.create_partitions(wanted, validate_only=request.validate_only)
    mutations.give_back(sum(added[topic.name] for topic in grown if topic.failure is not None))
    return CreatePartitionsResponse(
        mutations.throttle_ms(),
        [
            CreatePartitionsResponseTopic(topic.name)
            if topic.failure is None
            else CreatePartitionsResponseTopic(topic.name, topic.failure.code, topic.failure.message)
            for topic in (*grown, *refused)
        ],
    )
