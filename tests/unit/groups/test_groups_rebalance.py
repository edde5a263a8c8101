"""The rebalance protocol of classic groups, driven under a virtual clock."""

import pytest

from odradek.groups.classic.group import PREVIOUS_STATES, ClassicGroup, GroupState
from odradek.groups.classic.records import ClassicGroupRecord, GroupValue
from odradek.groups.coordinator import DEADLINES_AT_ONCE
from odradek.groups.events import JoinResult, LeavingMember, SyncResult
from odradek.wire.errors import ErrorCode as E
from tests.unit.groups.virtual_shard import RANGE, VirtualShard

OTHER = (("range", b"other"),)


def test_first_join_returns_a_member_id_and_stores_the_group() -> None:
    shard = VirtualShard()
    answer = shard.answers[shard.join()]
    assert answer.error is E.MEMBER_ID_REQUIRED
    assert answer.member_id.startswith("client-")
    assert len(answer.member_id) == len("client-") + 36
    assert shard.records() == [ClassicGroupRecord("g", GroupValue("", 0, None, None, shard.now_ms, ()))]
    assert shard.state() == "Empty"


def test_old_clients_join_without_a_member_id() -> None:
    shard = VirtualShard()
    token = shard.join(member_id_required=False)
    assert token not in shard.answers
    shard.sleep(3_000)
    assert shard.answers[token].generation_id == 1


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout_ms": 5_999}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"member_id": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_join_is_rejected_for_invalid_group_session_or_member(fields: dict[str, object], error: E) -> None:
    shard = VirtualShard()
    assert shard.answers[shard.join(**fields)].error is error  # type: ignore[arg-type]


def test_initial_delay_is_extended_up_to_the_rebalance_timeout() -> None:
    shard = VirtualShard(initial_rebalance_delay_ms=3_000)
    _, first = shard.joined_with_id(rebalance_timeout_ms=10_000)
    waiting = [first]
    for _ in range(3):
        shard.sleep(2_900)
        waiting.append(shard.joined_with_id(rebalance_timeout_ms=10_000)[1])
    assert not any(token in shard.answers for token in waiting)
    shard.sleep(3_000)
    results = [shard.answers[token] for token in waiting]
    assert {r.generation_id for r in results} == {1}
    assert [len(r.members) for r in results] == [4, 0, 0, 0]


def test_rebalances_that_are_due_at_the_same_time_take_several_steps() -> None:
    """A thousand groups that joined together held all other clients up for the time of them all."""
    shard = VirtualShard(initial_rebalance_delay_ms=0)
    groups = [f"g{number}" for number in range(DEADLINES_AT_ONCE * 2 + 1)]
    tokens = [shard.join(group, member_id_required=False) for group in groups]
    steps = []
    while (deadline_ms := shard.coordinator.next_deadline_ms()) is not None and deadline_ms <= shard.now_ms:
        shard.obey(shard.coordinator.expire(shard.now_ms))
        steps.append(sum(token in shard.answers for token in tokens))
    assert steps == [DEADLINES_AT_ONCE, DEADLINES_AT_ONCE * 2, len(groups)]


def test_followers_wait_for_the_assignment_of_the_leader() -> None:
    shard = VirtualShard()
    leader, join = shard.joined_with_id()
    follower, _ = shard.joined_with_id()
    shard.run_until("CompletingRebalance")
    assert [m.member_id for m in shard.answers[join].members] == [leader, follower]
    assert shard.answers[join].protocol_name == "range"
    waiting = shard.sync("g", follower, 1)
    assert waiting not in shard.answers
    done = shard.sync("g", leader, 1, {leader: b"L", follower: b"F", "stranger": b"S"})
    assert shard.answers[waiting] == SyncResult(E.NONE, "consumer", "range", b"F")
    assert shard.answers[done].assignment == b"L"
    value = shard.stored()
    assert (value.generation_id, value.leader, value.protocol_name) == (1, leader, "range")
    assert {m.member_id: m.assignment for m in value.members} == {leader: b"L", follower: b"F"}
    assert shard.state() == "Stable"


