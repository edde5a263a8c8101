"""Calls that wait while another task closes their client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

import pytest

from odradek.client import Admin, Consumer, Producer
from odradek.client.errors import ClientClosed
from odradek.records.topic_partition import TopicPartition
from odradek.wire.apis import ApiKey
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster, silent

Call = Callable[[Any], Coroutine[Any, Any, Any]]
T0 = TopicPartition("t", 0)


class Unreachable(FakeCluster):
    """Brokers that neither accept a connection nor refuse it."""

    async def connect(self, *_: Any, **__: Any) -> NoReturn:
        await asyncio.Event().wait()
        raise AssertionError


def mute() -> FakeCluster:
    cluster = FakeCluster()
    for key in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP):
        cluster.script(key, silent, silent)
    return cluster


async def poll_assigned(consumer: Consumer) -> Any:
    consumer.assign([T0])
    return await consumer.poll(10_000)


async def position(consumer: Consumer) -> int:
    consumer.assign([T0])
    return await consumer.position(T0)


@pytest.mark.parametrize("cluster_of", [Unreachable, mute])
@pytest.mark.parametrize(
    ("client_of", "call"),
    [
        (Producer, lambda client: client.send("t", b"x")),
        (Admin, lambda client: client.list_topics()),
        (Admin, lambda client: client.groups.describe(["g"])),
        (Consumer, lambda client: client.partitions_for("t")),
        (Consumer, position),
        (Consumer, poll_assigned),
        (lambda **given: Consumer("t", group_id="g", **given), lambda client: client.poll(10_000)),
        (lambda **given: Consumer(group_id="g", **given), lambda client: client.committed([T0])),
    ],
)
def test_waiting_call_fails_when_its_client_is_closed(
    client_of: Callable[..., Any], call: Call, cluster_of: Callable[[], FakeCluster]
) -> None:
    async def main() -> None:
        client = client_of(network=cluster_of(), **OPTIONS)
        await client.start()
        task = asyncio.create_task(call(client))
        await asyncio.sleep(0.02)
        await client.close()
        async with asyncio.timeout(10):
            with pytest.raises(ClientClosed):
                await task

    asyncio.run(main())


def test_cancelled_call_does_not_cancel_the_others() -> None:
    async def main() -> None:
        async with Admin(network=mute(), **OPTIONS) as admin:
            first, second = (asyncio.create_task(admin.cluster.refresh_metadata()) for _ in range(2))
            await asyncio.sleep(0.02)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert not second.done()
        with pytest.raises(ClientClosed):
            await second

    asyncio.run(main())
