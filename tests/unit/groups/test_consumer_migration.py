"""Groups with members of both protocols, and groups that change their kind. The epochs are Apache Kafka 4.3's."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups.events import JoinResult, LeavingMember, LeftMember, SyncResult
from odradek.groups.subscriptions import read_assignment, write_assignment
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from tests.unit.groups.consumer_member import ConsumerMember, rebalance
from tests.unit.groups.virtual_shard import VirtualShard


def metadata(*topics: str, owned: dict[str, list[int]] | None = None, version: int = 1) -> bytes:
    out = bytearray(version.to_bytes(2, "big"))
    partitions = [ConsumerProtocolSubscriptionTopicPartition(name, list(p)) for name, p in (owned or {}).items()]
    ConsumerProtocolSubscription(list(topics), None, partitions).encode(out, version)
    return bytes(out)


class ClassicMember:
    """A cooperative classic member: it gives up revoked partitions, and joins again."""

    def __init__(self, shard: VirtualShard, member_id: str = "", instance: str | None = None) -> None:
        self.shard = shard
        self.member_id = member_id
        self.instance = instance
        self.generation = -1
        self.owned: list[int] = []

    def join(self, *topics: str, protocols: tuple[str, ...] = ("range",)) -> JoinResult:
        data = metadata(*(topics or ("a",)), owned={"a": self.owned})
        found = tuple((name, data) for name in protocols)
        token = self.shard.join("g", self.member_id, protocols=found, instance=self.instance)
        answer = self.shard.answers.get(token)
        if answer is not None and answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            token = self.shard.join("g", self.member_id, protocols=found, instance=self.instance)
        if token not in self.shard.answers:
            self.shard.run_until("CompletingRebalance")
        result: JoinResult = self.shard.answers[token]
        if result.error is ErrorCode.NONE:
            self.member_id, self.generation = result.member_id, result.generation_id
        return result

    def sync(self, assignments: dict[str, bytes] | None = None) -> SyncResult:
        token = self.shard.sync("g", self.member_id, self.generation, assignments, instance=self.instance)
        result: SyncResult = self.shard.answers[token]
        if result.error is ErrorCode.NONE:
            self.owned = sorted(read_assignment(result.assignment).get("a", ()))
        return result

    def heartbeat(self) -> ErrorCode:
        return self.shard.heartbeat("g", self.member_id, self.generation, self.instance)

    def follow(self) -> None:
        """What a client does all the time."""
        if self.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS:
            assert self.join().error is ErrorCode.NONE
            assert self.sync().error is ErrorCode.NONE


@pytest.fixture
def shard() -> VirtualShard:
    made = VirtualShard()
    made.topic("a", 6)
    return made


def classic_group(shard: VirtualShard, instance: str | None = None) -> ClassicMember:
    member = ClassicMember(shard, instance=instance)
    assert member.join().leader == member.member_id
    member.sync({member.member_id: write_assignment({"a": range(6)}, 1)})
    assert member.owned == [0, 1, 2, 3, 4, 5]
    return member


def describe(shard: VirtualShard) -> Any:
    return shard.coordinator.describe_consumer_group("g")


def converge(shard: VirtualShard, classic: list[ClassicMember], consumers: list[ConsumerMember]) -> None:
    for _ in range(8):
        shard.sleep(1_000)
        for member in classic:
            member.follow()
        for consumer in consumers:
            consumer.beat()
            assert consumer.error is None
    assert describe(shard).state == "Stable"


def test_the_first_kip_848_member_upgrades_the_group(shard: VirtualShard) -> None:
    old = classic_group(shard)
    shard.commit("g", old.member_id, 1, ("a", 0, 5))
    new = ConsumerMember(shard, "k", "a").join()
    assert (new.epoch, new.has("a")) == (2, [])
    assert shard.coordinator.classic.by_id == {}
    assert shard.stored() is None
    assert {m.member_id: m.is_classic for m in describe(shard).members} == {old.member_id: True, "k": False}
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert shard.commit("g", old.member_id, 1, ("a", 0, 6)) == [ErrorCode.NONE]
    assert shard.commit("g", old.member_id, 2, ("a", 0, 6)) is ErrorCode.ILLEGAL_GENERATION
    joined = old.join()
    assert (joined.generation_id, joined.leader, joined.members) == (1, "", ())
    old.sync()
    assert len(old.owned) == 3
    assert new.beat().has("a") == []
    converge(shard, [old], [new])
    assert sorted(old.owned + new.has("a")) == [0, 1, 2, 3, 4, 5]
    assert (old.generation, new.epoch) == (2, 2)


def test_upgrade_makes_members_in_a_rebalance_join_again(shard: VirtualShard) -> None:
    old = classic_group(shard)
    waiting = shard.joined_with_id(protocols=(("range", metadata("a")),))
    assert waiting[1] not in shard.answers
    ConsumerMember(shard, "k", "a").join()
    assert shard.answers[waiting[1]].error is ErrorCode.REBALANCE_IN_PROGRESS
    assert {m.member_id for m in describe(shard).members} == {old.member_id, waiting[0], "k"}


def test_upgrade_succeeds_while_the_protocol_of_the_group_changes(shard: VirtualShard) -> None:
    """A rolling change of the assignor: the member that joins no longer offers the protocol of the last generation."""
    old = ClassicMember(shard)
    old.join(protocols=("range", "roundrobin"))
    old.sync({old.member_id: write_assignment({"a": range(6)}, 1)})
    waiting = shard.joined_with_id(protocols=(("roundrobin", metadata("a")),))
    assert waiting[1] not in shard.answers
    new = ConsumerMember(shard, "k", "a").join()
    assert new.error is None
    assert {m.member_id for m in describe(shard).members} == {old.member_id, waiting[0], "k"}


def test_classic_members_join_a_consumer_group(shard: VirtualShard) -> None:
    new = ConsumerMember(shard, "k", "a").join()
    shard.sleep(1_000)
    old = ClassicMember(shard)
    result = old.join()
    assert (result.error, result.protocol_type, result.protocol_name) == (ErrorCode.NONE, "consumer", "range")
    assert old.sync().assignment == write_assignment({}, 1)
    converge(shard, [old], [new])
    assert sorted(old.owned + new.has("a")) == [0, 1, 2, 3, 4, 5]
    assert ClassicMember(shard).join(protocols=("other",)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert shard.answers[shard.join("g", protocol_type="connect")].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_last_kip_848_member_leaves_a_classic_group(shard: VirtualShard) -> None:
    new = ConsumerMember(shard, "k", "a").join()
    shard.sleep(1_000)
    old = ClassicMember(shard)
    old.join(protocols=("range", "roundrobin"))
    old.sync()
    converge(shard, [old], [new])
    epoch, half = describe(shard).epoch, old.owned
    new.leave()
    assert shard.coordinator.consumer.by_id == {}
    group = shard.coordinator.classic.by_id["g"]
    assert (group.state.value, group.generation_id, group.leader) == ("PreparingRebalance", epoch, old.member_id)
    assert read_assignment(group.members[old.member_id].assignment) == {"a": frozenset(half)}
    assert group.members[old.member_id].assignment[:2] == b"\x00\x01", "not the version of the member's metadata"
    assert old.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    result = old.join()
    assert (result.generation_id, result.leader) == (epoch + 1, old.member_id)
    old.sync({old.member_id: write_assignment({"a": range(6)}, 1)})
    assert shard.state() == "Stable"
    shard.restart()
    assert (shard.state(), old.heartbeat()) == ("Stable", ErrorCode.NONE)


def test_a_dead_kip_848_member_downgrades_the_group_too(shard: VirtualShard) -> None:
    old = classic_group(shard)
    ConsumerMember(shard, "k", "a").join()
    for _ in range(46):
        shard.sleep(1_000)
        if "g" in shard.coordinator.consumer.by_id:
            old.follow()
    assert shard.state() == "PreparingRebalance"
    shard.sleep(60_000)
    assert shard.state() == "Empty"


def test_a_static_member_changes_its_protocol(shard: VirtualShard) -> None:
    old = classic_group(shard, instance="i")
    new = ConsumerMember(shard, "k", "a", instance="i").join()
    assert new.has("a") == [0, 1, 2, 3, 4, 5]
    assert [m.member_id for m in describe(shard).members] == ["k"]
    assert old.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    again = ClassicMember(shard, instance="i")
    result = again.join()
    assert result.generation_id == describe_generation(shard)
    assert shard.state() == "Stable"
    again.sync()
    assert again.owned == [0, 1, 2, 3, 4, 5]
    assert again.heartbeat() is ErrorCode.NONE


def describe_generation(shard: VirtualShard) -> int:
    return shard.coordinator.classic.by_id["g"].generation_id


def test_empty_group_takes_the_kind_of_its_first_member(shard: VirtualShard) -> None:
    old = classic_group(shard)
    shard.commit("g", old.member_id, 1, ("a", 0, 5))
    shard.leave("g", old.member_id)
    new = ConsumerMember(shard, "k", "a").join()
    assert new.has("a") == [0, 1, 2, 3, 4, 5]
    new.leave()
    again = ClassicMember(shard)
    assert again.join().leader == again.member_id
    assert shard.coordinator.consumer.by_id == {}
    assert shard.committed("g", "a") == 5


def test_removed_static_member_is_named_as_it_was_requested(shard: VirtualShard) -> None:
    """Java's AdminClient looks in the answer for the identity that it sent, which has no member id."""
    ConsumerMember(shard, "k", "a", instance="i").join()
    assert shard.left("g", LeavingMember("", "i")) == [LeftMember("", "i", ErrorCode.NONE)]


