"""Until when a leader knows that a majority of the voters has followed it: heartbeats of brokers depend on it."""

from __future__ import annotations

import math

import pytest

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import Answered, Propose, Received
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.messages import BeginEpochRequest, FetchRequest, SnapshotRequest, VoteAnswer
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.quorum_state import QuorumStateData
from tests.unit.kraft.raft.raft_bench import CLUSTER, Replica
from tests.unit.kraft.raft.test_raft_reconfiguration import leader_of
from tests.unit.kraft.raft.test_voters import key

UNKNOWN = -math.inf
CONNECTION, OTHER = 71, 72
FIRST_RECORD = LogEnd(1, 6)


def a_leader(*others: int, log: LogIndex | None = None) -> Replica:
    """Replica 1 as the leader of epoch 6 with these other voters."""
    replica = Replica(voters=(1, *others), log=log, state=QuorumStateData(leader_epoch=5))
    replica.wait(1001)
    majority = others[: (len(others) + 1) // 2]
    for epoch in (5, 6):
        for each in [each for each in replica.last.sends if each.to in majority]:
            replica.step(Answered(each.request_id, VoteAnswer(ErrorCode.NONE, -1, epoch, True)))
    replica.sync()
    assert replica.role == "Leader"
    assert replica.machine.followed_ms == UNKNOWN
    return replica


def fetched(
    replica: Replica,
    at_ms: float,
    *,
    node: int = 2,
    connection: int | None = CONNECTION,
    epoch: int = 6,
    wait_ms: float = 0.0,
    end: LogEnd = FIRST_RECORD,
) -> float:
    """Let the leader read a fetch at this time; until when it is known to be followed then."""
    replica.now_ms = at_ms
    # Where it waits, it has nothing to learn: no new record, and no new high watermark.
    request = FetchRequest(CLUSTER, node, epoch, end, 1, wait_ms, connection=connection)
    replica.step(Received(request, f"{node} at {at_ms}"))
    return replica.machine.followed_ms


def test_fetch_after_an_answer_proves_that_its_sender_followed() -> None:
    leader = a_leader(2, 3)
    assert fetched(leader, 2000) == UNKNOWN, "it may have been sent at any time"
    assert fetched(leader, 2010) == 2000
    assert fetched(leader, 2400) == 2010


def test_fetch_that_waited_unread_is_no_newer_than_the_answer_before_it() -> None:
    leader = a_leader(2, 3)
    fetched(leader, 2000)
    fetched(leader, 2010)
    # The leader stood still, and reads what the voter sent long before.
    assert fetched(leader, 9000) == 2010


def test_answer_that_waited_for_records_counts_from_when_it_left() -> None:
    leader = a_leader(2, 3)
    fetched(leader, 2000, wait_ms=500)
    leader.now_ms = 2300
    assert leader.step(Propose(6, 1, b"x")).replies
    assert fetched(leader, 2301, end=LogEnd(2, 6)) == 2300


def test_fetch_on_another_connection_proves_nothing() -> None:
    leader = a_leader(2, 3)
    fetched(leader, 2000)
    assert fetched(leader, 2010, connection=OTHER) == UNKNOWN
    assert fetched(leader, 2020, connection=CONNECTION) == UNKNOWN
    assert fetched(leader, 2030, connection=CONNECTION) == 2020


def test_fetch_without_a_known_connection_proves_nothing() -> None:
    leader = a_leader(2, 3)
    fetched(leader, 2000, connection=None)
    assert fetched(leader, 2010, connection=None) == UNKNOWN


def test_answer_with_an_error_proves_nothing() -> None:
    """The fetch that it answers was sent in another epoch: the next one may be on its way already."""
    leader = a_leader(2, 3)
    fetched(leader, 2000, epoch=5)
    assert fetched(leader, 2010) == UNKNOWN


def test_fetches_of_another_voter_or_of_an_observer_prove_nothing() -> None:
    leader = a_leader(2, 3)
    fetched(leader, 2000, node=9)
    fetched(leader, 2010, node=9)
    assert leader.machine.followed_ms == UNKNOWN
    fetched(leader, 2020, node=2)
    assert fetched(leader, 2030, node=3) == UNKNOWN


def test_newest_majority_counts() -> None:
    leader = a_leader(2, 3, 4, 5)
    for node, first in ((2, 2000), (3, 2100), (4, 2200)):
        assert fetched(leader, first, node=node) == (2000 if node == 4 else UNKNOWN)
        fetched(leader, first + 50, node=node)
    assert leader.machine.followed_ms == 2100, "3 and 4, with the leader"
    fetched(leader, 2300, node=2)
    assert leader.machine.followed_ms == 2100, "2 has followed until 2050, as far as is known"
    fetched(leader, 2310, node=2)
    assert leader.machine.followed_ms == 2200


def test_older_answer_does_not_take_back_what_is_known() -> None:
    leader = a_leader(2, 3)
    fetched(leader, 2000)
    fetched(leader, 2010)
    fetched(leader, 2020, connection=OTHER, wait_ms=500)
    assert leader.machine.followed_ms == 2000


@pytest.mark.parametrize("position", [0, 99])
def test_voter_that_fetches_a_snapshot_follows(position: int) -> None:
    """Whether the leader has the bytes that it asks for or not."""
    snapshot = CheckpointId(10, 3)
    leader = a_leader(2, 3, log=LogIndex(start=LogEnd(*snapshot), snapshot_size=50))
    assert fetched(leader, 2000, end=LogEnd(0, 0)) == UNKNOWN
    for at_ms, followed in ((2010, 2000), (2020, 2010)):
        leader.now_ms = at_ms
        leader.ask(SnapshotRequest(CLUSTER, 2, 6, snapshot, position, connection=CONNECTION))
        assert leader.machine.followed_ms == followed


def test_voter_whose_log_diverges_follows() -> None:
    leader = a_leader(2, 3, log=LogIndex(epochs=[(3, 0)], end_offset=4))
    assert fetched(leader, 2000, end=LogEnd(9, 3)) == UNKNOWN
    assert fetched(leader, 2010, end=LogEnd(4, 3)) == 2000


def test_replica_on_another_disk_is_not_the_voter() -> None:
    leader = leader_of(1, 2, 3)
    for directory, first, expected in ((7, 3000, UNKNOWN), (0, 4000, 4000)):
        for at_ms in (first, first + 10):
            leader.now_ms = at_ms
            end = leader.machine.quorum.log.end
            request = FetchRequest(CLUSTER, 2, 2, end, 0, 0.0, key(2, directory).directory_id, CONNECTION)
            leader.step(Received(request, "token"))
        assert leader.machine.followed_ms == expected


def test_sole_voter_has_no_successor() -> None:
    replica = Replica(voters=(1,))
    assert replica.role == "Leader"
    assert replica.machine.followed_ms == math.inf


def test_deposed_leader_is_not_followed() -> None:
    leader = a_leader(2, 3)
    fetched(leader, 2000)
    assert fetched(leader, 2010) == 2000
    leader.ask(BeginEpochRequest(CLUSTER, 1, 7, 2))
    assert leader.machine.followed_ms == UNKNOWN
