"""What a consumer group answers from its members and records: commits, owners, topics, protocols, state."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups import subscriptions
from odradek.groups.consumer.group import NO_SUBSCRIPTION, ConsumerGroup, ConsumerGroupState, check_partition
from odradek.groups.consumer.records import (
    ClassicMetadata,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberState,
    OldMetadataRecord,
    RegexRecord,
    ResolvedRegex,
    SubscriptionRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.wire.primitives import DecodeError

A, B = b"a" * 16, b"b" * 16
CLASSIC = ClassicMetadata(10_000, (("range", b""),))
Owned = dict[bytes, dict[int, int]]


def add(
    group: ConsumerGroup,
    member_id: str,
    epoch: int = 5,
    *,
    assigned: Owned | None = None,
    revoking: Owned | None = None,
    state: MemberState = MemberState.STABLE,
    **subscription: Any,
) -> None:
    """A member, replayed from its records."""
    value = NO_SUBSCRIPTION._replace(**subscription)
    group.apply(SubscriptionRecord("g", member_id, value))
    current = CurrentAssignment(epoch, epoch - 1, state, assigned or {}, revoking or {})
    group.apply(CurrentAssignmentRecord("g", member_id, current))


@pytest.fixture
def group() -> ConsumerGroup:
    return ConsumerGroup("g")


def code_of(call: Any, *args: Any, **kwargs: Any) -> ErrorCode | None:
    try:
        call(*args, **kwargs)
    except KafkaError as error:
        return error.code
    return None


# --- commits ---


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "transactional", "code"),
    [
        ("m", 5, 9, False, None),
        ("m", 6, 9, False, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 5, 8, False, ErrorCode.UNSUPPORTED_VERSION),
        ("m", 5, 0, True, None),
        ("old", 5, 1, False, None),
        ("old", 6, 9, False, ErrorCode.ILLEGAL_GENERATION),
        ("x", 5, 9, False, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, False, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, True, None),
        ("", 0, 9, True, ErrorCode.UNKNOWN_MEMBER_ID),
        ("x", -1, 9, True, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commit_is_checked_against_its_member(
    group: ConsumerGroup, member_id: str, epoch: int, version: int, transactional: bool, code: ErrorCode | None
) -> None:
    add(group, "m")
    add(group, "old", classic=CLASSIC)
    check = group.check_commit
    found = code_of(check, member_id, None, epoch, api_version=version, transactional=transactional)
    assert found is code
    if code is None:
        assert check(member_id, None, epoch, api_version=version, transactional=transactional) is None


def test_transactional_commit_of_an_instance_needs_its_member(group: ConsumerGroup) -> None:
    add(group, "m")
    found = code_of(group.check_commit, "", "instance", -1, api_version=9, transactional=True)
    assert found is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_of_an_older_epoch_is_checked_by_partition(group: ConsumerGroup) -> None:
    add(group, "m", 5, assigned={A: {0: 3}}, revoking={A: {1: 4}})
    member = group.check_commit("m", None, 4, api_version=9, transactional=False)
    assert member is group.members["m"]
    for partition, epoch, code in (
        (0, 3, None),
        (0, 4, None),
        (0, 2, ErrorCode.STALE_MEMBER_EPOCH),
        (1, 4, None),
        (1, 3, ErrorCode.STALE_MEMBER_EPOCH),
        (2, 4, ErrorCode.STALE_MEMBER_EPOCH),
    ):
        assert code_of(check_partition, member, epoch, A, partition) is code, (partition, epoch)
    assert code_of(check_partition, member, 4, B, 0) is ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(("epoch", "is_empty", "code"), [
    (-1, True, None),
    (0, True, ErrorCode.UNKNOWN_MEMBER_ID),
    (-1, False, ErrorCode.UNKNOWN_MEMBER_ID),
])  # fmt: skip
def test_commit_from_outside_is_for_groups_without_members(
    group: ConsumerGroup, epoch: int, is_empty: bool, code: ErrorCode | None
) -> None:
    if not is_empty:
        add(group, "m")
    assert code_of(group.check_commit, "", None, epoch, api_version=9, transactional=False) is code


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        (None, -1, None),
        (None, 0, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", 5, None),
        ("m", 4, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", 6, ErrorCode.STALE_MEMBER_EPOCH),
        ("m", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("x", 5, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_fetch_of_offsets_is_checked_against_its_member(
    group: ConsumerGroup, member_id: str | None, epoch: int, code: ErrorCode | None
) -> None:
    add(group, "m")
    assert code_of(group.check_fetch, member_id, epoch) is code


# --- replay ---


def test_new_group_has_the_first_epoch_and_no_members(group: ConsumerGroup) -> None:
    assert (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms) == (1, 0, 1, 0)
    assert (group.state, group.has_old_metadata) == (ConsumerGroupState.EMPTY, False)
    assert group.is_empty
    assert group.is_idle
    assert not group.is_dead
    assert group.lets_offsets_be_deleted


def test_records_of_the_group_are_replayed_and_their_tombstones_undo_them(group: ConsumerGroup) -> None:
    resolved = ResolvedRegex(frozenset({"t"}), 3, 9)
    group.apply(GroupEpochRecord("g", GroupEpoch(7, 99)))
    group.apply(TargetEpochRecord("g", TargetEpoch(6, 1234)))
    group.apply(OldMetadataRecord("g", True))
    group.apply(RegexRecord("g", "t.*", resolved))
    group.apply(TargetRecord("g", "m", {A: frozenset({1})}))
    assert (group.epoch, group.metadata_hash, group.target_epoch, group.target_timestamp_ms) == (7, 99, 6, 1234)
    assert (group.has_old_metadata, group.regexes, group.targets) == (
        True,
        {"t.*": resolved},
        {"m": {A: frozenset({1})}},
    )
    twin = group.copy()
    assert twin == group
    for tombstone in (
        GroupEpochRecord("g", None),
        TargetEpochRecord("g", None),
        OldMetadataRecord("g", False),
        RegexRecord("g", "t.*", None),
        TargetRecord("g", "m", None),
    ):
        before = group.copy()
        group.apply(tombstone)
        assert group != before
        group.apply(tombstone)
    assert group == ConsumerGroup("g")
    assert twin.epoch == 7, "the copy is its own"


def test_partition_belongs_to_the_member_that_owns_or_revokes_it(group: ConsumerGroup) -> None:
    add(group, "m", assigned={A: {0: 1}}, revoking={B: {2: 1}})
    assert group.owners == {(A, 0): "m", (B, 2): "m"}
    add(group, "n", assigned={A: {0: 2}})
    assert group.owners == {(A, 0): "n", (B, 2): "m"}
    group.apply(CurrentAssignmentRecord("g", "m", None))
    assert group.owners == {(A, 0): "n"}, "what another member owns meanwhile stays"
    assert group.members["m"].epoch == -1
    group.apply(SubscriptionRecord("g", "n", None))
    assert (group.owners, list(group.members)) == ({}, ["m"])


def test_tombstones_of_unknown_members_change_nothing(group: ConsumerGroup) -> None:
    group.apply(CurrentAssignmentRecord("g", "x", None))
    group.apply(SubscriptionRecord("g", "x", None))
    assert group == ConsumerGroup("g")


def test_new_subscription_keeps_what_the_member_owns(group: ConsumerGroup) -> None:
    add(group, "m", assigned={A: {0: 1}}, topics=("a",))
    group.apply(SubscriptionRecord("g", "m", NO_SUBSCRIPTION._replace(topics=("b",))))
    assert (group.members["m"].epoch, group.owners) == (5, {(A, 0): "m"})


def test_instance_belongs_to_its_newest_member(group: ConsumerGroup) -> None:
    add(group, "m", instance_id="i")
    assert group.static_member("i") is group.members["m"]
    add(group, "n", instance_id="i")
    assert group.static_member("i") is group.members["n"]
    group.apply(SubscriptionRecord("g", "m", None))
    assert group.static_member("i") is group.members["n"]
    group.apply(SubscriptionRecord("g", "n", None))
    assert group.static_member("i") is None
    assert group.static_member(None) is None


# --- state and targets ---


@pytest.mark.parametrize(
    ("group_epoch", "target_epoch", "member_epoch", "member_state", "expected"),
    [
        (5, 5, 5, MemberState.STABLE, ConsumerGroupState.STABLE),
        (6, 5, 5, MemberState.STABLE, ConsumerGroupState.ASSIGNING),
        (5, 5, 4, MemberState.STABLE, ConsumerGroupState.RECONCILING),
        (5, 5, 5, MemberState.UNREVOKED_PARTITIONS, ConsumerGroupState.RECONCILING),
        (5, 5, 5, MemberState.UNRELEASED_PARTITIONS, ConsumerGroupState.RECONCILING),
    ],
)
def test_state_follows_from_the_epochs(
    group: ConsumerGroup,
    group_epoch: int,
    target_epoch: int,
    member_epoch: int,
    member_state: MemberState,
    expected: ConsumerGroupState,
) -> None:
    group.apply(GroupEpochRecord("g", GroupEpoch(group_epoch, 0)))
    group.apply(TargetEpochRecord("g", TargetEpoch(target_epoch, 0)))
    add(group, "m", member_epoch, state=member_state)
    add(group, "n", target_epoch)
    assert group.state is expected


def test_returning_instance_inherits_the_target_of_its_last_member(group: ConsumerGroup) -> None:
    add(group, "m", instance_id="i")
    group.apply(TargetRecord("g", "m", {A: frozenset({0})}))
    add(group, "n", instance_id="j")
    returning = group.members["n"]._replace(subscription=NO_SUBSCRIPTION._replace(instance_id="i"))
    assert group.target_of(returning) == {A: {0}}
    assert group.target_of(group.members["n"]) == {}
    assert group.target_of(group.members["m"]) == {A: {0}}


def test_member_waits_for_partitions_of_others_only(group: ConsumerGroup) -> None:
    add(group, "m", assigned={A: {0: 5}})
    group.apply(TargetRecord("g", "m", {A: frozenset({0, 1})}))
    assert not group.waits_for_others(group.members["m"]), "partition 1 is free"
    add(group, "n", revoking={A: {1: 4}})
    assert group.waits_for_others(group.members["m"])
    assert not group.waits_for_others(group.members["n"])


# --- topics and protocols ---


def test_topics_of_members_are_those_of_names_and_patterns(group: ConsumerGroup) -> None:
    add(group, "m", topics=("a",), regex="b.*")
    add(group, "n", topics=("c",), regex="unresolved")
    add(group, "o", regex="b.*")
    group.apply(RegexRecord("g", "b.*", ResolvedRegex(frozenset({"b1", "b2"}), 1, 0)))
    group.apply(RegexRecord("g", "old", ResolvedRegex(frozenset({"z"}), 1, 0)))
    assert group.topics_of(group.members["m"]) == {"a", "b1", "b2"}
    assert group.topics_of(group.members["n"]) == {"c"}
    assert group.subscribed_topics() == {"a", "b1", "b2", "c"}
    assert list(group.subscribed_regexes()) == ["b.*", "unresolved"]
    assert [group.is_subscribed(name) for name in ("a", "b2", "c", "d")] == [True, True, True, False]


def test_most_votes_decide_the_assignor(group: ConsumerGroup) -> None:
    assert group.preferred_assignor() is None
    add(group, "m", server_assignor="range")
    add(group, "n", server_assignor="uniform")
    add(group, "o", server_assignor="uniform")
    add(group, "p")
    assert group.preferred_assignor() == "uniform"


def test_classic_member_needs_a_protocol_of_all_classic_members(group: ConsumerGroup) -> None:
    assert not group.supports_classic("connect", ["range"])
    assert group.supports_classic("consumer", ["range"])
    assert not group.supports_classic("consumer", [])
    add(group, "m")
    assert group.supports_classic("consumer", ["anything"]), "members of the new protocol have none"
    assert group.classic_members() == []
    add(group, "n", classic=ClassicMetadata(1, (("range", b""), ("sticky", b""))))
    add(group, "o", classic=ClassicMetadata(1, (("sticky", b""),)))
    assert group.supports_classic("consumer", ["range", "sticky"])
    assert not group.supports_classic("consumer", ["range"])
    assert not group.supports_classic("consumer", ["other"])
    assert [member.member_id for member in group.classic_members()] == ["n", "o"]


# --- the metadata of classic members ---


def metadata(version: int, *topics: str) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    ConsumerProtocolSubscription(list(topics)).encode(out, min(version, ConsumerProtocolSubscription.MAX_VERSION))
    return bytes(out)


@pytest.mark.parametrize("version", [0, 1, 3, 4, 255, 256, 257, 0x7FFF])
def test_subscription_of_a_later_version_is_readable(version: int) -> None:
    found = subscriptions.read_subscription(metadata(version, "b", "a", "b"))
    assert (found.version, found.topics, found.owned, found.rack_id) == (version, ("a", "b"), {}, None)
    assert subscriptions.subscribed_topics([metadata(version, "a"), metadata(0, "c")]) == frozenset("ac")


@pytest.mark.parametrize("data", [b"", b"\0", b"\x80\0\0\0\0\0", b"\0\0\0\0\0\x05"])
def test_unreadable_subscription_is_no_list_of_topics(data: bytes) -> None:
    with pytest.raises(DecodeError):
        subscriptions.read_subscription(data)
    assert subscriptions.subscribed_topics([metadata(0, "a"), data]) is None


@pytest.mark.parametrize("version", [0, 1, 3, 9, 256])
def test_assignment_is_read_as_it_was_written(version: int) -> None:
    partitions = {"b": frozenset({3, 1}), "a": frozenset({0})}
    assert subscriptions.read_assignment(subscriptions.write_assignment(partitions, version)) == partitions
    assert subscriptions.read_assignment(b"") == {}
    with pytest.raises(DecodeError):
        subscriptions.read_assignment(b"\0")
