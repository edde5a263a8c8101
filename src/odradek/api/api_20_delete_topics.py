"""DeleteTopics.

Version notes: 0-5 a list of names; 3 deletion may be disabled (before: INVALID_REQUEST); 5 messages; 6 names or ids.
"""

from __future__ import annotations

from odradek.api.context import RequestContext
from odradek.api.registry import api
from odradek.controller.topics import DeletedTopic, TopicReference
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicsResponseTopic


@api(ApiKey.DELETE_TOPICS)
async def handle(request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    if context.version >= 6:
        references = [TopicReference(topic.name, topic.topic_id) for topic in request.topics]
    else:
        references = [TopicReference(name) for name in request.topic_names]
    deleted = await context.services.controller.delete_topics(references)
    return DeleteTopicsResponse(responses=[_answer(topic, context.version) for topic in deleted])


def _answer(deleted: DeletedTopic, version: int) -> DeleteTopicsResponseTopic:
    if deleted.failure is None:
        return DeleteTopicsResponseTopic(deleted.name, deleted.id)
    code, message = deleted.failure
    if code is ErrorCode.TOPIC_DELETION_DISABLED and version < 3:
        code = ErrorCode.INVALID_REQUEST
    return DeleteTopicsResponseTopic(deleted.name, deleted.id, code, message or code.message)
