"""LeaveGroup: members go, or are removed by an administrator.

Version notes: 0-2 one member, whose error is the answer's; 3 several, each with its own error (KIP-345); 5 reason
(KIP-800).
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasGroups
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.groups.events import LeavingMember
from odradek.wire.apis import ApiKey
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, LeaveGroupResponseMember

_SEVERAL_MEMBERS = 3


@api(ApiKey.LEAVE_GROUP)
async def handle(request: LeaveGroupRequest, context: RequestContext[HasGroups]) -> LeaveGroupResponse:
    """Remove one member or, from version 3 on, several, each with its own error code."""
    groups = context.services.groups
    if context.version < _SEVERAL_MEMBERS:
        (only,) = await groups.leave(request.group_id, [LeavingMember(request.member_id)])
        return LeaveGroupResponse(error_code=only.error)
    leaving = [LeavingMember(member.member_id, member.group_instance_id, member.reason) for member in request.members]
    left = await groups.leave(request.group_id, leaving)
    return LeaveGroupResponse(members=[LeaveGroupResponseMember(*member) for member in left])
