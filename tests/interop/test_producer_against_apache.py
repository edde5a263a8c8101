"""Our producer against our own broker and Apache Kafka 4.3: partitions, acknowledgements, lost connections."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Producer as RdProducer

from odradek.client import (
    BufferExhausted,
    Consumer,
    ErrorCode,
    KafkaError,
    Producer,
    RecordMetadata,
    TopicPartition,
    TransactionalProducer,
)
from odradek.client.producer.partitioners import ConsistentPartitioner, RoundRobinPartitioner
from tests.interop.client_suite import drain, run

KEYS = [b"key-%d" % number for number in range(60)]


class ByFirstByte:
    """A partitioner of a program's own."""

    def partition(self, topic: str, key: bytes | None, count: int, available: Sequence[int]) -> int:
        return key[0] % count if key else 0


@pytest.mark.parametrize("kind", ["murmur2_random", "consistent_random"])
def test_keys_are_placed_as_by_librdkafka(suite_server: str, suite_topic: str, kind: str) -> None:
    rd = RdProducer({"bootstrap.servers": suite_server, "partitioner": kind, "linger.ms": 0})
    for key in KEYS:
        rd.produce(suite_topic, b"", key)
    assert rd.flush(30) == 0
    partitioner = ConsistentPartitioner() if kind == "consistent_random" else None

    async def body() -> None:
        async with Producer(bootstrap_servers=suite_server, partitioner=partitioner) as producer:
            for key in KEYS:
                await producer.send(suite_topic, b"", key)
        records = await drain(suite_server, suite_topic)
        assert len(records) == 2 * len(KEYS)
        assert len({(each.key, each.partition) for each in records}) == len(KEYS)

    run(body())


def test_partitioners_choose_the_partition(suite_server: str, suite_topic: str) -> None:
    async def places(partitioner: Any, **options: Any) -> list[int]:
        async with Producer(bootstrap_servers=suite_server, partitioner=partitioner, **options) as producer:
            await producer.partitions_for(suite_topic)
            sent = [await producer.send(suite_topic, b"", bytes([number])) for number in range(9)]
            return [(await each).partition for each in sent]

    async def body() -> None:
        assert await places(ByFirstByte()) == [number % 3 for number in range(9)]
        in_turn = await places(RoundRobinPartitioner())
        assert in_turn == [(in_turn[0] + number) % 3 for number in range(9)]
        assert len(set(await places(None, partitioner_ignore_keys=True))) == 1  # all in one batch

    run(body())


def test_retried_batches_are_written_once_in_order(suite_server: str, suite_topic: str) -> None:
    """The connection is closed with requests in flight."""

    async def body() -> None:
        async with Producer(bootstrap_servers=suite_server, linger_ms=0, retry_backoff_ms=20) as producer:
            await producer.partitions_for(suite_topic)
            (node_id,) = producer.cluster.metadata.brokers
            for number in range(1, 401):
                await producer.send(suite_topic, b"%d" % number, partition=0)
                if number % 50 == 0:
                    connection = producer.cluster.connections.opened(node_id)
                    while connection is None or not connection.versions:
                        await asyncio.sleep(0)
                        connection = producer.cluster.connections.opened(node_id)
                    await asyncio.sleep(0)
                    connection.close()
            await producer.flush()
            assert producer.metrics().value("record-error-total") == 0
        values = [int(each.value) for each in await drain(suite_server, suite_topic)]
        assert values == list(range(1, 401))

    run(body())


def test_callbacks_report_each_record_with_its_place(suite_server: str, suite_topic: str) -> None:
    placed: list[RecordMetadata] = []
    failed: list[Exception] = []

    def delivered(place: RecordMetadata | None, error: Exception | None) -> None:
        if error is not None:
            failed.append(error)
        if place is not None:
            placed.append(place)

    async def body() -> None:
        # The client allows more than the broker does, and a single record cannot be divided.
        async with Producer(bootstrap_servers=suite_server, max_request_size=8_000_000) as producer:
            for number in range(20):
                await producer.send(suite_topic, b"%d" % number, partition=1, on_delivery=delivered)
            await producer.flush()
            await producer.send(suite_topic, bytes(2_000_000), partition=1, on_delivery=delivered)
            await producer.flush()  # the callback has the failure
            with pytest.raises(KafkaError) as refused:
                await producer.send_and_wait(suite_topic, bytes(2_000_000), partition=1)
            assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert [(each.partition, each.offset) for each in placed] == [(1, number) for number in range(20)]
        assert [getattr(each, "code", None) for each in failed] == [ErrorCode.MESSAGE_TOO_LARGE]

    run(body())