def test_second_member_causes_exactly_one_rebalance() -> None:
    shard = VirtualShard()
    (first,) = shard.stable_group(1)
    second, join = shard.joined_with_id()
    assert shard.state() == "PreparingRebalance"
    assert shard.heartbeat("g", first, 1) is E.REBALANCE_IN_PROGRESS
    again = shard.join("g", first)
    assert shard.answers[again].generation_id == shard.answers[join].generation_id == 2
    assert shard.heartbeat("g", second, 2) is E.NONE
    shard.rebalance("g", [first, second])
    assert shard.coordinator.classic.by_id["g"].generation_id == 2


def test_a_follower_that_joins_a_stable_group_unchanged_causes_nothing() -> None:
    shard = VirtualShard()
    _, follower = shard.stable_group(2)
    before = len(shard.log)
    answer = shard.answers[shard.join("g", follower)]
    assert (answer.error, answer.generation_id, answer.members) == (E.NONE, 1, ())
    assert shard.state() == "Stable"
    assert len(shard.log) == before


def test_new_metadata_of_a_follower_and_any_join_of_the_leader_rebalance() -> None:
    shard = VirtualShard()
    leader, follower = shard.stable_group(2)
    shard.join("g", follower, protocols=OTHER)
    assert shard.state() == "PreparingRebalance"
    shard.join("g", leader)
    shard.rebalance("g", [leader, follower])
    shard.join("g", leader)
    assert shard.state() == "PreparingRebalance"


def test_unchanged_join_in_the_sync_phase_is_answered_at_once() -> None:
    shard = VirtualShard()
    leader, _ = shard.joined_with_id()
    follower, _ = shard.joined_with_id()
    shard.run_until("CompletingRebalance")
    assert len(shard.answers[shard.join("g", leader)].members) == 2
    assert shard.answers[shard.join("g", follower)].generation_id == 1
    waiting = shard.sync("g", follower, 1)
    shard.join("g", follower, protocols=OTHER)
    assert shard.answers[waiting].error is E.REBALANCE_IN_PROGRESS
    assert shard.state() == "PreparingRebalance"


def test_a_second_request_of_a_waiting_member_frees_the_first() -> None:
    shard = VirtualShard()
    member, first = shard.joined_with_id()
    second = shard.join("g", member)
    assert shard.answers[first].error is E.REBALANCE_IN_PROGRESS
    shard.sleep(10_000)
    assert shard.answers[second].generation_id == 1


def test_protocol_must_be_common_and_is_chosen_by_vote() -> None:
    shard = VirtualShard()
    both = (("sticky", b"1"), ("range", b"2"))
    turned = (("range", b"3"), ("sticky", b"4"))
    a, join_a = shard.joined_with_id(protocols=both)
    b, join_b = shard.joined_with_id(protocols=turned)
    c, join_c = shard.joined_with_id(protocols=turned)
    assert shard.answers[shard.join(protocols=(("roundrobin", b""),))].error is E.INCONSISTENT_GROUP_PROTOCOL
    assert shard.answers[shard.join(protocol_type="connect")].error is E.INCONSISTENT_GROUP_PROTOCOL
    shard.run_until("CompletingRebalance")
    assert {shard.answers[t].protocol_name for t in (join_a, join_b, join_c)} == {"range"}
    assert [m.metadata for m in shard.answers[join_a].members] == [b"2", b"3", b"3"]
    assert len({a, b, c}) == 3


def test_metadata_and_types_are_opaque() -> None:
    shard = VirtualShard()
    for kind in ("connect", "sr"):
        fields = {"protocol_type": kind, "protocols": (("v0", b"\xff\x00{}"),)}
        shard.stable_group(2, f"{kind}-group", **fields)
        described = shard.coordinator.describe_groups([f"{kind}-group"])[0]
        assert (described.protocol_type, described.protocol_data) == (kind, "v0")
        assert {m.metadata for m in described.members} == {b"\xff\x00{}"}


def test_member_is_removed_when_it_does_not_rejoin_in_time() -> None:
    shard = VirtualShard()
    leader, lost = shard.stable_group(2, session_timeout_ms=40_000, rebalance_timeout_ms=20_000)
    newcomer, join = shard.joined_with_id(rebalance_timeout_ms=20_000)
    shard.join("g", leader, session_timeout_ms=40_000, rebalance_timeout_ms=20_000)
    shard.sleep(19_999)
    assert join not in shard.answers
    shard.sleep(1)
    assert shard.answers[join].generation_id == 2
    assert shard.heartbeat("g", lost, 2) is E.UNKNOWN_MEMBER_ID
    assert set(shard.coordinator.classic.by_id["g"].members) == {leader, newcomer}


