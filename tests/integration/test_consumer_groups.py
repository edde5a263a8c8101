"""KIP-848 over the wire, in every version, with members that a test leads by the hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.broker import BrokerProcess
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)

Connect = Callable[[str], Any]
QUICK = {
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.assignment.interval.ms": 0,
}
SHORT_SESSIONS = {"group.consumer.min.session.timeout.ms": 500, "group.consumer.session.timeout.ms": 1_500}
"""Only where one is to end: members that live have to keep up with it, however late the test runs."""


@pytest.fixture
def broker(request: pytest.FixtureRequest, make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    started: BrokerProcess = make_broker(QUICK | getattr(request, "param", {})).start()
    admin = AdminClient({"bootstrap.servers": started.bootstrap})
    admin.create_topics([NewTopic("topic", 4, 1)])["topic"].result(30)
    return started


class Wire:
    """One connection; heartbeats are sent again while the coordinator is being found or loads."""

    def __init__(self, client: Any) -> None:
        self.client = client
        client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)

    def beat(self, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Any:
        if epoch == 0:
            fields = {
                "rebalance_timeout_ms": 60_000,
                "topic_partitions": [],
                "subscribed_topic_names": ["topic"],
                **fields,
            }
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        deadline = time.monotonic() + 60
        while True:
            answer = self.client.call(request, version)
            moving = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if answer.error_code not in moving or time.monotonic() > deadline:
                return answer

    def commit(self, member_id: str, epoch: int, version: int = 9) -> int:
        topic = OffsetCommitRequestTopic("topic", partitions=[OffsetCommitRequestPartition(0, 7)])
        request = OffsetCommitRequest("g", epoch, member_id, topics=[topic])
        return int(self.client.call(request, version).topics[0].partitions[0].error_code)

    def fetch(self, member_id: str | None, epoch: int) -> tuple[int, int]:
        topic = OffsetFetchRequestGroupTopic("topic", partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", member_id, epoch, [topic])])
        found = self.client.call(request, 9).groups[0]
        return found.error_code, found.topics[0].partitions[0].committed_offset if found.topics else -1

    def describe(self, version: int = 1) -> Any:
        return self.client.call(ConsumerGroupDescribeRequest(["g"], True), version).groups[0]


def test_a_member_in_every_version(broker: BrokerProcess, connect: Connect) -> None:
    wire = Wire(connect(broker.bootstrap))
    old = wire.beat("", 0, version=0)
    assert (old.error_code, old.member_epoch, old.heartbeat_interval_ms) == (0, 2, 200)
    (assigned,) = old.assignment.topic_partitions
    assert assigned.partitions == [0, 1, 2, 3]
    new = wire.beat("my-own-id", 0)
    assert (new.member_id, new.member_epoch, new.assignment.topic_partitions) == ("my-own-id", 3, [])
    kept = wire.beat(old.member_id, 2).assignment.topic_partitions
    assert len(kept[0].partitions) == 2
    owned = [ConsumerGroupHeartbeatRequestTopicPartitions(kept[0].topic_id, kept[0].partitions)]
    assert wire.beat(old.member_id, 2, topic_partitions=owned).member_epoch == 3
    assert len(wire.beat("my-own-id", 3).assignment.topic_partitions[0].partitions) == 2
    for version in (0, 1):
        group = wire.describe(version)
        assert (group.error_code, group.group_state, group.group_epoch) == (0, "Stable", 3)
        assert group.authorized_operations > 0
        assert {m.member_id for m in group.members} == {old.member_id, "my-own-id"}
        for member in group.members:
            assert member.assignment == member.target_assignment
            assert member.assignment.topic_partitions[0].topic_name == "topic"
            assert member.member_type == (1 if version else -1)


def test_refusals_come_with_words(broker: BrokerProcess, connect: Connect) -> None:
    wire = Wire(connect(broker.bootstrap))
    for answer, code, text in [
        (wire.beat("", 0), ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        (
            wire.beat("m", 0, server_assignor="x"),
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "Supported assignors: uniform, range.",
        ),
        (wire.beat("m", 0, subscribed_topic_regex="("), ErrorCode.INVALID_REGULAR_EXPRESSION, "missing )"),
        (wire.beat("m", 3), ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found."),
    ]:
        assert answer.error_code == code
        assert text in answer.error_message


@pytest.mark.parametrize("broker", [SHORT_SESSIONS], indirect=True, ids=["short sessions"])
def test_a_killed_member_goes_after_its_session(broker: BrokerProcess, connect: Connect) -> None:
    dead = Wire(connect(broker.bootstrap))
    assert dead.beat("dead", 0).error_code == 0
    dead.client.close()
    wire = Wire(connect(broker.bootstrap))
    epoch, partitions, began = 0, 0, time.monotonic()
    members: list[str] = []
    while partitions < 4 or members != ["alive"]:
        assert time.monotonic() - began < 60, (partitions, members)
        answer = wire.beat("alive", epoch)
        # It joins, and joins again if this ran so late that its own session ended, too.
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID), answer
        epoch = answer.member_epoch if answer.error_code == ErrorCode.NONE else 0
        if answer.error_code == ErrorCode.NONE and answer.assignment is not None:
            partitions = sum(len(topic.partitions) for topic in answer.assignment.topic_partitions)
        members = [member.member_id for member in wire.describe().members]
        time.sleep(0.05)


def test_offsets_know_the_epoch_and_survive_a_restart(broker: BrokerProcess, connect: Connect) -> None:
    wire = Wire(connect(broker.bootstrap))
    assert wire.beat("m", 0).member_epoch == 2
    assert wire.commit("m", 2) == ErrorCode.NONE
    assert wire.commit("m", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert wire.commit("m", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert wire.fetch("m", 2) == (0, 7)
    assert wire.fetch("m", 1)[0] == ErrorCode.STALE_MEMBER_EPOCH
    assert wire.fetch("x", 2)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert wire.fetch(None, -1) == (0, 7)
    broker.kill()
    broker.start()
    again = Wire(connect(broker.bootstrap))
    assert again.beat("m", 2).error_code == 0
    group = again.describe()
    assert (group.group_state, group.group_epoch, len(group.members)) == ("Stable", 2, 1)
    assert again.fetch("m", 2) == (0, 7)


def test_the_feature_is_announced(broker: BrokerProcess, connect: Connect) -> None:
    answer = connect(broker.bootstrap).call(
        ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4
    )
    assert {f.name: f.max_version_level for f in answer.finalized_features}["group.version"] == 1


def test_a_broker_without_the_protocol(make_broker: Callable[..., BrokerProcess], connect: Connect) -> None:
    broker = make_broker({"group.coordinator.rebalance.protocols": "classic"}).start()
    assert Wire(connect(broker.bootstrap)).beat("m", 0).error_code == ErrorCode.UNSUPPORTED_VERSION
