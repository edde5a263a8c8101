"""Heartbeat: a member lives, and learns of rebalances.

Version notes: 3 group instance id (KIP-345).
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasGroups
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@api(ApiKey.HEARTBEAT)
def handle(request: HeartbeatRequest, context: RequestContext[HasGroups]) -> HeartbeatResponse:
    """Extend the member's session; REBALANCE_IN_PROGRESS asks it to join again."""
    error = context.services.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=error)