def test_a_leader_that_does_not_join_again_is_replaced() -> None:
    shard = VirtualShard()
    leader, follower = shard.stable_group(2, session_timeout_ms=100_000)
    join = shard.join("g", follower, session_timeout_ms=100_000, protocols=OTHER)
    shard.sleep(30_000)
    assert shard.answers[join].leader == follower
    assert shard.heartbeat("g", leader, 2) is E.UNKNOWN_MEMBER_ID


def test_a_session_ends_without_heartbeats_and_the_rest_rebalances() -> None:
    shard = VirtualShard()
    leader, lost = shard.stable_group(2, session_timeout_ms=10_000)
    for _ in range(3):
        shard.sleep(4_000)
        shard.heartbeat("g", leader, 1)
    assert shard.state() == "PreparingRebalance"
    assert shard.heartbeat("g", lost, 1) is E.UNKNOWN_MEMBER_ID
    assert shard.answers[shard.join("g", leader)].generation_id == 2


def test_the_last_session_ends_and_the_group_is_stored_as_empty() -> None:
    shard = VirtualShard()
    shard.stable_group(1)
    shard.sleep(10_000)
    value = shard.stored()
    assert shard.state() == "Empty"
    assert (value.generation_id, value.members, value.leader, value.protocol_type) == (2, (), None, "consumer")


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1, session_timeout_ms=10_000)
    for offset in range(5):
        shard.sleep(8_000)
        assert shard.commit("g", member, 1, ("topic", 0, offset)) == [E.NONE]
    assert shard.heartbeat("g", member, 1) is E.NONE


def test_pending_members_hold_up_a_rebalance_until_their_session_ends() -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1, session_timeout_ms=60_000)
    shard.join(session_timeout_ms=10_000)  # gets an id and never comes back
    again = shard.join("g", member, session_timeout_ms=60_000)
    shard.sleep(9_999)
    assert again not in shard.answers
    shard.sleep(1)
    assert shard.answers[again].generation_id == 2


def test_a_member_that_waits_for_a_rebalance_needs_no_heartbeat() -> None:
    shard = VirtualShard()
    member, slow = shard.stable_group(2, session_timeout_ms=10_000)
    waiting = shard.join("g", member, session_timeout_ms=10_000)
    for _ in range(5):
        shard.sleep(5_000)
        assert shard.heartbeat("g", slow, 1) is E.REBALANCE_IN_PROGRESS
    assert waiting not in shard.answers
    shard.join("g", slow, session_timeout_ms=10_000)
    assert shard.answers[waiting].generation_id == 2


def test_new_member_waits_longer_than_its_session_up_to_a_limit() -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1, session_timeout_ms=1_000_000, rebalance_timeout_ms=400_000)
    _, join = shard.joined_with_id(session_timeout_ms=10_000)
    shard.sleep(299_999)
    assert join not in shard.answers
    shard.sleep(1)
    assert shard.answers[join].error is E.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("g", member, 1) is E.REBALANCE_IN_PROGRESS


def test_member_is_removed_when_it_does_not_sync_in_time() -> None:
    shard = VirtualShard()
    leader, _ = shard.joined_with_id(session_timeout_ms=100_000)
    follower, _ = shard.joined_with_id(session_timeout_ms=100_000)
    shard.run_until("CompletingRebalance")
    waiting = shard.sync("g", follower, 1)
    shard.sleep(30_000)
    assert shard.answers[waiting].error is E.REBALANCE_IN_PROGRESS
    assert shard.state() == "PreparingRebalance"
    assert shard.heartbeat("g", leader, 1) is E.UNKNOWN_MEMBER_ID
    assert shard.answers[shard.join("g", follower)].leader == follower


