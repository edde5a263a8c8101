"""auto_offset_reset by a duration (KIP-1106): durations of ISO 8601, and where a consumer begins."""

import asyncio
import time
from typing import Any

import pytest

from odradek.client.consumer.consumer import Consumer
from odradek.client.durations import duration_ms
from odradek.client.errors import ConfigError
from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition
from odradek.testing import BlockingBroker
from odradek.wire.apis import ApiKey
from tests.unit.client.consumers import filled, read, run
from tests.unit.client.fake_cluster import FakeCluster

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", HOUR_MS),
        ("pt1h30m", 5_400_000),
        ("P7D", 7 * 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("PT0.001S", 1),
        ("PT0S", 0),
    ],
)
def test_duration_is_read_as_by_java(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "PT-1H", "-PT1H", "P1W", "P1Y", "PT1.5H", "PT1H "])
def test_duration_that_java_rejects_or_that_lies_ahead_is_rejected(text: str) -> None:
    assert duration_ms(text) is None
    with pytest.raises(ConfigError, match="by_duration:PnDTnHnMnS"):
        Consumer(auto_offset_reset=f"by_duration:{text}")


def test_option_is_kept_in_one_spelling() -> None:
    assert Consumer(auto_offset_reset="By_Duration:pt1h").config["auto_offset_reset"] == "by_duration:PT1H"


def asked(cluster: FakeCluster) -> list[int]:
    """Timestamps of the requests for offsets."""
    return [
        partition.timestamp
        for _, key, _, request in cluster.requests
        if key == ApiKey.LIST_OFFSETS
        for topic in request.topics
        for partition in topic.partitions
    ]


def test_consumer_asks_for_the_time_that_lies_the_duration_before_now() -> None:
    cluster = filled(FakeCluster())
    before = time.time() * 1000

    async def body(consumer: Consumer) -> None:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.position(TopicPartition("t", 0))

    run(cluster, body, auto_offset_reset="by_duration:PT1H")
    first, last = asked(cluster)
    assert before - HOUR_MS - 1 <= first <= time.time() * 1000 - HOUR_MS
    assert last == -1, "no record is that young: the end"


def test_position_out_of_range_is_reset_by_duration() -> None:
    cluster = filled(FakeCluster())

    async def body(consumer: Consumer) -> None:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek(TopicPartition("t", 0), 1_000)
        assert [each.offset for each in await read(consumer, 1)] == [0]

    run(cluster, body, auto_offset_reset="by_duration:P100000D")
    assert asked(cluster) == [0], "a time before 1970 is the first that a record can have"


def test_consumers_begin_at_the_first_record_of_the_last_hour() -> None:
    async def main(address: str, topic: str) -> list[list[int]]:
        now = int(time.time() * 1000)
        async with Producer(bootstrap_servers=address) as producer:
            for age_h in (48, 5, 2, 0):
                await producer.send_and_wait(topic, b"x", partition=0, timestamp_ms=now - age_h * HOUR_MS)
        found = []
        for reset, count in (("by_duration:PT1H", 1), ("by_duration:PT3H", 2), ("by_duration:P3D", 4)):
            given: dict[str, Any] = {"bootstrap_servers": address, "auto_offset_reset": reset}
            async with asyncio.timeout(60), Consumer(topic, group_id=reset[12:], **given) as consumer:
                found.append([each.offset for each in await read(consumer, count)])
        return found

    with BlockingBroker() as broker:
        topic = broker.topic(partitions=1)
        assert asyncio.run(main(broker.bootstrap_servers, topic)) == [[3], [2, 3], [0, 1, 2, 3]]
