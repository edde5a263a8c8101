"""Requests for many resources of which the client may use half: the work grows with their number, not its square."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_75_describe_topic_partitions
from odradek.api.authorization.guards import GUARDS
from odradek.metadata.image import ClusterImage
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import describe_topic_partitions, find_coordinator, list_offsets, offset_fetch

COUNT = 400
"""Names, of which those with an odd number are denied."""


class Name(str):
    """Counts how often a name is compared with another one."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class Access:
    """Allows every name with an even number, and what has no number."""

    request = ""

    def allows(self, _operation: object, _kind: object, name: str, *, quiet: bool = False) -> bool:
        return not name[1:].isdecimal() or int(name[1:]) % 2 == 0

    def operations(self, _kind: object, _name: str) -> int:
        return 0


def names() -> list[Name]:
    return [Name(f"n{number}") for number in range(COUNT)]


def guarded(key: ApiKey, version: int, request: Any, answer: Any) -> Any:
    access: Any = Access()
    access.request = key.name
    context: Any = SimpleNamespace(version=version, services=None)
    return GUARDS[key](request, context, access, lambda _request, _context: answer)


def coordinators() -> list[int]:
    request = find_coordinator.FindCoordinatorRequest("", 0, list(names()))
    answer = guarded(ApiKey.FIND_COORDINATOR, 4, request, find_coordinator.FindCoordinatorResponse())
    return [each.error_code for each in answer.coordinators]


def offsets_of_one_group() -> list[int]:
    topics = [offset_fetch.OffsetFetchRequestTopic(name, [0]) for name in names()]
    request = offset_fetch.OffsetFetchRequest("group", topics)
    answer = guarded(ApiKey.OFFSET_FETCH, 7, request, offset_fetch.OffsetFetchResponse())
    return [each.partitions[0].error_code for each in answer.topics]


def offsets_of_groups() -> list[int]:
    topics = [offset_fetch.OffsetFetchRequestGroupTopic(name, partition_indexes=[0]) for name in names()]
    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("group", topics=topics)])
    found = offset_fetch.OffsetFetchResponse(groups=[offset_fetch.OffsetFetchResponseGroup("group")])
    answer = guarded(ApiKey.OFFSET_FETCH, 9, request, found)
    return [each.partitions[0].error_code for each in answer.groups[0].topics]


def offsets_by_timestamp() -> list[int]:
    topics = [
        list_offsets.ListOffsetsRequestTopic(name, [list_offsets.ListOffsetsRequestPartition(0)]) for name in names()
    ]
    answer = guarded(
        ApiKey.LIST_OFFSETS, 7, list_offsets.ListOffsetsRequest(topics=topics), list_offsets.ListOffsetsResponse()
    )
    return [each.partitions[0].error_code for each in answer.topics]


def partitions_of_topics() -> list[int]:
    image = ClusterImage()
    services = SimpleNamespace(
        authorization=object(),
        config=SimpleNamespace(number=lambda _name: 2000),
        image=lambda: image,
        leadership=None,
        unreachable=frozenset(),
    )
    topics = [describe_topic_partitions.DescribeTopicPartitionsRequestTopic(name) for name in names()]
    context: Any = SimpleNamespace(services=services, access=Access())
    answer: Any = api_75_describe_topic_partitions.handle(
        describe_topic_partitions.DescribeTopicPartitionsRequest(topics), context
    )
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [each.error_code for each in answer.topics if each.error_code == code]


@pytest.mark.parametrize(
    "ask", [coordinators, offsets_of_one_group, offsets_of_groups, offsets_by_timestamp, partitions_of_topics]
)
def test_names_are_compared_a_few_times_each(ask: Callable[[], list[int]]) -> None:
    Name.compared = 0
    codes = ask()
    assert len(codes) == COUNT // 2
    assert all(codes)
    assert Name.compared < 10 * COUNT
