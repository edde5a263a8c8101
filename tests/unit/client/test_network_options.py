"""Options of connections and metadata: idle connections, buffers, names, time to connect, and recovery."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import CallTimedOut, Disconnected
from odradek.client.network.cluster import Cluster
from odradek.client.producer.producer import Producer
from odradek.testing import BlockingBroker
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import MetadataResponse
from tests.unit.client.consumers import until
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster, silent

pytestmark = pytest.mark.usefixtures("each_loop")


@pytest.fixture(scope="module")
def kafka() -> Iterator[BlockingBroker]:
    with BlockingBroker() as broker:
        yield broker


def administer(cluster: FakeCluster, body: Callable[[Admin], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(20), Admin(network=cluster, **{**OPTIONS, **options}) as admin:
            await body(admin)

    asyncio.run(main())


# --- idle connections ---


def test_idle_connection_is_closed_and_opened_again_without_a_pause() -> None:
    cluster = FakeCluster()

    async def body(admin: Admin) -> None:
        connections = admin.cluster.connections
        for _ in range(3):
            await admin.list_topics()
            connection = connections.opened(1)
            assert connection is not None
            await until(lambda: not connections.open_count)
            assert "connections_max_idle_ms" in str(connection.closed)
            assert all(slot.failures == 0 and not slot.retry_at for slot in connections._by_address.values())
        (traffic,) = connections.traffic.values()
        assert (traffic.connections_opened, traffic.connections_closed) == (3, 3)

    administer(cluster, body, connections_max_idle_ms=20)


def test_connection_that_waits_for_an_answer_is_not_idle() -> None:
    cluster = FakeCluster(brokers=2)

    async def body(admin: Admin) -> None:
        connections = admin.cluster.connections
        await admin.list_topics()
        await connections.get(1)
        cluster.script(ApiKey.DESCRIBE_QUORUM, silent)
        busy = connections.opened(1)
        assert busy is not None
        waiting = asyncio.create_task(admin.describe_quorum())
        await until(lambda: cluster.count(ApiKey.DESCRIBE_QUORUM))
        for _ in range(3):
            # Another connection, younger than the busy one, is closed as idle.
            other = await connections.get(2)
            while other.closed is None:
                await asyncio.sleep(0.001)
        assert busy.closed is None
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    administer(cluster, body, connections_max_idle_ms=10)


def test_producer_of_an_idle_connection_sends_over_a_new_one(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=1)

    async def main() -> None:
        given: Any = {"bootstrap_servers": kafka.bootstrap_servers, "enable_metrics_push": False}
        async with asyncio.timeout(60), Producer(connections_max_idle_ms=50, **given) as producer:
            for number in range(3):
                assert (await producer.send_and_wait(topic, b"x")).offset == number
                await until(lambda: not producer.cluster.connections.open_count)

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_paused_member_reads_on_over_a_new_connection(kafka: BlockingBroker, protocol: str) -> None:
    topic = kafka.topic(partitions=1)

    async def main() -> list[int]:
        given: Any = {
            "bootstrap_servers": kafka.bootstrap_servers,
            "group_id": f"{topic}-{protocol}",
            "group_protocol": protocol,
            "auto_offset_reset": "earliest",
            "connections_max_idle_ms": 100,
            "fetch_max_wait_ms": 20,
            "enable_metrics_push": False,
        }
        found: list[int] = []
        async with asyncio.timeout(60), Consumer(topic, **given) as consumer:
            connections = consumer.cluster.connections
            kafka.produce(topic, "1")
            while len(found) < 1:
                found += [each.offset for each in await consumer.poll(100)]
            generation = consumer.group_metadata().generation
            consumer.pause(consumer.assignment())
            while connections.opened(1) is not None:
                assert await consumer.poll(10) == []
            consumer.resume(consumer.assignment())
            kafka.produce(topic, "2")
            while len(found) < 2:
                found += [each.offset for each in await consumer.poll(100)]
            assert consumer.group_metadata().generation == generation
        return found

    assert asyncio.run(main()) == [0, 1]


def test_connection_stays_open_where_idle_ones_are_not_closed() -> None:
    async def body(admin: Admin) -> None:
        await admin.list_topics()
        connections = admin.cluster.connections
        assert connections.open_count
        assert (connections._idle_timer is None) == (admin.config["connections_max_idle_ms"] < 0)

    for idle_ms in (-1, 540_000):
        administer(FakeCluster(), body, connections_max_idle_ms=idle_ms)


# --- buffers, names and time to connect ---


def test_buffers_of_connections_have_the_given_sizes(kafka: BlockingBroker) -> None:
    async def main(**sizes: int) -> list[int]:
        async with Admin(bootstrap_servers=kafka.bootstrap_servers, **sizes) as admin:  # type: ignore[arg-type]
            connection = await admin.cluster.connections.any()
            sock: socket.socket = connection._stream._socket  # type: ignore[attr-defined]
            return [sock.getsockopt(socket.SOL_SOCKET, each) for each in (socket.SO_SNDBUF, socket.SO_RCVBUF)]

    asked = asyncio.run(main(send_buffer_bytes=20_000, receive_buffer_bytes=30_000))
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 30_000)
        expected = [own.getsockopt(socket.SOL_SOCKET, each) for each in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    assert asked == expected
    assert asyncio.run(main())[0] > expected[0]


def test_bootstrap_servers_are_replaced_by_canonical_names(kafka: BlockingBroker) -> None:
    async def main(address: str) -> set[str]:
        given: Any = {"bootstrap_servers": address, "client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
        async with Admin(**given) as admin:
            await admin.cluster.connections.any()
            return {host for host, _ in admin.cluster.connections.traffic}

    name, _ = socket.getnameinfo(("127.0.0.1", kafka.port), 0)
    assert asyncio.run(main(kafka.bootstrap_servers)) == {name}


def test_bootstrap_server_without_an_address_leaves_the_others(kafka: BlockingBroker) -> None:
    async def main() -> None:
        servers = f"no-such-host.invalid:9092,{kafka.bootstrap_servers}"
        given: Any = {"bootstrap_servers": servers, "client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
        async with Admin(**given) as admin:
            await admin.list_topics()

    asyncio.run(main())


def test_time_to_connect_doubles_up_to_its_maximum() -> None:
    class Unreachable(FakeCluster):
        async def connect(self, host: str, port: int, timeout: float, *_: Any, **__: Any) -> Any:
            timeouts.append(timeout)
            raise TimeoutError

    timeouts: list[float] = []

    async def body(admin: Admin) -> None:
        for _ in range(5):
            with pytest.raises(Disconnected):
                await admin.cluster.connections.any()

    given = {"socket_connection_setup_timeout_ms": 1_000, "socket_connection_setup_timeout_max_ms": 5_000}
    administer(Unreachable(), body, **given)
    assert timeouts == [1.0, 2.0, 4.0, 5.0, 5.0]


# --- recovery of metadata ---


def wants_rebootstrap(*_: Any) -> Any:
    return MetadataResponse(brokers=[], error_code=ErrorCode.REBOOTSTRAP_REQUIRED)


def knows_no_brokers(*_: Any) -> Any:
    return MetadataResponse(brokers=[])


def test_client_rebootstraps_when_a_broker_asks_for_it() -> None:
    cluster = FakeCluster(brokers=2)

    async def body(admin: Admin) -> None:
        await admin.list_topics()
        before = await admin.cluster.connections.any()
        cluster.script(ApiKey.METADATA, wants_rebootstrap)
        assert await admin.cluster.refresh_metadata() == {}
        assert before.closed is not None
        assert "a broker asks for it" in str(before.closed)
        assert sorted(admin.cluster.metadata.brokers) == [1, 2]
        assert cluster.requests[-1][0] == 1, "the bootstrap server"

    administer(cluster, body)


def test_second_rebootstrap_in_a_row_is_an_error_that_is_retried_later() -> None:
    cluster = FakeCluster()

    async def body(admin: Admin) -> None:
        cluster.script(ApiKey.METADATA, wants_rebootstrap, wants_rebootstrap)
        with pytest.raises(KafkaError) as raised:
            await admin.cluster.refresh_metadata()
        assert raised.value.code is ErrorCode.REBOOTSTRAP_REQUIRED
        await admin.cluster.refresh_metadata()

    administer(cluster, body)


def test_client_without_recovery_raises_what_the_broker_asks_for() -> None:
    cluster = FakeCluster()

    async def body(admin: Admin) -> None:
        await admin.list_topics()
        cluster.script(ApiKey.METADATA, wants_rebootstrap)
        with pytest.raises(KafkaError) as raised:
            await admin.cluster.refresh_metadata()
        assert raised.value.code is ErrorCode.REBOOTSTRAP_REQUIRED
        assert admin.cluster.metadata.brokers

    administer(cluster, body, metadata_recovery_strategy="none")


@pytest.mark.parametrize(
    ("strategy", "trigger_ms", "recovers"),
    [("rebootstrap", 0, True), ("rebootstrap", 60_000, False), ("none", 0, False)],
)
def test_known_brokers_are_given_up_after_the_trigger_s_time(strategy: str, trigger_ms: int, recovers: bool) -> None:
    cluster = FakeCluster()

    async def body(admin: Admin) -> None:
        await admin.list_topics()
        before = await admin.cluster.connections.any()
        cluster.script(ApiKey.METADATA, knows_no_brokers)
        with pytest.raises(Exception, match="does not know its cluster"):
            await admin.cluster.refresh_metadata()
        assert (before.closed is not None) == recovers
        assert bool(admin.cluster.metadata.brokers) != recovers
        await admin.cluster.refresh_metadata()
        assert admin.cluster.metadata.brokers

    given = {"metadata_recovery_strategy": strategy, "metadata_recovery_rebootstrap_trigger_ms": trigger_ms}
    administer(cluster, body, **given)


@pytest.mark.parametrize(("strategy", "recovers"), [("rebootstrap", True), ("none", False)])
def test_bootstrap_servers_are_tried_when_no_known_broker_can_be_reached(strategy: str, recovers: bool) -> None:
    """The cluster has moved: broker 2 alone is known, and gone; the bootstrap server is broker 1."""
    cluster = FakeCluster(brokers=2)

    async def body(admin: Admin) -> None:
        cluster.brokers[1].up = True
        await admin.list_topics()
        known = dict(admin.cluster.metadata.brokers)
        admin.cluster.metadata.brokers = {2: known[2]}
        admin.cluster.connections.update_brokers({2: known[2]})
        for stream in list(cluster.brokers[1].streams):
            stream.end()
        cluster.stop(2)
        await until(lambda: not admin.cluster.connections.open_count)
        if recovers:
            await admin.list_topics()
            assert sorted(admin.cluster.metadata.brokers) == [1]
        else:
            with pytest.raises(CallTimedOut):
                await admin.list_topics()

    administer(cluster, body, metadata_recovery_strategy=strategy, default_api_timeout_ms=200)


def test_work_continues_after_a_rebootstrap(kafka: BlockingBroker) -> None:
    topic = kafka.topic(partitions=1)

    async def main() -> None:
        async with asyncio.timeout(60), Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"1")
            cluster: Cluster = producer.cluster
            cluster._rebootstrap("a test")
            assert not cluster.metadata.brokers
            assert (await producer.send_and_wait(topic, b"2")).offset == 1

    asyncio.run(main())


# --- partitions of leaders that accept nothing ---


@pytest.mark.parametrize(
    ("options", "avoids"),
    [
        ({"partitioner_availability_timeout_ms": 1}, True),
        ({"partitioner_availability_timeout_ms": 0}, False),
        ({"partitioner_availability_timeout_ms": 1, "partitioner_adaptive_partitioning_enable": False}, False),
    ],
)
def test_records_without_a_key_avoid_a_leader_that_accepts_none(options: dict[str, Any], avoids: bool) -> None:
    cluster = FakeCluster(brokers=2, topics={"t": 2})

    async def main() -> None:
        given: Any = {**OPTIONS, **options}
        async with asyncio.timeout(20), Producer(network=cluster, linger_ms=0, **given) as producer:
            await producer.partitions_for("t")
            cluster.stop(2)
            stuck = await producer.send("t", b"to broker 2", partition=1)
            stuck_leaders = producer.sender.stuck
            await until(lambda: not avoids or stuck_leaders.is_stuck("t", 1))
            partitioner: Any = producer._partitioner
            drawn = {partitioner._draw("t", 2, [0, 1]) for _ in range(200)}
            assert drawn == ({0} if avoids else {0, 1})
            assert not stuck_leaders.is_stuck("t", 0)
            cluster.brokers[2].up = True
            await stuck
            assert not stuck_leaders.is_stuck("t", 1)
            assert {partitioner._draw("t", 2, [0, 1]) for _ in range(200)} == {0, 1}

    asyncio.run(main())


def test_load_does_not_count_without_adaptive_partitioning() -> None:
    async def main() -> None:
        for is_adaptive in (True, False):
            given: Any = {**OPTIONS, "partitioner_adaptive_partitioning_enable": is_adaptive}
            async with Producer(network=FakeCluster(), **given) as producer:
                assert (producer._partitioner._load is not None) == is_adaptive  # type: ignore[union-attr]

    asyncio.run(main())
