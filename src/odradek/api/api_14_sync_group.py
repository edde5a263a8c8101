"""SyncGroup: the leader hands in the assignment, every member gets its part.

Version notes: 3 group instance id (KIP-345); 5 protocol type and name, then required (KIP-559).
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasGroups
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.groups.events import SyncRequest
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_WITH_PROTOCOL = 5


@api(ApiKey.SYNC_GROUP)
async def handle(request: SyncGroupRequest, context: RequestContext[HasGroups]) -> SyncGroupResponse:
    """Return the member's assignment once the group's leader has sent it."""
    if context.version >= _WITH_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    sync = SyncRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {assigned.member_id: bytes(assigned.assignment) for assigned in request.assignments},
    )
    result = await context.services.groups.sync(sync)
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )
