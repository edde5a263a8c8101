"""The follower's side of Fetch says what the generated codec and the leader's side say."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.wire import fetch
from odradek.wire.messages import fetch as generated
from odradek.wire.primitives import DecodeError, EncodeError
from odradek.wire.replica_fetch import FetchedReplica, ReplicaFetchRequest, ReplicaFetchResponse
from tests.unit.wire.samples import case, encoded, messages, mutations, plausible, projected

VERSIONS = range(15, 18)
relaxed = settings(max_examples=25, deadline=None, database=None, suppress_health_check=list(HealthCheck))
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
topic_id = st.binary(min_size=16, max_size=16)
row = st.tuples(int32, int32, int64, int32, int64, int32)


@relaxed
@given(
    head=st.tuples(int32, int64, int32, int32, int32),
    session=st.tuples(int32, int32),
    topics=st.lists(st.tuples(topic_id, st.lists(row, max_size=4)), max_size=3),
    forgotten=st.lists(st.tuples(topic_id, st.lists(int32, max_size=3)), max_size=3),
)
def test_a_leader_reads_what_a_follower_writes(head: Any, session: Any, topics: Any, forgotten: Any) -> None:
    request = ReplicaFetchRequest(*head)
    request.session_id, request.session_epoch = session
    request.topics, request.forgotten = topics, forgotten
    for version in VERSIONS:
        out = bytearray()
        request.encode(out, version)
        wanted = generated.FetchRequest(
            max_wait_ms=head[2], min_bytes=head[3], max_bytes=head[4], session_id=session[0], session_epoch=session[1]
        )
        wanted.replica_state = generated.FetchRequestReplicaState(head[0], head[1])
        for topic, rows in topics:
            partitions = [generated.FetchRequestPartition(*each) for each in rows]
            wanted.topics.append(generated.FetchRequestTopic(topic_id=topic, partitions=partitions))
        for topic, indexes in forgotten:
            wanted.forgotten_topics_data.append(
                generated.FetchRequestForgottenTopic(topic_id=topic, partitions=indexes)
            )
        decoded, end = generated.FetchRequest.decode(memoryview(out), 0, version)
        assert (decoded, end) == (wanted, len(out))
        read, end = fetch.decode_request(memoryview(out), 0, version)
        assert end == len(out)
        assert (read.replica_id, read.replica_epoch, read.topics) == (head[0], head[1], topics)
        assert read.forgotten == forgotten


def as_fetched(value: Any) -> list[FetchedReplica]:
    def pair(item: Any, default: Any, first: str, second: str) -> tuple[int, int] | None:
        return None if item == default else (getattr(item, first), getattr(item, second))

    return [
        FetchedReplica(
            topic.topic_id,
            each.partition_index,
            each.error_code,
            each.high_watermark,
            each.log_start_offset,
            memoryview(each.records or b""),
            pair(each.diverging_epoch, generated.FetchResponseEpochEndOffset(), "epoch", "end_offset"),
            pair(each.current_leader, generated.FetchResponseLeaderIdAndEpoch(), "leader_id", "leader_epoch"),
        )
        for topic in value.responses
        for each in topic.partitions
    ]


@relaxed
@given(value=messages(case("FetchResponse")))
def test_answers_are_read_as_the_generated_codec_reads_them(value: Any) -> None:
    for version in VERSIONS:
        wanted = projected(case("FetchResponse"), value, version)
        data = encoded(wanted, version)
        read, end = ReplicaFetchResponse.decode(memoryview(data), 0, version)
        assert end == len(data)
        assert (read.throttle_time_ms, read.error_code, read.session_id) == (
            wanted.throttle_time_ms,
            wanted.error_code,
            wanted.session_id,
        )
        assert read.partitions == as_fetched(wanted)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_answers_raise_decode_error_or_match_the_generated_codec(version: int) -> None:
    random = Random(version)
    for _ in range(3):
        value = plausible(case("FetchResponse"), version, random)
        for damaged in mutations(encoded(value, version), random, 100):
            try:
                wanted, position = generated.FetchResponse.decode(memoryview(damaged), 0, version)
            except DecodeError:
                # What is passed over unread (names of nodes, for instance) may be damaged: no record depends on it.
                try:
                    ReplicaFetchResponse.decode(memoryview(damaged), 0, version)
                except DecodeError:
                    continue
                continue
            read, end = ReplicaFetchResponse.decode(memoryview(damaged), 0, version)
            assert end == position
            assert [each[:6] for each in read.partitions] == [each[:6] for each in as_fetched(wanted)]


def test_records_are_views_of_the_answer() -> None:
    parts = fetch.encode_response(17, 1, [(bytes(16), [fetch.FetchedPartition(3, 0, 9, 9, 1, [b"records"], 7)])])
    frame = memoryview(bytearray().join(parts))  # type: ignore[arg-type]
    read, _ = ReplicaFetchResponse.decode(frame, 9, 17)
    (found,) = read.partitions
    assert (found.partition, found.high_watermark, found.log_start_offset, bytes(found.records)) == (
        3,
        9,
        1,
        b"records",
    )
    frame[frame.obj.index(b"records")] = ord("R")  # type: ignore[attr-defined]
    assert bytes(found.records) == b"Records"


def test_other_versions_are_rejected() -> None:
    for version in (14, 18):
        with pytest.raises(EncodeError):
            ReplicaFetchRequest(1, 1, 0, 0, 0).encode(bytearray(), version)
        with pytest.raises(DecodeError):
            ReplicaFetchResponse.decode(memoryview(bytes(20)), 0, version)
    request = ReplicaFetchRequest(1, 1, 0, 0, 0)
    request.topics = [(bytes(16), [(1 << 40, 0, 0, 0, 0, 0)])]
    with pytest.raises(EncodeError):
        request.encode(bytearray(), 17)
