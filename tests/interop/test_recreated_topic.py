"""Running producers and consumers notice that a topic was deleted and recreated under its name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.client import Consumer as OurConsumer
from odradek.client import Producer as OurProducer
from odradek.client import TopicPartition as Place

_SECONDS = 60


def make_again(admin: AdminClient, topic: str) -> None:
    admin.delete_topics([topic])[topic].result(30)
    try:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    except KafkaException as error:
        # A client that looked for it in between may have made it, which is as good.
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


def make(bootstrap: str, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    return admin


def test_librdkafka(bootstrap: str, unique_name: Callable[[str], str]) -> None:
    topic = unique_name("again")
    admin = make(bootstrap, topic)
    # Refreshed often, or librdkafka believes in the old topic for up to five minutes.
    settings = {"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 200}
    producer = Producer(settings | {"enable.idempotence": True})
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])

    def produce(value: bytes) -> None:
        errors: list[object] = []
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(_SECONDS) == 0
        assert errors == [None]

    def consume() -> list[bytes]:
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is not None and not message.error():
                return [message.value() or b""]
        return []

    for number in range(5):
        produce(b"old %d" % number)
    assert [value for _ in range(5) for value in consume()] == [b"old %d" % number for number in range(5)]
    make_again(admin, topic)
    produce(b"new")
    assert consume() == [b"new"], "the old topic's position, 5, is not in the new one"
    consumer.close()


def test_our_client(bootstrap: str, unique_name: Callable[[str], str]) -> None:
    topic = unique_name("again")
    admin = make(bootstrap, topic)

    async def scenario() -> None:
        async with (
            OurProducer(bootstrap_servers=bootstrap) as producer,
            OurConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([Place(topic, 0)])

            async def consume() -> list[bytes | None]:
                while True:
                    if found := await consumer.poll(1000):
                        return [record.value for record in found]

            for _ in range(3):
                await (await producer.send(topic, b"old", partition=0))
            assert await consume()
            await asyncio.to_thread(make_again, admin, topic)
            await (await producer.send(topic, b"new", partition=0))
            async with asyncio.timeout(_SECONDS):
                assert await consume() == [b"new"]

    asyncio.run(scenario())
