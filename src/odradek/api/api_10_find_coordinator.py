"""FindCoordinator: which broker leads the partition of an internal topic that a group or transactional id hashes to.

Version notes: 1 key types; 4 several keys at once (KIP-699); 6 share groups.
"""

from __future__ import annotations

from typing import Protocol

from odradek.api.data.new_leaders import reachable_image
from odradek.api.requests.capabilities import HasController, HasImage, HasLeadership, HasPartitions, HasUnreachable
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.groups.placement import partition_for_group
from odradek.metadata.image import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
)

GROUP = 0
TRANSACTION = 1
_TOPICS = {GROUP: GROUP_METADATA_TOPIC, TRANSACTION: TRANSACTION_STATE_TOPIC}


class Uses(HasController, HasImage, HasLeadership, HasPartitions, HasUnreachable, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.FIND_COORDINATOR)
async def handle(request: FindCoordinatorRequest, context: RequestContext[Uses]) -> FindCoordinatorResponse:
    """Find the coordinator of one key or, from version 4 on, of several; each has its own error."""
    keys = request.coordinator_keys if context.version >= 4 else [request.key]
    found = [await _find(request.key_type, key, context) for key in keys]
    if context.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find(key_type: int, key: str, context: RequestContext[Uses]) -> FindCoordinatorResponseCoordinator:
    try:
        topic = _TOPICS.get(key_type)
        if topic is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"coordinator type {key_type} is not supported")
        return await _leader(topic, key, context)
    except KafkaError as error:
        return FindCoordinatorResponseCoordinator(key, -1, "", -1, error.code, error.message)


async def _leader(topic: str, key: str, context: RequestContext[Uses]) -> FindCoordinatorResponseCoordinator:
    services = context.services
    if topic not in services.image().topics:
        failed = await services.controller.auto_create([topic])
        if topic in failed:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    image = reachable_image(context)
    found = image.topics.get(topic)
    if found is None:
        # It is created, but this broker has not been notified of it in time.
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partitions = found.partitions
    broker = image.brokers.get(partitions[partition_for_group(key, len(partitions))].leader)
    endpoint = None if broker is None else broker.endpoints.get(context.session.listener_name)
    if broker is None or endpoint is None:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return FindCoordinatorResponseCoordinator(key, broker.id, endpoint.host, endpoint.port)
