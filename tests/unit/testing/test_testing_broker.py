"""`odradek.testing.Broker`: its process, its disk, its clock, its links."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import DeliveryTimedOut
from odradek.client.producer.producer import Producer
from odradek.testing import Broker, BrokerFailed, BrokerTimedOut, Cluster, eventually
from odradek.wire.errors import KafkaError

QUICK: dict[str, Any] = {
    "request_timeout_ms": 1_000,
    "delivery_timeout_ms": 1_500,
    "retry_backoff_ms": 20,
    "retry_backoff_max_ms": 50,
}


def with_broker(test: Callable[[Broker], Awaitable[None]], **arguments: object) -> None:
    async def main() -> None:
        async with Broker(**arguments) as broker:  # type: ignore[arg-type]
            await test(broker)

    asyncio.run(main())


def test_records_come_back_in_order() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic(partitions=2)
        await broker.produce(topic, "a", b"b", None, key="k")
        assert [(record.key, record.value) for record in await broker.records(topic)] == [
            (b"k", b"a"),
            (b"k", b"b"),
            (b"k", None),
        ]

    with_broker(test)


def test_folder_goes_with_the_broker_unless_it_was_given(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker() as broker, Broker(folder=tmp_path / "kept") as kept:
            temporary = broker.folder
            assert temporary.exists()
            await kept.topic("orders")
        assert not temporary.exists()
        async with Broker(folder=tmp_path / "kept") as again:
            assert await again.records("orders") == []

    asyncio.run(main())


def test_killed_broker_has_its_records_and_port_after_a_start() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic()
        await broker.produce(topic, "acknowledged")
        address = broker.bootstrap_servers
        await broker.kill()
        assert not broker.is_running
        await broker.start()
        assert broker.bootstrap_servers == address
        assert [record.value for record in await broker.records(topic)] == [b"acknowledged"]

    with_broker(test)


def test_paused_broker_answers_after_it_was_resumed() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic()
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"before")
            broker.pause()
            delivery = await producer.send(topic, b"during")
            assert not delivery.done()
            broker.resume()
            assert (await delivery).offset == 1

    with_broker(test)


def test_failed_disk_rejects_writes() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic()
        await broker.fail_disk()
        # The broker's last error, if the time for the delivery is over when its answer comes.
        with pytest.raises((DeliveryTimedOut, KafkaError)):
            async with Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as producer:
                await producer.send_and_wait(topic, b"lost")

    with_broker(test)


def test_healed_disk_serves_after_a_restart() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic()
        await broker.produce(topic, "before")
        await broker.fail_disk(errno.ENOSPC)
        await broker.heal_disk()
        await broker.restart()
        await broker.produce(topic, "after")
        assert [record.value for record in await broker.records(topic)] == [b"before", b"after"]

    with_broker(test)


def test_shifted_clock_shows_in_append_times() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic(configs={"message.timestamp.type": "LogAppendTime"})
        await broker.produce(topic, "now")
        await broker.shift_clock(3_600_000)
        await broker.produce(topic, "in an hour")
        now, later = await broker.records(topic)
        assert 3_600_000 <= later.timestamp - now.timestamp < 3_700_000

    with_broker(test)


def test_cut_link_stops_its_own_clients_only() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic()
        address = broker.link("worker").bootstrap_servers
        async with Producer(bootstrap_servers=address, **QUICK) as producer:
            await producer.send_and_wait(topic, b"by the link")
            broker.cut("worker")
            delivery = await producer.send(topic, b"waits")
            await broker.produce(topic, "directly")
            assert not delivery.done()
            broker.heal("worker")
            await delivery
        assert {record.value for record in await broker.records(topic)} == {b"by the link", b"directly", b"waits"}

    with_broker(test, links=["worker"])


def test_silent_link_carries_what_was_sent_meanwhile() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic()
        link = broker.link("worker")
        async with Producer(bootstrap_servers=link.bootstrap_servers) as producer:
            await producer.send_and_wait(topic, b"1")
            link.cut(silently=True)
            delivery = await producer.send(topic, b"2")
            await broker.produce(topic, "3")
            assert not delivery.done()
            link.heal()
            assert (await delivery).offset == 2

    with_broker(test, links=["worker"])


def test_start_says_why_the_settings_were_rejected() -> None:
    async def main() -> None:
        with pytest.raises(BrokerFailed, match=r"num\.partitions"):
            async with Broker({"num.partitions": "many"}):
                pass

    asyncio.run(main())


def test_cluster_serves_after_its_leader_was_killed() -> None:
    async def main() -> None:
        async with Cluster(3) as cluster:
            topic = await cluster.topic()
            await cluster.produce(topic, "before")
            leader = await cluster.leader_of(topic)
            await leader.kill()
            await cluster.produce(topic, "after")
            assert [record.value for record in await cluster.records(topic)] == [b"before", b"after"]
            assert await eventually(lambda: _leads_elsewhere(cluster, topic, leader))

    asyncio.run(main())


async def _leads_elsewhere(cluster: Cluster, topic: str, former: Broker) -> bool:
    return await cluster.leader_of(topic) is not former


def test_group_reads_through_a_link() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic()
        await broker.produce(topic, "1", "2")
        address = broker.link("worker").bootstrap_servers
        async with Consumer(topic, bootstrap_servers=address, group_id="g", auto_offset_reset="earliest") as consumer:
            found: list[bytes] = []
            while len(found) < 2:
                found += [record.value for record in await consumer.poll(100)]
        assert found == [b"1", b"2"]

    with_broker(test, links=["worker"])


async def throttled_ms(broker: Broker, topic: str, client_id: str) -> float:
    """The longest time that a producer was asked to wait after it had written 60 KB."""
    async with Producer(bootstrap_servers=broker.bootstrap_servers, client_id=client_id) as producer:
        for _ in range(6):
            await producer.send_and_wait(topic, bytes(10_000))
        return producer.metrics().value("produce-throttle-time-max")


def test_throttle_limits_the_client_that_it_names_until_it_ends() -> None:
    async def test(broker: Broker) -> None:
        topic = await broker.topic()
        await broker.throttle(5_000, client_id="slow")
        assert await throttled_ms(broker, topic, "slow") > 0
        assert await throttled_ms(broker, topic, "other") == 0
        await broker.throttle(None, client_id="slow")
        async with broker.admin() as admin:
            assert await admin.quotas.describe() == {}

    with_broker(test)


def test_throttle_of_a_user_and_of_all_clients_are_quotas_of_kafka() -> None:
    async def test(broker: Broker) -> None:
        await broker.throttle(1_000_000, user="alice", client_id="one")
        await broker.throttle(2_000_000, user="bob")
        await broker.throttle(3_000_000)
        async with broker.admin() as admin:
            found = {tuple(entity.parts): quotas for entity, quotas in (await admin.quotas.describe()).items()}
        assert found == {
            parts: {"producer_byte_rate": rate, "consumer_byte_rate": rate}
            for parts, rate in {
                (("client-id", "one"), ("user", "alice")): 1_000_000.0,
                (("user", "bob"),): 2_000_000.0,
                (("client-id", None),): 3_000_000.0,
            }.items()
        }

    with_broker(test)


@pytest.mark.parametrize("limit", [0, -1.5, float("nan")])
def test_throttle_that_is_not_above_zero_is_an_error(limit: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        asyncio.run(Broker(folder=tmp_path).throttle(limit))


def test_broker_in_the_process_restarts_on_its_data_and_fails_on_command() -> None:
    async def test(broker: Broker) -> None:
        topic, port = await broker.topic(), broker.port
        assert broker.pid == os.getpid()
        await broker.produce(topic, "1")
        await broker.restart()
        assert broker.port == port
        assert [record.value for record in await broker.records(topic)] == [b"1"]
        await broker.fail_disk(errno.ENOSPC)
        async with Producer(bootstrap_servers=broker.bootstrap_servers, **QUICK) as producer:
            with pytest.raises((KafkaError, DeliveryTimedOut)):
                await producer.send_and_wait(topic, b"2")
        assert "no space left" in broker.log().lower()

    with_broker(test, in_process=True)


def test_broker_in_the_process_can_be_neither_killed_nor_paused() -> None:
    async def test(broker: Broker) -> None:
        with pytest.raises(BrokerFailed, match="cannot be killed"):
            await broker.kill()
        with pytest.raises(BrokerFailed, match="cannot be paused"):
            broker.pause()
        with pytest.raises(BrokerFailed, match="cannot be paused"):
            broker.resume()
        assert broker.is_running

    with_broker(test, in_process=True)


def test_brokers_in_the_process_have_ports_and_logs_of_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        async with Broker(in_process=True) as first, Broker(folder=tmp_path, in_process=True) as second:
            await first.topic("orders")
            async with second.admin() as admin:
                assert await admin.list_topics() == []
        assert not first.is_running
        assert first.pid is None

    asyncio.run(main())


def test_broker_in_the_process_reports_why_it_does_not_start(tmp_path: Path) -> None:
    async def main(settings: dict[str, object], timeout_s: float = 30) -> None:
        broker = Broker(settings, folder=tmp_path, in_process=True)
        try:
            await broker.start(timeout_s)
        finally:
            await broker.close()
        assert not broker.is_running

    with pytest.raises(BrokerFailed, match=r"num\.partitions"):
        asyncio.run(main({"num.partitions": "many"}))
    with pytest.raises(BrokerTimedOut, match="does not serve after 0 s"):
        asyncio.run(main({}, 0))


def test_child_broker_leaves_sockets_of_other_libraries_alone() -> None:
    """PySpark closes its connection to Java in a forked process, and uvloop's subprocesses are forked."""
    program = """
import os, socket, uvloop
from odradek.testing import Broker

kept, peer = socket.socketpair()
os.register_at_fork(after_in_child=lambda: kept.shutdown(socket.SHUT_RDWR))

async def main():
    async with Broker() as broker:
        await broker.topic("orders")

uvloop.run(main())
kept.sendall(b"alive")
print(peer.recv(5).decode())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "alive\n", done.stderr
