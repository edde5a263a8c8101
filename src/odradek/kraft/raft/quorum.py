"""The epoch, the vote, the leader and the role of one replica, and the effects that the present step gathers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from odradek.kraft.raft.effects import Effects, LeaderAndEpoch, LogStep, Reply, Send
from odradek.kraft.raft.log_index import LogIndex
from odradek.kraft.raft.messages import NO_NODE, Answer, Batch, FetchAnswer, Request, VoterChangeAnswer
from odradek.kraft.raft.requests import RequestTable
from odradek.kraft.raft.roles import Ballot, Follower, Leader, Resigned, Role, Unattached
from odradek.kraft.raft.settings import QuorumSettings
from odradek.kraft.raft.voter_history import BEFORE_THE_LOG
from odradek.kraft.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.control_records import KRaftVersionRecord, LeaderChangeMessage, LeaderChangeMessageVoter
from odradek.wire.messages.quorum_state import QuorumStateData, QuorumStateDataVoter
from odradek.wire.primitives import ZERO_UUID

NEVER: Final = float("inf")
BOOTSTRAP_NODE: Final = -2
"""The id under which requests are sent to the first bootstrap server; -3 is the second, and so on."""
NO_VOTE: Final = ReplicaKey(NO_NODE)


class Identity(NamedTuple):
    """A replica of the quorum of this cluster, and the ids of the voters of the settings (kraft.version 0)."""

    cluster_id: str
    node_id: int
    voters: frozenset[int]
    directory_id: bytes = ZERO_UUID
    """Of the directory with the metadata log."""
    endpoints: tuple[Endpoint, ...] = ()
    """Where the other replicas reach this one."""
    bootstrap_servers: int = 0
    """How many servers a replica without a leader may ask beside the voters (`BOOTSTRAP_NODE`)."""

    @property
    def key(self) -> ReplicaKey:
        """This replica."""
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def voter(self) -> Voter:
        """This replica as a voter."""
        return Voter(self.key, self.endpoints)


class Quorum:
    """The transitions between roles. Source: Kafka's `QuorumState`.

    `jitter` returns numbers from 0 to below 1: elections of several voters begin at different times.
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
        self.identity = identity
        self.settings = settings
        self.log = log
        self.now_ms = now_ms
        self.requests = RequestTable(settings)
        self.epoch = max(state.leader_epoch, log.end.epoch, 0)
        is_current = state.leader_epoch == self.epoch
        self.leader_id = state.leader_id if is_current else NO_NODE
        self.voted = ReplicaKey(state.voted_id, state.voted_directory_id) if is_current else NO_VOTE
        self.high_watermark = log.start.offset
        self._jitter = jitter
        self._steps: list[LogStep] = []
        self._sends: list[Send] = []
        self._replies: list[Reply] = []
        self._static = VoterSet.of_ids(identity.voters)
        self._written = (self.epoch, self.voted, self.leader_id)
        self._reported = LeaderAndEpoch(NO_NODE, -1)
        self._reported_high_watermark = -1
        self.role: Role = self._first_role()

    def _first_role(self) -> Role:
        """The role after a start. A former leader does not lead its epoch again: its log may have lost records."""
        if self.leader_id == self.identity.node_id:
            return Resigned(self.candidacy_deadline())
        if self.leader_id != NO_NODE:
            return Follower(self.now_ms + self.settings.fetch_timeout_ms)
        return Unattached(self.candidacy_deadline())

    # --- predicates ---

    @property
    def voters(self) -> VoterSet:
        """The voters of the newest VotersRecord in the log, committed or not; without one those of the settings."""
        found = self.log.history.voters
        return self._static if found is None else found

    @property
    def version(self) -> int:
        """The kraft.version of the log."""
        return self.log.history.version

    @property
    def is_voter(self) -> bool:
        """Whether this replica votes; one with the id of a voter and another directory does not."""
        return self.voters.is_voter(self.identity.key)

    @property
    def other_voters(self) -> list[int]:
        """The ids of the other voters, in order."""
        return sorted(self.voters.ids - {self.identity.node_id})

    @property
    def other_keys(self) -> list[ReplicaKey]:
        """The other voters in the order of their ids."""
        return [each.key for each in self.voters.voters if each.key.node_id != self.identity.node_id]

    @property
    def own_votes(self) -> set[int]:
        """This replica's id if it votes: what it adds to a majority."""
        return {self.identity.node_id} if self.is_voter else set()

    def is_majority(self, replicas: set[int]) -> bool:
        """Whether these replicas hold more than half of the voters."""
        return self.voters.is_majority(replicas)

    def is_log_current(self, log_end: tuple[int, int]) -> bool:
        """Whether a log with this end holds all that this log may have committed."""
        offset, epoch = log_end
        return (epoch, offset) >= (self.log.end.epoch, self.log.end.offset)

    def election_deadline(self) -> float:
        """One to two election timeouts from now."""
        return self.now_ms + self.settings.election_timeout_ms * (1.0 + self._jitter())

    def refused_deadline(self) -> float:
        """Up to a quarter of an election timeout from now: voters that notice an end at once do not all stand."""
        return self.now_ms + self.settings.election_timeout_ms * self._jitter() / 4

    def candidacy_deadline(self) -> float:
        """When a voter that knows no leader asks for votes: a sole voter at once, as it waits for no other."""
        is_sole = self.is_voter and not self.other_voters
        return self.now_ms if is_sole else self.election_deadline()

    # --- transitions ---

    def become_unattached(self, epoch: int) -> None:
        """Enter an epoch whose leader is not known."""
        self._leave_role()
        if epoch > self.epoch:
            self.epoch, self.voted = epoch, NO_VOTE
        self.leader_id = NO_NODE
        self.role = Unattached(self.candidacy_deadline())

    def become_follower(self, epoch: int, leader_id: int) -> None:
        """Follow the leader of this epoch."""
        self._leave_role()
        if epoch > self.epoch:
            self.epoch, self.voted = epoch, NO_VOTE
        self.leader_id = leader_id
        self.role = Follower(self.now_ms + self.settings.fetch_timeout_ms)

    def become_prospective(self) -> None:
        """Ask whether the others would vote; epoch, vote and leader stay."""
        self._leave_role()
        self.role = Ballot(True, self.election_deadline(), granted=self.own_votes)

    def become_candidate(self) -> None:
        """Stand for election in the next epoch."""
        self._leave_role()
        self.epoch += 1
        self.voted, self.leader_id = self.identity.key, NO_NODE
        self.role = Ballot(False, self.election_deadline(), granted=self.own_votes)

    def become_leader(self, granted: set[int]) -> None:
        """Lead the epoch: append its LeaderChangeMessage.

        The first leader adds the kraft.version and the voters with which its directory was formatted.
        """
        self._leave_role()
        self.leader_id = self.identity.node_id
        voters = [LeaderChangeMessageVoter(each) for each in sorted(self.voters.ids)]
        granting = [LeaderChangeMessageVoter(each) for each in sorted(granted)]
        self.role = Leader(self.log.end_offset, self.now_ms)
        controls: list[Any] = [LeaderChangeMessage(0, self.identity.node_id, voters, granting)]
        if self.log.history.voters_offset == BEFORE_THE_LOG:
            controls += [KRaftVersionRecord(0, self.version), self.voters.to_record()]
        self.append_controls(*controls)

    def become_resigned(self, successors: tuple[ReplicaKey, ...]) -> None:
        """Lead no longer, and ask the voters to elect another leader."""
        self._leave_role()
        self.role = Resigned(self.election_deadline(), successors, set(self.other_voters))

    def learn_leader(self, epoch: int, leader_id: int) -> bool:
        """Adopt the epoch and leader of a message; false if the message is of an old epoch or contradicts."""
        if epoch > self.epoch:
            if leader_id in (NO_NODE, self.identity.node_id):
                self.become_unattached(epoch)
            else:
                self.become_follower(epoch, leader_id)
        elif epoch < self.epoch or NO_NODE != leader_id != self.leader_id != NO_NODE:
            return False
        elif leader_id not in (NO_NODE, self.identity.node_id) and self.leader_id == NO_NODE:
            self.become_follower(epoch, leader_id)
        return True

    def _leave_role(self) -> None:
        if isinstance(self.role, Leader):
            if self.role.change is not None:
                self.answer_change(self.role.change.token, ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leader has changed.")
            for each in self.role.parked:
                self.reply(each.token, FetchAnswer(ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_NODE, self.epoch))

    # --- effects ---

    def append(self, count: int, payload: object) -> None:
        """Append records in the present epoch."""
        base = self.log.append(self.epoch, count)
        self._steps.append(Batch(base, self.epoch, count, payload))

    def append_controls(self, *controls: Any) -> int:
        """Append control records in one batch, in force at once; returns the offset of the last."""
        base = self.log.append(self.epoch, len(controls))
        for offset, control in enumerate(controls, base):
            self.log.history.append(offset, control)
        self._steps.append(Batch(base, self.epoch, len(controls), controls, controls))
        return base + len(controls) - 1

    def answer_change(self, token: object, error: ErrorCode, message: str | None = None) -> None:
        """Answer a request that changes the voters."""
        self.reply(token, VoterChangeAnswer(error, message, self.leader_id, self.epoch))

    def change_log(self, step: LogStep) -> None:
        """Let the driver change the log."""
        self._steps.append(step)

    def send(self, to: int, request: Request) -> None:
        """Send a request, which `requests` counts as under way."""
        self._sends.append(Send(self.requests.add(to, request, self.now_ms), to, request))

    def reply(self, token: object, answer: Answer) -> None:
        """Answer a request."""
        self._replies.append(Reply(token, answer))

    def advance_high_watermark(self, offset: int) -> None:
        """Count the records below this offset as committed."""
        self.high_watermark = max(self.high_watermark, min(offset, self.log.end_offset))

    def take_effects(self, deadline_ms: float) -> Effects:
        """The effects since the last call."""
        current = (self.epoch, self.voted, self.leader_id)
        state = None
        if current != self._written:
            self._written = current
            state = self.durable_state()
        leader = LeaderAndEpoch(self.leader_id if not isinstance(self.role, Resigned) else NO_NODE, self.epoch)
        changed = leader if leader != self._reported else None
        self._reported = leader
        advanced = self.high_watermark if self.high_watermark != self._reported_high_watermark else None
        self._reported_high_watermark = self.high_watermark
        found = tuple(self._steps), tuple(self._sends), tuple(self._replies)
        self._steps, self._sends, self._replies = [], [], []
        return Effects(state, *found, advanced, changed, deadline_ms)

    def durable_state(self) -> QuorumStateData:
        """What this replica must not forget."""
        return QuorumStateData(
            cluster_id=self.identity.cluster_id,
            leader_id=self.leader_id,
            leader_epoch=self.epoch,
            voted_id=self.voted.node_id,
            voted_directory_id=self.voted.directory_id,
            current_voters=[QuorumStateDataVoter(each) for each in sorted(self.voters.ids)],
        )


def append_pending(quorum: Quorum, leader: Leader) -> None:
    """Append the records that the leader has gathered."""
    for count, payload in leader.pending:
        quorum.append(count, payload)
    leader.pending.clear()
