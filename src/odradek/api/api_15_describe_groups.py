"""DescribeGroups: state and members of classic groups.

Version notes: 3 authorized operations (KIP-430); 4 group instance id (KIP-345); 6 an unknown group is
GROUP_ID_NOT_FOUND with a message (KIP-1043), before it is a group in state Dead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Final, Protocol

from odradek.api.requests.capabilities import HasGroups, HasLongWork, HasQuotas
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeGroupsResponseGroup,
    DescribeGroupsResponseMember,
)

_STEP: Final = 10
"""Groups that are described in one step."""
_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS = 3, 6, 8, 10, 11
ALL_GROUP_OPERATIONS = 1 << _READ | 1 << _DELETE | 1 << _DESCRIBE | 1 << _DESCRIBE_CONFIGS | 1 << _ALTER_CONFIGS


class Uses(HasGroups, HasLongWork, HasQuotas, Protocol):
    """The services that these handlers need."""


@api(ApiKey.DESCRIBE_GROUPS)
def handle(
    request: DescribeGroupsRequest, context: RequestContext[Uses]
) -> DescribeGroupsResponse | Awaitable[DescribeGroupsResponse]:
    """Describe each group, in slices; an unknown one is in state Dead, from version 6 on with GROUP_ID_NOT_FOUND."""
    answer = DescribeGroupsResponse(groups=[])
    steps = _steps(request, context, answer.groups)
    return context.services.long_work.serve(context, steps, answer)


def _steps(
    request: DescribeGroupsRequest, context: RequestContext[Uses], groups: list[DescribeGroupsResponseGroup]
) -> Iterator[None]:
    for number, group_id in enumerate(request.groups):
        if number % _STEP == 0:
            yield
        group = _describe(group_id, context)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = ALL_GROUP_OPERATIONS
        groups.append(group)


def _describe(group_id: str, context: RequestContext[Uses]) -> DescribeGroupsResponseGroup:
    try:
        found = context.services.groups.describe_group(group_id)
    except KafkaError as error:
        return DescribeGroupsResponseGroup(error.code, group_id=group_id)
    group = DescribeGroupsResponseGroup(
        found.error,
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_data,
        members=[DescribeGroupsResponseMember(*member) for member in found.members],
    )
    if found.error is ErrorCode.GROUP_ID_NOT_FOUND:
        if context.version >= 6:
            group.error_message = f"Group {group_id} {'is not a classic group' if found.is_other else 'not found'}."
        else:
            group.error_code = ErrorCode.NONE
    return group
