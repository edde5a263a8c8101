"""DeleteTopics.

Version notes: 0-5 a list of names; 3 deletion may be disabled (before: INVALID_REQUEST); 5 messages and
THROTTLING_QUOTA_EXCEEDED (KIP-599); 6 names or ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek.api.requests.capabilities import HasClock, HasController, HasImage, HasQuotas
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.throttling import Mutations
from odradek.controller.topics import DeletedTopic, TopicReference
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicsResponseTopic

_THROTTLING_FROM = 5


class Uses(HasClock, HasController, HasImage, HasQuotas, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.DELETE_TOPICS)
async def handle(request: DeleteTopicsRequest, context: RequestContext[Uses]) -> DeleteTopicsResponse:
    """Delete topics by name or id; each has its own error. TOPIC_DELETION_DISABLED with `delete.topic.enable=false`."""
    if context.version >= 6:
        references = [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    else:
        references = [TopicReference(name) for name in request.topic_names]
    mutations = Mutations(context, strict=context.version >= _THROTTLING_FROM)
    image = context.services.image()
    refused: list[DeletedTopic] = []
    wanted: list[TopicReference] = []
    for reference in references:
        topic = image.topics.get(reference.name) if reference.name else image.topic_by_id(reference.id)
        if topic is not None and (failure := mutations.take(len(topic.partitions))):
            refused.append(DeletedTopic(reference.name, reference.id, failure))
        else:
            wanted.append(reference)
    deleted: Sequence[DeletedTopic] = []
    if wanted or not refused:
        deleted = await context.services.controller.delete_topics(wanted)
    answers = [_answer(topic, context.version) for topic in (*deleted, *refused)]
    return DeleteTopicsResponse(mutations.throttle_ms(), answers)


def _answer(deleted: DeletedTopic, version: int) -> DeleteTopicsResponseTopic:
    if deleted.failure is None:
        return DeleteTopicsResponseTopic(deleted.name, deleted.id)
    code, message = deleted.failure
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < 3:
        code = ErrorCode.INVALID_REQUEST
    return DeleteTopicsResponseTopic(deleted.name, deleted.id, code, message or code.message)
