"""ListOffsets for many partitions, which is answered in slices."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from odradek.api.api_02_list_offsets import LATEST, handle
from odradek.api.requests.long_work import LongWork
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)


class Replica:
    leader_epoch = 3
    leader_epoch_start_offset = 0
    high_watermark = 7
    log = SimpleNamespace(end_offset=7)

    def __init__(self) -> None:
        self.leads = True

    def check_leader(self, _epoch: int) -> None:
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def upper_offset(self, _isolation: int) -> int:
        return self.high_watermark


def answered(replicas: list[Replica], indexes: list[int], slice_ms: int = 0) -> ListOffsetsResponse:
    """The answer; the last replica resigns after the first turn of the loop."""
    services = SimpleNamespace(
        partitions=SimpleNamespace(require=lambda _topic, index: replicas[index]),
        long_work=LongWork(lambda: 0.0, slice_ms),
        quotas=SimpleNamespace(request=SimpleNamespace(active=False)),
    )
    context: Any = SimpleNamespace(services=services, version=7)
    rows = [ListOffsetsRequestPartition(index, -1, LATEST) for index in indexes]
    request = ListOffsetsRequest(
        -1, 0, [ListOffsetsRequestTopic("a", rows[:2]), ListOffsetsRequestTopic("b", rows[2:])]
    )

    async def play() -> ListOffsetsResponse:
        waiting: Any = handle(request, context)
        if isinstance(waiting, ListOffsetsResponse):
            return waiting
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        replicas[-1].leads = False
        return await task  # type: ignore[no-any-return]

    return asyncio.run(play())


def test_few_partitions_are_answered_at_once() -> None:
    found = answered([Replica() for _ in range(3)], [0, 1, 2], slice_ms=4)
    assert [(row.partition_index, row.error_code) for topic in found.topics for row in topic.partitions] == [
        (0, 0),
        (1, 0),
        (2, 0),
    ]


def test_each_partition_is_checked_in_its_slice() -> None:
    """A leader that resigned since the request came does not answer."""
    found = answered([Replica() for _ in range(4)], [0, 1, 2, 3])
    assert [
        (topic.name, [(row.partition_index, row.error_code) for row in topic.partitions]) for topic in found.topics
    ] == [
        ("a", [(0, 0), (1, 0)]),
        ("b", [(2, 0), (3, ErrorCode.NOT_LEADER_OR_FOLLOWER)]),
    ]


def test_partition_named_twice_is_invalid_in_slices_too() -> None:
    found = answered([Replica() for _ in range(4)], [0, 1, 1, 2])
    assert [row.error_code for topic in found.topics for row in topic.partitions] == [0, 0, 0, 0]
    found = answered([Replica() for _ in range(4)], [0, 1, 2, 2])
    assert [row.error_code for topic in found.topics for row in topic.partitions] == [
        0,
        0,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