def test_flush_reports_its_progress(suite_server: str, suite_topic: str) -> None:
    waiting: list[int] = []

    async def body() -> None:
        async with Producer(bootstrap_servers=suite_server, linger_ms=60_000, batch_size=1_000) as producer:
            for number in range(300):
                await producer.send(suite_topic, b"%d" % number, partition=number % 3)
            await producer.flush(on_progress=waiting.append)
        assert waiting[0] > 0 == waiting[-1]
        assert waiting == sorted(waiting, reverse=True)
        assert len(await drain(suite_server, suite_topic)) == 300

    run(body())


@pytest.mark.parametrize("acks", ["all", 1, 0])
def test_acknowledgements_are_as_asked_for(suite_server: str, suite_topic: str, acks: str | int) -> None:
    async def body() -> None:
        idempotent = acks == "all"
        async with Producer(bootstrap_servers=suite_server, acks=acks, enable_idempotence=idempotent) as producer:
            places = [await producer.send_and_wait(suite_topic, b"x", partition=0) for _ in range(3)]
        assert [each.offset for each in places] == ([-1, -1, -1] if acks == 0 else [0, 1, 2])
        assert len(await drain(suite_server, suite_topic)) == 3

    run(body())


def test_headers_keep_their_order_names_and_absent_values(suite_server: str, suite_topic: str) -> None:
    pairs = [("trace", b"1"), ("trace", b"2"), ("empty", b""), ("none", None), ("größe", "ü".encode())]

    async def body() -> None:
        async with Producer(bootstrap_servers=suite_server) as producer:
            await producer.send_and_wait(suite_topic, b"pairs", headers=pairs, partition=0)
            await producer.send_and_wait(suite_topic, b"mapping", headers=dict(pairs), partition=0)
            await producer.send_and_wait(suite_topic, None, b"deleted", partition=0)
        first, second, third = await drain(suite_server, suite_topic)
        assert list(first.headers) == pairs
        assert list(second.headers) == list(dict(pairs).items())
        assert (third.key, third.value, list(third.headers)) == (b"deleted", None, [])

    run(body())


@pytest.mark.parametrize(("codec", "level"), [("gzip", 9), ("lz4", 12), ("zstd", 19), ("snappy", None), ("none", None)])
def test_compressed_batches_are_read_back(suite_server: str, suite_topic: str, codec: str, level: int | None) -> None:
    options: dict[str, Any] = {"compression_type": codec, "compression_level": level, "linger_ms": 60_000}

    async def body() -> None:
        async with Producer(bootstrap_servers=suite_server, **options) as producer:
            for number in range(500):
                await producer.send(suite_topic, b"value %d" % number * 5, b"key", partition=0)
            await producer.flush()
            assert (producer.metrics().value("compression-rate-avg") < 0.9) == (codec != "none")
        records = await drain(suite_server, suite_topic)
        assert [each.value for each in records] == [b"value %d" % number * 5 for number in range(500)]

    run(body())


def test_full_buffer_holds_senders_back(suite_server: str, suite_topic: str) -> None:
    async def body() -> None:
        options: dict[str, Any] = {"buffer_memory": 40_000, "batch_size": 4_000, "linger_ms": 60_000}
        async with Producer(bootstrap_servers=suite_server, **options) as producer:
            await producer.partitions_for(suite_topic)
            fitting = 0
            with suppress(BufferExhausted):
                while fitting < 1_000:
                    producer.send_nowait(suite_topic, bytes(1_000))
                    fitting += 1
            assert 20 <= fitting <= 40
            for number in range(200):  # five times what the buffer holds
                await producer.send(suite_topic, b"%01000d" % number)
            await producer.flush()
            assert producer.metrics().value("record-error-total") == 0

    run(body())


def test_transaction_moves_offsets_and_records_together(suite_server: str, suite_topic: str) -> None:
    """Read, process, write: the aborted attempt leaves neither records nor offsets behind."""
    group = f"{suite_topic}-readers"
    source, target = 0, 1

    async def attempt(succeeds: bool) -> list[bytes | None]:
        options: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with (
            Consumer(bootstrap_servers=suite_server, **options) as consumer,
            TransactionalProducer(transactional_id=suite_topic, bootstrap_servers=suite_server) as producer,
        ):
            key = TopicPartition(suite_topic, source)
            consumer.assign([key])
            records = await consumer.poll(30_000, max_records=2)
            producer.begin()
            for record in records:
                await producer.send(suite_topic, record.value, partition=target)
            await producer.send_offsets(group, {key: records[-1].offset + 1})
            await (producer.commit() if succeeds else producer.abort())
            return [each.value for each in records]

    async def body() -> None:
        async with Producer(bootstrap_servers=suite_server) as producer:
            for number in range(4):
                await producer.send(suite_topic, b"%d" % number, partition=source)
        assert await attempt(succeeds=False) == [b"0", b"1"]
        assert await attempt(succeeds=True) == [b"0", b"1"]
        assert await attempt(succeeds=True) == [b"2", b"3"]
        moved = await drain(suite_server, suite_topic, isolation_level="read_committed")
        assert [each.value for each in moved if each.partition == target] == [b"%d" % number for number in range(4)]

    run(body())
