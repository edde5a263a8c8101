"""LeadershipPromise (Odradek's own), between brokers: a leader without a lease asks a replica not to succeed it yet."""

from __future__ import annotations

from typing import Protocol

from odradek.api.requests.capabilities import HasImage, HasPromises
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.replication.leadership import agrees
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leadership_promise import (
    LeadershipPromiseRequest,
    LeadershipPromiseResponse,
    LeadershipPromiseResponseTopic,
)


class Uses(HasImage, HasPromises, Protocol):
    """What this handler takes of the broker."""


@api(ApiKey.LEADERSHIP_PROMISE)
async def handle(request: LeadershipPromiseRequest, context: RequestContext[Uses]) -> LeadershipPromiseResponse:
    """Promise not to succeed the leader for `promise_ms`; the partitions that already have a later epoch here are
    denied. Raises KafkaError INVALID_REQUEST where leaders ask for no promises, KAFKA_STORAGE_ERROR.
    """
    promises = context.services.promises
    if promises is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    image = context.services.image()
    denied = []
    promised = []
    for topic in request.topics:
        later = []
        for partition in topic.partitions:
            index = partition.partition_index
            if agrees(image, topic.topic_id, index, partition.leader_epoch):
                promised.append((topic.topic_id, index))
            else:
                later.append(index)
        if later:
            denied.append(LeadershipPromiseResponseTopic(topic.topic_id, later))
    await promises.give(promised, request.promise_ms / 1000)
    return LeadershipPromiseResponse(denied=denied)
