"""Produce, Fetch and their neighbours over a real socket, in every version."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from odradek.records.batch import split_batches
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.record import decode_records
from odradek.wire.apis import APIS, ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import create_topics, fetch, list_offsets, metadata, produce

Connect = Callable[[str], Any]
PRODUCE_VERSIONS = range(APIS[ApiKey.PRODUCE].min_version, APIS[ApiKey.PRODUCE].max_version + 1)
FETCH_VERSIONS = range(APIS[ApiKey.FETCH].min_version, APIS[ApiKey.FETCH].max_version + 1)
NOW_MS = time.time_ns() // 1_000_000


class Topic:
    """A fresh topic on a broker, and the two requests in any version."""

    def __init__(self, client: Any, partitions: int = 2, **configs: str) -> None:
        self.client = client
        self.name = f"t-{uuid.uuid4().hex[:12]}"
        made = create_topics.CreateTopicsRequestTopic(
            self.name,
            partitions,
            1,
            configs=[create_topics.CreateTopicsRequestConfig(n, v) for n, v in configs.items()],
        )
        answer = client.call(create_topics.CreateTopicsRequest([made], timeout_ms=10_000), 7)
        assert answer.topics[0].error_code == 0, answer
        self.id = answer.topics[0].topic_id

    def produce_request(
        self, version: int, *records: bytes, acks: int = -1, partition: int = 0
    ) -> produce.ProduceRequest:
        batch = encode_batch([(NOW_MS, None, value, ()) for value in records])
        named = {"topic_id": self.id} if version >= 13 else {"name": self.name}
        parts = [produce.ProduceRequestPartition(partition, memoryview(batch))]
        return produce.ProduceRequest(None, acks, 10_000, [produce.ProduceRequestTopic(**named, partition_data=parts)])

    def produce(self, *records: bytes, version: int = 9, partition: int = 0) -> produce.ProduceResponsePartition:
        answer = self.client.call(self.produce_request(version, *records, partition=partition), version)
        found: produce.ProduceResponsePartition = answer.responses[0].partition_responses[0]
        return found

    def fetch_request(
        self, version: int, offset: int, *, partition: int = 0, max_wait_ms: int = 0, min_bytes: int = 1, **more: Any
    ) -> fetch.FetchRequest:
        named = {"topic_id": self.id} if version >= 13 else {"topic": self.name}
        wanted = fetch.FetchRequestPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        return fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
            session_epoch=more.pop("session_epoch", -1),
            topics=[fetch.FetchRequestTopic(**named, partitions=[wanted])],
            **more,
        )

    def fetch(self, offset: int, version: int = 12, **more: Any) -> fetch.FetchResponsePartition:
        answer = self.client.call(self.fetch_request(version, offset, **more), version)
        found: fetch.FetchResponsePartition = answer.responses[0].partitions[0]
        return found


@pytest.fixture
def client(odradek_broker: Any, connect: Connect) -> Any:
    return connect(odradek_broker.bootstrap)


@pytest.fixture
def topic(client: Any) -> Topic:
    return Topic(client)


def values_of(records: bytes | bytearray | memoryview | None) -> list[bytes]:
    assert records is not None
    view = memoryview(records)
    return [
        bytes(record.value or b"")
        for position, header in split_batches(view)
        for record in decode_records(view, header, position)
    ]


def test_every_version_of_produce_is_read_by_every_version_of_fetch(topic: Topic) -> None:
    expected: list[bytes] = []
    for version in PRODUCE_VERSIONS:
        appended = topic.produce(b"v%d" % version, b"second", version=version)
        assert appended.error_code == 0
        assert appended.base_offset == len(expected)
        expected += [b"v%d" % version, b"second"]
    for version in FETCH_VERSIONS:
        found = topic.fetch(0, version)
        assert found.error_code == 0
        assert found.high_watermark == len(expected)
        assert values_of(found.records) == expected


def test_an_offset_inside_of_a_batch_gets_the_whole_batch(topic: Topic) -> None:
    topic.produce(b"a", b"b", b"c")
    topic.produce(b"d")
    found = topic.fetch(1)
    assert values_of(found.records) == [b"a", b"b", b"c", b"d"]
    assert values_of(topic.fetch(3).records) == [b"d"]
    assert topic.fetch(4).records == b""
    assert topic.fetch(5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert topic.fetch(-7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_acks_0_is_not_answered_and_the_next_request_is(topic: Topic) -> None:
    topic.client.send(topic.produce_request(9, b"silent", acks=0), 9)
    assert topic.produce(b"loud").base_offset == 1
    assert values_of(topic.fetch(0).records) == [b"silent", b"loud"]


def test_a_failed_produce_with_acks_0_closes_the_connection(topic: Topic) -> None:
    topic.client.send(topic.produce_request(9, b"nowhere", acks=0, partition=99), 9)
    assert topic.client.is_closed_by_peer()


def test_wrong_acks_and_unknown_partitions_are_rejected(topic: Topic) -> None:
    answer = topic.client.call(topic.produce_request(9, b"x", acks=2), 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert topic.produce(b"x", partition=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert topic.fetch(0, partition=2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic.id = uuid.uuid4().bytes
    assert topic.produce(b"x", version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert topic.fetch(0, 13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_clients_cannot_write_to_the_topics_of_coordinators(topic: Topic) -> None:
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="__consumer_offsets")])
    (made,) = topic.client.call(asked, 4).topics
    assert made.error_code == 0
    request = topic.produce_request(9, b"a")
    request.topic_data[0].name = "__consumer_offsets"
    (answer,) = topic.client.call(request, 9).responses[0].partition_responses
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answer.base_offset == -1


def test_a_damaged_batch_is_rejected_and_nothing_of_it_is_kept(topic: Topic) -> None:
    request = topic.produce_request(9, b"damaged")
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    records[-3] ^= 0xFF
    answer = topic.client.call(request, 9)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.CORRUPT_MESSAGE
    assert topic.produce(b"sound").base_offset == 0


def test_a_fetch_waits_for_records_and_is_woken_by_them(topic: Topic, odradek_broker: Any, connect: Connect) -> None:
    token = topic.client.send(topic.fetch_request(12, 0, max_wait_ms=30_000), 12)
    other = connect(odradek_broker.bootstrap)
    began = time.monotonic()
    other.call(topic.produce_request(9, b"wake"), 9)
    answer = topic.client.receive(token)
    assert values_of(answer.responses[0].partitions[0].records) == [b"wake"]
    assert time.monotonic() - began < 15, "the deadline was not what ended the wait"


def test_a_fetch_waits_for_min_bytes(topic: Topic, odradek_broker: Any, connect: Connect) -> None:
    token = topic.client.send(topic.fetch_request(12, 0, max_wait_ms=30_000, min_bytes=300), 12)
    other = connect(odradek_broker.bootstrap)
    for _ in range(3):
        other.call(topic.produce_request(9, b"x" * 60), 9)
    answer = topic.client.receive(token)
    assert len(values_of(answer.responses[0].partitions[0].records)) == 3


def test_a_fetch_without_records_is_answered_at_its_deadline(topic: Topic) -> None:
    began = time.monotonic()
    found = topic.fetch(0, max_wait_ms=200)
    assert found.error_code == 0
    assert found.records == b""
    assert time.monotonic() - began >= 0.15


def test_answers_keep_the_order_of_requests_while_a_fetch_waits(
    topic: Topic, odradek_broker: Any, connect: Connect
) -> None:
    waiting = topic.client.send(topic.fetch_request(12, 0, max_wait_ms=30_000), 12)
    following = topic.client.send(metadata.MetadataRequest(topics=[]), 9)
    # The second request was served in the meantime, but its answer may not overtake the first.
    assert connect(odradek_broker.bootstrap).call(topic.produce_request(9, b"go"), 9).responses
    assert values_of(topic.client.receive(waiting).responses[0].partitions[0].records) == [b"go"]
    assert topic.client.receive(following).brokers


def test_incremental_session_returns_changed_partitions_only(topic: Topic) -> None:
    topic.produce(b"a")
    first = topic.client.call(topic.fetch_request(12, 0, session_epoch=0), 12)
    assert first.session_id > 0
    assert values_of(first.responses[0].partitions[0].records) == [b"a"]
    session = {"session_id": first.session_id}
    second = topic.client.call(topic.fetch_request(12, 1, session_epoch=1, **session), 12)
    assert second.responses == []
    topic.produce(b"b")
    nothing_said = fetch.FetchRequest(max_bytes=1 << 20, min_bytes=1, session_epoch=2, **session)
    third = topic.client.call(nothing_said, 12)
    assert values_of(third.responses[0].partitions[0].records) == [b"b"]
    replayed = topic.client.call(nothing_said, 12)
    assert replayed.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = topic.client.call(fetch.FetchRequest(session_epoch=1, session_id=first.session_id ^ 1), 12)
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_forgotten_partition_leaves_its_session(topic: Topic) -> None:
    topic.produce(b"a")
    first = topic.client.call(topic.fetch_request(12, 1, session_epoch=0), 12)
    topic.produce(b"b")
    forget = fetch.FetchRequest(
        max_bytes=1 << 20,
        session_id=first.session_id,
        session_epoch=1,
        forgotten_topics_data=[fetch.FetchRequestForgottenTopic(topic.name, partitions=[0])],
    )
    assert topic.client.call(forget, 12).responses == []


def test_offsets_by_time_and_at_the_ends(topic: Topic) -> None:
    def offset_at(timestamp: int, version: int = 11) -> tuple[int, int, int]:
        wanted = list_offsets.ListOffsetsRequestPartition(0, timestamp=timestamp)
        request = list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsRequestTopic(topic.name, [wanted])])
        found = topic.client.call(request, version).topics[0].partitions[0]
        return found.error_code, found.offset, found.timestamp

    batch = encode_batch([(NOW_MS + 10 * i, None, b"%d" % i, ()) for i in (0, 3, 1)], BatchFields())
    request = topic.produce_request(9, b"")
    request.topic_data[0].partition_data[0].records = memoryview(batch)
    assert topic.client.call(request, 9).responses[0].partition_responses[0].error_code == 0
    assert offset_at(-2)[:2] == (0, 0)
    assert offset_at(-1)[:2] == (0, 3)
    assert offset_at(-3) == (0, 1, NOW_MS + 30)
    assert offset_at(NOW_MS + 1) == (0, 1, NOW_MS + 30)
    assert offset_at(NOW_MS - 1) == (0, 0, NOW_MS)
    assert offset_at(NOW_MS + 31) == (0, -1, -1)
    assert offset_at(-3, 6)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_consumers_of_a_deleted_topic_learn_of_it_at_once(topic: Topic, odradek_broker: Any, connect: Connect) -> None:
    from odradek.wire.messages import delete_topics

    token = topic.client.send(topic.fetch_request(13, 0, max_wait_ms=30_000), 13)
    other = connect(odradek_broker.bootstrap)
    other.call(
        delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicsRequestState(topic.name)], timeout_ms=1000), 6
    )
    found = topic.client.receive(token).responses[0].partitions[0]
    assert found.error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_many_connections_produce_at_once_and_every_offset_is_given_once(odradek_broker: Any, connect: Connect) -> None:
    shared = Topic(connect(odradek_broker.bootstrap), partitions=1)
    offsets: list[int] = []

    def run() -> None:
        client = connect(odradek_broker.bootstrap)
        for _ in range(50):
            answer = client.call(shared.produce_request(9, b"x"), 9)
            offsets.append(answer.responses[0].partition_responses[0].base_offset)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == list(range(400))


def test_produce_names_records_without_a_key_on_a_compacted_topic(client: Any) -> None:
    compacted = Topic(client, 2, **{"cleanup.policy": "compact"})
    batch = encode_batch([(NOW_MS, b"k" if i % 2 else None, b"v", ()) for i in range(4)])
    request = compacted.produce_request(9, b"")
    request.topic_data[0].partition_data[0].records = memoryview(batch)
    answer = client.call(request, 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [0, 2]
    assert compacted.fetch(0).high_watermark == 0
