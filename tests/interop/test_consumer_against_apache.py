"""Our consumer against our own broker and Apache Kafka 4.3: assignors, commits, positions, tables, serializers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import serialization
from pydantic import BaseModel

from odradek.client import (
    Admin,
    BlockingConsumer,
    BlockingProducer,
    BlockingTransactionalProducer,
    CommitFailed,
    Consumer,
    DataclassDeserializer,
    DataclassSerializer,
    DoubleDeserializer,
    DoubleSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JsonDeserializer,
    JsonSerializer,
    LongDeserializer,
    LongSerializer,
    NoOffsetForPartition,
    OffsetAndMetadata,
    OffsetOutOfRange,
    Producer,
    PydanticDeserializer,
    PydanticSerializer,
    StringDeserializer,
    StringSerializer,
    TopicPartition,
    TransactionalProducer,
)
from tests.interop.client_suite import Record, drain, run, until

CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 100}
COORDINATORS: dict[str, Any] = {"group_protocol": "consumer"}
GROUPS = {
    **{each: {**CLASSIC, "partition_assignment_strategy": each} for each in ("range", "roundrobin", "sticky")},
    "cooperative": {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"},
    "upgrading": {**CLASSIC, "partition_assignment_strategy": ["cooperative-sticky", "range"]},
    "uniform": {**COORDINATORS, "group_remote_assignor": "uniform"},
    "remote-range": {**COORDINATORS, "group_remote_assignor": "range"},
}
PROTOCOLS = {"classic": CLASSIC, "consumer": COORDINATORS}


@dataclass
class Order:
    article: str
    count: int


class Parcel(BaseModel):
    article: str
    weight: float


@pytest.fixture(params=PROTOCOLS)
def member(request: pytest.FixtureRequest, suite_server: str, suite_topic: str) -> dict[str, Any]:
    """Options of a member of a group of this test's own."""
    return {
        "bootstrap_servers": suite_server,
        "group_id": suite_topic,
        "auto_offset_reset": "earliest",
        **PROTOCOLS[request.param],
    }


async def fill(server: str, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=server) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=number % 3)


async def committed(server: str, group: str) -> dict[TopicPartition, int]:
    async with Admin(bootstrap_servers=server) as admin:
        return {key: each.offset for key, each in (await admin.groups.offsets(group)).items()}


async def read(consumer: Consumer[Any, Any], count: int) -> list[Record]:
    records: list[Record] = []
    while len(records) < count:
        records += await consumer.poll(200)
    return records


@pytest.mark.parametrize("options", GROUPS.values(), ids=GROUPS)
def test_two_members_read_each_record_once(suite_server: str, suite_topic: str, options: dict[str, Any]) -> None:
    async def body() -> None:
        common: dict[str, Any] = {
            "bootstrap_servers": suite_server,
            "group_id": suite_topic,
            "auto_offset_reset": "earliest",
        }
        async with (
            Consumer(suite_topic, **common, **options) as first,
            Consumer(suite_topic, **common, **options) as second,
        ):
            records: list[Record] = []
            while not first.assignment() or not second.assignment() or first.assignment() & second.assignment():
                records += await first.poll(20) + await second.poll(20)
            assert records == []
            await fill(suite_server, suite_topic, 60)
            while len(records) < 60:
                records += await first.poll(20) + await second.poll(20)
            assert len(first.assignment() | second.assignment()) == 3
        assert sorted(int(each.value) for each in records) == list(range(60))

    run(body())


