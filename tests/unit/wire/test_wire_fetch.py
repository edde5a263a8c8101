"""Fetch by hand says what the generated codec says, and leaves the records alone."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from odradek.ports.disk import FileRange
from odradek.wire import fetch
from odradek.wire.apis import ApiKey
from odradek.wire.headers import parse_response_header
from odradek.wire.messages import fetch as generated
from odradek.wire.primitives import DecodeError, EncodeError
from odradek.wire.produce import NodeEndpoint, TopicKey
from tests.unit.wire.samples import (
    absurd_lengths,
    case,
    encoded,
    messages,
    mutations,
    peak_bytes,
    plausible,
    projected,
)

VERSIONS = range(4, 19)
relaxed = settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
NOTHING = (bytes(16), fetch.UNKNOWN_HIGH_WATERMARK)


def name_and_id(key: str | bytes) -> tuple[str, bytes]:
    return (key, bytes(16)) if isinstance(key, str) else ("", key)


def as_generated(request: fetch.FetchRequest, version: int) -> Any:
    value = generated.FetchRequest(
        cluster_id=request.cluster_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        rack_id=request.rack_id,
    )
    if version >= 15:
        value.replica_state = generated.FetchRequestReplicaState(request.replica_id, request.replica_epoch)
    else:
        value.replica_id = request.replica_id
    for key, partitions in request.topics:
        topic = generated.FetchRequestTopic(*name_and_id(key))
        value.topics.append(topic)
        for row in partitions:
            topic.partitions.append(generated.FetchRequestPartition(*row, *request.tagged.get((key, row[0]), NOTHING)))
    for key, indexes in request.forgotten:
        value.forgotten_topics_data.append(generated.FetchRequestForgottenTopic(*name_and_id(key), indexes))
    return value


def without_repetitions(value: Any) -> Any:
    """Each partition once, as real requests have it: its tagged fields are kept by its number."""
    for number, topic in enumerate(value.topics):
        topic.topic, topic.topic_id = f"t{number}", bytes(15) + bytes([number + 1])
        for index, partition in enumerate(topic.partitions):
            partition.partition = index
    return value


@relaxed
@given(value=messages(case("FetchRequest")))
def test_requests_are_read_as_the_generated_codec_reads_them(value: Any) -> None:
    without_repetitions(value)
    for version in VERSIONS:
        wanted = projected(case("FetchRequest"), value, version)
        data = encoded(wanted, version)
        request, position = fetch.decode_request(memoryview(data), 0, version)
        assert position == len(data)
        assert as_generated(request, version) == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_many_partitions_without_tags(version: int) -> None:
    value = generated.FetchRequest(topics=[generated.FetchRequestTopic(partitions=[])])
    for index in range(300):
        row = generated.FetchRequestPartition(index, fetch_offset=index * 7, partition_max_bytes=1 << 20)
        value.topics[0].partitions.append(row)
    data = encoded(value, version)
    request, position = fetch.decode_request(memoryview(data), 0, version)
    assert position == len(data)
    assert request.topics[0][1] == [(index, -1, index * 7, -1, -1, 1 << 20) for index in range(300)]


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_raise_decode_error_or_match_the_generated_codec(version: int) -> None:
    random = Random(version)
    for _ in range(5):
        value = without_repetitions(plausible(case("FetchRequest"), version, random))
        for damaged in mutations(encoded(projected(case("FetchRequest"), value, version), version), random, 200):
            view = memoryview(damaged)
            try:
                wanted, end = generated.FetchRequest.decode(view, 0, version)
            except DecodeError:
                with pytest.raises(DecodeError):
                    fetch.decode_request(view, 0, version)
                continue
            request, position = fetch.decode_request(view, 0, version)
            assert position == end
            keys = [(key, row[0]) for key, rows in request.topics for row in rows]
            if len(keys) == len(set(keys)):
                assert as_generated(request, version) == wanted


@pytest.mark.parametrize("version", VERSIONS)
def test_absurd_lengths_allocate_nothing(version: int) -> None:
    data = encoded(plausible(case("FetchRequest"), version, Random(5)), version)[:300]
    tracemalloc.start()
    try:
        for absurd in absurd_lengths(data):
            allowed = 20_000 + 100 * len(absurd)
            assert peak_bytes(fetch.decode_request, absurd, version, allowed) < allowed
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [0, 3, 19])
def test_other_versions_are_rejected(version: int) -> None:
    with pytest.raises(DecodeError):
        fetch.decode_request(memoryview(bytes(100)), 0, version)


def rows(value: Any, version: int) -> list[tuple[TopicKey, list[fetch.FetchedPartition]]]:
    """A generated response as the arguments of the one by hand; records come in two parts."""
    default = generated.FetchResponsePartition()

    def pair(row: Any, name: str, first: str, second: str) -> tuple[int, int] | None:
        item = getattr(row, name)
        return None if item == getattr(default, name) else (getattr(item, first), getattr(item, second))

    result: list[tuple[TopicKey, list[fetch.FetchedPartition]]] = []
    for topic in value.responses:
        partitions = []
        for row in topic.partitions:
            records = row.records
            aborted = row.aborted_transactions
            partitions.append(
                fetch.FetchedPartition(
                    row.partition_index,
                    row.error_code,
                    row.high_watermark,
                    row.last_stable_offset,
                    row.log_start_offset,
                    records and [records[:3], memoryview(records)[3:]],
                    0 if records is None else len(records),
                    None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
                    row.preferred_read_replica,
                    pair(row, "diverging_epoch", "epoch", "end_offset"),
                    pair(row, "current_leader", "leader_id", "leader_epoch"),
                    pair(row, "snapshot_id", "end_offset", "epoch"),
                )
            )
        result.append((topic.topic_id if version >= 13 else topic.topic, partitions))
    return result


@relaxed
@given(value=messages(case("FetchResponse")))
def test_responses_are_the_bytes_of_the_generated_codec(value: Any) -> None:
    for version in VERSIONS:
        wanted = projected(case("FetchResponse"), value, version)
        parts = fetch.encode_response(
            version,
            -5,
            rows(wanted, version),
            throttle_time_ms=wanted.throttle_time_ms,
            error_code=wanted.error_code,
            session_id=wanted.session_id,
            node_endpoints=[NodeEndpoint(e.node_id, e.host, e.port, e.rack) for e in wanted.node_endpoints],
        )
        frame = b"".join(parts)  # type: ignore[arg-type]
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        correlation_id, position = parse_response_header(memoryview(frame)[4:], ApiKey.FETCH, version)
        assert correlation_id == -5
        assert frame[4 + position :] == encoded(wanted, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_are_passed_on_untouched(version: int) -> None:
    """File ranges and views come out as the very objects that went in, and their sizes count."""
    ranges = [FileRange(None, 0, 1_000), FileRange(None, 5_000, 234)]  # type: ignore[arg-type]
    view = memoryview(b"records")
    key = bytes(range(16)) if version >= 13 else "topic"
    partitions = [
        fetch.FetchedPartition(0, 0, 10, 10, 0, ranges, 1_234),
        fetch.FetchedPartition(1, 0, 20, 20, 0),
        fetch.FetchedPartition(2, 0, 30, 30, 0, [view], len(view)),
    ]
    parts = fetch.encode_response(version, 1, [(key, partitions)])
    assert [part for part in parts if isinstance(part, FileRange)] == ranges
    assert any(part is view for part in parts)
    size = sum(part.size if isinstance(part, FileRange) else len(part) for part in parts)
    assert isinstance(parts[0], bytearray)
    assert int.from_bytes(parts[0][:4], "big") == size - 4
    frame = b"".join(bytes(part.size) if isinstance(part, FileRange) else bytes(part) for part in parts)
    _, position = parse_response_header(memoryview(frame)[4:], ApiKey.FETCH, version)
    value, end = generated.FetchResponse.decode(memoryview(frame), 4 + position, version)
    assert end == len(frame)
    assert [row.records for row in value.responses[0].partitions] == [bytes(1_234), b"", b"records"]
    assert all(part for part in parts)


def test_what_cannot_be_said_is_rejected() -> None:
    with pytest.raises(EncodeError):
        fetch.encode_response(13, 1, [("name", [])])
    with pytest.raises(EncodeError):
        fetch.encode_response(12, 1, [(bytes(16), [])])
    with pytest.raises(EncodeError):
        fetch.encode_response(11, 1, [(bytes(16), [])])
    with pytest.raises(EncodeError):
        fetch.encode_response(10, 1, [("t", [fetch.FetchedPartition(0, 0, preferred_read_replica=2)])])
    with pytest.raises(EncodeError):
        fetch.encode_response(12, 1, [("t", [fetch.FetchedPartition(0, 1 << 20)])])
