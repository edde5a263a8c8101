"""Produce by hand says what the generated codec says."""

from __future__ import annotations

import tracemalloc
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.wire import produce, produced
from odradek.wire.apis import ApiKey
from odradek.wire.headers import parse_response_header
from odradek.wire.messages import produce as generated
from odradek.wire.primitives import DecodeError, EncodeError
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

VERSIONS = range(3, 14)
relaxed = settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def as_generated(request: produce.ProduceRequest, version: int) -> Any:
    return generated.ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[
            generated.ProduceRequestTopic(
                name=key if isinstance(key, str) else "",
                topic_id=key if isinstance(key, bytes) else bytes(16),
                partition_data=[generated.ProduceRequestPartition(index, records) for index, records in partitions],
            )
            for key, partitions in request.topics
        ],
    )


@relaxed
@given(value=messages(case("ProduceRequest")), before=st.integers(0, 9))
def test_requests_are_read_as_the_generated_codec_reads_them(value: Any, before: int) -> None:
    for version in VERSIONS:
        wanted = projected(case("ProduceRequest"), value, version)
        data = bytes(before) + encoded(wanted, version)
        request, position = produce.decode_request(memoryview(data), before, version)
        assert position == len(data)
        assert as_generated(request, version) == wanted


def test_records_are_slices_of_the_frame_and_writable() -> None:
    for version in VERSIONS:
        value = plausible(case("ProduceRequest"), version, Random(version))
        value.topic_data[0].partition_data[0].records = b"x" * 1_000
        frame = bytearray(encoded(value, version))
        request, _ = produce.decode_request(memoryview(frame), 0, version)
        records = request.topics[0][1][0][1]
        assert records is not None
        records[0:1] = b"Y"
        assert b"Yxxx" in frame


def test_unknown_tagged_fields_are_skipped_everywhere() -> None:
    name = b"\2t"
    records = b"\4abc"
    tags = b"\1\x63\2ab"
    data = b"\0" + b"\xff\xff" + b"\0\0\0\1" + b"\2" + name + b"\2" + b"\0\0\0\7" + records + tags * 3
    request, position = produce.decode_request(memoryview(data), 0, 9)
    assert position == len(data)
    assert request.topics == [("t", [(7, b"abc")])]


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_raise_decode_error_or_match_the_generated_codec(version: int) -> None:
    random = Random(version)
    for _ in range(5):
        data = encoded(plausible(case("ProduceRequest"), version, random), version)
        for damaged in mutations(data, random, 200):
            view = memoryview(damaged)
            try:
                wanted, end = generated.ProduceRequest.decode(view, 0, version)
            except DecodeError:
                with pytest.raises(DecodeError):
                    produce.decode_request(view, 0, version)
            else:
                request, position = produce.decode_request(view, 0, version)
                assert (as_generated(request, version), position) == (wanted, end)


@pytest.mark.parametrize("version", VERSIONS)
def test_absurd_lengths_allocate_nothing(version: int) -> None:
    data = encoded(plausible(case("ProduceRequest"), version, Random(5)), version)[:300]
    tracemalloc.start()
    try:
        for absurd in absurd_lengths(data):
            allowed = 20_000 + 100 * len(absurd)
            assert peak_bytes(produce.decode_request, absurd, version, allowed) < allowed
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("version", [0, 2, 14])
def test_other_versions_are_rejected(version: int) -> None:
    with pytest.raises(DecodeError):
        produce.decode_request(memoryview(bytes(100)), 0, version)


def rows(value: Any, version: int) -> list[tuple[produce.TopicKey, list[produce.ProducedPartition]]]:
    """A generated response as the arguments of the one by hand."""
    return [
        (
            topic.topic_id if version >= 13 else topic.name,
            [
                produce.ProducedPartition(
                    row.index,
                    row.error_code,
                    row.base_offset,
                    row.log_append_time_ms,
                    row.log_start_offset,
                    [(error.batch_index, error.batch_index_error_message) for error in row.record_errors],
                    row.error_message,
                    None
                    if row.current_leader == generated.ProduceResponseLeaderIdAndEpoch()
                    else (row.current_leader.leader_id, row.current_leader.leader_epoch),
                )
                for row in topic.partition_responses
            ],
        )
        for topic in value.responses
    ]


def check_response(value: Any, version: int) -> None:
    endpoints = [produce.NodeEndpoint(each.node_id, each.host, each.port, each.rack) for each in value.node_endpoints]
    frame = produce.encode_response(version, 77, rows(value, version), value.throttle_time_ms, endpoints)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = parse_response_header(memoryview(frame)[4:], ApiKey.PRODUCE, version)
    assert correlation_id == 77
    assert bytes(frame[4 + position :]) == encoded(value, version)


@relaxed
@given(value=messages(case("ProduceResponse")))
def test_responses_are_the_bytes_of_the_generated_codec(value: Any) -> None:
    for version in VERSIONS:
        check_response(projected(case("ProduceResponse"), value, version), version)