def test_follower_that_never_syncs_is_removed_from_a_stable_group() -> None:
    shard = VirtualShard()
    leader, _ = shard.joined_with_id(session_timeout_ms=100_000)
    follower, _ = shard.joined_with_id(session_timeout_ms=100_000)
    shard.run_until("CompletingRebalance")
    shard.sync("g", leader, 1, {leader: b"x", follower: b"y"})
    assert shard.state() == "Stable"
    shard.sleep(30_000)
    assert shard.heartbeat("g", follower, 1) is E.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("g", leader, 1) is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"generation": 0}, E.ILLEGAL_GENERATION),
        ({"generation": 2}, E.ILLEGAL_GENERATION),
        ({"member_id": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"group_id": "other"}, E.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, E.INVALID_GROUP_ID),
        ({"protocol_type": "connect"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance": "unknown"}, E.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "consumer", "protocol_name": "range"}, E.NONE),
    ],
)
def test_sync_is_rejected_for_a_wrong_member_or_generation(change: dict[str, object], error: E) -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1)
    fields: dict[str, object] = {"group_id": "g", "member_id": member, "generation": 1} | change
    assert shard.answers[shard.sync(**fields)].error is error  # type: ignore[arg-type]


def test_heartbeat_is_rejected_for_a_wrong_member_or_generation() -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1)
    assert shard.heartbeat("g", member, 1) is E.NONE
    assert shard.heartbeat("g", member, 2) is E.ILLEGAL_GENERATION
    assert shard.heartbeat("g", "unknown", 1) is E.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("other", member, 1) is E.UNKNOWN_MEMBER_ID
    assert shard.heartbeat("", member, 1) is E.INVALID_GROUP_ID
    assert shard.heartbeat("g", member, 1, "instance") is E.UNKNOWN_MEMBER_ID


def test_leaving_members_are_answered_one_by_one_and_cause_one_rebalance() -> None:
    shard = VirtualShard()
    first, second, third = shard.stable_group(3)
    pending = shard.answers[shard.join()].member_id
    assert shard.leave("g", first, "unknown", pending, second) == [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE, E.NONE]
    assert shard.heartbeat("g", third, 1) is E.REBALANCE_IN_PROGRESS
    assert shard.answers[shard.join("g", third)].generation_id == 2
    assert shard.leave("nowhere", first) == [E.UNKNOWN_MEMBER_ID]


def test_the_last_one_to_leave_empties_the_group() -> None:
    shard = VirtualShard()
    members = shard.stable_group(2)
    assert shard.leave("g", *members) == [E.NONE, E.NONE]
    assert shard.state() == "Empty"
    assert shard.stored().generation_id == 2


def test_waiting_member_that_leaves_is_answered() -> None:
    shard = VirtualShard()
    leader, _ = shard.joined_with_id()
    follower, _ = shard.joined_with_id()
    shard.run_until("CompletingRebalance")
    waiting = shard.sync("g", follower, 1)
    assert shard.leave("g", follower) == [E.NONE]
    assert shard.answers[waiting].error is E.UNKNOWN_MEMBER_ID
    again = shard.join("g", leader)
    assert shard.answers[again].generation_id == 2


def test_the_group_is_no_larger_than_allowed() -> None:
    shard = VirtualShard(max_size=2)
    first, second = shard.stable_group(2)
    assert shard.answers[shard.join()].error is E.GROUP_MAX_SIZE_REACHED
    assert shard.answers[shard.join("g", second)].error is E.NONE
    shard.join("g", first)
    shard.join("g", second)
    assert shard.state() == "CompletingRebalance"


def test_join_is_rejected_when_the_group_is_full_of_joined_members() -> None:
    shard = VirtualShard(max_size=2)
    ids = [shard.answers[shard.join()].member_id for _ in range(4)]
    tokens = [shard.join("g", member_id) for member_id in ids]
    refused = [shard.answers[t].error for t in tokens if t in shard.answers]
    assert refused == [E.GROUP_MAX_SIZE_REACHED] * 2


def test_a_group_above_a_lowered_limit_rebalances_on_load() -> None:
    shard = VirtualShard()
    members = shard.stable_group(3)
    limited = VirtualShard(max_size=2)
    limited.log = list(shard.log)
    limited.now_ms = shard.now_ms
    limited.restart()
    assert limited.state() == "PreparingRebalance"
    tokens = [limited.join("g", member) for member in members]
    assert [limited.answers[t].error for t in tokens if t in limited.answers] == [E.GROUP_MAX_SIZE_REACHED] or [
        limited.answers[t].generation_id for t in tokens[:2]
    ] == [2, 2]
    assert len(limited.coordinator.classic.by_id["g"].members) == 2


