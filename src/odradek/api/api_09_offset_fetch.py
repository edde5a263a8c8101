"""OffsetFetch: how far groups have read.

Version notes: 2 null topics ask for all, and errors of the whole group have a place; 5 leader epoch; 7 require_stable
(KIP-447); 8 several groups (KIP-709); 9 member id and epoch for KIP-848 groups; 10 topics by id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from odradek.api.requests.capabilities import HasGroups, HasImage
from odradek.api.requests.context import RequestContext
from odradek.api.requests.registry import api
from odradek.groups.events import FetchedOffset
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from odradek.wire.primitives import ZERO_UUID

_SEVERAL_GROUPS = 8
_BY_ID = 10


class Uses(HasGroups, HasImage, Protocol):
    """What these handlers take of the broker."""


@api(ApiKey.OFFSET_FETCH)
async def handle(request: OffsetFetchRequest, context: RequestContext[Uses]) -> OffsetFetchResponse:
    """Return the committed offsets of one group or, from version 8 on, of several; errors are per group."""
    if context.version < _SEVERAL_GROUPS:
        return await _one_group(request, context)
    groups = [await _group(group, request.require_stable, context) for group in request.groups]
    return OffsetFetchResponse(groups=groups)


async def _one_group(request: OffsetFetchRequest, context: RequestContext[Uses]) -> OffsetFetchResponse:
    topics = None if request.topics is None else [(topic.name, topic.partition_indexes) for topic in request.topics]
    try:
        found = await context.services.groups.fetch_offsets(request.group_id, topics, request.require_stable)
    except KafkaError as error:
        if context.version >= 2:
            return OffsetFetchResponse(error_code=error.code)
        return OffsetFetchResponse(topics=[_failed(topic, error.code) for topic in request.topics or ()])
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(name, [OffsetFetchResponsePartition(*partition) for partition in partitions])
            for name, partitions in found
        ]
    )


def _failed(topic: OffsetFetchRequestTopic, code: ErrorCode) -> OffsetFetchResponseTopic:
    partitions = [OffsetFetchResponsePartition(index, -1, -1, "", code) for index in topic.partition_indexes]
    return OffsetFetchResponseTopic(topic.name, partitions)


async def _group(
    group: OffsetFetchRequestGroup, require_stable: bool, context: RequestContext[Uses]
) -> OffsetFetchResponseGroup:
    names = context.services.image().topic_names
    by_id = context.version >= _BY_ID
    topics: list[tuple[str, list[int]]] | None = None
    unknown: list[OffsetFetchResponseGroupTopic] = []
    ids: dict[str, bytes] = {}
    if group.topics is not None:
        topics = []
        for topic in group.topics:
            name: str | None = names.get(topic.topic_id) if by_id else topic.name
            if name is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
                absent = [FetchedOffset(index, -1, -1, "", code) for index in topic.partition_indexes]
                unknown.append(_topic("", topic.topic_id, absent))
            else:
                ids[name] = topic.topic_id
                topics.append((name, topic.partition_indexes))
    try:
        found = await context.services.groups.fetch_offsets(
            group.group_id, topics, require_stable, (group.member_id, group.member_epoch)
        )
    except KafkaError as error:
        return OffsetFetchResponseGroup(group.group_id, error_code=error.code)
    if group.topics is None and by_id:
        known = context.services.image().topics
        # A deleted topic has no id and is left out.
        found = [(name, partitions) for name, partitions in found if name in known]
        ids = {name: known[name].id for name, _ in found}
    answers = [_topic(name, ids.get(name, ZERO_UUID), partitions) for name, partitions in found]
    return OffsetFetchResponseGroup(group.group_id, answers + unknown)


def _topic(name: str, topic_id: bytes, partitions: Sequence[FetchedOffset]) -> OffsetFetchResponseGroupTopic:
    answers = [OffsetFetchResponseGroupPartition(*partition) for partition in partitions]
    return OffsetFetchResponseGroupTopic(name, topic_id, answers)
