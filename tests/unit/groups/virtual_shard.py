"""A shard under a virtual clock, with a log of its own: what the shell does, without one.

After every step the log is replayed into a fresh coordinator, through the records' bytes; both must agree on what is
stored, and so must a coordinator that reads the log after its compaction.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from odradek.groups.classic.group import GroupState, restore
from odradek.groups.classic.records import ClassicGroupRecord
from odradek.groups.codec import decode_record, encode_record
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.records import MemberState
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.events import (
    CommitRequest,
    ConsumerHeartbeat,
    GroupDecision,
    JoinRequest,
    LeavingMember,
    LeftMember,
    OffsetToCommit,
    SyncRequest,
    append_failure,
    every_topic,
)
from odradek.groups.offsets.committed import NO_PRODUCER_ID
from odradek.groups.settings import GroupSettings
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError

START_MS = 1_700_000_000_000
RANGE = (("range", b"\x00\x01\x00\x00\x00\x01\x00\x05topic\xff\xff\xff\xff"),)


def check_consumer_group(group: ConsumerGroup) -> None:
    """What must hold of every consumer group at every moment."""
    held: dict[tuple[bytes, int], str] = {}
    for member in group.members.values():
        for owned in (member.current.assigned, member.current.revoking):
            for topic_id, partitions in owned.items():
                assert partitions
                for partition in partitions:
                    assert (topic_id, partition) not in held, "a partition has two members"
                    held[topic_id, partition] = member.member_id
        assert member.epoch <= group.epoch
    assert held == group.owners
    assert group.target_epoch <= group.epoch
    assert group.targets.keys() <= group.members.keys()
    targets = [(t, p) for target in group.targets.values() for t, ps in target.items() for p in ps]
    assert len(targets) == len(set(targets)), "a partition is meant for two members"
    statics = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
    assert statics == group.static_members


def check_deadlines(coordinator: GroupCoordinator) -> None:
    """Each deadline belongs to a known group or member; each member has a session, or waits for an answer."""
    keys = set(coordinator._timers._entries)
    for kind, *names in keys:
        if kind in ("session", "join", "sync"):
            group = coordinator.classic.by_id[names[0]]
            if kind == "session":
                assert names[1] in group.members or names[1] in group.pending_join, (kind, names)
            elif kind == "sync":
                assert group.pending_sync, "no member is waited for"
        elif kind in ("member-join", "member-sync"):
            member = coordinator.consumer.by_id[names[0]].members[names[1]]
            assert member.subscription.classic is not None
    for group_id, group in coordinator.classic.by_id.items():
        for each in group.members.values():
            is_waiting = each.join_token is not None or each.sync_token is not None
            assert is_waiting or ("session", group_id, each.member_id) in keys, "a member without a session"
        assert all(("session", group_id, member_id) in keys for member_id in group.pending_join)
        assert group.state is not GroupState.PREPARING_REBALANCE or ("join", group_id) in keys
        assert (
            group.state is not GroupState.COMPLETING_REBALANCE or not group.pending_sync or ("sync", group_id) in keys
        )
    for group_id, consumer_group in coordinator.consumer.by_id.items():
        for member in consumer_group.members.values():
            assert ("member", group_id, member.member_id) in keys, "a member without a session"
            if member.subscription.classic is None and member.current.state is MemberState.UNREVOKED_PARTITIONS:
                assert ("revocation", group_id, member.member_id) in keys
    assert ("offset-expiry",) in keys


class VirtualShard:
    def __init__(self, settings: GroupSettings | None = None, **limits: Any) -> None:
        self.settings = settings or GroupSettings(**limits)
        self.now_ms = START_MS
        self.log: list[Any] = []
        self.answers: dict[int, Any] = {}
        self.refuse: ErrorCode | None = None
        """The next appends fail with this."""
        self.held: list[GroupDecision] | None = None
        """Appended and replayed, not committed yet; None when commits are immediate."""
        self.image = ClusterImage()
        self.knows_all_topics = True
        """Whether a topic outside the image does not exist."""
        self.coordinator = GroupCoordinator(
            self.settings, SeededRandom(7), lambda: self.image, lambda: self.knows_all_topics
        )
        self._tokens = 0
        self._seed = 8
        self.obey(self.coordinator.loaded(self.now_ms))

    # --- the shell ---

    def obey(self, outcome: GroupDecision) -> None:
        self._release(outcome.now)
        if outcome.records and self.refuse is not None:
            self._fail(outcome, self.refuse)
        elif outcome.records:
            for record in outcome.records:
                self.log.append((record, NO_PRODUCER_ID))
                self.coordinator.replay(record, len(self.log) - 1)
            if self.held is None:
                self._succeed(outcome)
            else:
                self.held.append(outcome)
        else:
            assert outcome.then is None
            self._release(outcome.replies)
        self.check()

    def _release(self, replies: Any) -> None:
        for token, answer in replies:
            assert token not in self.answers, f"{token} is answered twice: {self.answers[token]}, {answer}"
            self.answers[token] = answer

    def _succeed(self, outcome: GroupDecision) -> None:
        self._release(outcome.replies)
        if outcome.then is not None:
            self.obey(self.coordinator.stored(outcome.then, None, self.now_ms))

    def _fail(self, outcome: GroupDecision, error: ErrorCode) -> None:
        for token, _ in outcome.replies:
            self._release([(token, append_failure(error))])
        if outcome.then is not None:
            self.obey(self.coordinator.stored(outcome.then, error, self.now_ms))

    def release_held(self, error: ErrorCode | None = None) -> None:
        held, self.held = self.held or [], None
        for outcome in held:
            if error is None:
                self._succeed(outcome)
            else:
                self._fail(outcome, error)
        self.check()

    def append_transactional(self, outcome: GroupDecision, producer_id: int) -> None:
        for record in outcome.records:
            self.log.append((record, producer_id))
            self.coordinator.replay(record, len(self.log) - 1, producer_id)
        self._release(outcome.replies)
        self.check()

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.log.append((producer_id, committed))
        self.coordinator.replay_marker(producer_id, committed=committed)
        self.check()

    def restart(self) -> None:
        """Another coordinator takes over: all that is soft is gone."""
        self._seed += 1  # each coordinator makes ids of members that no other one made
        self.coordinator = self.replayed()
        self.answers.clear()
        self.obey(self.coordinator.loaded(self.now_ms))

    def compacted(self) -> set[int]:
        """Offsets that compaction leaves: before the first open transaction, the last plain record of each key."""
        opened: dict[int, int] = {}
        for offset, (entry, detail) in enumerate(self.log):
            if isinstance(entry, int):
                opened.pop(entry, None)
            elif detail != NO_PRODUCER_ID:
                opened.setdefault(detail, offset)
        stable = min(opened.values(), default=len(self.log))
        last: dict[bytes, int] = {}
        kept = set(range(stable, len(self.log)))
        for offset, (entry, detail) in enumerate(self.log[:stable]):
            if isinstance(entry, int) or detail != NO_PRODUCER_ID:
                kept.add(offset)
            else:
                last[encode_record(entry)[0]] = offset
        return kept.union(last.values())

    def replayed(self, offsets: Collection[int] | None = None) -> GroupCoordinator:
        """A coordinator that has read the log, or what is at these offsets of it."""
        fresh = GroupCoordinator(self.settings, SeededRandom(self._seed), lambda: self.image)
        for offset, (entry, detail) in enumerate(self.log):
            if offsets is not None and offset not in offsets:
                continue
            if isinstance(entry, int):
                fresh.replay_marker(entry, committed=detail)
            else:
                record = decode_record(*encode_record(entry))
                assert record is not None
                assert record == entry
                fresh.replay(record, offset, detail)
        return fresh

    def check(self) -> None:
        for fresh in (self.replayed(), self.replayed(self.compacted())):
            assert fresh.classic.stored == self.coordinator.classic.stored
            assert fresh.offsets == self.coordinator.offsets
            assert fresh.consumer.by_id == self.coordinator.consumer.by_id
        assert not self.coordinator.consumer.by_id.keys() & self.coordinator.classic.by_id.keys()
        for consumer_group in self.coordinator.consumer.by_id.values():
            check_consumer_group(consumer_group)
        if self.refuse is None and not self.held:
            check_deadlines(self.coordinator)
        for group_id, group in self.coordinator.classic.by_id.items():
            assert group.joining == sum(m.join_token is not None for m in group.members.values())
            assert (group.leader in group.members) if group.members else (group.leader is None)
            assert group.pending_sync <= group.members.keys()
            assert not group.pending_join & group.members.keys()
            statics = {m.group_instance_id: m.member_id for m in group.members.values() if m.group_instance_id}
            assert statics == group.static_members
            counts: dict[str, int] = {}
            for member in group.members.values():
                for name, _ in member.protocols:
                    counts[name] = counts.get(name, 0) + 1
            assert counts == {name: count for name, count in group.supported.items() if count}
            if group.state is GroupState.STABLE and self.refuse is None and not self.held:
                twin = restore(group_id, self.coordinator.classic.stored[group_id])
                assert twin.generation_id == group.generation_id
                assert twin.leader == group.leader
                assert {m: x.assignment for m, x in twin.members.items()} == {
                    m: x.assignment for m, x in group.members.items()
                }
            if group.state is not GroupState.COMPLETING_REBALANCE:
                assert all(m.sync_token is None for m in group.members.values())
            if group.state is GroupState.EMPTY:
                assert not group.members
            if group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE):
                assert not group.pending_sync

    def topic(self, name: str, partitions: int) -> bytes:
        """Create a topic or let one grow, as the broker notifies the coordinator; its id."""
        old = self.image.topics.get(name)
        state = PartitionState(1, 0, (1,), (1,))
        topic_id = name.encode().ljust(16, b"#") if old is None else old.id
        new = Topic(name, topic_id, (state,) * partitions)
        self.image = self.image.with_topic(new)
        grown = [] if old is None else [(new, len(old.partitions))]
        self.obey(self.coordinator.topics_changed(self.now_ms, [name], grown))
        return topic_id

    def delete_topic(self, name: str) -> None:
        self.image = self.image.without_topics([name])
        self.obey(self.coordinator.topics_deleted([name]))
        self.obey(self.coordinator.topics_changed(self.now_ms, [name], []))

    def sleep(self, milliseconds: int) -> None:
        """Let time pass; deadlines fire at their time."""
        end_ms = self.now_ms + milliseconds
        while (deadline_ms := self.coordinator.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.obey(self.coordinator.expire(self.now_ms))
        self.now_ms = end_ms

    # --- requests: each answers with its token; `answers` has what came of it ---

    def token(self) -> int:
        self._tokens += 1
        return self._tokens

    def join(self, group_id: str = "g", member_id: str = "", **fields: Any) -> int:
        request = JoinRequest(
            group_id,
            member_id,
            fields.pop("instance", None),
            fields.pop("client_id", "client"),
            "/127.0.0.1",
            fields.pop("session_timeout_ms", 10_000),
            fields.pop("rebalance_timeout_ms", 30_000),
            fields.pop("protocol_type", "consumer"),
            fields.pop("protocols", RANGE),
            **fields,
        )
        token = self.token()
        self.obey(self.coordinator.join(self.now_ms, token, request))
        return token

    def joined_with_id(self, group_id: str = "g", **fields: Any) -> tuple[str, int]:
        """Get a member id and join with it (KIP-394): (member id, token)."""
        first = self.answers[self.join(group_id, **fields)]
        assert first.error == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(group_id, first.member_id, **fields)

    def sync(self, group_id: str, member_id: str, generation: int, assignments: Any = None, **fields: Any) -> int:
        request = SyncRequest(
            group_id,
            member_id,
            fields.pop("instance", None),
            generation,
            fields.pop("protocol_type", None),
            fields.pop("protocol_name", None),
            assignments or {},
        )
        token = self.token()
        self.obey(self.coordinator.sync(self.now_ms, token, request))
        return token

    def heartbeat(self, group_id: str, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
        error = self.coordinator.heartbeat(self.now_ms, group_id, member_id, instance, generation)
        self.check()
        return error

    def beat(self, group_id: str, member_id: str, epoch: int, **fields: Any) -> Any:
        """A ConsumerGroupHeartbeat: its result, or the code that refused it."""
        request = ConsumerHeartbeat(
            group_id,
            member_id,
            epoch,
            fields.pop("instance", None),
            fields.pop("rack", None),
            fields.pop("client_id", "client"),
            "/127.0.0.1",
            fields.pop("rebalance_timeout_ms", 60_000 if epoch == 0 else -1),
            fields.pop("topics", None),
            fields.pop("regex", None),
            fields.pop("assignor", None),
            fields.pop("owned", {} if epoch == 0 else None),
            fields.pop("may_see", every_topic),
        )
        assert not fields
        token = self.token()
        try:
            self.obey(self.coordinator.consumer_heartbeat(self.now_ms, token, request))
        except KafkaError as error:
            self.check()
            return error.code
        return self.answers[token]

    def leave(self, group_id: str, *leaving: LeavingMember | str) -> list[ErrorCode]:
        return [member.error for member in self.left(group_id, *leaving)]

    def left(self, group_id: str, *leaving: LeavingMember | str) -> list[LeftMember]:
        token = self.token()
        members = [m if isinstance(m, LeavingMember) else LeavingMember(m) for m in leaving]
        self.obey(self.coordinator.leave(self.now_ms, token, group_id, members))
        return list(self.answers[token])

    def commit(self, group_id: str, member_id: str, generation: int, *offsets: Any, **fields: Any) -> Any:
        """Offsets are (topic, partition, offset) or OffsetToCommit. The codes, or the code that failed them all."""
        token = self.token()
        wanted = [o if isinstance(o, OffsetToCommit) else OffsetToCommit(*o) for o in offsets]
        request = CommitRequest(group_id, member_id, fields.pop("instance", None), generation, wanted, **fields)
        try:
            self.obey(self.coordinator.commit_offsets(self.now_ms, token, request))
        except KafkaError as error:
            return error.code
        return self.answers.get(token)

    def committed(self, group_id: str, topic: str = "topic", partition: int = 0, *, stable: bool = False) -> int:
        ((_, (found,)),) = self.coordinator.fetch_offsets(group_id, [(topic, [partition])], require_stable=stable)
        return found.offset if found.error is ErrorCode.NONE else -int(found.error)

    # --- whole moves ---

    def stable_group(self, size: int, group_id: str = "g", **fields: Any) -> list[str]:
        """A stable group of dynamic members, the leader first."""
        members = [self.joined_with_id(group_id, **fields)[0] for _ in range(size)]
        self.run_until("CompletingRebalance", group_id)
        return self.rebalance(group_id, members)

    def run_until(self, state: str, group_id: str = "g") -> None:
        """Let time pass up to the deadline that brings the group into the state."""
        for _ in range(100):
            if self.state(group_id) == state:
                return
            deadline_ms = self.coordinator.next_deadline_ms()
            assert deadline_ms is not None
            self.sleep(max(deadline_ms - self.now_ms, 0))
        raise AssertionError(f"still {self.state(group_id)}")

    def rebalance(self, group_id: str, members: list[str]) -> list[str]:
        """Everybody syncs, the leader last; members in the group's order."""
        group = self.coordinator.classic.by_id[group_id]
        assert group.state is GroupState.COMPLETING_REBALANCE, group.state
        names = list(group.members)
        assert sorted(names) == sorted(members)
        assignments = {name: f"part of {name}".encode() for name in names}
        tokens = [self.sync(group_id, name, group.generation_id) for name in names if name != group.leader]
        leader = group.leader
        assert leader is not None
        tokens.append(self.sync(group_id, leader, group.generation_id, assignments))
        assert all(self.answers[token].error is ErrorCode.NONE for token in tokens)
        assert group.state is GroupState.STABLE
        return [leader, *(name for name in names if name != leader)]

    def state(self, group_id: str = "g") -> str:
        return self.coordinator.describe_groups([group_id])[0].state

    def stored(self, group_id: str = "g") -> Any:
        return self.coordinator.classic.stored.get(group_id)

    def records(self) -> list[Any]:
        return [entry for entry, _ in self.log if not isinstance(entry, int)]

    def group_records(self, group_id: str = "g") -> list[ClassicGroupRecord]:
        return [r for r in self.records() if isinstance(r, ClassicGroupRecord) and r.group_id == group_id]