def test_restart_restores_the_last_stable_generation() -> None:
    shard = VirtualShard()
    leader, follower = shard.stable_group(2)
    shard.join("g", leader)  # a rebalance begins that is never stored
    shard.restart()
    assert shard.state() == "Stable"
    assert shard.heartbeat("g", leader, 1) is E.NONE
    assert shard.answers[shard.sync("g", follower, 1)].assignment == f"part of {follower}".encode()
    assert shard.answers[shard.join("g", follower)].generation_id == 1
    shard.sleep(9_999)
    assert shard.state() == "Stable"
    shard.sleep(1)
    assert shard.state() == "Empty"


def test_unload_answers_waiting_members() -> None:
    shard = VirtualShard()
    joining = shard.joined_with_id("a")[1]
    _, _ = shard.joined_with_id("b")
    shard.run_until("CompletingRebalance", "b")
    other, more = shard.joined_with_id("c")
    shard.run_until("CompletingRebalance", "c")
    assert more in shard.answers
    group = shard.coordinator.classic.by_id["b"]
    shard.joined_with_id("a")
    waiting = shard.join("d", member_id_required=False)
    shard.obey(shard.coordinator.unload(shard.now_ms))
    assert shard.answers[waiting].error is E.NOT_COORDINATOR
    assert shard.answers[joining].error in (E.NONE, E.NOT_COORDINATOR)
    assert group.state is GroupState.DEAD
    assert shard.heartbeat("c", other, 1) is E.COORDINATOR_NOT_AVAILABLE


# --- static members ---


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    shard = VirtualShard()
    shard.join(instance="one")
    shard.join(instance="two")
    shard.run_until("CompletingRebalance")
    leader, follower = shard.rebalance("g", list(shard.coordinator.classic.by_id["g"].members))
    assert leader.startswith("one-")
    back = shard.answers[shard.join(instance="two")]
    assert (back.error, back.generation_id, back.skip_assignment, back.members) == (E.NONE, 1, False, ())
    assert back.member_id != follower
    assert (
        shard.answers[shard.sync("g", back.member_id, 1, instance="two")].assignment == f"part of {follower}".encode()
    )
    assert shard.state() == "Stable"
    assert {m.member_id for m in shard.stored().members} == {leader, back.member_id}
    assert shard.heartbeat("g", follower, 1, "two") is E.FENCED_INSTANCE_ID
    assert shard.answers[shard.join("g", follower, instance="two")].error is E.FENCED_INSTANCE_ID
    assert shard.answers[shard.sync("g", follower, 1, instance="two")].error is E.FENCED_INSTANCE_ID
    assert shard.commit("g", follower, 1, ("topic", 0, 1), instance="two") is E.FENCED_INSTANCE_ID
    assert shard.leave("g", LeavingMember(follower, "two")) == [E.FENCED_INSTANCE_ID]


@pytest.mark.parametrize("skips", [True, False])
def test_a_static_leader_comes_back_and_skips_the_assignment(skips: bool) -> None:
    shard = VirtualShard()
    shard.join(instance="one")
    shard.join(instance="two")
    shard.run_until("CompletingRebalance")
    old, _ = shard.rebalance("g", list(shard.coordinator.classic.by_id["g"].members))
    back = shard.answers[shard.join(instance="one", can_skip_assignment=skips)]
    assert (back.generation_id, back.skip_assignment) == (1, skips)
    # Before KIP-814 the old id as leader keeps the new one from thinking that it has to assign.
    assert back.leader == (back.member_id if skips else old)
    assert len(back.members) == (2 if skips else 0)
    assert shard.coordinator.classic.by_id["g"].leader == back.member_id