def test_classic_members_leave_and_are_removed(shard: VirtualShard) -> None:
    new = ConsumerMember(shard, "k", "a").join()
    first, second = ClassicMember(shard), ClassicMember(shard, instance="i")
    first.join()
    second.join()
    answers = shard.leave("g", first.member_id, LeavingMember("", "i"), "stranger", LeavingMember("x", "i"))
    assert answers == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    rebalance(new)
    assert [m.member_id for m in describe(shard).members] == ["k"]
    assert shard.leave("g", "k") == [ErrorCode.NONE]
    assert describe(shard).state == "Empty"


def test_classic_member_is_fenced_when_it_does_not_rejoin_in_time(shard: VirtualShard) -> None:
    new = ConsumerMember(shard, "k", "a").join()
    old = ClassicMember(shard)
    old.join()
    old.sync()
    converge(shard, [old], [new])
    shard.topic("a", 8)
    for _ in range(40):
        shard.sleep(1_000)
        new.beat()
        old.heartbeat()
    assert [m.member_id for m in describe(shard).members] == ["k"]


def test_classic_member_is_fenced_when_it_does_not_sync_in_time(shard: VirtualShard) -> None:
    new = ConsumerMember(shard, "k", "a").join()
    old = ClassicMember(shard)
    old.join()
    for _ in range(31):
        shard.sleep(1_000)
        new.beat()
        old.heartbeat()
    assert [m.member_id for m in describe(shard).members] == ["k"]