def test_plain_responses_are_the_bytes_of_the_generated_codec() -> None:
    partitions = [generated.ProduceResponsePartition(index=3, base_offset=5, log_append_time_ms=9, log_start_offset=1)]
    for version in VERSIONS:
        topic = generated.ProduceResponseTopic(partition_responses=partitions)
        if version >= 13:
            topic.topic_id = bytes(range(16))
        else:
            topic.name = "topic"
        check_response(projected(case("ProduceResponse"), generated.ProduceResponse([topic]), version), version)


def test_a_topic_key_of_the_wrong_kind_is_rejected() -> None:
    with pytest.raises(EncodeError):
        produce.encode_response(13, 1, [("name", [])])
    with pytest.raises(EncodeError):
        produce.encode_response(12, 1, [(bytes(16), [])])
    with pytest.raises(EncodeError):
        produce.encode_response(7, 1, [(bytes(16), [])])
    with pytest.raises(EncodeError):
        produce.encode_response(7, 1, [("t", [produce.ProducedPartition(0, 70_000)])])


def row_of(each: Any) -> produce.ProducedPartition:
    return produce.ProducedPartition(
        each.index,
        each.error_code,
        each.base_offset,
        each.log_append_time_ms,
        each.log_start_offset,
        [(error.batch_index, error.batch_index_error_message) for error in each.record_errors],
        each.error_message,
        (each.current_leader.leader_id, each.current_leader.leader_epoch),
    )


@relaxed
@given(value=messages(case("ProduceResponse")), before=st.integers(0, 9))
def test_answers_are_read_as_the_generated_codec_reads_them(value: Any, before: int) -> None:
    for version in VERSIONS:
        wanted = projected(case("ProduceResponse"), value, version)
        data = bytes(before) + encoded(wanted, version)
        answer, position = produced.ProduceAnswer.decode(memoryview(data), before, version)
        assert position == len(data)
        assert answer.throttle_time_ms == wanted.throttle_time_ms
        assert list(answer.partitions) == [
            (topic.topic_id if version >= 13 else topic.name, row_of(each))
            for topic in wanted.responses
            for each in topic.partition_responses
        ]


@relaxed
@given(
    row=st.tuples(
        st.integers(0, 2**31 - 1), st.integers(-1, 120), st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1)
    ),
    throttle_ms=st.integers(0, 2**31 - 1),
)
def test_answer_for_one_batch_is_read_in_a_step(row: tuple[int, int, int, int], throttle_ms: int) -> None:
    value = generated.ProduceResponse(
        [generated.ProduceResponseTopic("t", bytes(range(16)), [generated.ProduceResponsePartition(*row)])], throttle_ms
    )
    data = memoryview(encoded(value, 13))
    answer, position = produced.ProduceAnswer.decode(data, 0, 13)
    ((topic_id, found),) = answer.partitions
    assert (topic_id, position, answer.throttle_time_ms) == (bytes(range(16)), len(data), throttle_ms)
    assert found == produce.ProducedPartition(*row)


@pytest.mark.parametrize("place", [0, 17, 48, 50, 51, 56])
def test_answer_that_says_more_is_not_mistaken_for_a_usual_one(place: int) -> None:
    """Counts and tags of the usual answer's length that do not fit its bytes."""
    value = generated.ProduceResponse(
        [generated.ProduceResponseTopic("t", bytes(16), [generated.ProduceResponsePartition(1, 0, 5, 6, 7)])]
    )
    data = bytearray(encoded(value, 13))
    data[place] += 1
    with pytest.raises(DecodeError):
        produced.ProduceAnswer.decode(memoryview(data), 0, 13)


@relaxed
@given(value=messages(case("ProduceRequest")))
def test_requests_of_batches_are_written_as_by_the_generated_codec(value: Any) -> None:
    for topics in (value.topic_data, value.topic_data[:1]):
        of_one = [
            produced.TopicBatches(
                each.name, each.topic_id, [(row.index, row.records or b"") for row in each.partition_data[:1]]
            )
            for each in topics
        ]
        of_all = [
            produced.TopicBatches(
                each.name, each.topic_id, [(row.index, row.records or b"") for row in each.partition_data]
            )
            for each in topics
        ]
        for given_topics in (of_one, of_all):
            wanted = generated.ProduceRequest(
                value.transactional_id,
                value.acks,
                value.timeout_ms,
                [
                    generated.ProduceRequestTopic(
                        each.name, each.topic_id, [generated.ProduceRequestPartition(*row) for row in each.batches]
                    )
                    for each in given_topics
                ],
            )
            request = produced.BatchesRequest(value.transactional_id, value.acks, value.timeout_ms, given_topics)
            for version in VERSIONS:
                outcomes = []
                for message in (wanted, request):
                    out = bytearray()
                    try:
                        message.encode(out, version)
                    except EncodeError:
                        out = bytearray(b"error")
                    outcomes.append(out)
                assert outcomes[0] == outcomes[1]
