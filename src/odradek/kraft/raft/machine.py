"""The state machine of one replica of the metadata quorum: an event and the time in, effects out.

It reads no clock, no file, no socket and no source of randomness. Sources: KIP-595, KIP-630, KIP-853, KIP-996; Kafka's
`KafkaRaftClient`.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.kraft.raft.effects import (
    Answered,
    Effects,
    Event,
    Propose,
    Received,
    Resign,
    SnapshotInstalled,
    SnapshotWritten,
    Synced,
)
from odradek.kraft.raft.elections import Elections
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.messages import (
    Answer,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    SnapshotAnswer,
    SnapshotRequest,
    VoteAnswer,
    VoterChangeAnswer,
    VoteRequest,
)
from odradek.kraft.raft.quorum import NEVER, Identity, Quorum
from odradek.kraft.raft.replication import Replication
from odradek.kraft.raft.requests import Pending
from odradek.kraft.raft.roles import Ballot, Follower, Leader, Resigned
from odradek.kraft.raft.settings import QuorumSettings
from odradek.kraft.raft.voter_changes import VoterChanges
from odradek.wire.messages.quorum_state import QuorumStateData


class RaftMachine:
    """A voter or an observer. `state` and `log` are what its disk holds; `jitter` returns numbers from 0 to below 1.

    Times are milliseconds of a clock that a start may reset; a time before the last one counts as the last one.
    """

    def __init__(
        self,
        identity: Identity,
        settings: QuorumSettings,
        log: LogIndex,
        state: QuorumStateData,
        jitter: Callable[[], float],
        now_ms: float,
    ) -> None:
        self.quorum = Quorum(identity, settings, log, state, jitter, now_ms)
        """The epoch, the role and the log of this replica, to read."""
        self._elections = Elections(self.quorum)
        self._replication = Replication(self.quorum)
        self._changes = VoterChanges(self.quorum)

    @property
    def followed_ms(self) -> float:
        """See `Replication.followed_ms`."""
        return self._replication.followed_ms

    def step(self, event: Event, now_ms: float) -> Effects:
        """Take one event. Raises CorruptMetadata if the replica must stop: committed records would be lost."""
        quorum = self.quorum
        quorum.now_ms = max(quorum.now_ms, now_ms)
        if isinstance(event, Received):
            self._receive(event)
        elif isinstance(event, Answered):
            self._complete(event)
        elif isinstance(event, Propose):
            self._replication.propose(event)
        elif isinstance(event, Synced):
            self._replication.on_synced(event.end)
        elif isinstance(event, SnapshotWritten):
            self._replication.on_snapshot_written(event)
        elif isinstance(event, SnapshotInstalled):
            self._replication.on_snapshot_installed(event)
        elif isinstance(event, Resign) and isinstance(quorum.role, Leader):
            self._elections.resign(quorum.role)
        quorum.requests.expire(quorum.now_ms)
        quorum.requests.forget_old_epochs(quorum.epoch)
        self._changes.finish()  # a leader that has removed itself resigns next
        self._elections.poll()
        quorum.requests.forget_old_epochs(quorum.epoch)
        self._replication.poll()
        self._changes.finish()
        self._changes.poll()
        return quorum.take_effects(self._next_deadline())

    def _receive(self, event: Received) -> None:
        request = event.request
        if isinstance(request, VoteRequest):
            self._elections.on_vote(request, event.token)
        elif isinstance(request, BeginEpochRequest):
            self._elections.on_begin_epoch(request, event.token)
        elif isinstance(request, EndEpochRequest):
            self._elections.on_end_epoch(request, event.token)
        elif isinstance(request, FetchRequest):
            self._replication.on_fetch(request, event.token)
        elif isinstance(request, SnapshotRequest):
            self._replication.on_fetch_snapshot(request, event.token)
        else:
            self._changes.on_request(request, event.token)

    def _complete(self, event: Answered) -> None:
        found = self.quorum.requests.complete(event.request_id)
        if found is None:
            return
        if event.answer is None or not self._take_answer(found, event.answer):
            self.quorum.requests.pause(found, self.quorum.now_ms)
        if event.is_refused:
            self._elections.on_refused(found.to)

    def _take_answer(self, found: Pending, answer: Answer) -> bool:
        request = found.request
        if isinstance(request, VoteRequest) and isinstance(answer, VoteAnswer):
            return self._elections.on_vote_answer(found.to, request, answer)
        if isinstance(answer, EpochAnswer):
            return self._elections.on_epoch_answer(found.to, answer)
        if isinstance(request, FetchRequest) and isinstance(answer, FetchAnswer):
            return self._replication.on_fetch_answer(found.to, request, answer)
        if isinstance(request, SnapshotRequest) and isinstance(answer, SnapshotAnswer):
            return self._replication.on_snapshot_answer(found.to, request, answer)
        return isinstance(answer, VoterChangeAnswer) and self._changes.on_answer(answer)

    def _next_deadline(self) -> float:
        quorum = self.quorum
        role = quorum.role
        times = [quorum.requests.next_deadline(quorum.now_ms)]
        if not isinstance(role, Leader):
            has_deadline = self._elections.can_stand or isinstance(role, Follower | Resigned)
            times.append(role.deadline_ms if has_deadline else NEVER)
            if isinstance(role, Ballot):
                times += [each for each in role.ask_again_ms.values() if each > quorum.now_ms]
            return min(times)
        times += [each.deadline_ms for each in role.parked]
        if role.pending:
            times.append(role.linger_ms)
        if role.change is not None:
            times.append(role.change.deadline_ms)
        if quorum.other_voters:
            # Checks of the quorum and announcements are due at times that every fetch moves: look at each half.
            times.append(quorum.now_ms + quorum.settings.begin_epoch_ms / 2)
        return min(times)
