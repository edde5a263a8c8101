"""kafka-python as it comes from PyPI."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

RECORDS = 300


def consume(consumer: Any, count: int, timeout_seconds: float = 30) -> list[Any]:
    records: list[Any] = []
    deadline = time.monotonic() + timeout_seconds
    while len(records) < count and time.monotonic() < deadline:
        for batch in consumer.poll(500, max_records=count - len(records)).values():
            records.extend(batch)
    return records


def group_consumer(bootstrap: str, topic: str, group: str) -> Any:
    # It may have joined before it knew the topic, and then has no partition until it looks again: after five minutes.
    return KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=2000,
    )


@pytest.mark.parametrize("codec", [None, "gzip", "lz4"])
def test_produce_consume_commit_and_resume(
    bootstrap: str, create_topic: Callable[..., str], unique_name: Callable[[str], str], codec: str | None
) -> None:
    topic, group = create_topic(), unique_name("group")
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks="all")
    sent = [
        producer.send(topic, key=f"key-{i}".encode(), value=f"value-{i}".encode(), headers=[("n", str(i).encode())])
        for i in range(RECORDS)
    ]
    offsets = [(f.get(30).partition, f.get(30).offset) for f in sent]
    producer.close()
    assert len(set(offsets)) == RECORDS

    first = group_consumer(bootstrap, topic, group)
    head = consume(first, 100)
    positions = {TopicPartition(topic, r.partition): OffsetAndMetadata(r.offset + 1, "", -1) for r in head}
    first.commit(positions)
    first.close(autocommit=False)
    second = group_consumer(bootstrap, topic, group)
    tail = consume(second, RECORDS - 100)
    second.close()
    assert len(head) == 100
    assert sorted(r.value for r in head + tail) == sorted(f"value-{i}".encode() for i in range(RECORDS))
    assert {(r.key[4:], dict(r.headers)["n"]) for r in head + tail} == {(str(i).encode(),) * 2 for i in range(RECORDS)}
    assert sorted((r.partition, r.offset) for r in head + tail) == sorted(offsets)
