"""Where connectors continue, by what brokers keep for them: offsets, and ids of producers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from odradek.client.admin import raise_first
from odradek.client.admin.admin import Admin
from odradek.client.admin.topics import NewTopic
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import CallTimedOut
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import TransactionalProducer
from odradek.connect import topics
from odradek.connect.config_store import TopicConfigs
from odradek.connect.errors import ConnectError, PositionMoved, TargetAway
from odradek.connect.model import Batch, SinkRecord, Target
from odradek.connect.plugins import TaskPlace, check_config, find
from odradek.connect.sinks.cluster import ClusterSink
from odradek.connect.sources.source import StoredOffsets
from odradek.connect.topics import StoredConnectors
from odradek.connect.worker import Worker, WorkerSettings
from odradek.records.topic_partition import TopicPartition
from odradek.testing.blocking import BlockingBroker
from odradek.testing.broker import Broker
from odradek.wire.errors import ErrorCode, KafkaError


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    """The broker of this module."""
    with BlockingBroker() as started:
        yield started


@pytest.fixture(scope="module")
def forgetful() -> Iterator[BlockingBroker]:
    """A broker that forgets the producers of idle transactional ids after a second, and not after a week."""
    settings = {
        "transactional.id.expiration.ms": 1_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 200,
    }
    with BlockingBroker(settings) as started:
        yield started


@pytest.fixture
def name() -> str:
    """A name of the test's own, for connectors and topics."""
    return f"c-{uuid4().hex[:10]}"


def test_offsets_behind_an_open_transaction_are_read(broker: BlockingBroker, name: str) -> None:
    """Tasks share the partitions of the topic of offsets; one may have died within its transaction."""
    clients: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    topic = f"offsets-{name}"

    async def write(producer: TransactionalProducer[Any, Any], connector: str, position: int) -> None:
        key, value = topics.offset_key(connector, {"file": "a"}), topics.offset_value({"position": position})
        await producer.send_and_wait(topic, value, key)

    async def run() -> int:
        async with Admin(**clients) as admin:
            await topics.create_compacted(admin, topic, 1)
        async with (
            TransactionalProducer[Any, Any](**clients, transactional_id=f"{name}-other") as other,
            TransactionalProducer[Any, Any](**clients, transactional_id=f"{name}-own") as own,
        ):
            async with own.transaction():
                await write(own, name, 1)
            other.begin()
            await write(other, "other", 7)
            async with own.transaction():
                await write(own, name, 2)
            reading = asyncio.create_task(topics.read_offsets(clients, topic, name))
            await asyncio.wait((reading,), timeout=1)
            await other.abort()
            found = (await reading).of({"file": "a"})
            return int(found["position"]) if found else 0

    assert asyncio.run(run()) == 2


def test_source_continues_with_the_first_record_where_older_ones_expired(broker: BlockingBroker, name: str) -> None:
    """The other cluster deleted records that were not copied yet; the records behind them are all there."""
    clients: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    plugin = find("ClusterSource")
    assert plugin is not None
    config = {
        "name": name,
        "connector.class": "ClusterSource",
        "source.bootstrap.servers": broker.bootstrap_servers,
        "topics": name,
    }

    async def run() -> list[int]:
        async with Producer[Any, Any](**clients) as producer, Admin(**clients) as admin:
            for number in range(5):
                await producer.send_and_wait(name, b"%d" % number, partition=0)
            await admin.delete_records({TopicPartition(name, 0): 3})
        source: Any = plugin.make(check_config(plugin, config).valid(), config, TaskPlace(name, 0, 1))
        stored = StoredOffsets()
        stored.set({"partition": 0, "topic": name}, {"offset": 1})
        await source.open(stored)
        found: list[int] = []
        try:
            for _ in range(20):
                found += [int(each.value) for each in await source.poll()]
                if found:
                    break
        finally:
            await source.close()
        return found

    assert asyncio.run(run()) == [3, 4]


@pytest.mark.parametrize("named_by", ["topics", "topics.regex"])
def test_source_reads_the_topics_that_there_are(named_by: str, name: str) -> None:
    """One is missing, the other cluster makes none, and options of consumers do not hinder the look for names."""
    plugin = find("ClusterSource")
    assert plugin is not None
    with BlockingBroker({"auto.create.topics.enable": False}) as other:
        clients: dict[str, Any] = {"bootstrap_servers": other.bootstrap_servers}
        config = {
            "name": name,
            "connector.class": "ClusterSource",
            "source.bootstrap.servers": other.bootstrap_servers,
            "source.fetch.max.bytes": "100000",
            "refresh.topics.interval.ms": "50",
            named_by: f"{name}-a,{name}-b" if named_by == "topics" else f"{name}-.*",
        }

        async def produce(topic: str) -> None:
            async with Admin(**clients) as admin, Producer[Any, Any](**clients) as producer:
                raise_first(await admin.create_topics([NewTopic(topic, 1, 1)]))
                await producer.send_and_wait(topic, b"1")

        async def run() -> set[str]:
            await produce(f"{name}-a")
            source: Any = plugin.make(check_config(plugin, config).valid(), config, TaskPlace(name, 0, 1))
            await source.open(StoredOffsets())
            found: set[str] = set()
            try:
                async with asyncio.timeout(30):
                    while len(found) < 1:
                        found.update(each.topic for each in await source.poll())
                    await produce(f"{name}-b")
                    while len(found) < 2:
                        found.update(each.topic for each in await source.poll())
            finally:
                await source.close()
            return found

        assert asyncio.run(run()) == {f"{name}-a", f"{name}-b"}


