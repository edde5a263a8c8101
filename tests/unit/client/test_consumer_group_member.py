"""A member of a group of KIP-848, without I/O: its heartbeats and what their answers change."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.client.group.consumer_group_member import Consequence, ConsumerGroupMember
from odradek.client.model import GroupMembershipOperation
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseAssignment,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

T = bytes(15) + b"\1"


def answer(epoch: int, *partitions: int, assigns: bool = True, **fields: Any) -> ConsumerGroupHeartbeatResponse:
    topics = [ConsumerGroupHeartbeatResponseTopicPartitions(T, list(partitions))] if partitions else []
    assignment = ConsumerGroupHeartbeatResponseAssignment(topics) if assigns else None
    return ConsumerGroupHeartbeatResponse(
        member_epoch=epoch, heartbeat_interval_ms=5_000, assignment=assignment, **fields
    )


def joined(*partitions: int) -> ConsumerGroupMember:
    """A member in epoch 1 that owns what it is assigned, which the coordinator knows."""
    member = ConsumerGroupMember("g", "m", rack="r", assignor="uniform", rebalance_timeout_ms=300_000)
    member.subscribe(["t"], None)
    member.answered(member.request(), answer(1, *partitions))
    member.owned = frozenset((T, each) for each in partitions)
    member.answered(member.request(), answer(1, assigns=False))
    assert not member.has_news
    return member


def test_first_heartbeat_has_all_fields() -> None:
    member = ConsumerGroupMember("g", "m", rack="r", assignor="uniform", rebalance_timeout_ms=300_000)
    member.subscribe(["b", "a"], None)
    request = member.request()
    assert (request.group_id, request.member_id, request.member_epoch) == ("g", "m", 0)
    assert (request.rack_id, request.server_assignor, request.rebalance_timeout_ms) == ("r", "uniform", 300_000)
    assert request.subscribed_topic_names == ["a", "b"]
    assert request.subscribed_topic_regex is None
    assert request.topic_partitions == []


def test_heartbeat_without_news_has_epoch_and_identity_only() -> None:
    request = joined(0).request()
    assert (request.member_epoch, request.member_id) == (1, "m")
    assert request.subscribed_topic_names is request.topic_partitions is request.rack_id is None
    assert request.rebalance_timeout_ms == -1


def test_assignment_is_reconciled_before_it_is_reported() -> None:
    member = joined(0)
    assert member.answered(member.request(), answer(1, 0, 1)) is Consequence.RECONCILE
    assert not member.is_reconciled
    assert member.request().topic_partitions is None
    member.owned = frozenset({(T, 0), (T, 1)})
    (reported,) = member.request().topic_partitions or []
    assert (reported.topic_id, reported.partitions) == (T, [0, 1])
    assert member.answered(member.request(), answer(2, assigns=False)) is Consequence.GO_ON
    assert not member.has_news


def test_change_during_a_heartbeat_is_news_for_the_next_one() -> None:
    member = joined(0)
    member.subscribe(["u"], None)
    request = member.request()
    member.subscribe(["v"], None)
    member.owned = frozenset()
    member.answered(request, answer(2, assigns=False))
    assert member.has_news
    assert member.request().subscribed_topic_names == ["v"]
    assert member.request().topic_partitions == []


def test_lost_answer_makes_the_next_heartbeat_whole() -> None:
    member = joined(0)
    member.unanswered()
    request = member.request()
    assert request.member_epoch == 1
    assert request.subscribed_topic_names == ["t"]
    assert request.topic_partitions is not None
    assert request.rebalance_timeout_ms == 300_000


def test_removed_member_owns_nothing_and_joins_again() -> None:
    for code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND):
        member = joined(0)
        assert member.answered(member.request(), answer(0, error_code=code)) is Consequence.LOST
        assert not member.has_joined
        assert member.owned == frozenset()
        request = member.request()
        assert (request.member_id, request.member_epoch, request.topic_partitions) == ("m", 0, [])


def test_pattern_is_sent_and_taken_back() -> None:
    member = joined()
    member.subscribe([], "a.*")
    request = member.request()
    assert (request.subscribed_topic_regex, request.subscribed_topic_names) == ("a.*", [])
    member.answered(request, answer(2))
    member.subscribe(["t"], None)
    assert member.request().subscribed_topic_regex == ""


@pytest.mark.parametrize(
    ("operation", "instance_id", "epoch"),
    [
        (GroupMembershipOperation.DEFAULT, None, -1),
        (GroupMembershipOperation.DEFAULT, "i", -2),
        (GroupMembershipOperation.LEAVE_GROUP, None, -1),
        (GroupMembershipOperation.LEAVE_GROUP, "i", -1),
        (GroupMembershipOperation.REMAIN_IN_GROUP, None, None),
        (GroupMembershipOperation.REMAIN_IN_GROUP, "i", -2),
    ],
)
def test_member_leaves_or_remains_as_it_is_closed(
    operation: GroupMembershipOperation, instance_id: str | None, epoch: int | None
) -> None:
    request = ConsumerGroupMember("g", "m", instance_id=instance_id).leave_request(operation)
    assert (None if request is None else request.member_epoch) == epoch
