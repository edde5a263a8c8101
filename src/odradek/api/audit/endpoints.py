"""Endpoints of administrative APIs that record what they change, for a broker with an audit topic.

The request is served first and recorded afterwards. What keeps a change from being recorded is counted as a loss and
costs the request nothing.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from odradek.api.audit.access_changes import created_acls, created_token, deleted_acls, extended_token
from odradek.api.audit.answered import Answered, Describe
from odradek.api.audit.config_changes import altered_configs, altered_quotas, altered_users
from odradek.api.audit.group_changes import committed_offsets, deleted_groups, deleted_offsets
from odradek.api.audit.topic_changes import (
    created_topics,
    deleted_records,
    deleted_topics,
    elected_leaders,
    grown_topics,
    moved_replicas,
    reassigned_partitions,
    unregistered_broker,
    updated_features,
)
from odradek.api.audit.trail import AuditTrail
from odradek.api.requests.context import RequestContext, Services
from odradek.api.requests.failures import failure_response
from odradek.api.requests.registry import Endpoint, Handler, OwnPart
from odradek.api.services.controller_service import NotTheController
from odradek.groups.events import CommitRequest
from odradek.groups.service import GroupService, Reply
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("odradek.audit")

Recall = Callable[[Any, RequestContext[Services]], Awaitable[Any]]
"""What has to be known of the state before a request, beyond the image of the cluster."""

DESCRIBED: Final[dict[ApiKey, Describe]] = {
    ApiKey.CREATE_TOPICS: created_topics,
    ApiKey.DELETE_TOPICS: deleted_topics,
    ApiKey.DELETE_RECORDS: deleted_records,
    ApiKey.CREATE_PARTITIONS: grown_topics,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassigned_partitions,
    ApiKey.ELECT_LEADERS: elected_leaders,
    ApiKey.ALTER_REPLICA_LOG_DIRS: moved_replicas,
    ApiKey.ALTER_CONFIGS: altered_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: altered_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: altered_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: altered_users,
    ApiKey.UPDATE_FEATURES: updated_features,
    ApiKey.UNREGISTER_BROKER: unregistered_broker,
    ApiKey.CREATE_ACLS: created_acls,
    ApiKey.DELETE_ACLS: deleted_acls,
    ApiKey.CREATE_DELEGATION_TOKEN: created_token,
    ApiKey.RENEW_DELEGATION_TOKEN: extended_token,
    ApiKey.EXPIRE_DELEGATION_TOKEN: extended_token,
    ApiKey.DELETE_GROUPS: deleted_groups,
    ApiKey.OFFSET_DELETE: deleted_offsets,
}
"""How the changes of each administrative API are found."""


async def _log_starts(request: Any, context: RequestContext[Services]) -> dict[tuple[str, int], int]:
    found = {}
    for topic in request.topics:
        for each in topic.partitions:
            try:
                partition = context.services.partitions.find(topic.name, each.partition_index)
            except KafkaError:
                continue
            if partition is not None:
                found[topic.name, each.partition_index] = partition.log.log_start_offset
    return found


async def _tokens(_request: Any, context: RequestContext[Services]) -> Any:
    try:
        return await context.services.tokens.all()
    except KafkaError:
        return ()


async def _groups(request: Any, context: RequestContext[Services]) -> dict[str, Any]:
    found = {}
    for group in getattr(request, "groups_names", None) or [request.group_id]:
        try:
            found[group] = await context.services.groups.fetch_offsets(group, None, False)
        except KafkaError:
            continue
    return found


_RECALLED: Final[dict[ApiKey, Recall]] = {
    ApiKey.DELETE_RECORDS: _log_starts,
    ApiKey.RENEW_DELEGATION_TOKEN: _tokens,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _tokens,
    ApiKey.DELETE_GROUPS: _groups,
    ApiKey.OFFSET_DELETE: _groups,
}


def audited_endpoint(found: Endpoint | None, trail: AuditTrail) -> Endpoint | None:
    """The endpoint with a handler that records changes; the same one if its API changes nothing by hand."""
    if found is None:
        return None
    if found.key == ApiKey.OFFSET_COMMIT:
        return found._replace(handle=_audited_commits(found.handle, trail))
    describe = DESCRIBED.get(found.key)
    if describe is None:
        return found
    handle = _audited(found, describe, _RECALLED.get(found.key), trail)
    return found._replace(handle=handle, own_part=_audited_part(found, describe, trail))


def _audited(plain: Endpoint, describe: Describe, recall: Recall | None, trail: AuditTrail) -> Handler:
    key, handle = plain.key, plain.handle

    async def audited(request: Any, context: RequestContext[Services]) -> Any:
        if context.session.is_broker:
            # What brokers do for themselves, as creating internal topics, is no administrator's change.
            answer = handle(request, context)
            return await answer if hasattr(answer, "__await__") else answer
        before = context.services.image()
        known = None if recall is None else await recall(request, context)
        try:
            answer = handle(request, context)
            if hasattr(answer, "__await__"):
                answer = await answer
        except NotTheController:
            raise  # the next controller serves it, and records it
        except KafkaError as error:
            failed = failure_response(key, request, context.version, error.code)
            _record(trail, key, describe, Answered(request, failed, before, before, known), context)
            raise
        _record(trail, key, describe, Answered(request, answer, before, context.services.image(), known), context)
        return answer

    return audited


def _record(
    trail: AuditTrail, key: ApiKey, describe: Describe, served: Answered, context: RequestContext[Services]
) -> None:
    try:
        trail.changed(context, key.name, describe(served))
    except Exception:
        # A mistake of ours in a description must not fail a request that has taken effect.
        logger.exception("an audit event of %s could not be made and is lost", key.name)
        trail.lost()


def _audited_part(plain: Endpoint, describe: Describe, trail: AuditTrail) -> OwnPart | None:
    """Records what a broker that is not the controller changes by itself: levels of its loggers."""
    own_part = plain.own_part
    if own_part is None:
        return None

    def audited(request: Any, context: RequestContext[Services]) -> tuple[Any | None, Callable[[Any | None], Any]]:
        image = context.services.image()
        rest, complete = own_part(request, context)
        forwarded = set() if rest is None else {(each.resource_type, each.resource_name) for each in rest.resources}

        def completed(answer: Any | None) -> Any:
            found = complete(answer)
            own = copy.copy(found)
            own.responses = [
                each for each in found.responses if (each.resource_type, each.resource_name) not in forwarded
            ]
            _record(trail, plain.key, describe, Answered(request, own, image, image), context)
            return found

        return rest, completed

    return audited


def _audited_commits(handle: Handler, trail: AuditTrail) -> Handler:
    """Records commits from outside of a group's membership, as administrators set offsets."""

    def audited(request: Any, context: RequestContext[Services]) -> Any:
        if request.generation_id >= 0 or request.member_id:
            return handle(request, context)
        services = copy.copy(context.services)
        services.groups = _RecordingGroups(services.groups, context, trail)  # type: ignore[assignment]
        inner = RequestContext(
            services,
            context.version,
            context.correlation_id,
            context.client_id,
            context.connection,
            context.size,
            context.counters,
        )
        return handle(request, inner)

    return audited


