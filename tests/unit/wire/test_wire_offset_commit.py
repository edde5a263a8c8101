"""OffsetCommit by hand says what the generated codec says."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.wire import offset_commit
from odradek.wire.apis import ApiKey
from odradek.wire.headers import parse_response_header
from odradek.wire.messages import offset_commit as generated
from odradek.wire.primitives import DecodeError, EncodeError
from tests.unit.wire.samples import absurd_lengths, case, encoded, messages, mutations, plausible, projected

VERSIONS = range(2, 11)
relaxed = settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def as_generated(request: offset_commit.OffsetCommit) -> Any:
    return generated.OffsetCommitRequest(
        request.group_id,
        request.generation_id,
        request.member_id,
        request.group_instance_id,
        request.retention_ms,
        [
            generated.OffsetCommitRequestTopic(
                key if isinstance(key, str) else "",
                key if isinstance(key, bytes) else bytes(16),
                [generated.OffsetCommitRequestPartition(*partition) for partition in partitions],
            )
            for key, partitions in request.topics
        ],
    )


@relaxed
@given(value=messages(case("OffsetCommitRequest")), before=st.integers(0, 9))
def test_requests_are_read_as_the_generated_codec_reads_them(value: Any, before: int) -> None:
    for version in VERSIONS:
        wanted = projected(case("OffsetCommitRequest"), value, version)
        data = bytes(before) + encoded(wanted, version)
        request, position = offset_commit.decode_request(memoryview(data), before, version)
        assert position == len(data)
        assert as_generated(request) == wanted


def test_unknown_tagged_fields_are_skipped_everywhere() -> None:
    tags = b"\1\x63\2ab"
    partition = b"\0\0\0\7" + bytes(7) + b"\5" + b"\xff\xff\xff\xff" + b"\1"
    data = b"\2g" + b"\0\0\0\1" + b"\2m" + b"\0" + b"\2" + b"\2t" + b"\2" + partition + tags * 3
    request, position = offset_commit.decode_request(memoryview(data), 0, 8)
    assert position == len(data)
    assert request.topics == [("t", [(7, 5, -1, "")])]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_request_is_rejected_as_the_generated_codec_rejects_it(version: int) -> None:
    sound = encoded(plausible(case("OffsetCommitRequest"), version, Random(version)), version)
    for data in [*mutations(sound, Random(7), 200), *absurd_lengths(sound)]:
        view = memoryview(bytes(data))
        try:
            wanted = generated.OffsetCommitRequest.decode(view, 0, version)
        except DecodeError:
            with pytest.raises(DecodeError):
                offset_commit.decode_request(view, 0, version)
        else:
            request, position = offset_commit.decode_request(view, 0, version)
            assert (as_generated(request), position) == wanted


@pytest.mark.parametrize("version", [1, 11])
def test_other_versions_are_rejected(version: int) -> None:
    with pytest.raises(DecodeError):
        offset_commit.decode_request(memoryview(bytes(100)), 0, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("failed", [False, True])
def test_answers_are_those_of_the_generated_codec(version: int, failed: bool) -> None:
    names: list[str | bytes] = ["t", "u" * 200] if version < 10 else [bytes(range(16)), bytes(16)]
    counts = zip(names, (3, 130), strict=True)
    topics: offset_commit.Topics = [(name, [(index, 5, -1, "") for index in range(count)]) for name, count in counts]
    codes = [index % 90 for index in range(133)] if failed else None
    throttle_ms = 7 if version >= 3 else 0
    frame = memoryview(offset_commit.encode_response(version, 42, topics, codes, throttle_ms))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, position = parse_response_header(frame[4:], ApiKey.OFFSET_COMMIT, version)
    answer, end = generated.OffsetCommitResponse.decode(frame[4:], position, version)
    assert (correlation_id, end, answer.throttle_time_ms) == (42, len(frame) - 4, throttle_ms)
    got = [(p.partition_index, p.error_code) for topic in answer.topics for p in topic.partitions]
    assert got == list(zip([*range(3), *range(130)], codes or [0] * 133, strict=True))
    assert [topic.topic_id if version >= 10 else topic.name for topic in answer.topics] == names


def test_a_topic_needs_what_the_version_names_it_by() -> None:
    with pytest.raises(EncodeError):
        offset_commit.encode_response(10, 1, [("t", [(0, 1, -1, "")])])
    with pytest.raises(EncodeError):
        offset_commit.encode_response(9, 1, [(bytes(16), [(0, 1, -1, "")])])
