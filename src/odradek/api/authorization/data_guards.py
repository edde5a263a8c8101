"""Guards of Produce and OffsetCommit: their handlers refuse the denied topics, as they encode answers by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.api.authorization.guarding import Guarded, Handle, require
from odradek.api.data.produced_records import is_transactional
from odradek.api.requests.context import RequestContext
from odradek.authorization.authorizer import Access, right_key
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.offset_commit import OffsetCommit
from odradek.wire.produce import ProduceRequest, TopicKey

_WRITE_TOPIC: Final = right_key(AclOperation.WRITE, ResourceType.TOPIC)
_READ_TOPIC: Final = right_key(AclOperation.READ, ResourceType.TOPIC)


def guard_produce(request: ProduceRequest, context: RequestContext[Guarded], access: Access, handle: Handle) -> Any:
    """WRITE on the transactional id if a batch is transactional, and on each topic."""
    if request.transactional_id is not None and _has_transactional_batch(request):
        require(access, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    known: Mapping[Any, int] = access.remembered(_WRITE_TOPIC)
    for topic, _ in request.topics:
        if known.get(topic, 0) <= 0:
            break
    else:
        # Most requests name the topics of the request before. `_may_use_all` would find this, too, with another call.
        return handle(request, context)
    if not _may_use_all(request, _WRITE_TOPIC, context, access):
        context.denied = denied_topics((topic for topic, _ in request.topics), AclOperation.WRITE, context, access)
        if context.denied and request.transactional_id is None and _has_transactional_batch(request):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return handle(request, context)


def _has_transactional_batch(request: ProduceRequest) -> bool:
    return any(
        records is not None and is_transactional(records)
        for _, partitions in request.topics
        for _, records in partitions
    )


def guard_offset_commit(request: OffsetCommit, context: RequestContext[Guarded], access: Access, handle: Handle) -> Any:
    """READ on the group, and on each topic."""
    require(access, AclOperation.READ, ResourceType.GROUP, request.group_id)
    if not _may_use_all(request, _READ_TOPIC, context, access):
        context.denied = denied_topics((topic for topic, _ in request.topics), AclOperation.READ, context, access)
    return handle(request, context)


def _may_use_all(
    request: ProduceRequest | OffsetCommit, right: int, context: RequestContext[Guarded], access: Access
) -> bool:
    """Whether earlier decisions allow every topic: most requests name the topics of the request before."""
    known: Mapping[Any, int] = access.remembered(right)
    for topic, _ in request.topics:
        if known.get(topic, 0) <= 0:
            if isinstance(topic, str):
                return False
            name = context.services.image().topic_names.get(topic)
            if name is None or known.get(name, 0) <= 0:
                return False
            access.remember_id(right, topic)
    return True


def denied_topics(
    topics: Iterable[TopicKey], operation: AclOperation, context: RequestContext[Guarded], access: Access
) -> frozenset[TopicKey] | None:
    """The topics, by name or id, that the client may not use; None if it may use all. An unknown id is not denied."""
    denied = []
    for topic in topics:
        name = topic if isinstance(topic, str) else context.services.image().topic_names.get(topic)
        if name is not None and not access.allows(operation, ResourceType.TOPIC, name):
            denied.append(topic)
    return frozenset(denied) if denied else None
