"""Every generated codec: round trips, unknown tags, what a version cannot carry, and hostile input."""

from __future__ import annotations

import contextlib
import tracemalloc
from random import Random
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.wire.definitions import Versions, load_all
from odradek.wire.messages import (
    alter_configs,
    alter_user_scram_credentials,
    consumer_group_records,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    metadata,
    sasl_authenticate,
    transaction_state,
)
from odradek.wire.primitives import DecodeError, EncodeError, write_tag, write_unsigned_varint
from tests.unit.wire.samples import (
    Case,
    absurd_lengths,
    cases,
    decoded,
    encoded,
    messages,
    mutations,
    peak_bytes,
    plausible,
    projected,
)

each_case = pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)


@each_case
@settings(max_examples=12, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_version_reads_what_it_wrote(case: Case, data: st.DataObject) -> None:
    value = data.draw(messages(case))
    for version in case.versions:
        wanted = projected(case, value, version)
        assert decoded(case.kind, encoded(wanted, version), version) == wanted


@each_case
def test_defaults_are_the_same_in_constructor_and_on_the_wire(case: Case) -> None:
    for version in case.versions:
        assert decoded(case.kind, encoded(case.kind(), version), version) == case.kind()


@each_case
def test_a_truncated_message_is_rejected(case: Case) -> None:
    for version in case.versions:
        data = encoded(plausible(case, version, Random(version)), version)
        for end in range(0, len(data), max(1, len(data) // 40)):
            with pytest.raises(DecodeError):
                case.kind.decode(memoryview(data)[:end], 0, version)


@each_case
def test_versions_outside_the_range_are_rejected(case: Case) -> None:
    for version in (case.versions.start - 1, case.versions.stop):
        with pytest.raises(DecodeError):
            case.kind.decode(memoryview(bytes(1000)), 0, version)


@each_case
def test_unknown_tagged_fields_are_skipped(case: Case) -> None:
    for version in case.versions:
        if version not in case.message.flexible:
            continue
        wanted = case.kind()
        data = encoded(wanted, version)
        assert data.endswith(b"\0"), "the tag section of a message of defaults is empty"
        tags = bytearray()
        write_unsigned_varint(tags, 2)
        write_tag(tags, 9_000, bytearray(b"\xffunknown"))
        write_tag(tags, 70_000, bytearray(200))
        assert decoded(case.kind, data[:-1] + bytes(tags), version) == wanted


def test_unknown_tagged_fields_of_nested_structs_are_skipped() -> None:
    wanted = find_coordinator.FindCoordinatorResponse(
        coordinators=[find_coordinator.FindCoordinatorResponseCoordinator()]
    )
    data = encoded(wanted, 6)
    assert data.endswith(b"\0\0")
    assert decoded(find_coordinator.FindCoordinatorResponse, data[:-2] + b"\1\x63\3abc\0", 6) == wanted


def test_a_known_tagged_field_must_fill_its_size() -> None:
    data = encoded(fetch.FetchRequest(cluster_id="abc"), 12)
    assert data.endswith(b"\1\0\4\4abc")
    with pytest.raises(DecodeError, match="tagged field 0"):
        fetch.FetchRequest.decode(memoryview(data[:-6] + b"\0\5\4abc\0"), 0, 12)


@each_case
def test_only_decode_error_comes_out_of_damaged_input(case: Case) -> None:
    for version in case.versions:
        random = Random(f"{case.name} {version}")
        data = encoded(plausible(case, version, random), version)
        for damaged in mutations(data, random, 60):
            try:
                _, position = case.kind.decode(memoryview(damaged), 0, version)
            except DecodeError:
                continue
            assert position <= len(damaged)


@settings(max_examples=300, deadline=None, database=None)
@given(case=st.sampled_from(cases()), data=st.binary(max_size=200), offset=st.integers(0, 20))
def test_only_decode_error_comes_out_of_noise(case: Case, data: bytes, offset: int) -> None:
    for version in case.versions:
        with contextlib.suppress(DecodeError):
            case.kind.decode(memoryview(data), offset, version)


@each_case
def test_absurd_lengths_allocate_nothing(case: Case) -> None:
    tracemalloc.start()
    try:
        for version in {case.versions[0], case.versions[-1]}:
            for absurd in absurd_lengths(encoded(case.kind(), version)):
                allowed = 20_000 + 100 * len(absurd)
                assert peak_bytes(case.kind.decode, absurd, version, allowed) < allowed
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("fill", [b"\x01", b"\x02", b"\0"])
def test_memory_stays_a_small_multiple_of_the_frame(fill: bytes) -> None:
    """The densest arrays that a frame of 8 KB can announce, in every message."""
    size = 8_000
    tracemalloc.start()
    try:
        for case in cases():
            version = case.versions[-1]
            data = encoded(case.kind(), version)
            for at in range(min(len(data), 24)):
                for count in (b"\xc0\x3e", b"\xea\x14", b"\xdc\x0b", b"\0\0\x0a\0"):
                    frame = data[:at] + count + fill * size
                    peak = peak_bytes(case.kind.decode, frame, version, 60 * size)
                    assert peak < 60 * size, (case.name, at, count)
                    if at > 4:
                        break
    finally:
        tracemalloc.stop()


def test_more_tags_than_bytes_are_rejected() -> None:
    absurd = b"\xff\xff\xff\xff\x0f" + b"\0\0" * 1_000
    with pytest.raises(DecodeError):
        heartbeat.HeartbeatRequest.decode(memoryview(encoded(heartbeat.HeartbeatRequest(), 4)[:-1] + absurd), 0, 4)
    with pytest.raises(DecodeError):
        fetch.FetchRequest.decode(memoryview(encoded(fetch.FetchRequest(), 12)[:-1] + absurd), 0, 12)


def test_invalid_utf8_is_a_decode_error() -> None:
    data = encoded(heartbeat.HeartbeatRequest(group_id="aa"), 0).replace(b"aa", b"\xff\xfe")
    with pytest.raises(DecodeError):
        heartbeat.HeartbeatRequest.decode(memoryview(data), 0, 0)


def test_negative_lengths_of_what_may_not_be_null_are_rejected() -> None:
    with pytest.raises(DecodeError):
        heartbeat.HeartbeatRequest.decode(memoryview(b"\xff\xff" + bytes(20)), 0, 0)
    with pytest.raises(DecodeError):
        heartbeat.HeartbeatRequest.decode(memoryview(bytes(20)), 0, 4)
    with pytest.raises(DecodeError):
        metadata.MetadataRequest.decode(memoryview(b"\xff\xff\xff\xff"), 0, 0)
    assert decoded(metadata.MetadataRequest, b"\xff\xff\xff\xff", 1).topics is None


def test_a_field_that_the_version_lacks_is_rejected_unless_it_may_be_lost() -> None:
    with pytest.raises(EncodeError, match="group_instance_id"):
        encoded(heartbeat.HeartbeatRequest(group_instance_id="a"), 2)
    with pytest.raises(EncodeError, match="forgotten_topics_data"):
        encoded(fetch.FetchRequest(forgotten_topics_data=[fetch.FetchRequestForgottenTopic()]), 6)
    with pytest.raises(EncodeError, match="replica_state"):
        encoded(fetch.FetchRequest(replica_state=fetch.FetchRequestReplicaState(replica_id=3)), 13)
    with pytest.raises(EncodeError, match="next_producer_id"):
        encoded(transaction_state.TransactionLogValue(next_producer_id=3), 0)
    assert decoded(fetch.FetchRequest, encoded(fetch.FetchRequest(rack_id="r"), 5), 5).rack_id == ""


def test_null_and_values_out_of_range_are_rejected() -> None:
    with pytest.raises(EncodeError):
        encoded(metadata.MetadataRequest(topics=None), 0)
    with pytest.raises(EncodeError):
        encoded(heartbeat.HeartbeatRequest(group_id=cast("str", None)), 4)
    with pytest.raises(EncodeError):
        encoded(heartbeat.HeartbeatRequest(generation_id=1 << 31), 0)
    with pytest.raises(EncodeError):
        encoded(heartbeat.HeartbeatRequest(group_id="a" * 40_000), 4)
    with pytest.raises(EncodeError):
        encoded(heartbeat.HeartbeatRequest(group_id="\ud800"), 4)


def test_default_lists_are_not_shared() -> None:
    first, second = metadata.MetadataResponse(), metadata.MetadataResponse()
    first.brokers.append(metadata.MetadataResponseBroker())
    assert second.brokers == []


def test_a_null_tagged_struct_differs_from_its_default() -> None:
    """Kafka writes this one explicitly when it is null, by a zero, and leaves out a struct of defaults."""
    kind = consumer_group_records.ConsumerGroupMemberMetadataValue
    assert encoded(kind(classic_member_metadata=None), 0).endswith(b"\1\0\1\0")
    empty = consumer_group_records.ConsumerGroupMemberMetadataValueClassicMemberMetadata()
    assert encoded(kind(classic_member_metadata=empty), 0).endswith(b"\0")


def test_messages_show_and_compare_themselves() -> None:
    one = fetch.FetchResponsePartition(records=bytes(100))
    assert "partition_index=0" in repr(one)
    assert "records=<100 bytes>" in repr(one)
    assert one == fetch.FetchResponsePartition(records=memoryview(bytes(100)))
    assert one != fetch.FetchResponsePartition()
    assert one != heartbeat.HeartbeatRequest()


def test_versions_of_fields_lie_within_those_of_the_message() -> None:
    for members in load_all().values():
        for message in members:
            for shape in (message.root, *message.structs.values()):
                for field in shape.fields:
                    assert field.versions, (message.name, field.name)
                    assert Versions(*message.versions).covers(field.versions)
                    assert field.tag is None or field.tagged.clip(message.flexible) == field.tagged


@pytest.mark.parametrize(
    "message",
    [
        sasl_authenticate.SaslAuthenticateRequest(b"\0user\0PLANTED"),
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            [],
            [
                alter_user_scram_credentials.AlterUserScramCredentialsRequestUpsertion(
                    name="u", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"PLANTED"
                )
            ],
        ),
        alter_configs.AlterConfigsRequestConfig(name="ssl.key.password", value="PLANTED"),
        incremental_alter_configs.IncrementalAlterConfigsRequestConfig(name="ssl.key.password", value="PLANTED"),
        expire_delegation_token.ExpireDelegationTokenRequest(hmac=b"PLANTED"),
    ],
)
def test_debug_output_of_messages_shows_no_secret(message: object) -> None:
    assert "PLANTED" not in repr(message)
    assert "[hidden]" in repr(message)
