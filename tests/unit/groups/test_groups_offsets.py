"""Committed offsets: who may commit, what is fetched, transactions, expiry, deletion."""

import pytest

from odradek.groups.classic.records import ClassicGroupRecord
from odradek.groups.events import CommitRequest, OffsetToCommit
from odradek.groups.offsets.deletions import RETRY_MS
from odradek.groups.offsets.records import OffsetRecord
from odradek.wire.errors import ErrorCode as E
from odradek.wire.errors import KafkaError
from odradek.wire.primitives import ZERO_UUID
from tests.unit.groups.virtual_shard import START_MS, VirtualShard

DAY_MS = 24 * 3600 * 1000


def commit_in_transaction(
    shard: VirtualShard, producer_id: int, offset: int, group_id: str = "g", topic_id: bytes = ZERO_UUID
) -> None:
    request = CommitRequest(group_id, "", None, -1, [OffsetToCommit("topic", 0, offset, topic_id=topic_id)])
    token = shard.token()
    outcome = shard.coordinator.commit_offsets(shard.now_ms, token, request, transactional=True)
    shard.append_transactional(outcome, producer_id)
    assert shard.answers[token] == [E.NONE]


def test_a_standalone_commit_makes_a_simple_group() -> None:
    shard = VirtualShard()
    assert shard.commit("g", "", -1, OffsetToCommit("topic", 3, 42, 7, "note")) == [E.NONE]
    (found,) = shard.coordinator.fetch_offsets("g", [("topic", [3])])[0][1]
    assert (found.offset, found.leader_epoch, found.metadata) == (42, 7, "note")
    assert shard.coordinator.list_groups()[0] == ("g", "", "Empty", "classic")
    shard.restart()
    assert shard.committed("g", partition=3) == 42
    assert shard.state() == "Empty"


def test_commit_is_rejected_for_a_wrong_member_or_generation() -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1)
    offset = ("topic", 0, 1)
    assert shard.commit("g", member, 1, offset) == [E.NONE]
    assert shard.commit("g", member, 2, offset) is E.ILLEGAL_GENERATION
    assert shard.commit("g", "unknown", 1, offset) is E.UNKNOWN_MEMBER_ID
    assert shard.commit("g", "", -1, offset) is E.UNKNOWN_MEMBER_ID
    assert shard.commit("nowhere", member, 1, offset) is E.ILLEGAL_GENERATION
    known = {"unknown_group_error": E.GROUP_ID_NOT_FOUND}
    assert shard.commit("nowhere", member, 1, offset, **known) is E.GROUP_ID_NOT_FOUND
    shard.join("g", member)
    assert shard.commit("g", member, 1, offset) is E.ILLEGAL_GENERATION
    assert shard.commit("g", member, 2, offset) is E.REBALANCE_IN_PROGRESS
    assert shard.commit("", "", -1, offset) == [E.NONE]


def test_commit_is_accepted_while_a_rebalance_is_prepared() -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1)
    shard.joined_with_id()
    assert shard.commit("g", member, 1, ("topic", 0, 5)) == [E.NONE]


def test_metadata_has_a_limit_of_its_own_for_each_partition() -> None:
    shard = VirtualShard(offset_metadata_max_bytes=4)
    answer = shard.commit("g", "", -1, ("t", 0, 1, -1, "12345"), ("t", 1, 2, -1, "1234"), ("t", 2, 3, -1, None))
    assert answer == [E.OFFSET_METADATA_TOO_LARGE, E.NONE, E.NONE]
    assert [shard.committed("g", "t", i) for i in range(3)] == [-1, 2, 3]


def test_all_offsets_of_a_group() -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, ("a", 0, 1), ("b", 0, 2), ("a", 1, 3))
    found = {topic: [(p.partition, p.offset) for p in ps] for topic, ps in shard.coordinator.fetch_offsets("g", None)}
    assert found == {"a": [(0, 1), (1, 3)], "b": [(0, 2)]}
    assert shard.coordinator.fetch_offsets("nowhere", None) == []
    assert shard.committed("nowhere") == -1


def test_transactional_offsets_are_pending_until_the_marker() -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, ("topic", 0, 1))
    commit_in_transaction(shard, 100, 5)
    assert shard.committed("g") == 1
    assert shard.committed("g", stable=True) == -E.UNSTABLE_OFFSET_COMMIT
    shard.restart()
    assert shard.committed("g", stable=True) == -E.UNSTABLE_OFFSET_COMMIT
    shard.end_transaction(100, committed=False)
    assert shard.committed("g", stable=True) == 1
    commit_in_transaction(shard, 100, 6)
    shard.end_transaction(100, committed=True)
    assert shard.committed("g", stable=True) == 6


