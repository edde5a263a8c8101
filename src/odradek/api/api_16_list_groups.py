"""ListGroups: the groups that this broker coordinates.

Version notes: 4 filter by state (KIP-518); 5 filter by type (KIP-848).
"""

from __future__ import annotations

from odradek.api.requests.capabilities import HasGroups
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse, ListGroupsResponseGroup


@api(ApiKey.LIST_GROUPS)
def handle(request: ListGroupsRequest, context: RequestContext[HasGroups]) -> ListGroupsResponse:
    """List the groups that pass the filters of states and types, of all loaded shards of this broker."""
    found = context.services.groups.list_groups(request.states_filter, request.types_filter)
    return ListGroupsResponse(groups=[ListGroupsResponseGroup(*group) for group in found])