def test_static_rejoin_rebalances_only_when_the_chosen_protocol_changes() -> None:
    shard = VirtualShard()
    both = (("range", b"1"), ("sticky", b"2"))
    shard.join(instance="one", protocols=both)
    shard.run_until("CompletingRebalance")
    shard.rebalance("g", list(shard.coordinator.classic.by_id["g"].members))
    shard.join(instance="one", protocols=(("range", b"new"), ("sticky", b"2")))
    assert shard.state() == "Stable"
    join = shard.join(instance="one", protocols=(("sticky", b"2"), ("range", b"1")))
    assert shard.answers[join].generation_id == 2
    assert shard.answers[join].protocol_name == "sticky"


def test_static_rejoin_in_the_sync_phase_rebalances() -> None:
    shard = VirtualShard()
    shard.join(instance="one")
    shard.join(instance="two")
    shard.run_until("CompletingRebalance")
    _, two = shard.coordinator.classic.by_id["g"].members
    waiting = shard.sync("g", two, 1, instance="two")
    shard.join(instance="two")
    assert shard.answers[waiting].error is E.FENCED_INSTANCE_ID
    assert shard.state() == "PreparingRebalance"


def test_a_static_member_that_waits_twice_is_fenced_the_first_time() -> None:
    shard = VirtualShard()
    first = shard.join(instance="one")
    second = shard.join(instance="one")
    assert shard.answers[first].error is E.FENCED_INSTANCE_ID
    shard.sleep(10_000)
    assert shard.answers[second].generation_id == 1


