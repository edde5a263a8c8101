"""Whatever dies and whenever it is noticed: what was acknowledged stays, and replicas come to be the same."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from odradek.metadata.image import NO_LEADER
from odradek.replication.follower import Next
from odradek.replication.replica_sessions import Follower
from tests.unit.replication.replicas import Cluster

brokers = st.integers(1, 3)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    made = Cluster(tmp_path, min_insync_replicas=2)
    for replica in made.replicas.values():
        replica.apply_next()
    return made


def test_followers_take_what_the_leader_has_and_the_high_watermark_follows(cluster: Cluster) -> None:
    assert cluster.produce(1, records=3)
    assert cluster.acked == []
    assert cluster.fetch(2) is Next.FETCH
    assert cluster.fetch(3) is Next.FETCH
    leader = cluster.replicas[1].partition
    assert leader.high_watermark == 0, "they have it, but the leader knows only by their next fetch"
    cluster.fetch(2)
    assert leader.high_watermark == 0
    cluster.fetch(3)
    assert leader.high_watermark == 3
    assert len(cluster.acked) == 3
    cluster.fetch(2)
    assert cluster.replicas[2].partition.high_watermark == 3
    assert cluster.replicas[2].records() == cluster.replicas[1].records()


def test_a_silent_follower_leaves_the_isr_and_comes_back(cluster: Cluster) -> None:
    cluster.fetch(2)
    cluster.fetch(3)
    cluster.produce(1)
    cluster.now_ms += 20_000
    cluster.fetch(2)
    cluster.fetch(2)
    leader = cluster.replicas[1]
    leader.partition.followers.shrink_isr()
    assert leader.proposals == [], "within replica.lag.time.max.ms"
    cluster.now_ms += 20_000
    cluster.fetch(2)
    leader.partition.followers.shrink_isr()
    assert leader.partition.high_watermark == 0, "not before the controller has agreed"
    cluster.alter(1)
    assert cluster.state.isr == (1, 2)
    assert leader.partition.high_watermark == 1
    cluster.produce(1)
    cluster.fetch(2)
    cluster.fetch(2)
    assert len(cluster.acked) == 2
    for _ in range(2):
        cluster.fetch(3)
    cluster.alter(1)
    assert cluster.state.isr == (1, 2, 3)


@pytest.mark.parametrize("answered_late", [False, True])
def test_who_catches_up_while_being_left_out_is_taken_in_again(cluster: Cluster, answered_late: bool) -> None:
    """A leader that has slept finds all followers behind. They ask for nothing more, since no producer may write."""
    for broker_id in (2, 3):
        cluster.fetch(broker_id)
    cluster.now_ms += 40_000
    cluster.produce(1)
    leader = cluster.replicas[1]
    leader.partition.followers.shrink_isr()
    for broker_id in (2, 3, 2, 3):
        cluster.fetch(broker_id)
    if answered_late:
        # An incremental fetch that names nothing is one of every partition.
        cluster.now_ms += 40_000
        for broker_id in (2, 3):
            session = cluster.replicas[broker_id].session
            assert session is not None
            session_id, epoch = session[2:]
            leader.sessions.continued(
                session_id, epoch, Follower(broker_id, cluster.replicas[broker_id].epoch)
            ).fetched((), (), lambda _topic, _index: leader.partition, cluster.now_ms)
    cluster.alter(1)
    assert cluster.state.isr == (1,)
    cluster.alter(1)
    cluster.alter(1)
    assert sorted(cluster.state.isr) == [1, 2, 3]
    assert len(cluster.acked) == 1


def test_who_is_silent_is_not_taken_in_again(cluster: Cluster) -> None:
    for broker_id in (2, 3):
        cluster.fetch(broker_id)
    leader = cluster.replicas[1]
    cluster.produce(1)
    cluster.now_ms += 40_000
    leader.partition.followers.shrink_isr()
    cluster.alter(1)
    assert cluster.state.isr == (1,)
    leader.partition.followers.take_in()
    assert leader.proposals == []


def test_under_min_isr_nothing_is_committed(cluster: Cluster) -> None:
    cluster.produce(1)
    cluster.crash(2)
    cluster.crash(3)
    leader = cluster.replicas[1]
    while leader.reported:
        leader.apply_next()
    assert cluster.state.isr == (1,)
    assert leader.partition.high_watermark == 0
    assert not cluster.produce(1), "NOT_ENOUGH_REPLICAS"
    assert cluster.produce(1, acks_all=False)
    assert leader.partition.high_watermark == 0
    cluster.run_rounds()
    assert cluster.state.isr == (1, 2, 3)
    assert leader.partition.high_watermark == 2


def test_what_an_old_leader_wrote_alone_is_cut_off(cluster: Cluster) -> None:
    cluster.produce(1)
    cluster.run_rounds(5)
    cluster.produce(1)
    cluster.produce(1)
    cluster.elect(2)
    cluster.replicas[2].apply_next()
    cluster.produce(2)
    assert cluster.replicas[1].partition.log.end_offset == 3
    cluster.run_rounds(5)
    assert cluster.replicas[1].records() == cluster.replicas[2].records()
    assert len(cluster.replicas[1].records()) == 2
    assert cluster.replicas[1].partition.log.history.leader_epochs.entries() == [(0, 0), (1, 1)]


def test_epochs_unknown_to_the_leader_are_removed_one_by_one(cluster: Cluster) -> None:
    """Epochs 1 to 4 were led by broker 1 without followers: the follower finds the common end in a few steps."""
    cluster.produce(1)
    cluster.run_rounds(5)
    for _ in range(4):
        cluster.elect(1)
        cluster.replicas[1].apply_next()
        cluster.produce(1, acks_all=False, records=3)
    for epoch_of in (2, 3, 2):
        cluster.elect(epoch_of)
        while cluster.replicas[epoch_of].reported:
            cluster.replicas[epoch_of].apply_next()
        cluster.produce(epoch_of, acks_all=False)
    cluster.run_rounds(12)
    records = cluster.replicas[2].records()
    assert all(replica.records() == records for replica in cluster.replicas.values())


def test_a_follower_that_is_far_behind_begins_where_the_leader_does(cluster: Cluster) -> None:
    for _ in range(5):
        cluster.produce(1)
    cluster.fetch(2)
    cluster.crash(3)
    cluster.replicas[1].apply_next()
    cluster.fetch(2)
    leader = cluster.replicas[1].partition
    assert leader.high_watermark == 5
    leader.deletion.delete(4)
    cluster.run_rounds(5)
    follower = cluster.replicas[3].partition
    assert follower.log.log_start_offset == 4
    assert cluster.replicas[3].records() == cluster.replicas[1].records()
    assert cluster.replicas[2].partition.log.log_start_offset == 4


def test_deleted_records_are_gone_when_all_live_replicas_have_deleted_them(cluster: Cluster) -> None:
    for _ in range(3):
        cluster.produce(1)
    cluster.run_rounds(3)
    leader = cluster.replicas[1].partition
    done: list[int] = []
    assert leader.deletion.delete(2) == 2
    leader.deletion.when_deleted(2, lambda: done.append(1))
    for broker in (2, 3, 2):
        cluster.fetch(broker)
    assert (leader.deletion.low_watermark, done) == (0, [])
    cluster.fetch(3)
    assert (leader.deletion.low_watermark, done) == (2, [1])


def test_deleted_records_are_gone_on_in_sync_replicas_before_they_fetch(cluster: Cluster) -> None:
    """Found by the simulator (cluster5-1100278): it was elected, and had records whose deletion was acknowledged."""
    for _ in range(3):
        cluster.produce(1)
    cluster.run_rounds(3)
    cluster.elect(2)
    for broker in (2, 1):
        cluster.replicas[broker].apply_next()
    cluster.fetch(1)
    leader = cluster.replicas[2].partition
    assert leader.is_leader
    done: list[int] = []
    leader.deletion.delete(2)
    leader.deletion.when_deleted(2, lambda: done.append(1))
    for _ in range(3):
        cluster.fetch(1)
    assert done == []
    cluster.now_ms += 40_000
    for _ in range(2):
        cluster.fetch(1)
    leader.followers.shrink_isr()
    cluster.alter(2)
    assert set(leader.isr) == {1, 2}
    assert done == [1], "out of sync it cannot be elected"


def test_a_start_that_was_cut_off_counts_only_once_it_is_written_again(cluster: Cluster) -> None:
    """Or deleted records would come back when its log is opened again."""
    for _ in range(5):
        cluster.produce(1)
    cluster.run_rounds(5)
    follower = cluster.replicas[3].partition
    follower.replicated.advance(5, 4)
    follower.replicated.start_persisted(4)
    follower.replicated.truncate_to(2)
    assert follower.replicated.reported_start == 2
    cluster.fetch(3)
    cluster.replicas[3].persists_starts = False
    follower.replicated.advance(5, 4)
    assert (follower.log.log_start_offset, follower.replicated.reported_start) == (4, 2)


def test_a_leader_that_lost_the_end_of_its_log_makes_followers_cut_theirs(cluster: Cluster) -> None:
    """As after an unclean election: the leader has less, of the same epoch."""
    for _ in range(3):
        cluster.produce(1)
    cluster.run_rounds(5)
    cluster.replicas[2].partition.replicated.truncate_to(1)
    cluster.elect(2)
    cluster.run_rounds(5)
    assert [len(replica.records()) for replica in cluster.replicas.values()] == [1, 1, 1]
    assert cluster.replicas[1].partition.high_watermark == 1


def test_follower_copies_what_an_unclean_leader_wrote_below_its_start(cluster: Cluster) -> None:
    """Or records that the leader acknowledged are gone once the follower leads."""
    for _ in range(5):
        cluster.produce(1)
    cluster.run_rounds(5)
    leader = cluster.replicas[1].partition
    leader.deletion.delete(4)
    cluster.replicas[2].partition.replicated.truncate_to(1)
    cluster.elect(2)
    for replica in cluster.replicas.values():
        replica.apply_next()
    for _ in range(6):
        cluster.produce(2)
    cluster.run_rounds(5)
    assert [offset for offset, _ in cluster.replicas[2].records()] == list(range(7))
    assert cluster.replicas[1].records() == cluster.replicas[2].records()[1:]


def test_empty_follower_copies_what_an_unclean_leader_wrote(cluster: Cluster) -> None:
    for _ in range(5):
        cluster.produce(1)
    cluster.run_rounds(5)
    first = cluster.replicas[1]
    first.partition.deletion.delete(5)
    cluster.crash(1)
    cluster.replicas[2].partition.replicated.truncate_to(1)
    cluster.elect(2)
    for replica in (cluster.replicas[2], cluster.replicas[3]):
        replica.hear_the_sum()
    for _ in range(6):
        cluster.produce(2)
    first.start(log_start_offset=5)
    first.reported.append(cluster.state)
    cluster.run_rounds(5)
    assert first.records() == cluster.replicas[2].records()[1:]


def test_follower_learns_of_commits_reported_beside_a_divergence(cluster: Cluster) -> None:
    """It takes nothing else from that answer. Consumers may read from it, and there may be no next append."""
    for _ in range(3):
        cluster.produce(1)
    cluster.run_rounds(5)
    cluster.elect(3)
    cluster.replicas[3].apply_next()
    cluster.produce(3, acks_all=False)
    cluster.crash(3)
    cluster.run_rounds(5)
    follower = cluster.replicas[3].partition
    assert (follower.log.end_offset, follower.high_watermark) == (3, 3)


def test_small_answers_bring_everything_in_time(cluster: Cluster) -> None:
    for _ in range(20):
        cluster.produce(1, records=3)
    cluster.fetch_bytes = 100
    for _ in range(21):
        cluster.fetch(2)
    assert cluster.replicas[2].records() == cluster.replicas[1].records()


def test_a_follower_joins_the_isr_only_with_all_that_is_committed(cluster: Cluster) -> None:
    leader = cluster.replicas[1]
    cluster.fetch(3)
    cluster.leave_behind(2)
    for _ in range(3):
        cluster.produce(1)
    for _ in range(2):
        cluster.fetch(3)
    assert leader.partition.high_watermark == 3
    cluster.fetch_bytes = 1
    cluster.fetch(2)
    assert leader.proposals == [], "it has nothing yet"
    for _ in range(3):
        cluster.fetch(2)
    assert [proposal.isr for proposal, _ in leader.proposals] == [(1, 3, 2)]


def test_new_leader_admits_no_follower_below_its_epoch_start(cluster: Cluster) -> None:
    """Its high watermark may be far behind what is committed: the end of its log at the start is what counts."""
    cluster.fetch(3)
    cluster.leave_behind(2)
    for _ in range(3):
        cluster.produce(1)
        cluster.fetch(3)
    cluster.elect(3)
    leader = cluster.replicas[3]
    while leader.reported:
        leader.apply_next()
    while cluster.replicas[2].reported:
        cluster.replicas[2].apply_next()
    assert leader.partition.high_watermark < 3
    cluster.fetch_bytes = 1
    while cluster.replicas[2].partition.log.end_offset < 2:
        cluster.fetch(2)
    assert leader.proposals == []
    for _ in range(2):
        cluster.fetch(2)
    assert len(leader.proposals) == 1


def test_the_high_watermark_waits_for_who_may_be_in_the_isr_already(cluster: Cluster) -> None:
    """The controller took broker 2 in, the answer is lost, and it falls silent: nothing is committed without it."""
    leader = cluster.replicas[1]
    cluster.fetch(3)
    cluster.leave_behind(2)
    cluster.fetch(2)
    leader.reported.clear()
    cluster.alter(1, lose_answer=True)
    leader.reported.clear()
    assert cluster.state.isr == (1, 3, 2)
    cluster.alter(1)
    assert leader.partition.followers.proposal is not None
    assert leader.partition.followers.proposal.refused, "its epoch is that of the state before"
    cluster.now_ms += 40_000
    cluster.produce(1)
    for _ in range(2):
        cluster.fetch(3)
    assert leader.partition.high_watermark == 0
    assert cluster.acked == []


def test_image_older_than_the_controllers_answer_changes_nothing(cluster: Cluster) -> None:
    leader = cluster.replicas[1]
    cluster.fetch(3)
    before = cluster.state
    cluster.leave_behind(2)
    assert leader.partition.isr == (1, 3)
    leader.partition.apply_state(before)
    assert leader.partition.isr == (1, 3)


def test_what_followers_had_in_an_earlier_leadership_counts_no_more(cluster: Cluster) -> None:
    cluster.produce(1)
    cluster.run_rounds(3)
    cluster.elect(2)
    for broker in (1, 2):
        while cluster.replicas[broker].reported:
            cluster.replicas[broker].apply_next()
    cluster.fetch(1)
    cluster.elect(1)
    leader = cluster.replicas[1]
    while leader.reported:
        leader.apply_next()
    assert {f.end_offset for f in leader.partition.followers.progress.values()} == {-1}
    cluster.produce(1)
    assert leader.partition.high_watermark == 1


def test_follower_progress_before_a_missed_election_no_longer_counts(cluster: Cluster) -> None:
    """It led, and leads again; the leader in between made the others truncate records that they had acknowledged."""
    first, second, third = cluster.replicas.values()
    cluster.run_rounds(1)
    for _ in range(3):
        cluster.produce(1)
    for _ in range(2):
        cluster.fetch(3)
    assert first.partition.followers.progress[3].end_offset == 3
    cluster.elect(2)
    second.apply_next()
    third.apply_next()
    cluster.fetch(3)
    assert third.partition.log.end_offset == 0
    cluster.crash(2)
    assert cluster.state.leader == 1
    first.hear_the_sum()
    assert first.partition.leader_epoch == cluster.state.leader_epoch
    assert first.partition.high_watermark == 0
    assert cluster.acked == [], "only one replica has it"
    third.apply_next()
    for _ in range(2):
        cluster.fetch(3)
    assert (first.partition.high_watermark, len(cluster.acked)) == (3, 3)


class Replication(RuleBasedStateMachine):
    @initialize(min_isr=st.integers(1, 2))
    def begin(self, min_isr: int) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.cluster = Cluster(Path(self.directory.name), min_insync_replicas=min_isr)
        for replica in self.cluster.replicas.values():
            replica.apply_next()
        self.min_isr = min_isr
        self.answers: dict[int, tuple[int, bytes, tuple[int, int]]] = {}
        self.high_watermarks: dict[tuple[int, int, int], int] = {}

    @rule(broker=brokers, acks_all=st.booleans(), records=st.integers(1, 3))
    def produce(self, broker: int, acks_all: bool, records: int) -> None:
        if self.cluster.replicas[broker].alive:
            self.cluster.produce(broker, acks_all=acks_all, records=records)

    @rule(broker=brokers)
    def fetch(self, broker: int) -> None:
        if self.cluster.replicas[broker].alive:
            self.cluster.fetch(broker)

    @rule(broker=brokers)
    def ask(self, broker: int) -> None:
        """A fetch is answered, and the answer is on its way."""
        replica = self.cluster.replicas[broker]
        if not replica.alive:
            return
        asked = replica.ask()
        if asked is not None and self.cluster.replicas[asked[0]].alive:
            self.answers[broker] = asked[0], self.cluster.replicas[asked[0]].serve(asked[1]), replica.row

    @rule(broker=brokers)
    def take(self, broker: int) -> None:
        answer = self.answers.pop(broker, None)
        if answer is not None and self.cluster.replicas[broker].alive:
            self.cluster.replicas[broker].take(*answer)

    @rule(broker=brokers)
    def apply_next(self, broker: int) -> None:
        replica = self.cluster.replicas[broker]
        if replica.alive and replica.reported:
            replica.apply_next()

    @rule(broker=brokers)
    def hear_the_sum(self, broker: int) -> None:
        replica = self.cluster.replicas[broker]
        if replica.alive and replica.reported:
            replica.hear_the_sum()

    @rule(broker=brokers, lose_answer=st.booleans())
    def alter(self, broker: int, lose_answer: bool) -> None:
        replica = self.cluster.replicas[broker]
        if replica.alive and replica.proposals:
            self.cluster.alter(broker, lose_answer=lose_answer)

    @rule(rounds=st.integers(1, 2))
    def all_is_well_for_a_while(self, rounds: int) -> None:
        """Deep states are reached from where things have gone on."""
        for _ in range(rounds):
            for replica in self.cluster.replicas.values():
                while replica.alive and replica.reported:
                    replica.apply_next()
            for replica in self.cluster.replicas.values():
                if replica.alive:
                    self.cluster.fetch(replica.id)

    @rule(broker=brokers)
    def leave_behind(self, broker: int) -> None:
        self.cluster.leave_behind(broker)

    @rule(broker=brokers)
    def crash(self, broker: int) -> None:
        if self.cluster.replicas[broker].alive:
            self.answers.pop(broker, None)
            self.cluster.crash(broker)

    @rule(broker=brokers)
    def restart(self, broker: int) -> None:
        if not self.cluster.replicas[broker].alive:
            self.cluster.restart(broker)

    @rule(broker=brokers)
    def elect(self, broker: int) -> None:
        state = self.cluster.state
        if broker in state.isr and self.cluster.replicas[broker].alive and state.leader not in (broker, NO_LEADER):
            self.cluster.elect(broker)

    @rule(broker=brokers, milliseconds=st.sampled_from((10, 1_000, 40_000)))
    def time_passes(self, broker: int, milliseconds: int) -> None:
        self.cluster.now_ms += milliseconds
        replica = self.cluster.replicas[broker]
        if replica.alive:
            replica.partition.followers.shrink_isr()

    @precondition(lambda self: hasattr(self, "cluster"))
    @invariant()
    def high_watermarks_of_a_leader_only_grow(self) -> None:
        for replica in self.cluster.replicas.values():
            partition = getattr(replica, "partition", None)
            if replica.alive and partition is not None and partition.is_leader:
                key = replica.id, replica.epoch, partition.leader_epoch
                assert partition.high_watermark >= self.high_watermarks.get(key, 0)
                assert partition.high_watermark <= partition.log.end_offset
                self.high_watermarks[key] = partition.high_watermark

    @precondition(lambda self: hasattr(self, "cluster"))
    @invariant()
    def members_of_the_isr_have_all_that_is_acknowledged(self) -> None:
        acked = self.cluster.acked
        for broker_id in self.cluster.state.isr:
            replica = self.cluster.replicas[broker_id]
            if replica.alive and acked:
                assert set(acked) <= set(replica.records())

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        self.cluster.run_rounds()
        leader = self.cluster.leader()
        assert leader is not None
        records = leader.records()
        assert set(self.cluster.acked) <= set(records)
        assert set(self.cluster.state.isr) == {1, 2, 3}
        for replica in self.cluster.replicas.values():
            assert replica.records() == records
            epochs = [each.partition.log.history.leader_epochs for each in (replica, leader)]
            for offset, _ in records:
                assert epochs[0].epoch_for(offset) == epochs[1].epoch_for(offset)
        assert leader.partition.high_watermark == leader.partition.log.end_offset
        self.directory.cleanup()


TestReplication = Replication.TestCase
TestReplication.settings = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
