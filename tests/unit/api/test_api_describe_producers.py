"""DescribeProducers: only a leader describes; each partition has an answer of its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from odradek.api import api_61_describe_producers
from odradek.api.requests.long_work import LongWork
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)


class Replica:
    """A partition with producers; only a leader may describe it."""

    def __init__(self, *, leads: bool, count: int = 1) -> None:
        self.leads = leads
        producers = {
            5 + number: SimpleNamespace(
                producer_id=5 + number,
                epoch=3,
                last_sequence=9,
                last_timestamp=77,
                coordinator_epoch=2,
                transaction_first_offset=11,
            )
            for number in range(count)
        }
        self.log = SimpleNamespace(history=SimpleNamespace(producers=SimpleNamespace(producers=producers)))

    def check_leader(self) -> None:
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads")


def context_with(require: Any, slice_ms: int) -> Any:
    services = SimpleNamespace(
        partitions=SimpleNamespace(require=require),
        long_work=LongWork(lambda: 0.0, slice_ms),
        quotas=SimpleNamespace(request=SimpleNamespace(active=False)),
    )
    return SimpleNamespace(services=services)


def received(answer: DescribeProducersResponse) -> list[Any]:
    """The partitions of the first topic, as a client decodes them."""
    out = bytearray()
    answer.encode(out, 0)
    decoded, _ = DescribeProducersResponse.decode(memoryview(out), 0, 0)
    return list(decoded.topics[0].partitions)


def describe(*partitions: int) -> list[Any]:
    replicas = {0: Replica(leads=True), 1: Replica(leads=False)}

    def require(topic: str, index: int) -> Any:
        if index not in replicas:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return replicas[index]

    context = context_with(require, slice_ms=4)
    request = DescribeProducersRequest([DescribeProducersRequestTopic("t", list(partitions))])
    answer: Any = api_61_describe_producers.handle(request, context)
    return received(answer)


def test_leader_describes_its_producers() -> None:
    (found,) = describe(0)
    (producer,) = found.active_producers
    assert (found.partition_index, found.error_code) == (0, ErrorCode.NONE)
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 3, 9)
    assert (producer.last_timestamp, producer.coordinator_epoch) == (77, 2)
    assert producer.current_txn_start_offset == 11


def test_replica_that_is_not_the_leader_describes_nothing() -> None:
    """Its state may lag behind: a tool would take a hanging transaction for one that ended."""
    found = describe(0, 1, 2)
    assert [each.error_code for each in found] == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert [len(each.active_producers) for each in found] == [1, 0, 0]


def test_many_producers_are_described_in_slices() -> None:
    """The event loop serves others between two of them."""
    replica = Replica(leads=True, count=1000)
    request = DescribeProducersRequest([DescribeProducersRequestTopic("t", [0, 1])])
    turns = 0

    async def describe_beside_others() -> Any:
        nonlocal turns
        context = context_with(lambda _topic, _index: replica, slice_ms=0)
        answer: Any = api_61_describe_producers.handle(request, context)
        waiting = asyncio.ensure_future(answer)
        while not waiting.done():
            turns += 1
            await asyncio.sleep(0)
        return waiting.result()

    found = received(asyncio.run(describe_beside_others()))
    assert [row.partition_index for row in found] == [0, 1]
    assert all([each.producer_id for each in row.active_producers] == list(range(5, 1005)) for row in found)
    assert turns > 2 * 1000 / 200
