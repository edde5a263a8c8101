"""Guards of CreateTopics, DeleteTopics and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Any, Final

from odradek.api.authorization.guarding import Entries, Guarded, Handle, entries, merged, serve_entries, then, with_list
from odradek.api.requests.context import RequestContext
from odradek.authorization.authorizer import Access
from odradek.metadata.image import AUDIT_TOPIC
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicsResponseTopic
from odradek.wire.primitives import ZERO_UUID

_TOPIC: Final = ResourceType.TOPIC
_CONFIGS_FROM: Final = 5
_BY_ID_FROM: Final = 6
_CREATED: Final = Entries(
    "topics",
    lambda topic, access: access.allows(AclOperation.CREATE, _TOPIC, topic.name),
    lambda _topic: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    "Authorization failed.",
)
_DESCRIBED: Final = entries(AclOperation.DESCRIBE, _TOPIC, "topics", "topic")


def guard_create_topics(
    request: CreateTopicsRequest, context: RequestContext[Guarded], access: Access, handle: Handle
) -> Any:
    """CREATE on the cluster, or on each topic; DESCRIBE_CONFIGS to see the configurations of created topics."""
    if access.allows_cluster(AclOperation.CREATE, quiet=True):
        answer = handle(request, context)
    else:
        answer = serve_entries(ApiKey.CREATE_TOPICS, _CREATED, request, context, access, handle)
    return then(answer, lambda answer: _without_hidden_configs(answer, context.version, access))


def _without_hidden_configs(answer: CreateTopicsResponse, version: int, access: Access) -> CreateTopicsResponse:
    for topic in answer.topics if version >= _CONFIGS_FROM else ():
        if topic.error_code or access.allows(AclOperation.DESCRIBE_CONFIGS, _TOPIC, topic.name, quiet=True):
            continue
        topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic.num_partitions = topic.replication_factor = -1
        topic.configs = []
    return answer


def guard_delete_topics(
    request: DeleteTopicsRequest, context: RequestContext[Guarded], access: Access, handle: Handle
) -> Any:
    """DELETE on the cluster, or DESCRIBE and DELETE on each topic.

    A topic that the client may not describe is answered alike whether it exists or not; by id, without its name.
    DELETE on the cluster does not include the audit topic.
    """
    may_delete_others = access.allows_cluster(AclOperation.DELETE, quiet=True)
    field = "topics" if context.version >= _BY_ID_FROM else "topic_names"
    allowed: list[Any] = []
    refused = DeleteTopicsResponse()
    for wanted in getattr(request, field):
        denial = _denied_deletion(wanted, context, access, may_delete_others=may_delete_others)
        if denial is None:
            allowed.append(wanted)
        else:
            refused.responses.append(denial)
    if not refused.responses:
        return handle(request, context)
    if not allowed:
        return refused
    return merged(ApiKey.DELETE_TOPICS, with_list(request, field, allowed), context, handle, refused)


def _denied_deletion(
    wanted: Any, context: RequestContext[Guarded], access: Access, *, may_delete_others: bool
) -> DeleteTopicsResponseTopic | None:
    """The answer for a topic that the client may not delete; `may_delete_others`: than the audit topic."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    name, topic_id, is_named = wanted, ZERO_UUID, True
    if not isinstance(wanted, str):
        topic_id, is_named = wanted.topic_id, wanted.name is not None
        name = wanted.name if is_named else context.services.image().topic_names.get(topic_id)
    if name is None or (may_delete_others and name != AUDIT_TOPIC):
        return None
    if not access.allows(AclOperation.DESCRIBE, _TOPIC, name):
        return DeleteTopicsResponseTopic(name if is_named else None, topic_id, code, code.message)
    # A topic that does not exist is answered as such to a client that may know it, also without DELETE.
    exists = name in context.services.image().topics
    if exists and not access.allows(AclOperation.DELETE, _TOPIC, name):
        return DeleteTopicsResponseTopic(name, topic_id, code, code.message)
    return None


def guard_offset_for_leader_epoch(
    request: Any, context: RequestContext[Guarded], access: Access, handle: Handle
) -> Any:
    """CLUSTER_ACTION, or DESCRIBE on each topic."""
    if access.allows_cluster(AclOperation.CLUSTER_ACTION, quiet=True):
        return handle(request, context)
    return serve_entries(ApiKey.OFFSET_FOR_LEADER_EPOCH, _DESCRIBED, request, context, access, handle)
