"""LeadershipPromise (Odradek's own), between brokers: a leader without a lease asks a replica not to succeed it yet."""

from __future__ import annotations

from typing import Protocol

from odradek.api.requests.capabilities import HasImage, HasLeadership
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


class Uses(HasImage, HasLeadership, Protocol):
    """What this handler takes of the broker."""


@api(ApiKey.LEADERSHIP_PROMISE)
def handle(request: LeadershipPromiseRequest, context: RequestContext[Uses]) -> LeadershipPromiseResponse:
    """Promise not to succeed the leader for `promise_ms`; the partitions that already have a later epoch here are
    denied. Raises KafkaError INVALID_REQUEST where leases are off.
    """
    leadership = context.services.leadership
    if leadership is None:
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
    leadership.promise(promised, request.promise_ms / 1000)
    return LeadershipPromiseResponse(denied=denied)
