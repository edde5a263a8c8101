"""JoinGroup: take part in a group, and in its rebalance.

Version notes: 0 has no rebalance timeout; 4 MEMBER_ID_REQUIRED (KIP-394); 5 group instance id (KIP-345); 7 protocol
type, and the protocol name may be null (KIP-559); 8 reason (KIP-800); 9 skip assignment (KIP-814).
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasGroups
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.groups.events import JoinRequest, JoinResult
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember


@api(ApiKey.JOIN_GROUP)
async def handle(request: JoinGroupRequest, context: RequestContext[HasGroups]) -> JoinGroupResponse:
    """Add the member to its group; the response comes when the rebalance has completed."""
    version = context.version
    join = JoinRequest(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        context.client_id or "",
        f"/{context.session.peer_host}",
        request.session_timeout_ms,
        request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms,
        request.protocol_type,
        tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols),
        request.reason,
        member_id_required=version >= 4,
        can_skip_assignment=version >= 9,
    )
    try:
        result = await context.services.groups.join(join)
    except KafkaError as error:
        result = JoinResult(error.code, request.member_id if error.code is ErrorCode.INVALID_GROUP_ID else "")
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation_id,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name if version >= 7 else result.protocol_name or "",
        leader=result.leader,
        skip_assignment=version >= 9 and result.skip_assignment,
        member_id=result.member_id,
        members=[JoinGroupResponseMember(*member) for member in result.members],
    )
