"""A leader that stands still keeps its connections: a producer does not wait for its request timeout."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.client import Producer
from odradek.client.producer import silent_leaders
from odradek.client.producer.accumulator import Delivery
from odradek.wire.apis import ApiKey
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster, silent
from tests.unit.client.virtual_time import run_in_virtual_time

PARTITION = 1
"""Broker 2 leads it: broker 1, the bootstrap server, answers metadata."""


def run(cluster: FakeCluster, body: Callable[[Producer], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), Producer(network=cluster, **OPTIONS, linger_ms=0, **options) as producer:
            await body(producer)

    run_in_virtual_time(main())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


async def sent_to_a_leader_that_falls_silent(cluster: FakeCluster, producer: Producer) -> Delivery:
    """The leader has answered `first`, and has the request with `second`."""
    await producer.send_and_wait("t", b"first", partition=PARTITION)
    cluster.script(ApiKey.PRODUCE, silent)
    delivery = await producer.send("t", b"second", partition=PARTITION)
    await until(lambda: cluster.count(ApiKey.PRODUCE) == 2)
    return delivery


def test_batch_of_a_silent_leader_goes_to_its_successor() -> None:
    cluster = FakeCluster(brokers=2, topics={"t": 2})

    async def body(producer: Producer) -> None:
        delivery = await sent_to_a_leader_that_falls_silent(cluster, producer)
        cluster.move_leader("t", PARTITION, 1)
        await delivery
        assert cluster.values(partition=PARTITION) == [b"first", b"second"]

    run(cluster, body, request_timeout_ms=600_000, delivery_timeout_ms=1_200_000)


@pytest.mark.parametrize("idempotent", [True, False])
def test_batch_leaves_a_leader_that_accepts_connections_and_stands_still(idempotent: bool) -> None:
    """It was not sent, so it is written once either way."""
    cluster = FakeCluster(brokers=2, topics={"t": 2})

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"elsewhere", partition=0)
        known = cluster.count(ApiKey.API_VERSIONS)
        cluster.script(ApiKey.API_VERSIONS, silent)
        delivery = await producer.send("t", b"first", partition=PARTITION)
        await until(lambda: cluster.count(ApiKey.API_VERSIONS) == known + 1)
        cluster.move_leader("t", PARTITION, 1)
        await delivery
        assert cluster.values(partition=PARTITION) == [b"first"]

    run(cluster, body, enable_idempotence=idempotent, request_timeout_ms=600_000, delivery_timeout_ms=1_200_000)


def test_metadata_is_asked_of_another_broker_than_one_that_is_silent() -> None:
    """A producer whose leader has moved does not wait for the metadata of a broker that stands still."""
    cluster = FakeCluster(brokers=2, topics={"t": 2})

    async def body(producer: Producer) -> None:
        for partition in (0, PARTITION):
            await producer.send_and_wait("t", b"first", partition=partition)
        cluster.script(ApiKey.METADATA, silent)
        cluster.move_leader("t", PARTITION, 1)
        await producer.send_and_wait("t", b"second", partition=PARTITION)
        asked = [node_id for node_id, key, _, _ in cluster.requests if key == ApiKey.METADATA]
        assert sorted(asked[-2:]) == [1, 2]

    run(cluster, body, request_timeout_ms=600_000, delivery_timeout_ms=1_200_000)


def test_silent_leader_that_still_leads_is_waited_for() -> None:
    """Its replicas may be slow. Another broker is asked who leads, and the request stays."""
    cluster = FakeCluster(brokers=2, topics={"t": 2})

    async def body(producer: Producer) -> None:
        delivery = await sent_to_a_leader_that_falls_silent(cluster, producer)
        asked = len(cluster.requests)
        await until(lambda: len(cluster.requests) >= asked + 3)
        assert {(node_id, key) for node_id, key, _, _ in cluster.requests[asked:]} == {(1, ApiKey.METADATA)}
        assert not delivery.done()
        cluster.move_leader("t", PARTITION, 1)
        await delivery

    run(cluster, body, request_timeout_ms=600_000, delivery_timeout_ms=1_200_000)


def test_silent_leader_makes_few_requests_for_metadata() -> None:
    """An answer that the leader still leads is not the occasion for the next request: that would be a storm."""
    cluster = FakeCluster(brokers=2, topics={"t": 2})

    async def body(producer: Producer) -> None:
        delivery = await sent_to_a_leader_that_falls_silent(cluster, producer)
        asked = cluster.count(ApiKey.METADATA)
        await asyncio.sleep(silent_leaders.SILENT_S + 20 * silent_leaders.ASK_S)
        assert 18 <= cluster.count(ApiKey.METADATA) - asked <= 22
        cluster.move_leader("t", PARTITION, 1)
        await delivery

    run(cluster, body, request_timeout_ms=600_000, delivery_timeout_ms=1_200_000)


def test_leader_that_still_leads_another_batch_is_waited_for() -> None:
    cluster = FakeCluster(brokers=2, topics={"t": 4})

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"first", partition=PARTITION)
        cluster.script(ApiKey.PRODUCE, silent, silent)
        deliveries = []
        for requests, partition in ((2, PARTITION), (3, 3)):
            deliveries.append(await producer.send("t", b"second", partition=partition))
            while cluster.count(ApiKey.PRODUCE) < requests:
                await asyncio.sleep(0.001)
        cluster.move_leader("t", PARTITION, 1)
        asked = cluster.count(ApiKey.METADATA)
        await until(lambda: cluster.count(ApiKey.METADATA) >= asked + 3)
        assert cluster.values(partition=PARTITION) == [b"first"]
        cluster.move_leader("t", 3, 1)
        for delivery in deliveries:
            await delivery

    run(cluster, body, request_timeout_ms=600_000, delivery_timeout_ms=1_200_000)


def test_producer_without_sequence_numbers_waits_for_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that is sent to another leader may be written twice, so it is not sent without need."""
    cluster = FakeCluster(brokers=2, topics={"t": 2})

    async def body(producer: Producer) -> None:
        delivery = await sent_to_a_leader_that_falls_silent(cluster, producer)
        cluster.move_leader("t", PARTITION, 1)
        asked = cluster.count(ApiKey.METADATA)
        looks: list[None] = []
        monkeypatch.setattr(silent_leaders.SilentLeaders, "look", lambda *_: looks.append(None))
        await delivery
        assert cluster.count(ApiKey.METADATA) == asked + 1, "after the connection was given up"
        assert not looks

    run(cluster, body, enable_idempotence=False, request_timeout_ms=10_000, delivery_timeout_ms=1_200_000)


def test_leader_that_answers_is_not_doubted() -> None:
    cluster = FakeCluster(brokers=2, topics={"t": 2})

    async def body(producer: Producer) -> None:
        await producer.send_and_wait("t", b"first", partition=PARTITION)
        asked = cluster.count(ApiKey.METADATA)
        for number in range(20):
            await producer.send_and_wait("t", b"%d" % number, partition=PARTITION)
            await asyncio.sleep(silent_leaders.SILENT_S / 2)
        assert cluster.count(ApiKey.METADATA) == asked

    run(cluster, body, metadata_max_age_ms=600_000)
