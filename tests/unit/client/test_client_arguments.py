"""Arguments of the clients: what is accepted, and errors that name the argument and the expected type."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ConfigError, IllegalState
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import TransactionalProducer
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.client.consumers import filled, read
from tests.unit.client.consumers import run as consume
from tests.unit.client.fake_cluster import OPTIONS, FakeCluster


def produce(cluster: FakeCluster, body: Callable[[Any], Coroutine[Any, Any, None]], **arguments: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(20), Producer(network=cluster, **{**OPTIONS, **arguments}) as producer:
            await body(producer)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value": "text"}, r"value: expected bytes or None, got str \('text'\)"),
        ({"value": 42}, r"value: expected bytes or None, got int \(42\)"),
        ({"value": b"x", "key": "k"}, r"key: expected bytes or None, got str \('k'\)"),
        ({"value": memoryview(b"abcd").cast("i")}, "value: expected bytes or None, got memoryview"),
        ({"value": b"x", "headers": "h"}, "headers: expected a list"),
        ({"value": b"x", "headers": [("h", "text")]}, r"headers: expected bytes or None for 'h', got str"),
        ({"value": b"x", "headers": {"h": 1}}, r"headers: expected bytes or None for 'h', got int"),
        ({"value": b"x", "headers": [(b"h", b"v")]}, r"headers: expected \(str, bytes\) pairs"),
        ({"value": b"x", "partition": "0"}, r"partition: expected int or None, got str \('0'\)"),
        ({"value": b"x", "timestamp_ms": 1.5}, r"timestamp_ms: expected int or None, got float"),
    ],
)
def test_send_names_the_argument_of_a_wrong_type(arguments: dict[str, Any], message: str) -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send("t", b"before")
        free = producer._accumulator.free_bytes  # type: ignore[union-attr]
        for _ in range(3):
            with pytest.raises(TypeError, match=message):
                await producer.send("t", **arguments)
        assert producer._accumulator.free_bytes == free  # type: ignore[union-attr]
        await producer.send("t", b"after")

    produce(cluster, body)
    assert cluster.values() == [b"before", b"after"]


@pytest.mark.parametrize("timestamp_ms", [-1, 1 << 63, -(1 << 63) - 1])
def test_send_rejects_a_timestamp_that_no_record_can_have(timestamp_ms: int) -> None:
    """Only when the batch is encoded, it would cost the other records of the batch, too."""
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send("t", b"first", timestamp_ms=(1 << 63) - 1)
        with pytest.raises(ValueError, match="timestamp_ms: expected 0 to 9223372036854775807 ms"):
            await producer.send("t", b"x", timestamp_ms=timestamp_ms)
        with pytest.raises(ValueError, match="timestamp_ms: expected 0 to 9223372036854775807 ms"):
            producer.send_nowait("t", b"x", timestamp_ms=timestamp_ms)
        await producer.send("t", b"last", timestamp_ms=0)

    produce(cluster, body)
    assert cluster.values() == [b"first", b"last"]


@pytest.mark.parametrize(
    ("name", "given"), [("value", "text"), ("headers", [1]), ("partition", "0"), ("timestamp_ms", "now")]
)
def test_send_names_a_wrong_argument_before_it_waits_for_a_broker(name: str, given: Any) -> None:
    cluster = FakeCluster()
    cluster.stop(1)

    async def body(producer: Producer) -> None:
        with pytest.raises(TypeError, match=f"{name}: expected"):
            await producer.send("t", **{"value": b"x", name: given})

    produce(cluster, body)


def test_send_accepts_headers_as_dict() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send("t", b"x", headers={"a": b"1", "b": None})

    produce(cluster, body)
    assert [tuple(each) for each in cluster.logs["t", 0][0].headers] == [("a", b"1"), ("b", None)]


def test_send_accepts_bytearray_and_memoryview() -> None:
    cluster = FakeCluster()

    async def body(producer: Producer) -> None:
        await producer.send("t", bytearray(b"x"), key=memoryview(b"k"))

    produce(cluster, body)
    assert cluster.values() == [b"x"]


@pytest.mark.parametrize(
    "serializer",
    [str.encode, lambda value: value.encode(), lambda topic, value: value.encode()],
    ids=["builtin", "one argument", "topic first"],
)
def test_serializer_may_take_one_argument_or_the_topic_first(serializer: Any) -> None:
    cluster = FakeCluster()

    async def body(producer: Producer[Any, Any]) -> None:
        await producer.send("t", "text")
        await producer.send("t", None)

    produce(cluster, body, value_serializer=serializer)
    assert [each.value for each in cluster.logs["t", 0]] == [b"text", None]


@pytest.mark.parametrize("deserializer", [bytes.decode, lambda data: data.decode(), lambda topic, data: data.decode()])
def test_deserializer_may_take_one_argument_or_the_topic_first(deserializer: Any) -> None:
    async def body(consumer: Consumer[Any, Any]) -> None:
        consumer.assign([TopicPartition("t", 0)])
        assert [each.value for each in await read(consumer, 4)] == ["0-0", "0-1", "0-2", "0-3"]

    consume(filled(FakeCluster(), 1), body, value_deserializer=deserializer)


async def _coroutine(value: Any) -> bytes:
    return b""


@pytest.mark.parametrize(
    ("serializer", "message"),
    [
        (42, "value_serializer: expected a function, got int"),
        (lambda: b"", r"value_serializer: expected a function of \(object\) or \(topic, object\)"),
        (lambda a, b, c: b"", r"value_serializer: expected a function of \(object\) or \(topic, object\)"),
        (_coroutine, "value_serializer: expected a plain function"),
    ],
)
def test_unusable_serializer_is_rejected_by_name(serializer: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Producer(value_serializer=serializer)


def test_producer_of_another_loop_is_rejected() -> None:
    cluster = FakeCluster()

    async def start() -> tuple[Producer, Any]:
        producer = Producer(network=cluster, **OPTIONS)
        await producer.start()
        delivery = await producer.send("t", b"x")
        await producer.flush()
        return producer, delivery

    async def use(producer: Producer, delivery: Any) -> None:
        with pytest.raises(IllegalState, match="another event loop"):
            await producer.send("t", b"z")
        with pytest.raises(IllegalState, match="another event loop"):
            await producer.flush()
        assert (await delivery).offset == 0

    asyncio.run(use(*asyncio.run(start())))


def test_delivery_awaited_in_another_loop_is_rejected() -> None:
    async def start() -> Any:
        producer = Producer(network=FakeCluster(), linger_ms=60_000, **OPTIONS)
        await producer.start()
        delivery = await producer.send("t", b"x")
        delivery._batch.waiter()
        return delivery

    async def use(delivery: Any) -> None:
        with pytest.raises(IllegalState, match="another event loop"):
            await delivery

    asyncio.run(use(asyncio.run(start())))


def test_consumer_of_another_loop_is_rejected() -> None:
    async def start() -> Consumer:
        consumer = Consumer(network=FakeCluster(), **OPTIONS)
        await consumer.start()
        consumer.assign([TopicPartition("t", 0)])
        return consumer

    async def use(consumer: Consumer) -> None:
        with pytest.raises(IllegalState, match="another event loop"):
            await consumer.poll()

    asyncio.run(use(asyncio.run(start())))


@pytest.mark.parametrize("name", ["my topic", "", "..", "ä", "x" * 250])
def test_invalid_topic_name_is_rejected_at_once(name: str) -> None:
    async def body(consumer: Consumer) -> None:
        for call in (
            lambda: consumer.subscribe([name]),
            lambda: consumer.assign([TopicPartition(name, 0)]),
            lambda: Consumer(name),
        ):
            with pytest.raises(KafkaError) as caught:
                call()
            assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION

    consume(FakeCluster(), body)


def test_send_to_invalid_topic_name_is_rejected_at_once() -> None:
    async def body(producer: Producer) -> None:
        with pytest.raises(KafkaError) as caught:
            await producer.send("my topic", b"x")
        assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(TypeError, match="topic: expected str, got bytes"):
            await producer.send(b"t", b"x")  # type: ignore[arg-type]

    produce(FakeCluster(), body)


@pytest.mark.parametrize(
    ("client", "option", "message"),
    [
        (Producer, "lingr_ms", "did you mean 'linger_ms'"),
        (Producer, "value_serialiser", "did you mean 'value_serializer'"),
        (Producer, "max_batch_size", "its name here is batch_size"),
        (Producer, "group_id", "only consumers have it"),
        (Consumer, "auto_ofset_reset", "did you mean 'auto_offset_reset'"),
        (Consumer, "transactional_id", "only producers have it"),
        (TransactionalProducer, "transactionl_id", "did you mean 'transactional_id'"),
    ],
)
def test_unknown_option_names_the_nearest(client: Any, option: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client(**{option: "1"})
