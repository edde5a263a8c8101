"""Random histories of a group: whatever happens, the log says what is stored, and every request is answered once."""

from __future__ import annotations

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.groups.classic.group import GroupState
from odradek.groups.events import CommitRequest, LeavingMember, OffsetToCommit
from odradek.wire.errors import ErrorCode as E
from tests.unit.groups.virtual_shard import RANGE, VirtualShard

ACTORS = ("a", "b", "c", "d")
STATIC = {"c": "instance-c", "d": "instance-d"}
REFUSALS = (E.NOT_ENOUGH_REPLICAS, E.NOT_LEADER_OR_FOLLOWER, E.MESSAGE_TOO_LARGE)
CHOICES = (RANGE, (("range", b"x"),), (("sticky", b"1"), ("range", b"2")), (("range", b"3"), ("sticky", b"4")))
actors = st.sampled_from(ACTORS)
rarely = st.integers(0, 7).map(lambda drawn: drawn == 0)


class GroupHistory(RuleBasedStateMachine):
    """Four members, two of them static, that obey the protocol more or less."""

    def __init__(self) -> None:
        super().__init__()
        self.shard = VirtualShard(max_size=3, initial_rebalance_delay_ms=1_000)
        self.member_ids: dict[str, str] = {}
        self.waiting: dict[int, str] = {}
        self.generation = 0
        self.stored_generation = 0
        self.in_transaction: set[int] = set()

    # --- members ---

    def learn(self) -> None:
        """Take in what was answered."""
        for token in [token for token in self.waiting if token in self.shard.answers]:
            actor = self.waiting.pop(token)
            answer = self.shard.answers[token]
            if answer.error in (E.NONE, E.MEMBER_ID_REQUIRED):
                self.member_ids[actor] = answer.member_id
            elif answer.error in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
                self.member_ids.pop(actor, None)

    @rule(actor=actors, choice=st.sampled_from(CHOICES), old=st.booleans())
    def join(self, actor: str, choice: tuple[tuple[str, bytes], ...], old: bool) -> None:
        fields = {"instance": STATIC.get(actor), "protocols": choice, "member_id_required": not old}
        token = self.shard.join("g", self.member_ids.get(actor, ""), **fields)
        self.waiting[token] = actor
        self.learn()

    @rule(wanted=st.just(set(ACTORS)) | st.sets(actors, min_size=1), choice=st.sampled_from(CHOICES))
    def several_join(self, wanted: set[str], choice: tuple[tuple[str, bytes], ...]) -> None:
        for actor in sorted(wanted) * 2:  # the second time with the id
            if actor not in self.waiting.values():
                self.join(actor, choice, old=False)
        self.time(1_000)

    @rule()
    def everybody_syncs(self) -> None:
        for actor in ACTORS:
            self.sync(actor, 0)
        event(f"after everybody synced: {self.shard.state()}")

    @rule(actor=actors, really=rarely)
    def restart_of_a_client(self, actor: str, really: bool) -> None:
        if really:
            self.member_ids.pop(actor, None)

    @rule(actor=actors, lag=st.integers(0, 1))
    def sync(self, actor: str, lag: int) -> None:
        group = self.shard.coordinator.classic.by_id.get("g")
        if group is not None and actor in self.member_ids:
            parts = {name: f"{group.generation_id} {name}".encode() for name in group.members}
            self.shard.sync("g", self.member_ids[actor], group.generation_id - lag, parts, instance=STATIC.get(actor))

    @rule(actor=actors, lag=st.integers(0, 1))
    def heartbeat(self, actor: str, lag: int) -> None:
        group = self.shard.coordinator.classic.by_id.get("g")
        member_id = self.member_ids.get(actor, "unknown")
        error = self.shard.heartbeat("g", member_id, self.generation - lag, STATIC.get(actor))
        if group is None or member_id not in group.members:
            assert error in (E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID)

    @rule(actor=actors, by_instance=st.booleans())
    def leave(self, actor: str, by_instance: bool) -> None:
        if self.shard.refuse is None and self.shard.held is None:
            instance = STATIC.get(actor)
            member_id = "" if by_instance and instance else self.member_ids.get(actor, "unknown")
            self.shard.leave("g", LeavingMember(member_id, instance))
            self.learn()

    @rule(ms=st.sampled_from((1, 500, 5_000, 12_000, 40_000)))
    def time(self, ms: int) -> None:
        self.shard.sleep(ms)
        self.learn()

    # --- offsets ---

    @rule(actor=actors, partition=st.integers(0, 2), offset=st.integers(0, 100))
    def commit(self, actor: str, partition: int, offset: int) -> None:
        member = self.member_ids.get(actor, "")
        self.shard.commit("g", member, self.generation, ("topic", partition, offset), instance=STATIC.get(actor))

    @rule(partition=st.integers(0, 2), offset=st.integers(0, 100))
    def commit_from_outside(self, partition: int, offset: int) -> None:
        self.shard.commit("g", "", -1, ("topic", partition, offset))

    @rule(producer_id=st.integers(1, 2), offset=st.integers(0, 100))
    def commit_in_transaction(self, producer_id: int, offset: int) -> None:
        request = CommitRequest("g", "", None, -1, [OffsetToCommit("topic", 0, offset)])
        if self.shard.refuse is None and self.shard.held is None:
            outcome = self.shard.coordinator.commit_offsets(
                self.shard.now_ms, self.shard.token(), request, transactional=True
            )
            self.shard.append_transactional(outcome, producer_id)
            self.in_transaction.add(producer_id)

    @precondition(lambda self: self.in_transaction)
    @rule(committed=st.booleans())
    def end_transaction(self, committed: bool) -> None:
        self.shard.end_transaction(self.in_transaction.pop(), committed=committed)

    @rule(really=rarely)
    def delete_the_group(self, really: bool) -> None:
        if not really:
            return
        token = self.shard.token()
        self.shard.obey(self.shard.coordinator.delete_groups(token, ["g"]))
        if self.shard.answers.get(token) == [E.NONE]:
            self.generation = self.stored_generation = 0

    # --- the log ---

    @rule(error=st.sampled_from((None, None, *REFUSALS)))
    def appends(self, error: E | None) -> None:
        if self.shard.held is None:
            self.shard.refuse = error

    @precondition(lambda self: self.shard.refuse is None)
    @rule(hold=st.booleans())
    def commits(self, hold: bool) -> None:
        if not hold:
            self.shard.release_held()
        elif self.shard.held is None:
            self.shard.held = []
        self.learn()

    @precondition(lambda self: self.shard.held is None)
    @rule(really=rarely)
    def restart_of_the_coordinator(self, really: bool) -> None:
        if not really:
            return
        self.shard.refuse = None
        self.shard.restart()
        self.waiting.clear()
        self.generation = self.stored_generation

    # --- what always holds ---

    @invariant()
    def generations_only_grow(self) -> None:
        group = self.shard.coordinator.classic.by_id.get("g")
        if group is None:
            self.generation = 0
            assert "g" not in self.shard.coordinator.classic.stored
        else:
            assert group.generation_id >= self.generation
            self.generation = group.generation_id
        stored = self.shard.stored()
        if stored is None:
            self.stored_generation = 0
        else:
            assert stored.generation_id >= self.stored_generation
            self.stored_generation = stored.generation_id
            assert group is not None
            assert group.generation_id >= stored.generation_id

    @invariant()
    def the_group_has_room(self) -> None:
        group = self.shard.coordinator.classic.by_id.get("g")
        if group is not None and group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            assert len(group.members) <= 3
            assert group.leader in group.members

    def teardown(self) -> None:
        """Left alone, the group comes to rest and no member waits."""
        self.shard.refuse = None
        if self.shard.held is not None:
            self.shard.release_held()
        self.shard.sleep(400_000)
        self.learn()
        assert self.shard.state() in ("Empty", "Dead")
        assert not self.waiting


GroupHistory.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestGroupHistory = GroupHistory.TestCase