def test_static_member_survives_a_missed_rebalance_within_its_session() -> None:
    shard = VirtualShard()
    shard.join(instance="one", session_timeout_ms=100_000)
    shard.join(instance="two", session_timeout_ms=100_000)
    shard.run_until("CompletingRebalance")
    one, two = shard.rebalance("g", list(shard.coordinator.classic.by_id["g"].members))
    join = shard.join("g", one, instance="one", session_timeout_ms=100_000)
    shard.sleep(30_000)
    assert shard.answers[join].generation_id == 2
    assert set(shard.coordinator.classic.by_id["g"].members) == {one, two}


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    shard = VirtualShard()
    shard.join(instance="one")
    shard.run_until("CompletingRebalance")
    shard.rebalance("g", list(shard.coordinator.classic.by_id["g"].members))
    leaving = [LeavingMember("", "one"), LeavingMember("", "two"), LeavingMember("")]
    assert shard.leave("g", *leaving) == [E.NONE, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
    assert shard.state() == "Empty"


def test_pending_ids_are_not_for_static_members() -> None:
    shard = VirtualShard()
    pending = shard.answers[shard.join()].member_id
    assert shard.answers[shard.join("g", pending, instance="one")].error is E.UNKNOWN_MEMBER_ID


# --- failing and slow appends ---


@pytest.mark.parametrize(
    ("refused", "answered"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
def test_an_assignment_that_cannot_be_stored_starts_another_rebalance(refused: E, answered: E) -> None:
    shard = VirtualShard()
    leader, _ = shard.joined_with_id()
    follower, _ = shard.joined_with_id()
    shard.run_until("CompletingRebalance")
    waiting = shard.sync("g", follower, 1)
    shard.refuse = refused
    done = shard.sync("g", leader, 1, {leader: b"L", follower: b"F"})
    assert shard.answers[done].error is shard.answers[waiting].error is answered
    assert shard.state() == "PreparingRebalance"
    shard.refuse = None
    shard.join("g", leader)
    shard.join("g", follower)
    shard.rebalance("g", [leader, follower])
    assert shard.stored().generation_id == 2


def test_a_new_group_that_cannot_be_stored_is_not_there() -> None:
    shard = VirtualShard()
    shard.refuse = E.NOT_ENOUGH_REPLICAS
    token = shard.join(member_id_required=False)
    assert shard.answers[token].error is E.COORDINATOR_NOT_AVAILABLE
    assert "g" not in shard.coordinator.classic.by_id
    shard.refuse = None
    shard.sleep(1_000_000)
    shard.stable_group(1)


def test_a_static_member_that_cannot_be_stored_goes_back_to_its_old_id() -> None:
    shard = VirtualShard()
    shard.join(instance="one")
    shard.run_until("CompletingRebalance")
    (old,) = shard.rebalance("g", list(shard.coordinator.classic.by_id["g"].members))
    shard.refuse = E.NOT_LEADER_OR_FOLLOWER
    answer = shard.answers[shard.join(instance="one", protocols=(("range", b"new"),))]
    assert (answer.error, answer.member_id) == (E.NOT_COORDINATOR, "")
    shard.refuse = None
    assert shard.heartbeat("g", old, 1, "one") is E.NONE
    assert shard.coordinator.classic.by_id["g"].members[old].protocols == RANGE
    shard.check()


def test_a_rebalance_that_begins_before_the_assignment_is_committed_wins() -> None:
    shard = VirtualShard()
    leader, _ = shard.joined_with_id()
    shard.run_until("CompletingRebalance")
    shard.held = []
    done = shard.sync("g", leader, 1, {leader: b"L"})
    assert done not in shard.answers
    assert shard.state() == "CompletingRebalance"
    shard.joined_with_id()
    assert shard.state() == "PreparingRebalance"
    shard.release_held()
    assert shard.answers[done].error is E.REBALANCE_IN_PROGRESS
    assert shard.state() == "PreparingRebalance"


def shard_that_rebalances() -> VirtualShard:
    """A static member's group completes a rebalance; what is written from now on is not committed until released."""
    shard = VirtualShard()
    shard.join(instance="one")
    shard.run_until("CompletingRebalance")
    shard.rebalance("g", list(shard.coordinator.classic.by_id["g"].members))
    shard.held = []
    return shard


def test_static_rejoin_waits_for_its_record_or_the_next_rebalance() -> None:
    shard = shard_that_rebalances()
    back = shard.join(instance="one")
    assert back not in shard.answers
    other, _ = shard.joined_with_id()
    shard.release_held()
    assert shard.answers[back] == JoinResult(
        E.NONE, shard.answers[back].member_id, 2, "consumer", "range", shard.answers[back].member_id, False,
        shard.answers[back].members,
    )  # fmt: skip
    assert other in shard.coordinator.classic.by_id["g"].members


@pytest.mark.parametrize("target", list(GroupState))
@pytest.mark.parametrize("source", list(GroupState))
def test_state_transitions_follow_the_table(source: GroupState, target: GroupState) -> None:
    group = ClassicGroup("g", source, 0)
    if source in PREVIOUS_STATES[target]:
        group.transition(target, 5)
        assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, source, 5)
    else:
        with pytest.raises(ValueError, match="cannot go"):
            group.transition(target, 5)


@pytest.mark.parametrize("joins_again", [False, True])
def test_static_member_keeps_its_new_id_through_a_rebalance(joins_again: bool) -> None:
    """Its record takes too long to be committed: the answer to that must not fence who is in the next generation."""
    shard = shard_that_rebalances()
    back = shard.join(instance="one")
    pending = shard.answers[shard.join()].member_id
    if joins_again:
        shard.join("g", pending)
    else:
        shard.join(member_id_required=False, session_timeout_ms=6_000)
    shard.release_held(E.REQUEST_TIMED_OUT)
    if not joins_again:
        assert back not in shard.answers
        shard.leave("g", pending)
    answer = shard.answers[back]
    assert (answer.error, answer.generation_id) == (E.NONE, 2)
    assert shard.heartbeat("g", answer.member_id, 2, "one") is E.NONE


def test_static_member_that_returns_twice_is_answered_once_it_is_stored() -> None:
    """The record of the first return is committed when no member has its id any longer."""
    shard = shard_that_rebalances()
    first, second = shard.join(instance="one"), shard.join(instance="one")
    assert shard.answers[first].error is E.FENCED_INSTANCE_ID
    assert second not in shard.answers
    shard.release_held()
    answer = shard.answers[second]
    assert (answer.error, answer.generation_id) == (E.NONE, 1)
    assert shard.heartbeat("g", answer.member_id, 1, "one") is E.NONE


def test_pending_member_of_a_stable_group_expires_without_a_rebalance() -> None:
    shard = VirtualShard()
    members = shard.stable_group(2)
    assert shard.answers[shard.join(session_timeout_ms=6_000)].error is E.MEMBER_ID_REQUIRED
    for _ in range(4):
        shard.sleep(3_000)
        assert [shard.heartbeat("g", member, 1) for member in members] == [E.NONE, E.NONE]
    assert shard.state() == "Stable"
