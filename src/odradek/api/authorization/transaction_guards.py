"""Guards of transactions and idempotent producers."""

from __future__ import annotations

from typing import Any, Final

from odradek.api.authorization.guarding import Guarded, Handle, require
from odradek.api.requests.context import RequestContext
from odradek.authorization.authorizer import Access
from odradek.metadata.image import INTERNAL_TOPICS
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResponsePartition,
    AddPartitionsToTxnResponseTopic,
)

_TOPIC: Final = ResourceType.TOPIC
_BATCHED_FROM: Final = 4


def may_initialize_producer(request: Any, access: Access) -> None:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster or WRITE on any topic."""
    if request.transactional_id is not None:
        require(access, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        if getattr(request, "enable_2_pc", False):
            require(access, AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        return
    if access.allows_cluster(AclOperation.IDEMPOTENT_WRITE, quiet=True):
        return
    if not access.allows_on_any(AclOperation.WRITE, _TOPIC):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def guard_add_partitions(
    request: AddPartitionsToTxnRequest, context: RequestContext[Guarded], access: Access, handle: Handle
) -> Any:
    """WRITE on the transactional id and on each topic; if one topic is denied, no partition is added.

    Internal topics are never allowed. From version 4 on brokers send it, which the handler checks.
    """
    if context.version >= _BATCHED_FROM:
        if not access.allows_cluster(AclOperation.CLUSTER_ACTION):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return handle(request, context)
    require(access, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id)
    topics = request.v3_and_below_topics
    denied = {
        topic.name
        for topic in topics
        if topic.name in INTERNAL_TOPICS or not access.allows(AclOperation.WRITE, _TOPIC, topic.name)
    }
    if not denied:
        return handle(request, context)

    def code(name: str) -> ErrorCode:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if name in denied else ErrorCode.OPERATION_NOT_ATTEMPTED

    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnResponseTopic(
                topic.name,
                [AddPartitionsToTxnResponsePartition(index, code(topic.name)) for index in topic.partitions],
            )
            for topic in topics
        ]
    )


def visible_transactions(_request: Any, answer: Any, _context: RequestContext[Guarded], access: Access) -> None:
    """Leave out the transactions that the client may not describe."""
    kind = ResourceType.TRANSACTIONAL_ID
    answer.transaction_states = [
        each for each in answer.transaction_states if access.allows(AclOperation.DESCRIBE, kind, each.transactional_id)
    ]


def visible_topics_of_transactions(
    _request: Any, answer: Any, _context: RequestContext[Guarded], access: Access
) -> None:
    """Leave out the topics of transactions that the client may not describe."""
    for state in answer.transaction_states:
        state.topics = [
            topic for topic in state.topics if access.allows(AclOperation.DESCRIBE, _TOPIC, topic.topic, quiet=True)
        ]