@pytest.mark.parametrize(("policy", "works"), [("bidirectional", True), ("upgrade", True), ("DOWNGRADE", False)])
def test_upgrade_is_rejected_by_the_migration_policy(policy: str, works: bool) -> None:
    shard = VirtualShard(consumer_migration_policy=policy)
    shard.topic("a", 6)
    classic_group(shard)
    new = ConsumerMember(shard, "k", "a").join()
    assert new.error is (None if works else ErrorCode.GROUP_ID_NOT_FOUND)


@pytest.mark.parametrize(("policy", "works"), [("downgrade", True), ("upgrade", False), ("disabled", False)])
def test_downgrade_is_prevented_by_the_migration_policy(policy: str, works: bool) -> None:
    shard = VirtualShard(consumer_migration_policy=policy)
    shard.topic("a", 6)
    new = ConsumerMember(shard, "k", "a").join()
    ClassicMember(shard).join()
    new.leave()
    assert ("g" in shard.coordinator.classic.by_id) is works


def test_classic_group_of_another_protocol_type_is_not_upgraded(shard: VirtualShard) -> None:
    member_id, token = shard.joined_with_id(protocol_type="connect", protocols=(("default", b"\x00\x01"),))
    shard.run_until("CompletingRebalance")
    assert shard.answers[token].member_id == member_id
    assert ConsumerMember(shard, "k", "a").join().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert shard.state() == "CompletingRebalance"


