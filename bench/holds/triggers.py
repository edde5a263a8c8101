"""What may hold a broker's event loop: a function for each row of the table, on a running broker of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from bench.holds.broker import Held, WatchedBroker, decoded, framed
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.compression import Codec
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    create_topics,
    delete_records,
    delete_topics,
    describe_groups,
    describe_producers,
    fetch,
    find_coordinator,
    join_group,
    list_offsets,
    offset_commit,
    produce,
)

TOPIC: Final = "held"
_LATEST, _MAX_TIMESTAMP = -1, -3
_RECORDS: Final = 35_000
_PRODUCE_VERSION, _FETCH_VERSION, _LIST_VERSION = 9, 12, 7
_IN_FLIGHT: Final = 100


class Row(NamedTuple):
    """A trigger and what it held."""

    trigger: str
    held: Held


Measure = Callable[[WatchedBroker, int], Iterator[Row]]


def _create(broker: WatchedBroker, partitions: int, **configs: str) -> None:
    settings = [
        create_topics.CreateTopicsRequestConfig(name.replace("_", "."), value) for name, value in configs.items()
    ]
    topic = create_topics.CreateTopicsRequestTopic(TOPIC, partitions, 1, configs=settings)
    request = create_topics.CreateTopicsRequest([topic], 60_000)
    answer = broker.connection.ask(request, create_topics.CreateTopicsResponse, 5)
    if code := answer.topics[0].error_code:
        raise RuntimeError(f"the topic was not created: error {code} {answer.topics[0].error_message}")


def _produce(batch: bytes | bytearray, partitions: int) -> bytes:
    rows = [produce.ProduceRequestPartition(index, batch) for index in range(partitions)]
    topics = [produce.ProduceRequestTopic(TOPIC, partition_data=rows)]
    return framed(produce.ProduceRequest(None, 1, 60_000, topics), _PRODUCE_VERSION)


def _answer_to_produce(broker: WatchedBroker, frame: bytes) -> list[int]:
    """Error codes of the partitions."""
    broker.connection.send(frame)
    answer = decoded(broker.connection.receive(), produce.ProduceResponse, _PRODUCE_VERSION)
    return [row.error_code for topic in answer.responses for row in topic.partition_responses]


def _one_record(timestamp_ms: int | None = None) -> bytearray:
    at = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    return encode_batch([(at, b"key", b"x" * 50, ())])


def _many_records() -> bytearray:
    """A batch of some 774 KB."""
    now_ms = int(time.time() * 1000)
    return encode_batch([(now_ms + number // 35, b"%08d" % number, b"", ()) for number in range(_RECORDS)])


def _fetch(partitions: int) -> bytes:
    rows = [fetch.FetchRequestPartition(index, fetch_offset=0, partition_max_bytes=1000) for index in range(partitions)]
    topics = [fetch.FetchRequestTopic(TOPIC, partitions=rows)]
    return framed(fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, topics=topics), _FETCH_VERSION)


def _list_offsets(partitions: int, timestamp: int) -> bytes:
    rows = [list_offsets.ListOffsetsRequestPartition(index, -1, timestamp) for index in range(partitions)]
    request = list_offsets.ListOffsetsRequest(-1, 0, [list_offsets.ListOffsetsRequestTopic(TOPIC, rows)])
    return framed(request, _LIST_VERSION)


def _look_up(broker: WatchedBroker, partitions: int, timestamp: int) -> Held:
    with broker.watched() as held:
        broker.connection.send(_list_offsets(partitions, timestamp))
        answer = broker.connection.receive()
    found = decoded(answer, list_offsets.ListOffsetsResponse, _LIST_VERSION)
    rows = [row for topic in found.topics for row in topic.partitions]
    _check([row.error_code for row in rows])
    return held


def _check(codes: list[int]) -> None:
    """Raise RuntimeError for other errors than that of a log which a thread recovers at the moment."""
    if unexpected := set(codes) - {ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER}:
        raise RuntimeError(f"a request failed with errors {sorted(unexpected)}")
    if codes.count(ErrorCode.NOT_LEADER_OR_FOLLOWER) * 2 > len(codes):
        raise RuntimeError("a request failed for most partitions: the broker does not lead them yet")


def _append(broker: WatchedBroker, batch: bytes | bytearray, partitions: int = 1) -> Held:
    frame = _produce(batch, partitions)
    with broker.watched() as held:
        codes = _answer_to_produce(broker, frame)
    _check(codes)
    return held


def _read(broker: WatchedBroker, partitions: int) -> Held:
    with broker.watched() as held:
        broker.connection.send(_fetch(partitions))
        broker.connection.receive()
    return held


def partitions(broker: WatchedBroker, count: int) -> Iterator[Row]:
    """Requests for many partitions: the first one of each after a start opens their logs."""
    with broker.watched(200) as held:
        _create(broker, count)
    yield Row(f"create a topic of {count:,} partitions", held)
    batch = _one_record()
    yield Row(f"first Produce to {count:,} partitions in one request", _append(broker, batch, count))
    yield Row(f"Produce to {count:,} open partitions", _append(broker, batch, count))
    yield Row(f"full Fetch of {count:,} open partitions", _read(broker, count))
    few = max(1, count // 5)
    yield Row(f"ListOffsets by time, {few:,} partitions", _look_up(broker, few, 1))
    yield Row(f"ListOffsets by time, {count:,} partitions", _look_up(broker, count, 1))
    broker.restart(clean=True)
    yield Row(f"after a clean restart: ListOffsets of {count:,}", _look_up(broker, count, _LATEST))
    broker.restart(clean=True)
    yield Row(f"after a clean restart: Fetch of {few:,}", _read(broker, few))
    broker.restart(clean=False)
    yield Row(f"after kill -9: ListOffsets of {few:,}", _look_up(broker, few, _LATEST))
    broker.restart(clean=False)
    yield Row(f"after kill -9: Produce to {count:,}", _append(broker, batch, count))
    request = framed(delete_topics.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=60_000), 5)
    with broker.watched(1000) as held:
        broker.connection.send(request)
        broker.connection.receive()
    yield Row(f"delete a topic of {count:,} partitions, all open", held)


def compacted(broker: WatchedBroker, _: int) -> Iterator[Row]:
    """A large batch whose keys are examined."""
    _create(broker, 1, cleanup_policy="compact")
    _append(broker, _one_record())
    yield Row(f"batch of {_RECORDS:,} records to a compacted topic", _append(broker, _many_records()))


def timestamp_bounds(broker: WatchedBroker, _: int) -> Iterator[Row]:
    """A large batch whose timestamps are examined."""
    _create(broker, 1, message_timestamp_before_max_ms="86400000")
    _append(broker, _one_record())
    yield Row(f"batch of {_RECORDS:,} records, timestamp bounds", _append(broker, _many_records()))


def gzip_bomb(broker: WatchedBroker, _: int) -> Iterator[Row]:
    """57 KB that become 60 MB."""
    _create(broker, 1, cleanup_policy="compact")
    _append(broker, _one_record())
    now_ms = int(time.time() * 1000)
    bomb = encode_batch([(now_ms, b"key", bytes(60_000_000), ())], compression=Codec.GZIP)
    frame = _produce(bomb, 1)
    with broker.watched() as held:
        _answer_to_produce(broker, frame)
    yield Row(f"gzip bomb ({len(bomb) // 1000} KB to 60 MB) to a compacted topic", held)


def recompressed(broker: WatchedBroker, _: int) -> Iterator[Row]:
    """A large batch that the broker compresses."""
    _create(broker, 1, compression_type="gzip")
    _append(broker, _one_record())
    yield Row("topic with compression.type=gzip, 774 KB batch", _append(broker, _many_records()))


def times_in_batch(broker: WatchedBroker, _: int) -> Iterator[Row]:
    """Look-ups that end in the middle of a large batch."""
    _create(broker, 1)
    _append(broker, _many_records())
    now_ms = int(time.time() * 1000)
    yield Row(f"look-up by timestamp in a batch of {_RECORDS:,} records", _look_up(broker, 1, now_ms - 3_600_000 // 8))
    yield Row("look-up of the largest timestamp, of its last records", _look_up(broker, 1, _MAX_TIMESTAMP))


def producers(broker: WatchedBroker, count: int) -> Iterator[Row]:
    """Many producer ids in one partition."""
    ids = count * 12
    _create(broker, 1, segment_ms="1800000")
    _append(broker, _one_record())
    now_ms = int(time.time() * 1000)
    for first in range(0, ids, _IN_FLIGHT):
        frames = [
            _produce(encode_batch([(now_ms, b"", b"", ())], BatchFields(0, -1, 1000 + number, 0, 0)), 1)
            for number in range(first, min(first + _IN_FLIGHT, ids))
        ]
        broker.connection.send(b"".join(frames))
        for _ in frames:
            broker.connection.receive()
    request = describe_producers.DescribeProducersRequest(
        [describe_producers.DescribeProducersRequestTopic(TOPIC, [0])]
    )
    with broker.watched() as held:
        answer = broker.connection.ask(request, describe_producers.DescribeProducersResponse, 0)
    if len(answer.topics[0].partitions[0].active_producers) != ids:
        raise RuntimeError("DescribeProducers does not name all producers")
    yield Row(f"DescribeProducers of {ids:,} ids", held)
    yield Row(f"roll with {ids:,} producer ids", _append(broker, _one_record(now_ms + 3_000_000)))


def segments(broker: WatchedBroker, _: int) -> Iterator[Row]:
    """Deletion of many segments at once."""
    count = 800
    _create(broker, 1, segment_ms="10000")
    start_ms = int(time.time() * 1000) - count * 60_000
    for number in range(count + 1):
        _answer_to_produce(broker, _produce(_one_record(start_ms + number * 60_000), 1))
    rows = [delete_records.DeleteRecordsRequestPartition(0, count)]
    request = delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsRequestTopic(TOPIC, rows)], 60_000)
    with broker.watched(100) as held:
        answer = broker.connection.ask(request, delete_records.DeleteRecordsResponse, 2)
    if answer.topics[0].partitions[0].error_code:
        raise RuntimeError("DeleteRecords failed")
    yield Row(f"DeleteRecords over {count} segments", held)


def groups(broker: WatchedBroker, count: int) -> Iterator[Row]:
    """Many groups at once."""
    _create(broker, 1)
    _append(broker, _one_record())
    wanted = find_coordinator.FindCoordinatorRequest("held-0")
    while broker.connection.ask(wanted, find_coordinator.FindCoordinatorResponse, 2).error_code:
        time.sleep(0.01)
    joining = max(1, count // 5)
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    frames = [
        framed(join_group.JoinGroupRequest(f"joined-{n}", 60_000, 60_000, "", None, "consumer", protocols), 3)
        for n in range(joining)
    ]
    connections = [broker.connect() for _ in frames]
    with broker.watched() as held:
        for connection, frame in zip(connections, frames, strict=True):
            connection.send(frame)
        for connection in connections:
            connection.receive()
    for connection in connections:
        connection.close()
    yield Row(f"{joining:,} groups joining at once", held)
    names = [f"held-{number}" for number in range(count)]
    row = offset_commit.OffsetCommitRequestPartition(0, 1)
    topics = [offset_commit.OffsetCommitRequestTopic(TOPIC, partitions=[row])]
    for first in range(0, count, _IN_FLIGHT):
        some = names[first : first + _IN_FLIGHT]
        requests: list[Any] = [offset_commit.OffsetCommitRequest(name, -1, "", topics=topics) for name in some]
        broker.connection.send(b"".join(framed(each, 7) for each in requests))
        for _ in some:
            broker.connection.receive()
    with broker.watched() as held:
        broker.connection.ask(describe_groups.DescribeGroupsRequest(names), describe_groups.DescribeGroupsResponse, 5)
    yield Row(f"DescribeGroups of {count:,}", held)


ROWS: Final[dict[str, Measure]] = {
    "partitions": partitions,
    "compacted": compacted,
    "timestamp_bounds": timestamp_bounds,
    "gzip_bomb": gzip_bomb,
    "recompressed": recompressed,
    "times_in_batch": times_in_batch,
    "producers": producers,
    "segments": segments,
    "groups": groups,
}
"""Triggers by the name that selects them, each with the rows that it measures."""