def test_source_fails_where_the_other_log_ends_before_its_offset(broker: BlockingBroker, name: str) -> None:
    """The consumer is reset to the beginning; the records from there on were copied before the log was truncated."""
    plugin = find("ClusterSource")
    assert plugin is not None
    config = {
        "name": name,
        "connector.class": "ClusterSource",
        "source.bootstrap.servers": broker.bootstrap_servers,
        "topics": name,
    }

    async def run() -> None:
        async with Producer[Any, Any](bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send_and_wait(name, b"1", partition=0)
        source: Any = plugin.make(check_config(plugin, config).valid(), config, TaskPlace(name, 0, 1))
        stored = StoredOffsets()
        stored.set({"partition": 0, "topic": name}, {"offset": 7})
        await source.open(stored)
        try:
            async with asyncio.timeout(30):
                while not await source.poll():
                    pass
        finally:
            await source.close()

    with pytest.raises(ConnectError, match="read again from offset 0, but was read up to 7"):
        asyncio.run(run())


@pytest.mark.parametrize("restarts", [True, False], ids=["at-its-start", "while-it-runs"])
def test_source_reads_a_topic_that_was_created_again_from_its_beginning(
    broker: BlockingBroker, name: str, restarts: bool
) -> None:
    """It continued at the offset in the former topic, and left out the records before it."""
    clients: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    plugin = find("ClusterSource")
    assert plugin is not None
    config = {
        "name": name,
        "connector.class": "ClusterSource",
        "source.bootstrap.servers": broker.bootstrap_servers,
        "topics": name,
    }

    async def produce(*numbers: int) -> None:
        async with Producer[Any, Any](**clients) as producer:
            for number in numbers:
                await producer.send_and_wait(name, b"%d" % number, partition=0)

    async def read(source: Any, count: int, stored: StoredOffsets) -> list[int]:
        found: list[int] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                for each in await source.poll():
                    stored.set(each.source_partition, each.source_offset)
                    found.append(int(each.value))
        return found

    async def run() -> list[int]:
        source: Any = plugin.make(check_config(plugin, config).valid(), config, TaskPlace(name, 0, 1))
        stored = StoredOffsets()
        await produce(0, 1)
        await source.open(stored)
        assert await read(source, 2, stored) == [0, 1]
        async with Admin(**clients) as admin:
            raise_first(await admin.delete_topics([name]))
            while name in await admin.list_topics():
                await asyncio.sleep(0.05)
        await produce(*range(10, 15))
        if restarts:
            await source.open(stored)
        try:
            return await read(source, 5, stored)
        finally:
            await source.close()

    assert asyncio.run(run()) == [10, 11, 12, 13, 14]


async def wait_until_forgotten(admin: Admin, transactional_id: str) -> None:
    """Wait until the coordinator has removed the transactional id."""
    async with asyncio.timeout(60):
        while True:
            found = (await admin.transactions.describe([transactional_id]))[transactional_id]
            if isinstance(found, KafkaError) and found.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return
            await asyncio.sleep(0.05)


async def stored_configs(clients: dict[str, Any], topic: str) -> dict[str, dict[str, str]]:
    found = StoredConnectors()
    async for each in topics.read_all(clients, topic):
        found.apply(each.key, each.value)
    return found.configs


def test_changes_of_several_connectors_at_once_are_stored(broker: BlockingBroker, name: str) -> None:
    """Each is a transaction of the same producer."""
    clients: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    names = {f"{name}-{number}" for number in range(5)}

    async def run() -> StoredConnectors:
        async with Admin(**clients) as admin:
            await topics.create_compacted(admin, name, 1)
        store = TopicConfigs(clients, clients, name)
        await store.open()
        await asyncio.gather(*(store.set_config(each, {"topics": "x"}, Target.PAUSED) for each in names))
        await asyncio.gather(*(store.set_target(each, Target.STARTED) for each in names))
        await store.close()
        found = StoredConnectors()
        async for each in topics.read_all(clients, name):
            found.apply(each.key, each.value)
        return found

    found = asyncio.run(run())
    assert found.configs.keys() == names
    assert found.targets == {}


def test_configuration_is_stored_after_a_week_without_a_change(forgetful: BlockingBroker, name: str) -> None:
    clients: dict[str, Any] = {"bootstrap_servers": forgetful.bootstrap_servers}

    async def run() -> dict[str, dict[str, str]]:
        async with Admin(**clients) as admin:
            await topics.create_compacted(admin, name, 1)
            store = TopicConfigs(clients, clients, name)
            await store.open()
            await store.set_config("c", {"n": "1"}, Target.STARTED)
            await wait_until_forgotten(admin, f"connect-worker-{name}")
            await store.set_config("c", {"n": "2"}, Target.STARTED)
            await store.close()
        return await stored_configs(clients, name)

    assert asyncio.run(run()) == {"c": {"n": "2"}}


def test_configuration_is_stored_once_the_brokers_are_back(name: str) -> None:
    """A change that they did not answer in time is an error; the next one is stored."""

    async def run() -> dict[str, dict[str, str]]:
        async with Broker(links=("worker",)) as broker:
            clients: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
            async with Admin(**clients) as admin:
                await topics.create_compacted(admin, name, 1)
            link = broker.link("worker")
            limits = {
                "max_block_ms": 500,
                "delivery_timeout_ms": 1_000,
                "request_timeout_ms": 500,
                "reconnect_backoff_max_ms": 100,
            }
            store = TopicConfigs({"bootstrap_servers": link.bootstrap_servers, **limits}, clients, name)
            await store.open()
            link.cut()
            with pytest.raises(CallTimedOut):
                await store.set_config("c", {"n": "1"}, Target.STARTED)
            with pytest.raises(CallTimedOut):
                await store.set_config("c", {"n": "2"}, Target.STARTED)
            link.heal()
            await store.set_config("c", {"n": "3"}, Target.STARTED)
            await store.close()
            return await stored_configs(clients, name)

    assert asyncio.run(run()) == {"c": {"n": "3"}}


async def values_of(clients: dict[str, Any], topic: str, count: int) -> list[bytes]:
    """The first committed values of a topic."""
    options = {**clients, "auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    found: list[bytes] = []
    async with Consumer[Any, Any](topic, **options) as consumer, asyncio.timeout(60):
        while len(found) < count:
            found += [each.value for each in await consumer.poll(timeout_ms=200)]
    return found


def test_source_writes_after_a_week_without_a_record(forgetful: BlockingBroker, name: str, tmp_path: Path) -> None:
    clients: dict[str, Any] = {"bootstrap_servers": forgetful.bootstrap_servers}
    path = tmp_path / "in.txt"
    path.write_text("a\n")
    config = {"connector.class": "FileStreamSource", "file": str(path), "topic": name, "poll.interval.ms": "50"}

    async def run() -> list[bytes]:
        worker = Worker(WorkerSettings(clients))
        await worker.start()
        try:
            async with Admin(**clients) as admin:
                await worker.create(name, config)
                await values_of(clients, name, 1)
                await wait_until_forgotten(admin, f"connect-{name}-0")
            with path.open("a") as file:
                file.write("b\n")
            return await values_of(clients, name, 2)
        finally:
            await worker.close()

    assert asyncio.run(run()) == [b"a", b"b"]


def test_cluster_sink_writes_after_a_week_without_a_record(forgetful: BlockingBroker, name: str) -> None:
    clients: dict[str, Any] = {"bootstrap_servers": forgetful.bootstrap_servers}
    partition = TopicPartition(name, 0)

    def batch(offset: int, value: bytes) -> Batch:
        record = SinkRecord(partition, offset, 1_000, None, None, (), None, value, name)
        return Batch((record,), {partition: offset + 1})

    async def run() -> list[bytes]:
        sink = ClusterSink({"topic.format": "copy-${topic}", "batch.size": 10}, clients, name)
        await sink.open()
        await sink.write(batch(0, b"a"))
        async with Admin(**clients) as admin:
            await wait_until_forgotten(admin, name)
        with pytest.raises(TargetAway):
            await sink.write(batch(1, b"b"))
        with pytest.raises(PositionMoved):
            await sink.write(batch(1, b"b"))
        assert await sink.positions([partition]) == {partition: 1}
        await sink.write(batch(1, b"b"))
        await sink.close()
        return await values_of(clients, f"copy-{name}", 2)

    assert asyncio.run(run()) == [b"a", b"b"]


def test_cluster_sink_keeps_positions_of_topics_that_have_other_names(
    broker: BlockingBroker, forgetful: BlockingBroker, name: str
) -> None:
    """The other cluster has no topic of the name that is read, so its groups have no offsets of it."""
    clients: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
    target: dict[str, Any] = {"bootstrap_servers": forgetful.bootstrap_servers}
    config = {
        "connector.class": "ClusterSink",
        "topics": name,
        "target.bootstrap.servers": forgetful.bootstrap_servers,
        "topic.format": "copy-${topic}",
    }

    async def produce(*values: bytes) -> None:
        async with Producer[Any, Any](**clients) as producer:
            for each in values:
                await producer.send(name, each, partition=0)

    async def run() -> list[bytes]:
        await produce(b"a", b"b")
        for count in (2, 3):
            worker = Worker(WorkerSettings(clients))
            await worker.start()
            try:
                await worker.create(name, config)
                copied = await values_of(target, f"copy-{name}", count)
            finally:
                await worker.close()
            await produce(b"c")
        async with Admin(**target) as admin:
            found = await admin.groups.offsets(f"connect-{name}")
        assert {each: at.offset for each, at in found.items()} == {TopicPartition(f"copy-{name}", 0): 3}
        return copied

    assert asyncio.run(run()) == [b"a", b"b", b"c"]
