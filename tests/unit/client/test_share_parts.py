"""Parts of the share consumer without I/O: sessions, members, and the acquired part of an answer."""

import pytest

from odradek.client.config import resolve_share_consumer
from odradek.client.consumer.positions import RecordReader
from odradek.client.errors import ConfigError
from odradek.client.share.member import ShareGroupMember
from odradek.client.share.records import ShareRecord, Unreadable, read_acquired
from odradek.client.share.session import SharePlan, ShareSession
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.share_fetch import ShareFetchResponseAcquiredRecords as Range
from odradek.wire.messages.share_group_heartbeat import (
    ShareGroupHeartbeatResponse,
    ShareGroupHeartbeatResponseAssignment,
    ShareGroupHeartbeatResponseTopicPartitions,
)

TOPIC = b"t" * 16
KEY = TopicPartition("jobs", 0)


def test_a_session_reports_what_has_changed() -> None:
    session = ShareSession()
    assert session.is_new
    assert session.plan({(TOPIC, 0), (TOPIC, 1)}) == SharePlan(0, [(TOPIC, 0), (TOPIC, 1)], [])
    session.fetched()
    assert session.plan({(TOPIC, 1), (TOPIC, 2)}) == SharePlan(1, [(TOPIC, 2)], [(TOPIC, 0)])
    session.fetched()
    session.acknowledged()
    assert session.plan({(TOPIC, 1), (TOPIC, 2)}) == SharePlan(3, [], [])


def test_a_lost_session_begins_again_with_all_partitions() -> None:
    session = ShareSession()
    session.plan({(TOPIC, 0)})
    session.fetched()
    session.reset()
    assert session.plan({(TOPIC, 0)}) == SharePlan(0, [(TOPIC, 0)], [])


def test_the_epoch_wraps_to_one() -> None:
    session = ShareSession()
    session.epoch = 0x7FFFFFFF
    session.acknowledged()
    assert session.epoch == 1


def test_a_member_reports_its_topics_when_it_joins_and_when_they_change() -> None:
    member = ShareGroupMember("group", "me", rack="a")
    member.subscribe({"b", "a"})
    request = member.request()
    assert (request.member_epoch, request.subscribed_topic_names, request.rack_id) == (0, ["a", "b"], "a")
    partitions = [ShareGroupHeartbeatResponseTopicPartitions(TOPIC, [0, 2])]
    assignment = ShareGroupHeartbeatResponseAssignment(partitions)
    assert member.answered(request, ShareGroupHeartbeatResponse(member_epoch=4, assignment=assignment))
    assert member.assignment == {(TOPIC, 0), (TOPIC, 2)}
    request = member.request()
    assert (request.member_epoch, request.subscribed_topic_names) == (4, None)
    assert member.answered(request, ShareGroupHeartbeatResponse(member_epoch=4))
    assert member.assignment == {(TOPIC, 0), (TOPIC, 2)}
    member.subscribe({"c"})
    assert member.request().subscribed_topic_names == ["c"]
    assert member.leave_request().member_epoch == -1


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_removed_member_joins_again(code: ErrorCode) -> None:
    member = ShareGroupMember("group", "me")
    member.subscribe({"a"})
    assert member.answered(member.request(), ShareGroupHeartbeatResponse(member_epoch=4))
    assert not member.answered(member.request(), ShareGroupHeartbeatResponse(error_code=code))
    request = member.request()
    assert (request.member_epoch, request.subscribed_topic_names) == (0, ["a"])


def batches(*sizes: int) -> bytearray:
    """Batches of so many records, one behind the other, values as their offsets."""
    data, offset = bytearray(), 0
    for size in sizes:
        rows = [(1_000, None, b"%d" % number, ()) for number in range(offset, offset + size)]
        data += encode_batch(rows, BatchFields(base_offset=offset))
        offset += size
    return data


def test_only_acquired_records_are_returned() -> None:
    reader = RecordReader(check_crcs=True)
    found = read_acquired(KEY, memoryview(batches(3, 3, 3)), [Range(2, 4, 1), Range(7, 8, 5)], reader)
    assert all(isinstance(each, ShareRecord) for each in found.records)
    assert [(each.offset, each.delivery_count) for each in found.records if isinstance(each, ShareRecord)] == [
        (2, 1), (3, 1), (4, 1), (7, 5), (8, 5),
    ]  # fmt: skip
    assert (found.gaps, found.corrupt, found.corruption) == ([], [], None)


def test_acquired_offsets_without_a_record_are_gaps() -> None:
    found = read_acquired(KEY, memoryview(batches(2)), [Range(0, 4, 1)], RecordReader(check_crcs=True))
    assert [each.offset for each in found.records] == [0, 1]
    assert found.gaps == [2, 3, 4]


def test_records_around_an_unreadable_one_are_returned() -> None:
    reader = RecordReader(check_crcs=True, value_deserializer=lambda _, data: 1 // (int(data) - 1))
    found = read_acquired(KEY, memoryview(batches(4)), [Range(0, 3, 1)], reader)
    assert [(each.offset, type(each)) for each in found.records] == [
        (0, ShareRecord), (1, Unreadable), (2, ShareRecord), (3, ShareRecord),
    ]  # fmt: skip


def test_a_corrupt_batch_does_not_hide_the_others() -> None:
    data = batches(2, 2, 2)
    size = len(data) // 3
    data[2 * size - 2] ^= 1
    found = read_acquired(KEY, memoryview(data), [Range(0, 5, 1)], RecordReader(check_crcs=True))
    assert [each.offset for each in found.records] == [0, 1, 4, 5]
    assert found.corrupt == [2, 3]
    assert found.corruption is not None
    assert "jobs-0" in str(found.corruption)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "group_id is required"),
        ({"group_id": "g", "auto.offset.reset": "earliest"}, r"share\.auto\.offset\.reset"),
        ({"group_id": "g", "share_acquire_mode": "all"}, "share_acquire_mode"),
    ],
)
def test_options_that_do_not_fit_are_rejected(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_share_consumer(options)