class _RecordingGroups:
    """The group coordinator of one request, as OffsetCommit uses it."""

    __slots__ = ("_context", "_groups", "_trail")

    def __init__(self, groups: GroupService, context: RequestContext[Services], trail: AuditTrail) -> None:
        self._groups = groups
        self._context = context
        self._trail = trail

    def commit_offsets(self, request: CommitRequest, reply: Reply) -> None:
        """Commit, and record it once it is answered."""
        wanted: dict[str, list[int]] = {}
        for each in request.offsets:
            wanted.setdefault(each.topic, []).append(each.partition)
        try:
            # What is read is fixed before the commit changes it.
            before: Awaitable[Any] | None = self._groups.fetch_offsets(request.group_id, list(wanted.items()), False)
        except KafkaError:
            before = None
        self._groups.commit_offsets(request, _RecordingReply(reply, request, before, self._record))

    def _record(self, request: CommitRequest, known: Any, codes: Sequence[int]) -> None:
        wanted: dict[str, dict[str, int]] = {}
        answered: dict[str, dict[str, int]] = {}
        for each, code in zip(request.offsets, codes, strict=True):
            wanted.setdefault(each.topic, {})[str(each.partition)] = each.offset
            answered.setdefault(each.topic, {})[str(each.partition)] = code
        key = ApiKey.OFFSET_COMMIT.name
        self._trail.changed(self._context, key, committed_offsets(request.group_id, known, wanted, answered))


class _RecordingReply:
    """Passes the coordinator's reply on, then records it."""

    __slots__ = ("_before", "_record", "_reply", "_request")

    def __init__(
        self,
        reply: Reply,
        request: CommitRequest,
        before: Any,
        record: Callable[[CommitRequest, Any, Sequence[int]], None],
    ) -> None:
        self._reply = reply
        self._request = request
        self._before = before
        self._record = record

    def done(self) -> bool:
        """Whether the reply was given."""
        return self._reply.done()

    def set_result(self, codes: list[ErrorCode]) -> None:
        """The codes of the offsets."""
        self._reply.set_result(codes)
        if self._before is None:
            self._record(self._request, None, codes)
        else:
            self._before.add_done_callback(
                lambda found: self._record(
                    self._request, None if found.cancelled() or found.exception() else found.result(), codes
                )
            )

    def set_exception(self, error: KafkaError) -> None:
        """The error of all offsets."""
        self._reply.set_exception(error)
        self._record(self._request, None, [error.code] * len(self._request.offsets))
