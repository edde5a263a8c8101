"""Our client against Apache Kafka 4.3 and against our own broker, with librdkafka as the third opinion."""

import asyncio
import io
import json
import time
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Consumer as RdConsumer
from confluent_kafka import Producer as RdProducer

from odradek.client import (
    Admin,
    AvroValues,
    Consumer,
    FixedSchemas,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
    TransactionalProducer,
)
from odradek.client.admin import AlterConfig, ConfigResource, ConfigResourceType, raise_first
from odradek.client.blocking import Blocking
from odradek.client.errors import ProducerFenced
from odradek.client.framing import framed
from odradek.client.model import ConsumerRecord
from tests.interop.client_suite import drain, run, topic_with_leaders, until


@pytest.fixture
def topic(server: str, unique_name: Callable[[str], str]) -> str:
    """A topic of three partitions that has its leaders."""
    return topic_with_leaders(server, unique_name("client"))


def rd_read(server: str, topic: str, count: int) -> list[Any]:
    consumer = RdConsumer(
        {"bootstrap.servers": server, "group.id": f"rd-{topic}", "auto.offset.reset": "earliest", "check.crcs": True}
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 60
    messages: list[Any] = []
    while len(messages) < count and time.monotonic() < deadline:
        messages += [each for each in consumer.consume(1000, 0.5) if each.error() is None]
    consumer.close()
    return messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_we_produce_librdkafka_reads(server: str, topic: str, codec: str) -> None:
    async def produce() -> None:
        async with Producer(bootstrap_servers=server, compression_type=codec) as producer:
            for number in range(2000):
                await producer.send(topic, b"value-%d" % number, b"key-%d" % (number % 50), [("h", b"x"), ("n", None)])

    run(produce())
    messages = rd_read(server, topic, 2000)
    assert sorted(int(each.value().split(b"-")[1]) for each in messages) == list(range(2000))
    assert messages[0].headers() == [("h", b"x"), ("n", None)]
    for key in {each.key() for each in messages}:
        numbers = [int(each.value().split(b"-")[1]) for each in messages if each.key() == key]
        assert numbers == sorted(numbers)


def test_keys_land_where_librdkafka_puts_them_as_java_does(server: str, topic: str) -> None:
    rd = RdProducer({"bootstrap.servers": server, "partitioner": "murmur2_random", "compression.type": "zstd"})
    for number in range(300):
        rd.produce(topic, b"rd", b"key-%d" % number)
    rd.flush(30)

    async def body() -> None:
        async with Producer(bootstrap_servers=server) as producer:
            for number in range(300):
                await producer.send(topic, b"ours", b"key-%d" % number)
        records = await drain(server, topic)
        assert len(records) == 600
        places = {(each.key, each.partition) for each in records}
        assert len(places) == 300

    run(body())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_shared_with_librdkafka(server: str, topic: str, protocol: str) -> None:
    """One member of ours and one of librdkafka's share the partitions; nothing is read twice or left out."""
    classic = {"partition.assignment.strategy": "cooperative-sticky"}
    common = {"bootstrap.servers": server, "group.id": topic, "auto.offset.reset": "earliest"}
    rd = RdConsumer({**common, **(classic if protocol == "classic" else {"group.protocol": "consumer"})})
    rd.subscribe([topic])
    seen: list[tuple[int | None, int | None]] = []

    async def body() -> None:
        loop = asyncio.get_running_loop()
        options: dict[str, Any] = {"group_protocol": "consumer"}
        if protocol == "classic":
            options = {"heartbeat_interval_ms": 200, "partition_assignment_strategy": "cooperative-sticky"}
        async with Producer(bootstrap_servers=server) as producer:
            async with Consumer(
                topic, bootstrap_servers=server, group_id=topic, auto_offset_reset="earliest", **options
            ) as c:
                while not (rd.assignment() and c.assignment()) or len(rd.assignment()) + len(c.assignment()) < 3:
                    await c.poll(50)
                    await loop.run_in_executor(None, rd.poll, 0.05)
                for number in range(600):
                    await producer.send(topic, b"x", partition=number % 3)
                await producer.flush()
                while len(seen) < 600:
                    seen.extend((each.partition, each.offset) for each in await c.poll(50))
                    found = await loop.run_in_executor(None, rd.consume, 500, 0.05)
                    seen.extend((each.partition(), each.offset()) for each in found)
        rd.close()

    run(body())
    assert sorted(seen) == [(partition, offset) for partition in range(3) for offset in range(200)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_resumes_where_it_committed(server: str, topic: str, protocol: str) -> None:
    options: dict[str, Any] = {"group_protocol": protocol, "auto_offset_reset": "earliest", "enable_auto_commit": False}

    async def body() -> None:
        async with Producer(bootstrap_servers=server) as producer:
            for number in range(300):
                await producer.send(topic, b"%d" % number)
        values: list[Any] = []
        for _ in range(3):
            async with Consumer(topic, bootstrap_servers=server, group_id=topic, **options) as consumer:
                async for record in consumer:
                    values.append(record.value)
                    if len(values) % 100 == 0:
                        await consumer.commit()
                        break
        assert sorted(int(each) for each in values) == list(range(300))
        async with Admin(bootstrap_servers=server) as admin:
            committed = await admin.groups.offsets(topic)
            assert sum(each.offset for each in committed.values()) == 300
            assert (await admin.groups.describe([topic]))[topic].state == "Empty"  # type: ignore[union-attr]
            assert raise_first(await admin.groups.delete([topic])) == {topic: None}

    run(body())


def test_transactions_are_seen_whole_or_not_at_all(server: str, topic: str) -> None:
    class Oops(Exception):
        pass

    async def aborted(producer: TransactionalProducer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"aborted", partition=0)
            await producer.producer.flush()
            raise Oops

    async def body() -> None:
        async with TransactionalProducer(transactional_id=topic, bootstrap_servers=server) as producer:
            async with producer.transaction():
                for number in range(6):
                    await producer.send(topic, b"kept-%d" % number, partition=number % 3)
                await producer.send_offsets(topic, {TopicPartition(topic, 0): 2})
            with pytest.raises(Oops):
                await aborted(producer)
            async with producer.transaction():
                await producer.send(topic, b"kept-6", partition=0)
            async with TransactionalProducer(transactional_id=topic, bootstrap_servers=server):
                with pytest.raises(ProducerFenced):
                    async with producer.transaction():
                        await producer.send(topic, b"zombie", partition=0)
        committed = await drain(server, topic, isolation_level="read_committed")
        assert sorted(bytes(each.value) for each in committed) == [b"kept-%d" % n for n in range(7)]  # type: ignore[call-overload]
        everything = await drain(server, topic)
        assert b"aborted" in [each.value for each in everything]
        async with Admin(bootstrap_servers=server) as admin:
            assert (await admin.groups.offsets(topic))[TopicPartition(topic, 0)].offset == 2

    run(body())


def test_admin(server: str, topic: str) -> None:
    async def body() -> None:
        async with Admin(bootstrap_servers=server) as admin:
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            raise_first(await admin.alter_configs({resource: [AlterConfig("retention.ms", "12345")]}))

            async def altered() -> bool:
                keys = ["retention.ms", "cleanup.policy"]
                described = raise_first(await admin.describe_configs([resource], keys=keys))[resource]
                return described["retention.ms"].value == "12345" and described["cleanup.policy"].is_default

            await until(altered)
            assert raise_first(await admin.create_partitions({topic: 5})) == {topic: None}

            async def grown() -> bool:
                return len(raise_first(await admin.describe_topics([topic]))[topic].partitions) == 5

            await until(grown)
            assert topic in await admin.list_topics()
            again = await admin.create_topics([NewTopic(topic, 1)])
            assert isinstance(again[topic], KafkaError)
            assert (await admin.describe_cluster()).brokers
            assert raise_first(await admin.delete_topics([topic])) == {topic: None}

    run(body())


def test_blocking_face(server: str, topic: str) -> None:
    with Blocking() as blocking:
        producer = blocking.open(Producer(bootstrap_servers=server))
        delivery = blocking.run(producer.send(topic, b"v", b"k"))
        where = blocking.run(delivery)
        consumer = blocking.open(Consumer(bootstrap_servers=server, auto_offset_reset="earliest"))
        blocking.call(consumer.assign, [where.topic_partition])
        record = next(blocking.iterate(consumer))
        assert (record.key, record.value, record.offset) == (b"k", b"v", where.offset)
        raw = blocking.run(consumer.fetch_raw(topic, where.partition, where.offset))
        assert b"v" in bytes(raw.batches)


def test_records_are_found_by_time_and_read_in_every_way(server: str, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    begin = int(time.time() * 1_000) - 60_000  # retention would delete records of the past

    async def body() -> None:
        async with Producer(bootstrap_servers=server) as producer:
            for number in range(10):
                headers = {"number": b"%d" % number}
                await producer.send(topic, b"v", b"k", headers, partition=0, timestamp_ms=begin + number * 1_000)
            await producer.send(topic, b"other", partition=1)
            await producer.flush()
        async with Consumer(bootstrap_servers=server, auto_offset_reset="earliest") as consumer:
            found = (await consumer.offsets_for_times({first: begin + 6_500}))[first]
            assert found is not None
            assert (found.offset, found.timestamp) == (7, begin + 7_000)
            consumer.assign([first, second])
            consumer.pause([second])
            consumer.seek(first, 7)
            records: list[ConsumerRecord] = []
            while len(records) < 3:
                records += await consumer.poll(1_000)
            assert [list(each.headers) for each in records] == [[("number", b"%d" % number)] for number in (7, 8, 9)]
            assert {each.timestamp_type for each in records} == {0}
            assert consumer.lag(first) == 0
            consumer.seek(first, 8)
            batch = await anext(consumer.batches())
            assert (batch.offsets[0], batch.timestamps[0], len(batch)) == (8, begin + 8_000, 2)
            consumer.resume([second])
            consumer.seek_to_beginning([first, second])
            rows: list[dict[str, Any]] = []
            async for table in consumer.arrow(include_headers=True):
                rows += table.to_pylist()
                if len(rows) >= 11:
                    break
            places = sorted((each["partition"], each["offset"]) for each in rows)
            assert places == [*((0, number) for number in range(10)), (1, 0)]

    run(body())


def test_tables_in_avro_are_sent_and_read(server: str, topic: str) -> None:
    schema: dict[str, Any] = {"type": "record", "name": "Row", "fields": [{"name": "number", "type": "long"}]}

    def encoded(number: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"number": number})
        return framed(7, out.getvalue())

    async def body() -> None:
        sent = pa.table({"key": [f"k{number}" for number in range(50)], "value": [encoded(each) for each in range(50)]})
        async with Producer(bootstrap_servers=server) as producer:
            assert await producer.send_table(sent, topic, key="key") == 50
        values = AvroValues(schema, schemas=FixedSchemas({7: json.dumps(schema)}))
        options = {"bootstrap_servers": server, "group_id": topic, "auto_offset_reset": "earliest"}
        async with Consumer.from_config(options, topic) as consumer:
            numbers: list[int] = []
            async for table in consumer.arrow(values=values):
                numbers += [each["number"] for each in table["value"].to_pylist()]
                if len(numbers) >= 50:
                    break
            assert sorted(numbers) == list(range(50))
            await consumer.commit()
            assert sum(each.offset for each in (await consumer.committed(consumer.assignment())).values()) == 50

    run(body())


def test_metrics_count_what_was_sent_and_read(server: str, topic: str) -> None:
    async def body() -> None:
        async with Producer(bootstrap_servers=server) as producer:
            for number in range(30):
                await producer.send(topic, b"%d" % number)
            await producer.flush()
            sent = producer.metrics()
            # A broker that does not know yet that it leads a new topic makes the client send again.
            again = sent.value("record-retry-total", topic=topic)
            assert sent.value("record-send-total", topic=topic) - again == 30
            assert sent.value("record-error-total") == 0
            assert sent.value("request-latency-avg") > 0
        options = {"bootstrap_servers": server, "group_id": topic, "auto_offset_reset": "earliest"}
        async with Consumer.from_config(options, topic) as consumer:
            read = 0
            while read < 30:
                read += len(await consumer.poll(timeout_ms=1000))
            await consumer.commit()
            metrics = consumer.metrics()
            assert metrics.value("records-consumed-total", topic=topic) == 30
            assert metrics.value("commit-total") >= 1
            assert metrics.value("rebalance-total") >= 1
            assert metrics.value("assigned-partitions") == len(consumer.assignment())
            assert metrics.value("join-time-max") > 0
            lags = [each.value for each in metrics if each.name == "records-lag"]
            assert sum(lags) == 0

    run(body())