def test_classic_group_is_not_upgraded_when_metadata_is_unreadable(shard: VirtualShard) -> None:
    shard.joined_with_id(protocols=(("range", b"\x00\x01\xff"),))
    shard.run_until("CompletingRebalance")
    assert ConsumerMember(shard, "k", "a").join().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert (
        shard.answers[shard.join("g2", protocols=(("range", b"\x00\x01\xff"),))].error is ErrorCode.MEMBER_ID_REQUIRED
    )
    ConsumerMember(shard, "k", "a", group_id="g3").join()
    token = shard.join("g3", "x", protocols=(("range", b"\x00\x01\xff"),))
    assert shard.answers[token].error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_failed_append_leaves_the_group_as_it_is(shard: VirtualShard) -> None:
    old = classic_group(shard)
    shard.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    assert ConsumerMember(shard, "k", "a").join().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    shard.refuse = None
    assert (shard.state(), old.heartbeat()) == ("Stable", ErrorCode.NONE)
    assert shard.coordinator.consumer.by_id == {}


def test_empty_consumer_group_stays_when_the_log_rejects_a_classic_member(shard: VirtualShard) -> None:
    """It was both: members joined the one, and the other did not know them when they wanted their assignment."""
    new = ConsumerMember(shard, "k", "a").join()
    shard.commit("g", "k", new.epoch, ("a", 0, 5))
    new.leave()
    shard.refuse = ErrorCode.NOT_ENOUGH_REPLICAS
    member = ClassicMember(shard)
    assert member.join().error is not ErrorCode.NONE
    shard.refuse = None
    assert shard.coordinator.classic.by_id == {}
    member.member_id = ""
    assert member.join().leader == member.member_id
    assert member.sync({member.member_id: write_assignment({"a": range(6)}, 1)}).error is ErrorCode.NONE
    assert shard.committed("g", "a") == 5


def test_waiting_classic_member_is_answered_only_by_a_completed_upgrade(shard: VirtualShard) -> None:
    """Of a refused heartbeat the members' answers stayed behind, and they were no longer waited for."""
    old = classic_group(shard)
    shard.join("g", protocols=(("range", metadata("a")),))
    waiting = shard.join("g", old.member_id, protocols=(("range", metadata("a", "b")),))
    assert ConsumerMember(shard, "k", "a", regex="(").join().error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert waiting not in shard.answers
    assert shard.coordinator.classic.by_id["g"].joining == 1
    ConsumerMember(shard, "k", "a").join()
    assert shard.answers[waiting].error is ErrorCode.REBALANCE_IN_PROGRESS


def test_classic_member_keeps_its_session_by_heartbeats(shard: VirtualShard) -> None:
    new = ConsumerMember(shard, "k", "a").join()
    old = ClassicMember(shard)
    old.join()
    old.sync()
    converge(shard, [old], [new])
    for _ in range(40):
        shard.sleep(1_000)
        new.beat()
        assert old.heartbeat() is ErrorCode.NONE
    assert {m.member_id for m in describe(shard).members} == {"k", old.member_id}


@pytest.mark.parametrize("request_", ["join", "sync", "heartbeat"])
def test_classic_member_has_a_whole_session_from_any_request(shard: VirtualShard, request_: str) -> None:
    new = ConsumerMember(shard, "k", "a").join()
    old = ClassicMember(shard)
    old.join()
    old.sync()
    converge(shard, [old], [new])
    shard.sleep(6_000)
    new.beat()
    getattr(old, request_)()
    shard.sleep(9_000)
    new.beat()
    assert len(describe(shard).members) == 2
    shard.sleep(2_000)
    assert [m.member_id for m in describe(shard).members] == ["k"]
