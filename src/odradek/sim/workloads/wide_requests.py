"""Requests for all partitions of a wide topic at once: what would hold the event loop if it were served in one step."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

from odradek.client.admin import Admin, NewTopic
from odradek.records.builder import BatchFields, encode_batch
from odradek.sim.workloads.clients import FAILURES, app_random, note_failure
from odradek.sim.world.hosts import ClientHost
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)
from odradek.wire.messages.fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from odradek.wire.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)

WIDTH: Final = 200
"""Partitions of a wide topic."""
PLANNED_WIDTH: Final = 2000
"""Partitions of a topic whose creation is only validated: to create them would take the simulation too long."""
_PLANS: Final = 0.3
_NAMED_UP_TO: Final = 12
"""The last version of Fetch, and of Produce below it, in which topics have names."""
_LATEST: Final = -1


async def ask_widely(host: ClientHost) -> None:
    """Create wide topics, write to, look up and read all their partitions, and delete them."""
    world, rng = host.world, app_random(host)
    while not world.is_stopping():
        topic = f"wide-{rng.randrange(1 << 32)}"
        try:
            async with Admin(**host.options()) as admin:
                await _one_life(host, admin, topic, rng)
        except FAILURES as error:
            note_failure(host, "ask widely", error)
            await asyncio.sleep(0.2)


async def _one_life(host: ClientHost, admin: Admin, topic: str, rng: random.Random) -> None:
    fresh = (await admin.create_topics([NewTopic(topic, WIDTH, 1)]))[topic]
    if isinstance(fresh, Exception):
        host.world.mark(f"wide topic: {type(fresh).__name__}")
        return
    for _ in range(rng.randrange(2, 6)):
        await asyncio.sleep(rng.expovariate(0.7))
        if rng.random() < _PLANS:
            await admin.create_topics([NewTopic(f"{topic}-planned", PLANNED_WIDTH, 1)], validate_only=True)
            continue
        request, response, at_most = rng.choice((_produce, _produce, _fetch, _list_offsets, _describe))(topic)
        connection = await admin.cluster.connections.get(host.world.brokers[0].node_id)
        answer = await admin.cluster.ask(connection, request, response, at_most=at_most)
        if isinstance(answer, ProduceResponse):
            codes = {row.error_code for each in answer.responses for row in each.partition_responses}
            host.world.mark(f"wide produce: {', '.join(ErrorCode(code).name for code in sorted(codes))}")
    await admin.delete_topics([topic])


def _produce(topic: str) -> tuple[Any, Any, int]:
    rows = [
        ProduceRequestPartition(index, encode_batch([(1, b"k", b"v", ())], BatchFields(producer_id=-1)))
        for index in range(WIDTH)
    ]
    topics = [ProduceRequestTopic(topic, partition_data=rows)]
    return ProduceRequest(None, 1, 4_000, topics), ProduceResponse, _NAMED_UP_TO


def _fetch(topic: str) -> tuple[Any, Any, int]:
    rows = [FetchRequestPartition(index, fetch_offset=0, partition_max_bytes=1000) for index in range(WIDTH)]
    topics = [FetchRequestTopic(topic, partitions=rows)]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics), FetchResponse, _NAMED_UP_TO


def _list_offsets(topic: str) -> tuple[Any, Any, int]:
    rows = [ListOffsetsRequestPartition(index, -1, _LATEST) for index in range(WIDTH)]
    return ListOffsetsRequest(-1, 0, [ListOffsetsRequestTopic(topic, rows)]), ListOffsetsResponse, 7


def _describe(topic: str) -> tuple[Any, Any, int]:
    topics = [DescribeProducersRequestTopic(topic, list(range(WIDTH)))]
    return DescribeProducersRequest(topics), DescribeProducersResponse, 0
