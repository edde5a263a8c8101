"""OffsetCommit: store how far a group has read.

Version notes: 2-4 carry a retention time; 5 the broker's retention holds; 6 leader epoch; 7 group instance id; 9
KIP-848, whose GROUP_ID_NOT_FOUND reports an unknown group; 10 topics by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek.api.requests.capabilities import HasClock, HasGroups, HasImage, HasQuotas
from odradek.api.requests.context import LateAnswer, RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.throttling import pause
from odradek.groups.events import CommitRequest, OffsetToCommit
from odradek.ports.network import Part
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.offset_commit import TOPIC_ID_FROM, OffsetCommit, Topics, decode_request, encode_response

_CONSUMER_GROUPS_FROM = 9

# A look-up of a member of an enumeration costs as much as a call.
_NONE = ErrorCode.NONE
_ILLEGAL_GENERATION = ErrorCode.ILLEGAL_GENERATION
_UNKNOWN_PARTITION = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Uses(HasClock, HasGroups, HasImage, HasQuotas, Protocol):
    """What these handlers take of the broker."""


class _Reply:
    """Takes the codes of the offsets that the coordinator was asked to commit, and answers the request.

    `refused` are the codes of all its partitions where some are unknown and were not asked for.
    """

    __slots__ = ("_answered", "_context", "_late", "_refused", "_topics")

    def __init__(
        self, topics: Topics, context: RequestContext[Uses], late: LateAnswer, refused: list[ErrorCode] | None
    ) -> None:
        self._topics = topics
        self._context = context
        self._late = late
        self._refused = refused
        self._answered = False

    def done(self) -> bool:
        return self._answered

    def set_result(self, codes: Sequence[ErrorCode]) -> None:
        self._answered = True
        context = self._context
        answered: Sequence[ErrorCode] | None = None
        if self._refused is not None:
            committed = iter(codes)
            answered = [code or next(committed) for code in self._refused]
        elif any(codes):
            answered = codes
        throttle_ms = pause(context) if context.services.quotas.request.active else 0
        frame = encode_response(context.version, context.correlation_id, self._topics, answered, throttle_ms)
        self._late.answer([frame])

    def set_exception(self, error: KafkaError) -> None:
        count = sum(len(partitions) for _, partitions in self._topics)
        self.set_result([error.code] * count)


def _failed(request: OffsetCommit, context: RequestContext[Uses], code: ErrorCode) -> list[Part]:
    codes = [code] * sum(len(partitions) for _, partitions in request.topics)
    return [encode_response(context.version, context.correlation_id, request.topics, codes)]


# What is committed is decided before the next request of the connection starts; only the answer waits.
@api(ApiKey.OFFSET_COMMIT, decode=decode_request, failed=_failed)
def handle(request: OffsetCommit, context: RequestContext[Uses]) -> list[Part] | LateAnswer | None:
    """Commit offsets of known partitions, with an error code for each partition.

    None, and the connection is closed, when the member has committed on a newer connection since.
    """
    group_id, generation_id, member_id, instance_id, retention_ms, topics = request
    groups = context.services.groups
    connection = context.connection
    if member_id and groups.is_late_commit(group_id, member_id, generation_id, connection.identifier):
        connection.close(f"{member_id!r} has continued on a newer connection")
        return None
    offsets, refused = _known(topics, context)
    if not offsets:
        return [encode_response(context.version, context.correlation_id, topics, refused)]
    version = context.version
    unknown_group = _ILLEGAL_GENERATION
    if version >= _CONSUMER_GROUPS_FROM:
        unknown_group = ErrorCode.GROUP_ID_NOT_FOUND
    late = connection.later()
    reply = _Reply(topics, context, late, refused)
    commit = (group_id, member_id, instance_id, generation_id, offsets, retention_ms, unknown_group, version)
    try:
        groups.commit_offsets(tuple.__new__(CommitRequest, commit), reply)
    except KafkaError as error:
        reply.set_exception(error)
    return late


def _known(topics: Topics, context: RequestContext[Uses]) -> tuple[list[OffsetToCommit], list[ErrorCode] | None]:
    """What the coordinator is to be asked for; and where some partitions do not exist the codes of all, 0 if asked."""
    image = context.services.image()
    by_id = context.version >= TOPIC_ID_FROM
    denied = context.denied
    offsets: list[OffsetToCommit] = []
    refused: list[ErrorCode] | None = None
    new = tuple.__new__
    for key, partitions in topics:
        unknown = _UNKNOWN_PARTITION
        name = key
        if by_id:
            name = image.topic_names.get(key, "")  # type: ignore[arg-type]
            unknown = _UNKNOWN_PARTITION if name else ErrorCode.UNKNOWN_TOPIC_ID
        found = image.topics.get(name)  # type: ignore[arg-type]
        count = 0 if found is None else len(found.partitions)
        topic_id = b"" if found is None else found.id
        if denied is not None and key in denied:
            count, unknown = 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for index, offset, epoch, metadata in partitions:
            if 0 <= index < count:
                # Without the keyword handling of a NamedTuple's constructor.
                offsets.append(new(OffsetToCommit, (name, index, offset, epoch, metadata, topic_id)))
                if refused is not None:
                    refused.append(_NONE)
            else:
                if refused is None:
                    refused = [_NONE] * len(offsets)
                refused.append(unknown)
    return offsets, refused