def test_every_way_of_committing_is_seen_by_the_group(
    suite_server: str, suite_topic: str, member: dict[str, Any]
) -> None:
    first, second = TopicPartition(suite_topic, 0), TopicPartition(suite_topic, 1)
    answered: list[tuple[dict[TopicPartition, OffsetAndMetadata], Exception | None]] = []

    async def body() -> None:
        await fill(suite_server, suite_topic, 30)
        async with Consumer(suite_topic, enable_auto_commit=False, **member) as consumer:
            await read(consumer, 30)
            assert await committed(suite_server, suite_topic) == {}
            await consumer.commit({first: 3})
            assert await committed(suite_server, suite_topic) == {first: 3}
            await consumer.commit({second: OffsetAndMetadata(4, "a note")})
            found = (await consumer.committed([second]))[second]
            assert (found.offset, found.metadata) == (4, "a note")
            await consumer.commit_async({first: 5}, lambda given, error: answered.append((dict(given), error)))
            assert [(given[first].offset, error) for given, error in answered] == [(5, None)]
            await consumer.commit()
            assert set((await committed(suite_server, suite_topic)).values()) == {10}
        async with TransactionalProducer(transactional_id=suite_topic, bootstrap_servers=suite_server) as producer:
            async with producer.transaction():
                await producer.send_offsets(suite_topic, {first: 7})

            async def has_offset_of_the_transaction() -> bool:
                return (await committed(suite_server, suite_topic))[first] == 7

            await until(has_offset_of_the_transaction)  # the marker may follow the answer
        async with Consumer(suite_topic, auto_commit_interval_ms=50, **member) as consumer:
            await read(consumer, 3)  # from offset 7 of the first partition

            async def is_committed() -> bool:
                await consumer.poll(20)
                return (await committed(suite_server, suite_topic))[first] == 10

            await until(is_committed)

    run(body())


def test_member_that_does_not_poll_loses_its_partitions(
    suite_server: str, suite_topic: str, member: dict[str, Any]
) -> None:
    async def body() -> None:
        await fill(suite_server, suite_topic, 3)
        options = {**member, "enable_auto_commit": False}
        async with Consumer(suite_topic, max_poll_interval_ms=400, **options) as idle:
            while len(idle.assignment()) < 3:
                await idle.poll(20)
            async with Consumer(suite_topic, **options) as busy:
                while len(busy.assignment()) < 3:
                    await busy.poll(20)
                with pytest.raises(CommitFailed):
                    await idle.commit({TopicPartition(suite_topic, 0): 1})

    run(body())


def test_positions_move_as_the_program_says(suite_server: str, suite_topic: str) -> None:
    keys = [TopicPartition(suite_topic, number) for number in range(3)]

    async def body() -> None:
        await fill(suite_server, suite_topic, 30)
        async with Consumer(bootstrap_servers=suite_server, max_poll_records=4) as consumer:
            consumer.assign(keys)
            assert await consumer.beginning_offsets(keys) == dict.fromkeys(keys, 0)
            assert await consumer.end_offsets(keys) == dict.fromkeys(keys, 10)
            consumer.seek_to_end()
            assert [await consumer.position(key) for key in keys] == [10, 10, 10]
            consumer.seek(keys[1], 6)
            records = await read(consumer, 4)
            assert [(each.partition, each.offset) for each in records] == [(1, offset) for offset in range(6, 10)]
            assert (consumer.lag(keys[1]), consumer.high_watermark(keys[1])) == (0, 10)
            consumer.pause(keys[:2])
            consumer.seek_to_beginning()
            assert {each.partition for each in await read(consumer, 10)} == {2}
            assert consumer.paused() == set(keys[:2])
            consumer.resume(keys)
            assert len(await read(consumer, 20)) == 20
            assert (await consumer.offsets_for_times({keys[0]: 1 << 60}))[keys[0]] is None

    run(body())


def test_missing_offsets_are_errors_when_asked_for(suite_server: str, suite_topic: str) -> None:
    key = TopicPartition(suite_topic, 0)

    async def body() -> None:
        await fill(suite_server, suite_topic, 3)
        options: dict[str, Any] = {"bootstrap_servers": suite_server, "auto_offset_reset": "none"}
        async with Consumer(group_id=suite_topic, **options) as consumer:
            consumer.assign([key])
            with pytest.raises(NoOffsetForPartition):
                await consumer.poll(5_000)
            consumer.seek(key, 50)
            with pytest.raises(OffsetOutOfRange):
                await read(consumer, 1)
            consumer.seek(key, 0)
            assert len(await read(consumer, 1)) == 1

    run(body())


