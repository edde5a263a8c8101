"""DeleteGroups: forget empty groups and their offsets (KIP-229)."""

from __future__ import annotations

from odradek.api.requests.capabilities import HasGroups
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse, DeleteGroupsResponseGroup


@api(ApiKey.DELETE_GROUPS)
async def handle(request: DeleteGroupsRequest, context: RequestContext[HasGroups]) -> DeleteGroupsResponse:
    """Delete each group with its offsets; NON_EMPTY_GROUP for one with members."""
    codes = await context.services.groups.delete_groups(request.groups_names)
    named = zip(request.groups_names, codes, strict=True)
    return DeleteGroupsResponse(results=[DeleteGroupsResponseGroup(group_id, code) for group_id, code in named])
