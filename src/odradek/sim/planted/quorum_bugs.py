"""Bugs of Raft that are planted on purpose in the quorum's state machine: see `planted`, which searches them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import TruncateTo
from odradek.kraft.raft.messages import NO_NODE
from odradek.kraft.raft.roles import Leader, ParkedFetch, Progress
from odradek.sim.planted.cluster_bugs import Row

QUORUM_BUGS: Final[list[Row]] = []

_RAFT: Final = "odradek.kraft.raft"
_QUORUM: Final = f"{_RAFT}.quorum:Quorum"
_LOG: Final = f"{_RAFT}.log_index:LogIndex"
_ELECTIONS: Final = f"{_RAFT}.elections:Elections"
_REPLICATION: Final = f"{_RAFT}.replication:Replication"


def _bug(
    name: str, story: str, *targets: str, profile: str = "quorum"
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def register(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
        QUORUM_BUGS.append((name, story, profile, targets, make))
        return make

    return register


# --- elections ---


@_bug("vote not persisted", "a voter forgets at a restart for whom it voted", f"{_QUORUM}.durable_state")
def _(right: Any) -> Any:
    def durable_state(self: Any) -> Any:
        state = right(self)
        state.voted_id = NO_NODE
        return state

    return durable_state


@_bug("epoch not persisted", "a voter returns to the epoch of its log at a restart", f"{_QUORUM}.durable_state")
def _(right: Any) -> Any:
    def durable_state(self: Any) -> Any:
        state = right(self)
        state.leader_epoch, state.voted_id, state.leader_id = self.log.end.epoch, NO_NODE, NO_NODE
        return state

    return durable_state


@_bug("vote given twice", "a voter votes for every candidate of an epoch", f"{_ELECTIONS}.can_grant")
def _(right: Any) -> Any:
    def can_grant(self: Any, request: Any) -> bool:
        if request.is_pre_vote:
            return bool(right(self, request))
        return bool(self._quorum.is_log_current(request.log_end)) and not isinstance(self._quorum.role, Leader)

    return can_grant


@_bug(
    "log of a candidate not compared", "a voter votes for a candidate that lacks records", f"{_QUORUM}.is_log_current"
)
def _(right: Any) -> Any:
    return lambda self, log_end: True


@_bug("longer log wins", "a voter compares the length of logs before their epochs", f"{_QUORUM}.is_log_current")
def _(right: Any) -> Any:
    return lambda self, log_end: tuple(log_end) >= tuple(self.log.end)


@_bug("epochs of logs ignored", "a voter compares the lengths of logs alone", f"{_QUORUM}.is_log_current")
def _(right: Any) -> Any:
    return lambda self, log_end: log_end[0] >= self.log.end_offset


@_bug("half is a majority", "one vote less than a majority elects a leader", f"{_QUORUM}.is_majority",
      profile="quorum5")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, replicas: len(self.voters.ids & set(replicas)) >= len(self.voters.ids) // 2


@_bug("pre-vote counts as a vote", "a candidate counts the votes that it got before its epoch",
      f"{_QUORUM}.become_candidate")  # fmt: skip
def _(right: Any) -> Any:
    def become_candidate(self: Any) -> None:
        granted = set(self.role.granted)
        right(self)
        self.role.granted |= granted

    return become_candidate


@_bug("leader leads again", "a leader that restarts continues to lead its epoch", f"{_QUORUM}._first_role")
def _(right: Any) -> Any:
    def first_role(self: Any) -> Any:
        if self.leader_id == self.identity.node_id:
            return Leader(self.log.end_offset - 1, self.now_ms)
        return right(self)

    return first_role


@_bug("epoch keeps its leader", "a replica enters an epoch and keeps the leader and the vote of the one before",
      f"{_QUORUM}.become_unattached")  # fmt: skip
def _(right: Any) -> Any:
    def become_unattached(self: Any, epoch: int) -> None:
        leader, vote = self.leader_id, self.voted
        right(self, epoch)
        self.leader_id, self.voted = leader, vote

    return become_unattached


@_bug("resigned for ever", "a leader that resigned takes part in no election before another one wins",
      f"{_QUORUM}.become_resigned", f"{_QUORUM}._first_role")  # fmt: skip
def _(right: Any) -> Any:
    def resigned(self: Any, *successors: Any) -> Any:
        role = right(self, *successors)
        for each in (self.role if hasattr(self, "role") else None, role):
            if each is not None:
                each.deadline_ms = float("inf")
        return role

    return resigned


# --- the log of the leader ---


@_bug("commit of an older epoch by counting", "a leader commits records of earlier epochs that a majority has",
      f"{_REPLICATION}.update_high_watermark")  # fmt: skip
def _(right: Any) -> Any:
    def update(self: Any, leader: Any) -> None:
        start, leader.epoch_start = leader.epoch_start, -1
        right(self, leader)
        leader.epoch_start = start

    return update


@_bug("commit without a majority", "a leader commits what one voter has", f"{_REPLICATION}.update_high_watermark")
def _(right: Any) -> Any:
    def update(self: Any, leader: Any) -> None:
        ends = [self._quorum.log.synced_offset, *(each.end_offset for each in leader.progress.values())]
        if max(ends) > leader.epoch_start:
            leader.has_committed = True
            self._quorum.advance_high_watermark(max(ends))

    return update


@_bug("observers count", "a leader counts an observer as a voter", f"{_REPLICATION}.update_high_watermark")
def _(right: Any) -> Any:
    def update(self: Any, leader: Any) -> None:
        quorum = self._quorum
        ends = sorted([quorum.log.synced_offset, *(each.end_offset for each in leader.progress.values())], reverse=True)
        needed = len(quorum.voters.ids) // 2
        if len(ends) > needed and ends[needed] > leader.epoch_start:
            leader.has_committed = True
            quorum.advance_high_watermark(ends[needed])

    return update


@_bug("leader counts what is not synced", "a leader counts its own records before they are on its disk",
      f"{_REPLICATION}.update_high_watermark")  # fmt: skip
def _(right: Any) -> Any:
    def update(self: Any, leader: Any) -> None:
        self._quorum.log.synced_offset = self._quorum.log.end_offset
        right(self, leader)

    return update


@_bug("fetch position before the sync", "a follower acknowledges records before they are on its disk",
      f"{_REPLICATION}._fetch_from")  # fmt: skip
def _(right: Any) -> Any:
    def fetch_from(self: Any, server: int) -> None:
        log = self._quorum.log
        synced, log.synced_offset = log.synced_offset, log.end_offset
        right(self, server)
        log.synced_offset = synced

    return fetch_from


@_bug("divergence not answered", "a leader answers a diverging replica with its next records",
      f"{_LOG}.check_position")  # fmt: skip
def _(right: Any) -> Any:
    def check_position(self: Any, position: Any) -> Any:
        found = right(self, position)
        return None if type(found) is LogEnd and position.offset <= self.end_offset else found

    return check_position


@_bug("divergence by offset alone", "a leader looks at the end of a diverging epoch as the end of its own log",
      f"{_LOG}.end_of_epoch")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, epoch: LogEnd(self.end_offset, min(epoch, self.end.epoch))


# --- the log of the follower ---


@_bug("truncation one record short", "a follower keeps one record that the leader lacks", f"{_LOG}.common_offset")
def _(right: Any) -> Any:
    return lambda self, diverging: min(self.end_offset, right(self, diverging) + 1)


@_bug("no truncation", "a follower keeps the records that the leader lacks", f"{_REPLICATION}._truncate")
def _(right: Any) -> Any:
    return lambda self, diverging: None


@_bug("truncation to the log start", "a follower removes its complete log where a leader reports a divergence",
      f"{_REPLICATION}._truncate")  # fmt: skip
def _(right: Any) -> Any:
    def truncate(self: Any, diverging: Any) -> None:
        quorum = self._quorum
        offset = quorum.log.start.offset
        quorum.log.truncate_to(offset)
        quorum.change_log(TruncateTo(offset))

    return truncate


@_bug("high watermark from any leader", "a replica commits its log to its end as soon as it has a leader",
      f"{_QUORUM}.become_follower")  # fmt: skip
def _(right: Any) -> Any:
    def become_follower(self: Any, epoch: int, leader_id: int) -> None:
        right(self, epoch, leader_id)
        self.advance_high_watermark(self.log.end_offset)

    return become_follower


@_bug("fetch that never ends", "a leader does not answer fetches for which it has no records",
      f"{_REPLICATION}._answer_parked")  # fmt: skip
def _(right: Any) -> Any:
    def answer_parked(self: Any, leader: Any) -> None:
        idle = [each for each in leader.parked if each.request.log_end.offset >= self._quorum.log.end_offset]
        leader.parked = [each for each in leader.parked if each not in idle]
        right(self, leader)
        leader.parked += [ParkedFetch(each.token, each.request, float("inf")) for each in idle]

    return answer_parked


# --- snapshots ---


@_bug("snapshot without its epoch", "a log that begins with a snapshot forgets the epoch of its last record",
      f"{_LOG}.replace_by")  # fmt: skip
def _(right: Any) -> Any:
    def replace_by(self: Any, snapshot: Any, size: int) -> None:
        right(self, snapshot, size)
        self.start = LogEnd(snapshot.end_offset, 0)

    return replace_by


@_bug("records after a snapshot stay", "a replica that installs a snapshot keeps the end of its log",
      f"{_LOG}.replace_by")  # fmt: skip
def _(right: Any) -> Any:
    def replace_by(self: Any, snapshot: Any, size: int) -> None:
        end, epochs = self.end_offset, self._epochs
        right(self, snapshot, size)
        if end > snapshot.end_offset or epochs:
            self.end_offset, self._epochs = max(end, snapshot.end_offset), epochs

    return replace_by


@_bug("deleted records not noticed", "a leader sends no snapshot in place of deleted records", f"{_LOG}.check_position")
def _(right: Any) -> Any:
    def check_position(self: Any, position: Any) -> Any:
        found = right(self, position)
        return LogEnd(self.start.offset, self.start.epoch) if type(found).__name__ == "CheckpointId" else found

    return check_position


@_bug("snapshot continued at another leader", "a follower continues with the bytes of another snapshot",
      f"{_REPLICATION}._begin_snapshot")  # fmt: skip
def _(right: Any) -> Any:
    def begin_snapshot(self: Any, role: Any, found: Any) -> None:
        before = getattr(self, "_bytes_before", 0)
        right(self, role, found)
        role.snapshot_bytes, self._bytes_before = before, 256

    return begin_snapshot


@_bug("progress forgotten", "a leader forgets how far its followers are when one of them fetches",
      f"{_REPLICATION}.on_fetch")  # fmt: skip
def _(right: Any) -> Any:
    def on_fetch(self: Any, request: Any, token: Any) -> None:
        if isinstance(self._quorum.role, Leader):
            self._quorum.role.progress = {self._quorum.voters.key_of(request.replica): Progress()}
        right(self, request, token)

    return on_fetch


# --- voters of the log ---

_HISTORY: Final = f"{_RAFT}.voter_history:VoterHistory"
_VOTERS: Final = f"{_RAFT}.voters:VoterSet"
_CHANGES: Final = f"{_RAFT}.voter_changes:VoterChanges"


@_bug("voters in force once committed", "a replica counts with the voters of the newest committed record",
      f"{_QUORUM}.voters", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    def voters(self: Any) -> Any:
        sets = self.log.history._sets
        committed = [each for offset, each in sets if offset < max(1, self.high_watermark)]
        return committed[-1] if committed else right.fget(self)

    return property(voters)


@_bug("voters not undone by a truncation", "a replica keeps the voters of a record that it has removed",
      f"{_HISTORY}.truncate_to", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, offset: None


@_bug("voters of a snapshot not taken", "a replica that installs a snapshot keeps the voters of its former log",
      f"{_REPLICATION}.on_snapshot_installed", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, event: None


@_bug("two changes at once", "a leader changes voters before the change before is committed",
      f"{_CHANGES}.has_change_under_way", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, leader: False


@_bug("change before a record of the epoch", "a leader changes voters before it has committed a record of its epoch",
      f"{_CHANGES}._problem_of_state", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    def problem_of_state(self: Any, leader: Any) -> Any:
        before, leader.has_committed = leader.has_committed, True
        found = right(self, leader)
        leader.has_committed = before
        return found

    return problem_of_state


@_bug("removed leader counts itself", "a leader that has removed itself still counts its own log",
      f"{_REPLICATION}.update_high_watermark", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    def update(self: Any, leader: Any) -> None:
        quorum = self._quorum
        right(self, leader)
        if not quorum.is_voter:
            ends = [quorum.log.synced_offset, *(leader.progress_of(each).end_offset for each in quorum.other_keys)]
            committed = sorted(ends, reverse=True)[len(quorum.voters.ids) // 2]
            if committed > leader.epoch_start:
                quorum.advance_high_watermark(committed)

    return update


@_bug("removed voter does not stand", "a replica starts no election though the log with its removal is the longest",
      f"{_ELECTIONS}.can_stand", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    return property(lambda self: self._quorum.is_voter)


@_bug("removed leader stays", "a leader that has removed itself does not resign", f"{_ELECTIONS}._is_removed",
      profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self: False


@_bug("vote in the place of another directory", "a replica on a new disk votes as the voter on the former one",
      f"{_ELECTIONS}._is_meant", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    return lambda self, key: key.node_id == self._quorum.identity.node_id


@_bug("new disk counts as the former one", "a leader counts a replica whose disk was replaced as the voter before",
      f"{_VOTERS}.key_of", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    def key_of(self: Any, replica: Any) -> Any:
        voter = self.find(replica.node_id)
        return replica if voter is None else voter.key

    return key_of


@_bug("new disk stands for election", "a replica on a new disk believes that it is the voter on the former one",
      f"{_QUORUM}.is_voter", profile="voters")  # fmt: skip
def _(right: Any) -> Any:
    return property(lambda self: self.identity.node_id in self.voters.ids)
