"""ConsumerGroupHeartbeat: a member joins a KIP-848 group, reports, gets its assignment, and leaves.

Version notes: 1 the client makes the member id, and topics may be named by a regular expression.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol

from odradek.api.requests.capabilities import HasAuthorization, HasConfig, HasGroups, HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.groups.consumer.heartbeats import check_request
from odradek.groups.consumer.records import TopicPartitions
from odradek.groups.events import ConsumerHeartbeat, ConsumerHeartbeatResult, MaySee, every_topic
from odradek.metadata.features import GROUP_VERSION, finalized
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

_CONSUMER = "consumer"


class Uses(HasAuthorization, HasConfig, HasGroups, HasImage, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext[Uses]
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    """Pass a member's report to its group; the response has its epoch, the next interval and a changed assignment."""
    try:
        _check_enabled(context)
        topics = request.subscribed_topic_names
        heartbeat = ConsumerHeartbeat(
            request.group_id,
            request.member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            context.client_id or "",
            f"/{context.session.peer_host}",
            request.rebalance_timeout_ms,
            None if topics is None else tuple(sorted(set(topics))),
            request.subscribed_topic_regex,
            request.server_assignor,
            _owned(request.topic_partitions),
            _visible_topics(context),
        )
        check_request(heartbeat, context.version)
        answer = context.services.groups.consumer_heartbeat(heartbeat)
    except KafkaError as error:
        return _refused(error)
    return _answer(answer)


async def _answer(answer: Awaitable[ConsumerHeartbeatResult]) -> ConsumerGroupHeartbeatResponse:
    try:
        return _response(await answer)
    except KafkaError as error:
        return _refused(error)


def _check_enabled(context: RequestContext[Uses]) -> None:
    services = context.services
    if not finalized(services.image()).levels.get(GROUP_VERSION) or _CONSUMER not in services.config.words(
        "group.coordinator.rebalance.protocols"
    ):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def _visible_topics(context: RequestContext[Uses]) -> MaySee:
    """Which topics a regular expression of the client may match."""
    if context.services.authorization is None:
        return every_topic
    access = context.access
    return lambda name: access.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)


def _owned(topics: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None) -> TopicPartitions | None:
    if topics is None:
        return None
    return {bytes(topic.topic_id): frozenset(topic.partitions) for topic in topics if topic.partitions}


def _response(result: ConsumerHeartbeatResult) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if result.assignment is not None:
        assignment = ConsumerGroupHeartbeatResponseAssignment(
            [
                ConsumerGroupHeartbeatResponseTopicPartitions(topic_id, sorted(partitions))
                for topic_id, partitions in result.assignment.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=assignment,
    )


def _refused(error: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message or None)