def test_a_plain_commit_after_a_transactional_one_is_the_later_one() -> None:
    shard = VirtualShard()
    commit_in_transaction(shard, 100, 5)
    shard.commit("g", "", -1, ("topic", 0, 9))
    shard.end_transaction(100, committed=True)
    assert shard.committed("g") == 9


def test_two_transactions_on_one_partition() -> None:
    shard = VirtualShard()
    commit_in_transaction(shard, 1, 10)
    commit_in_transaction(shard, 2, 20)
    shard.end_transaction(2, committed=True)
    assert shard.committed("g", stable=True) == -E.UNSTABLE_OFFSET_COMMIT
    shard.end_transaction(1, committed=True)
    assert shard.committed("g", stable=True) == 20


def test_transactional_commit_is_fenced_by_generation_in_every_state() -> None:
    shard = VirtualShard()
    member, _ = shard.joined_with_id()
    shard.run_until("CompletingRebalance")
    offsets = [OffsetToCommit("topic", 0, 1)]
    for request in (CommitRequest("g", member, None, 1, offsets), CommitRequest("g", "", None, -1, offsets)):
        outcome = shard.coordinator.commit_offsets(shard.now_ms, 0, request, transactional=True)
        assert len(outcome.records) == 1
    for request, error in (
        (CommitRequest("g", member, None, 0, offsets), E.ILLEGAL_GENERATION),
        (CommitRequest("g", "unknown", None, 1, offsets), E.UNKNOWN_MEMBER_ID),
        (CommitRequest("nowhere", member, None, 1, offsets), E.ILLEGAL_GENERATION),
    ):
        with pytest.raises(KafkaError) as refused:
            shard.coordinator.commit_offsets(shard.now_ms, 0, request, transactional=True)
        assert refused.value.code is error


# --- expiry (KIP-211) ---


def test_simple_group_is_removed_once_its_offsets_have_expired() -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, ("topic", 0, 1))
    shard.sleep(3 * DAY_MS)
    shard.commit("g", "", -1, ("topic", 1, 1))
    shard.sleep(5 * DAY_MS)
    assert (shard.committed("g"), shard.committed("g", partition=1)) == (-1, 1)
    shard.sleep(3 * DAY_MS)
    assert "g" not in shard.coordinator.classic.by_id
    assert shard.records()[-1] == ClassicGroupRecord("g", None)


def test_offsets_of_an_empty_group_expire_once_it_was_empty_for_long() -> None:
    shard = VirtualShard(max_session_timeout_ms=2_000_000_000)
    (member,) = shard.stable_group(1, session_timeout_ms=1_900_000_000)
    shard.commit("g", member, 1, ("topic", 0, 1))
    shard.sleep(6 * DAY_MS)
    shard.leave("g", member)
    shard.sleep(7 * DAY_MS - 600_000)
    assert shard.committed("g") == 1
    shard.sleep(2 * 600_000)
    assert shard.committed("g") == -1
    assert shard.state() == "Dead"


def test_subscribed_topics_of_a_stable_consumer_group_do_not_expire() -> None:
    shard = VirtualShard(max_session_timeout_ms=2_000_000_000)
    (member,) = shard.stable_group(1, session_timeout_ms=1_900_000_000)
    shard.commit("g", member, 1, ("topic", 0, 1), ("elsewhere", 0, 1))
    shard.sleep(8 * DAY_MS)
    assert (shard.committed("g"), shard.committed("g", "elsewhere")) == (1, -1)
    assert shard.state() == "Stable"


def test_no_offset_expires_while_the_group_rebalances_or_is_not_consumer() -> None:
    shard = VirtualShard(max_session_timeout_ms=2_000_000_000)
    (member,) = shard.stable_group(
        1, protocol_type="connect", protocols=(("v", b"?"),), session_timeout_ms=1_900_000_000
    )
    shard.commit("g", member, 1, ("elsewhere", 0, 1))
    shard.sleep(8 * DAY_MS)
    assert shard.committed("g", "elsewhere") == 1


