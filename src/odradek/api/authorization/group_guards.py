"""Guards of groups and their offsets."""

from __future__ import annotations

from typing import Any, Final

from odradek.api.authorization.guarding import Guarded, Handle, divided, require, then, with_list
from odradek.api.requests.context import RequestContext
from odradek.authorization.authorizer import Access
from odradek.wire.acls import CLUSTER_NAME, AclOperation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.find_coordinator import FindCoordinatorResponse, FindCoordinatorResponseCoordinator
from odradek.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_TOPIC: Final = ResourceType.TOPIC
_GROUP: Final = ResourceType.GROUP
_DESCRIBE: Final = AclOperation.DESCRIBE

_COORDINATED: Final = {
    0: (_GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    1: (ResourceType.TRANSACTIONAL_ID, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
}
_SHARE: Final = 2
_SEVERAL_KEYS_FROM: Final = 4
_PROTOCOL_FROM: Final = 5
_SEVERAL_GROUPS_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_ERROR_OF_THE_GROUP_FROM: Final = 2
_NO_OFFSET: Final = -1


def guard_find_coordinator(request: Any, context: RequestContext[Guarded], access: Access, handle: Handle) -> Any:
    """DESCRIBE on each group or transactional id; CLUSTER_ACTION for share partitions."""
    if request.key_type == _SHARE:
        require(access, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)
    found = _COORDINATED.get(request.key_type)
    if found is None:
        return handle(request, context)
    kind, code = found
    if context.version < _SEVERAL_KEYS_FROM:
        if access.allows(_DESCRIBE, kind, request.key):
            return handle(request, context)
        return FindCoordinatorResponse(error_code=code, error_message=code.message, node_id=-1, host="", port=-1)
    allowed, denied = divided(request.coordinator_keys, lambda key: access.allows(_DESCRIBE, kind, key))
    if not denied:
        return handle(request, context)
    refused = [FindCoordinatorResponseCoordinator(key, -1, "", -1, code, code.message) for key in denied]
    if not allowed:
        return FindCoordinatorResponse(coordinators=refused)

    def complete(answer: FindCoordinatorResponse) -> FindCoordinatorResponse:
        answer.coordinators = [*answer.coordinators, *refused]
        return answer

    return then(handle(with_list(request, "coordinator_keys", allowed), context), complete)


def guard_sync_group(request: Any, context: RequestContext[Guarded], access: Access, handle: Handle) -> Any:
    """READ on the group. Kafka rejects a request that lacks the protocol first, as the handler does."""
    has_protocol = request.protocol_type is not None and request.protocol_name is not None
    if has_protocol or context.version < _PROTOCOL_FROM:
        require(access, AclOperation.READ, _GROUP, request.group_id)
    return handle(request, context)


def guard_offset_fetch(request: Any, context: RequestContext[Guarded], access: Access, handle: Handle) -> Any:
    """DESCRIBE on each group and each topic; topics that are not asked for by name are hidden."""
    if context.version < _SEVERAL_GROUPS_FROM:
        return _offsets_of_one(request, context, access, handle)
    groups: list[Any] = []
    refused: list[OffsetFetchResponseGroup] = []
    denied: dict[str, list[OffsetFetchResponseGroupTopic]] = {}
    for group in request.groups:
        if not access.allows(_DESCRIBE, _GROUP, group.group_id):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
            refused.append(OffsetFetchResponseGroup(group.group_id, error_code=error))
            continue
        if group.topics is not None:
            topics, hidden = divided(group.topics, lambda topic: _may_see(topic, context, access))
            if hidden:
                denied[group.group_id] = [_denied_topic(topic) for topic in hidden]
                group = with_list(group, "topics", topics)
        groups.append(group)
    if not groups:
        return OffsetFetchResponse(groups=refused)

    def complete(answer: OffsetFetchResponse) -> OffsetFetchResponse:
        asked_for_all = {group.group_id for group in groups if group.topics is None}
        for group in answer.groups:
            if group.group_id in asked_for_all:
                group.topics = [topic for topic in group.topics if _may_see(topic, context, access, quiet=True)]
            elif not group.error_code:
                group.topics = [*group.topics, *denied.get(group.group_id, ())]
        answer.groups = [*answer.groups, *refused]
        return answer

    return then(handle(with_list(request, "groups", groups), context), complete)


def _may_see(topic: Any, context: RequestContext[Guarded], access: Access, *, quiet: bool = False) -> bool:
    name: str | None = topic.name
    if context.version >= _TOPIC_IDS_FROM:
        name = context.services.image().topic_names.get(topic.topic_id)
    return name is None or access.allows(_DESCRIBE, _TOPIC, name, quiet=quiet)


def _denied_topic(topic: Any) -> OffsetFetchResponseGroupTopic:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partitions = [OffsetFetchResponseGroupPartition(i, _NO_OFFSET, -1, "", error) for i in topic.partition_indexes]
    return OffsetFetchResponseGroupTopic(topic.name, topic.topic_id, partitions)


def _offsets_of_one(request: Any, context: RequestContext[Guarded], access: Access, handle: Handle) -> Any:
    if not access.allows(_DESCRIBE, _GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if context.version >= _ERROR_OF_THE_GROUP_FROM:
            return OffsetFetchResponse(error_code=code)
        return OffsetFetchResponse(topics=[_failed_topic(topic, code) for topic in request.topics or ()])
    if request.topics is None:

        def visible(answer: OffsetFetchResponse) -> OffsetFetchResponse:
            answer.topics = [t for t in answer.topics if access.allows(_DESCRIBE, _TOPIC, t.name, quiet=True)]
            return answer

        return then(handle(request, context), visible)
    allowed, denied = divided(request.topics, lambda topic: access.allows(_DESCRIBE, _TOPIC, topic.name))
    if not denied:
        return handle(request, context)
    refused = [_failed_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for topic in denied]

    def complete(answer: OffsetFetchResponse) -> OffsetFetchResponse:
        answer.topics = [*answer.topics, *refused]
        return answer

    return then(handle(with_list(request, "topics", allowed), context), complete)


def _failed_topic(topic: Any, code: ErrorCode) -> OffsetFetchResponseTopic:
    partitions = [OffsetFetchResponsePartition(i, _NO_OFFSET, -1, "", code) for i in topic.partition_indexes]
    return OffsetFetchResponseTopic(topic.name, partitions)


def visible_groups(_request: Any, answer: Any, _context: RequestContext[Guarded], access: Access) -> None:
    """All groups for a client that may describe the cluster, else those that it may describe."""
    if not access.allows_cluster(_DESCRIBE, quiet=True):
        answer.groups = [each for each in answer.groups if access.allows(_DESCRIBE, _GROUP, each.group_id, quiet=True)]


def group_operations(request: Any, answer: Any, _context: RequestContext[Guarded], access: Access) -> None:
    """The operations that the client may use, of groups without an error."""
    if request.include_authorized_operations:
        for group in answer.groups:
            if not group.error_code:
                group.authorized_operations = access.operations(_GROUP, group.group_id)


def subscribed_topics(request: Any, access: Access) -> None:
    """DESCRIBE on every topic that a member subscribes to by name."""
    for name in request.subscribed_topic_names or ():
        require(access, _DESCRIBE, _TOPIC, name)


def assigned_topics_are_visible(request: Any, answer: Any, context: RequestContext[Guarded], access: Access) -> None:
    """A group is refused if one topic of an assignment is denied."""
    for position, group in enumerate(answer.groups):
        if group.error_code or all(access.allows(_DESCRIBE, _TOPIC, name) for name in _assigned(group)):
            continue
        # Nothing else of the group, as in Kafka: its epochs and its state would say how busy it is.
        refused = type(group)(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="The group has described topic(s) that the client is not authorized to describe.",
            group_id=group.group_id,
        )
        answer.groups[position] = refused
    group_operations(request, answer, context, access)


def _assigned(group: Any) -> set[str]:
    return {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