def test_tables_are_written_in_transactions_and_read_committed(suite_server: str, suite_topic: str) -> None:
    def table(start: int) -> pa.Table:
        numbers = range(start, start + 300)
        return pa.table({"key": [f"k{each}" for each in numbers], "value": [f'{{"n": {each}}}' for each in numbers]})

    async def body() -> None:
        async with TransactionalProducer(transactional_id=suite_topic, bootstrap_servers=suite_server) as producer:
            producer.begin()
            await producer.send_table(table(0), suite_topic, key="key")
            await producer.abort()
            async with producer.transaction():
                await producer.send_table(table(300), suite_topic, key="key")
        options: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
        numbers: list[int] = []
        async with Consumer(suite_topic, bootstrap_servers=suite_server, group_id=suite_topic, **options) as consumer:
            async for found in consumer.arrow(values=pa.schema([("n", pa.int64())])):
                numbers += [each["n"] for each in found["value"].to_pylist()]
                if len(numbers) >= 300:
                    break
        assert sorted(numbers) == list(range(300, 600))

    run(body())


SERIALIZERS: dict[str, tuple[Any, Any, Any, Callable[[bytes], Any] | None]] = {
    "str": (StringSerializer(), StringDeserializer(), "größe", serialization.StringDeserializer()),
    "int": (IntegerSerializer(), IntegerDeserializer(), -7, serialization.IntegerDeserializer()),
    "long": (LongSerializer(), LongDeserializer(), 1 << 40, None),
    "double": (DoubleSerializer(), DoubleDeserializer(), 2.5, serialization.DoubleDeserializer()),
    "json": (JsonSerializer(), JsonDeserializer(), {"a": [1, None]}, None),
    "dataclass": (DataclassSerializer(Order), DataclassDeserializer(Order), Order("tea", 2), None),
    "pydantic": (PydanticSerializer(Parcel), PydanticDeserializer(Parcel), Parcel(article="tea", weight=0.5), None),
}


@pytest.mark.parametrize("kind", SERIALIZERS)
def test_typed_values_are_read_back(suite_server: str, suite_topic: str, kind: str) -> None:
    serializer, deserializer, value, of_confluent = SERIALIZERS[kind]

    async def body() -> None:
        typed: Producer[Any, Any] = Producer(
            bootstrap_servers=suite_server, key_serializer=StringSerializer(), value_serializer=serializer
        )
        async with typed as producer:
            await producer.send_and_wait(suite_topic, value, key="key")
        options: dict[str, Any] = {"key_deserializer": StringDeserializer(), "value_deserializer": deserializer}
        (record,) = await drain(suite_server, suite_topic, **options)
        assert (record.key, record.value) == ("key", value)
        if of_confluent is not None:
            (raw,) = await drain(suite_server, suite_topic)
            assert of_confluent(raw.value) == value

    run(body())


def test_blocking_clients_write_and_read(suite_server: str, suite_topic: str) -> None:
    address: dict[str, Any] = {"bootstrap_servers": suite_server}
    key = TopicPartition(suite_topic, 0)
    with BlockingProducer(**address) as producer:
        deliveries = [producer.send(suite_topic, b"%d" % number, partition=0) for number in range(5)]
        assert [each.result(30).offset for each in deliveries] == list(range(5))
        producer.flush(30)
    with BlockingTransactionalProducer(transactional_id=suite_topic, **address) as writer, writer.transaction():
        writer.send(suite_topic, b"5", partition=0)
    options: dict[str, Any] = {"group_id": suite_topic, "auto_offset_reset": "earliest"}
    found: list[int] = []
    with BlockingConsumer(suite_topic, **address, **options, isolation_level="read_committed") as consumer:
        for record in consumer:
            found.append(int(record.value or b""))
            if len(found) == 3:
                consumer.commit()
                assert consumer.committed([key])[key].offset == 3
            if len(found) == 6:
                break
        consumer.seek(key, 4)
        assert [each.offset for each in consumer.poll(30_000)] == [4, 5]
    assert found == list(range(6))