def test_an_explicit_retention_is_kept_to_across_a_restart() -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, ("topic", 0, 1), retention_ms=3_600_000)
    shard.restart()
    shard.sleep(3_500_000)
    assert shard.committed("g") == 1
    shard.sleep(800_000)
    assert shard.committed("g") == -1


def test_pending_transactions_keep_offsets_and_group() -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, ("topic", 0, 1))
    commit_in_transaction(shard, 5, 2)
    shard.sleep(9 * DAY_MS)
    assert shard.committed("g") == 1
    shard.end_transaction(5, committed=False)
    shard.sleep(600_000)
    assert shard.state() == "Dead"


def test_idle_group_expires_unless_a_member_id_was_handed_out() -> None:
    shard = VirtualShard()
    shard.join("pending", session_timeout_ms=1_200_000)
    shard.join("gone", session_timeout_ms=10_000)
    shard.sleep(700_000)
    assert set(shard.coordinator.classic.by_id) == {"pending"}


# --- deletion ---


def test_deleting_groups() -> None:
    shard = VirtualShard()
    shard.stable_group(1, "busy")
    shard.commit("simple", "", -1, ("topic", 0, 1), ("topic", 1, 2))
    commit_in_transaction(shard, 9, 3, "simple")
    token = shard.token()
    shard.obey(shard.coordinator.delete_groups(token, ["busy", "simple", "nowhere", "simple"]))
    assert shard.answers[token] == [E.NON_EMPTY_GROUP, E.NONE, E.GROUP_ID_NOT_FOUND, E.GROUP_ID_NOT_FOUND]
    assert shard.committed("simple") == -1
    assert shard.state("simple") == "Dead"
    shard.end_transaction(9, committed=True)
    assert shard.committed("simple") == -1
    shard.restart()
    assert set(shard.coordinator.classic.by_id) == {"busy"}


def delete_offsets(shard: VirtualShard, group_id: str, *partitions: tuple[str, int]) -> list[E] | E:
    token = shard.token()
    try:
        shard.obey(shard.coordinator.delete_offsets(token, group_id, partitions))
    except KafkaError as error:
        return error.code
    found: list[E] = shard.answers[token]
    return found


def test_deleting_offsets() -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1)
    shard.commit("g", member, 1, ("topic", 0, 1), ("elsewhere", 0, 1))
    wanted = (("topic", 0), ("elsewhere", 0), ("elsewhere", 5))
    assert delete_offsets(shard, "g", *wanted) == [E.GROUP_SUBSCRIBED_TO_TOPIC, E.NONE, E.NONE]
    assert (shard.committed("g"), shard.committed("g", "elsewhere")) == (1, -1)
    assert delete_offsets(shard, "nowhere", *wanted) is E.GROUP_ID_NOT_FOUND
    assert delete_offsets(shard, "", *wanted) is E.INVALID_GROUP_ID
    shard.stable_group(1, "connect", protocol_type="connect")
    assert delete_offsets(shard, "connect", *wanted) is E.NON_EMPTY_GROUP
    shard.leave("g", member)
    assert delete_offsets(shard, "g", ("topic", 0)) == [E.NONE]
    assert shard.committed("g") == -1


def test_offsets_do_not_expire_when_subscriptions_are_unreadable() -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1, protocols=(("range", b"\xff"),))
    shard.commit("g", member, 1, ("elsewhere", 0, 1))
    assert delete_offsets(shard, "g", ("elsewhere", 0)) == [E.GROUP_SUBSCRIBED_TO_TOPIC]
    shard.sleep(8_000)
    assert shard.committed("g", "elsewhere") == 1


def test_committed_and_pending_offsets_of_deleted_topics_are_deleted() -> None:
    shard = VirtualShard()
    shard.commit("a", "", -1, ("topic", 0, 1), ("kept", 0, 1))
    commit_in_transaction(shard, 5, 2, "b")
    shard.obey(shard.coordinator.topics_deleted(["topic"]))
    shard.end_transaction(5, committed=True)
    assert [shard.committed("a"), shard.committed("b"), shard.committed("a", "kept")] == [-1, -1, 1]


