"""confluent-kafka (librdkafka) as it comes from PyPI."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

CreateTopic = Callable[..., str]
UniqueName = Callable[[str], str]
RECORDS = 1000


def produce(bootstrap: str, topic: str, count: int, **config: Any) -> None:
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error:
            failures.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for i in range(count):
        producer.produce(topic, f"value-{i}", f"key-{i}", headers={"n": str(i)}, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert not failures, failures[:3]


def consume(consumer: Consumer, count: int, timeout_seconds: float = 30) -> list[Message]:
    """Exactly `count` messages, or as many as came in time."""
    messages: list[Message] = []
    deadline = time.monotonic() + timeout_seconds
    while len(messages) < count and time.monotonic() < deadline:
        for message in consumer.consume(min(100, count - len(messages)), 0.5):
            if message.error():
                raise KafkaException(message.error())
            messages.append(message)
    return messages


def group_consumer(bootstrap: str, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **config,
        }
    )


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back_as_sent(
    bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName, codec: str
) -> None:
    topic = create_topic()
    produce(bootstrap, topic, RECORDS, **{"compression.type": codec, "acks": "all"})
    consumer = group_consumer(bootstrap, unique_name("group"))
    consumer.subscribe([topic])
    messages = consume(consumer, RECORDS)
    consumer.close()
    assert sorted(m.value() or b"" for m in messages) == sorted(f"value-{i}".encode() for i in range(RECORDS))
    for message in messages:
        assert message.value() == b"value" + (message.key() or b"")[3:]
        assert message.headers() == [("n", (message.key() or b"")[4:])]
    for partition in range(3):
        offsets = [m.offset() for m in messages if m.partition() == partition]
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_group_resumes_where_it_committed(
    bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName, assignor: str
) -> None:
    topic, group = create_topic(), unique_name("group")
    produce(bootstrap, topic, RECORDS)
    strategy = {"partition.assignment.strategy": assignor}
    first = group_consumer(bootstrap, group, **strategy)
    first.subscribe([topic])
    head = consume(first, 400)
    positions: dict[int, int] = {}
    for message in head:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        positions[partition] = offset + 1
    committed = first.commit(
        offsets=[TopicPartition(topic, p, o, metadata="resume here") for p, o in positions.items()], asynchronous=False
    )
    assert committed is not None
    assert all(p.error is None for p in committed)
    first.close()

    second = group_consumer(bootstrap, group, **strategy)
    stored = second.committed([TopicPartition(topic, p) for p in positions], 10)
    assert {p.partition: p.offset for p in stored} == positions
    assert {p.metadata for p in stored} == {"resume here"}
    second.subscribe([topic])
    tail = consume(second, RECORDS - 400)
    second.close()
    assert sorted(m.value() or b"" for m in head + tail) == sorted(f"value-{i}".encode() for i in range(RECORDS))


def test_two_members_share_the_partitions(bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName) -> None:
    topic, group = create_topic(partitions=4), unique_name("group")
    members = [group_consumer(bootstrap, group, **{"session.timeout.ms": 6000}) for _ in range(2)]
    for member in members:
        member.subscribe([topic])
    deadline = time.monotonic() + 120
    while sorted(len(m.assignment()) for m in members) != [2, 2] and time.monotonic() < deadline:
        for member in members:
            member.poll(0.1)
    shares = [{p.partition for p in m.assignment()} for m in members]
    assert sorted(shares[0] | shares[1]) == [0, 1, 2, 3]
    members[0].close()
    while len(members[1].assignment()) != 4 and time.monotonic() < deadline:
        members[1].poll(0.1)
    assert len(members[1].assignment()) == 4
    members[1].close()


def test_offsets_by_time_and_watermarks(bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName) -> None:
    topic = create_topic(partitions=1)
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(10):
        producer.produce(topic, str(i), timestamp=1_700_000_000_000 + 1000 * i)
    assert producer.flush(30) == 0
    consumer = group_consumer(bootstrap, unique_name("group"))
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 10) == (0, 10)
    wanted = TopicPartition(topic, 0, 1_700_000_004_500)
    assert consumer.offsets_for_times([wanted], 10)[0].offset == 5
    consumer.close()


def test_an_idempotent_producer_keeps_order(bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName) -> None:
    topic = create_topic(partitions=1)
    produce(bootstrap, topic, RECORDS, **{"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 10})
    consumer = group_consumer(bootstrap, unique_name("group"))
    consumer.subscribe([topic])
    assert [m.value() for m in consume(consumer, RECORDS)] == [f"value-{i}".encode() for i in range(RECORDS)]
    consumer.close()


def test_topics_are_created_described_and_deleted(bootstrap: str, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=5, config={"retention.ms": "12345678"})
    admin = AdminClient({"bootstrap.servers": bootstrap})
    metadata = admin.list_topics(topic, 60).topics[topic]
    assert sorted(metadata.partitions) == [0, 1, 2, 3, 4]
    assert admin.describe_cluster(request_timeout=60).result(60).nodes
    admin.delete_topics([topic])[topic].result(60)
    deadline = time.monotonic() + 60
    while topic in admin.list_topics(timeout=60).topics and time.monotonic() < deadline:
        pass
    assert topic not in admin.list_topics(timeout=60).topics


@pytest.mark.parametrize("version", ["0.11.0", "1.0.0", "2.3.0"])
def test_client_configured_for_an_older_broker_works(
    bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName, version: str
) -> None:
    """It does not ask for versions, and sends what a broker of that time knew."""
    topic = create_topic(partitions=2)
    older = {"api.version.request": "false", "broker.version.fallback": version}
    produce(bootstrap, topic, RECORDS, **older, **{"compression.type": "lz4"})
    consumer = group_consumer(bootstrap, unique_name("group"), **older)
    consumer.subscribe([topic])
    assert len(consume(consumer, RECORDS)) == RECORDS
    consumer.commit(asynchronous=False)
    offsets = consumer.committed([TopicPartition(topic, i) for i in range(2)], 10)
    assert sum(offset.offset for offset in offsets) == RECORDS
    consumer.close()