def test_offsets_of_a_recreated_topic_survive_the_deletion_of_the_old_one() -> None:
    """The coordinator may learn of the deletion of the old one, or act on it, after commits of the new one."""
    shard = VirtualShard()
    old_id = shard.topic("topic", 2)
    shard.commit("g", "", -1, OffsetToCommit("topic", 0, 7, topic_id=old_id))
    new = shard.image.topics["topic"]._replace(id=b"new".ljust(16, b"#"))
    shard.image = shard.image.without_topics(["topic"]).with_topic(new)
    shard.commit("g", "", -1, OffsetToCommit("topic", 1, 3, topic_id=new.id))
    shard.obey(shard.coordinator.topics_deleted(["topic"]))
    assert [shard.committed("g", partition=index) for index in (0, 1)] == [-1, 3]


def make_anew(shard: VirtualShard, name: str = "topic") -> tuple[bytes, bytes]:
    """Replace the topic by another one without a word to the coordinator: the old id, the new one."""
    old = shard.image.topics[name]
    new = old._replace(id=b"new".ljust(16, b"#"))
    shard.image = shard.image.without_topics([name]).with_topic(new)
    return old.id, new.id


@pytest.mark.parametrize("stable", [False, True])
def test_recreated_topic_does_not_inherit_the_offsets_of_the_old_one(stable: bool) -> None:
    """Nor wait for them. The news of its deletion may have come to nothing: its tombstones were refused."""
    shard = VirtualShard()
    old_id = shard.topic("topic", 2)
    shard.commit("g", "", -1, OffsetToCommit("topic", 1, 7, topic_id=old_id))
    commit_in_transaction(shard, 5, 9, topic_id=old_id)
    shard.refuse = E.NOT_ENOUGH_REPLICAS
    shard.delete_topic("topic")
    shard.refuse = None
    assert shard.committed("g", partition=1) == 7, "no other topic could be mistaken for it"
    shard.topic("topic", 2)
    _, new_id = make_anew(shard)
    shard.restart()
    assert [shard.committed("g", partition=index, stable=stable) for index in (0, 1)] == [-1, -1]
    shard.end_transaction(5, committed=True)
    assert shard.committed("g", stable=stable) == -1
    shard.commit("g", "", -1, OffsetToCommit("topic", 0, 3, topic_id=new_id))
    assert shard.committed("g", stable=stable) == 3


def test_offsets_without_a_topic_id_go_by_the_name() -> None:
    """Those that an older Kafka stored."""
    shard = VirtualShard()
    shard.topic("topic", 2)
    shard.commit("g", "", -1, OffsetToCommit("topic", 0, 7))
    make_anew(shard)
    shard.obey(shard.coordinator.topics_missed())
    assert shard.committed("g") == 7


def test_offsets_of_topics_whose_deletion_was_missed_are_deleted() -> None:
    shard = VirtualShard()
    ids = {name: shard.topic(name, 1) for name in ("topic", "gone", "kept")}
    for name, topic_id in ids.items():
        shard.commit("g", "", -1, OffsetToCommit(name, 0, 7, topic_id=topic_id))
    commit_in_transaction(shard, 5, 9, "pending", ids["topic"])
    make_anew(shard)
    shard.image = shard.image.without_topics(["gone"])
    shard.restart()
    shard.obey(shard.coordinator.topics_missed())
    assert [(topic, found[0].offset) for topic, found in shard.coordinator.fetch_offsets("g", None)] == [("kept", 7)]
    shard.end_transaction(5, committed=True)
    assert shard.coordinator.fetch_offsets("pending", None) == []
    assert not shard.coordinator.topics_missed().records


@pytest.mark.parametrize("news", ["deleted", "missed"])
def test_pending_offset_of_a_recreated_topic_survives_the_deletion(news: str) -> None:
    shard = VirtualShard()
    old_id = shard.topic("topic", 1)
    shard.commit("g", "", -1, OffsetToCommit("topic", 0, 7, topic_id=old_id))
    _, new_id = make_anew(shard)
    commit_in_transaction(shard, 5, 2, topic_id=new_id)
    coordinator = shard.coordinator
    shard.obey(coordinator.topics_deleted(["topic"]) if news == "deleted" else coordinator.topics_missed())
    assert shard.committed("g") == -1
    shard.end_transaction(5, committed=True)
    assert shard.committed("g") == 2


# --- describe and list ---


def test_describe_and_list() -> None:
    shard = VirtualShard()
    (member,) = shard.stable_group(1, "stable", client_id="me")
    shard.commit("simple", "", -1, ("topic", 0, 1))
    shard.join("waiting", member_id_required=False)
    found = shard.coordinator.describe_groups(["stable", "nowhere"])
    assert (found[0].state, found[0].protocol_type, found[0].protocol_data) == ("Stable", "consumer", "range")
    (described,) = found[0].members
    assert (described.member_id, described.client_id, described.client_host) == (member, "me", "/127.0.0.1")
    assert described.assignment == f"part of {member}".encode()
    assert (found[1].error, found[1].state) == (E.GROUP_ID_NOT_FOUND, "Dead")

    def listed(states: list[str], types: list[str]) -> set[str]:
        return {group.group_id for group in shard.coordinator.list_groups(states, types)}

    assert listed([], []) == {"stable", "simple", "waiting"}
    assert listed(["stable"], ["Classic"]) == {"stable"}
    assert listed(["EMPTY", "PreparingRebalance"], []) == {"simple", "waiting"}
    assert listed([], ["consumer"]) == set()
    assert listed(["nonsense"], []) == set()


def test_a_commit_that_cannot_be_stored_has_not_happened() -> None:
    shard = VirtualShard()
    shard.refuse = E.NOT_ENOUGH_REPLICAS
    assert shard.commit("g", "", -1, ("topic", 0, 1)) is E.COORDINATOR_NOT_AVAILABLE
    shard.refuse = None
    assert shard.committed("g") == -1
    assert shard.coordinator.list_groups() == []


def test_the_records_of_a_commit() -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, OffsetToCommit("topic", 1, 2, 3, "m", bytes(range(16))))
    (record,) = shard.records()
    assert isinstance(record, OffsetRecord)
    assert record.value == (2, 3, "m", START_MS, -1, bytes(range(16)))


@pytest.mark.parametrize("committed", [True, False])
def test_markers_of_unknown_producers_change_nothing(committed: bool) -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, ("topic", 0, 1))
    shard.end_transaction(77, committed=committed)
    assert shard.committed("g") == 1


def reject_deletion(shard: VirtualShard, topics: list[str] | None) -> None:
    """The log rejects the tombstones of the topic that was deleted."""
    shard.image = shard.image.without_topics(["topic"])
    shard.refuse = E.NOT_ENOUGH_REPLICAS
    shard.obey(shard.coordinator.topics_missed() if topics is None else shard.coordinator.topics_deleted(topics))
    assert shard.committed("g") == 7
    shard.refuse = None


@pytest.mark.parametrize("topics", [["topic"], None])
def test_rejected_tombstones_of_a_deleted_topic_are_written_again(topics: list[str] | None) -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, OffsetToCommit("topic", 0, 7, topic_id=shard.topic("topic", 1)))
    reject_deletion(shard, topics)
    shard.sleep(RETRY_MS)
    assert shard.committed("g") == -1


def test_retried_tombstones_spare_a_topic_that_was_created_again() -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, OffsetToCommit("topic", 0, 7, topic_id=shard.topic("topic", 1)))
    reject_deletion(shard, ["topic"])
    shard.commit("g", "", -1, OffsetToCommit("topic", 0, 3, topic_id=shard.topic("topic", 1)))
    shard.sleep(RETRY_MS)
    assert shard.committed("g") == 3


def test_missed_deletions_are_not_retried_while_the_image_is_incomplete() -> None:
    shard = VirtualShard()
    shard.commit("g", "", -1, OffsetToCommit("topic", 0, 7, topic_id=shard.topic("topic", 1)))
    reject_deletion(shard, None)
    shard.knows_all_topics = False
    shard.sleep(RETRY_MS)
    assert shard.committed("g") == 7
    shard.knows_all_topics = True
    shard.sleep(RETRY_MS)
    assert shard.committed("g") == -1


@pytest.mark.parametrize(
    ("retention_ms", "expire_ms"),
    [(-1, -1), (0, START_MS), (1, START_MS + 1), ((1 << 63) - 1, (1 << 63) - 1)],
)
def test_commit_expires_after_the_retention_of_its_request(retention_ms: int, expire_ms: int) -> None:
    """The time that a record can hold is the longest (OffsetCommit versions 2 to 4)."""
    shard = VirtualShard()
    request = CommitRequest("g", "", None, -1, [OffsetToCommit("topic", 0, 1)], retention_ms=retention_ms)
    (record,) = shard.coordinator.commit_offsets(START_MS, shard.token(), request).records
    assert isinstance(record, OffsetRecord)
    assert record.value is not None
    assert record.value.expire_timestamp_ms == expire_ms
