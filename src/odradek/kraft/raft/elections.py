"""Votes, pre-votes, and the beginning and end of epochs. Sources: KIP-595, KIP-996; Kafka's `KafkaRaftClient`."""

from __future__ import annotations

from typing import Any

from odradek.kraft.raft.messages import (
    NO_NODE,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    VoteAnswer,
    VoteRequest,
)
from odradek.kraft.raft.quorum import NO_VOTE, Quorum
from odradek.kraft.raft.roles import Ballot, Follower, Leader, Resigned, Unattached
from odradek.kraft.raft.voters import STATIC_VOTERS, ReplicaKey
from odradek.wire.errors import ErrorCode
from odradek.wire.primitives import ZERO_UUID


class Elections:
    """Handles the requests and answers of elections, and starts them when time has passed."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # --- requests of others ---

    def on_vote(self, request: VoteRequest, token: Any) -> None:
        """Grant or reject a vote or a pre-vote."""
        quorum = self._quorum
        error = self._problem_of(request)
        is_granted = False
        if error is ErrorCode.NONE:
            if request.epoch > quorum.epoch:
                quorum.become_unattached(request.epoch)
            is_granted = self.can_grant(request)
            if is_granted and not request.is_pre_vote:
                self._give_vote(request.candidate)
        quorum.reply(token, VoteAnswer(error, quorum.leader_id, quorum.epoch, is_granted))

    def _problem_of(self, request: VoteRequest) -> ErrorCode:
        quorum = self._quorum
        log_end = request.log_end
        if request.cluster_id != quorum.identity.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        # A candidate's log is of an older epoch than the one for which it stands; a prospective's may be of the same.
        newest = request.epoch if request.is_pre_vote else request.epoch - 1
        if request.epoch < 0 or log_end.offset < 0 or not 0 <= log_end.epoch <= newest:
            return ErrorCode.INVALID_REQUEST
        if request.epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.NONE if self._is_meant(request.voter) else ErrorCode.INVALID_VOTER_KEY

    def _is_meant(self, key: ReplicaKey) -> bool:
        """Whether a request is for this replica. A replica whose sender does not know its directory is meant."""
        own = self._quorum.identity.key
        return key.node_id == own.node_id and key.directory_id in (ZERO_UUID, own.directory_id)

    def can_grant(self, request: VoteRequest) -> bool:
        """Whether this replica votes, or would vote, for the sender, whose epoch is its own."""
        quorum = self._quorum
        role = quorum.role
        is_current = quorum.is_log_current(request.log_end)
        if request.is_pre_vote:
            has_leader = isinstance(role, Leader) or (isinstance(role, Follower) and role.has_fetched)
            return is_current and not has_leader
        if quorum.voted != NO_VOTE:
            # A vote that was stored with kraft.version 0 has no directory.
            is_same = quorum.voted.directory_id in (ZERO_UUID, request.candidate_directory_id)
            return is_same and quorum.voted.node_id == request.candidate_id
        return is_current and quorum.leader_id == NO_NODE

    def _give_vote(self, candidate: ReplicaKey) -> None:
        quorum = self._quorum
        if quorum.voted == NO_VOTE:
            quorum.voted = candidate
            if isinstance(quorum.role, Unattached):
                quorum.role.deadline_ms = quorum.election_deadline()

    def on_begin_epoch(self, request: BeginEpochRequest, token: Any) -> None:
        """Follow the leader that announces itself."""
        quorum = self._quorum
        error = self._problem_of_leader(request.cluster_id, request.epoch, request.leader_id)
        if error is ErrorCode.NONE and not self._is_meant(request.voter):
            error = ErrorCode.INVALID_VOTER_KEY
        if error is ErrorCode.NONE:
            quorum.learn_leader(request.epoch, request.leader_id)
        quorum.reply(token, EpochAnswer(error, quorum.leader_id, quorum.epoch))

    def on_end_epoch(self, request: EndEpochRequest, token: Any) -> None:
        """Start an election after a time that depends on the place among the successors."""
        quorum = self._quorum
        error = self._problem_of_leader(request.cluster_id, request.epoch, request.leader_id)
        if error is ErrorCode.NONE:
            quorum.learn_leader(request.epoch, request.leader_id)
            role = quorum.role
            if isinstance(role, Follower):
                role.has_fetched = False
                ids = [each.node_id for each in request.successors]
                if quorum.identity.node_id in ids:
                    place = ids.index(quorum.identity.node_id)
                    backoff = quorum.settings.successor_backoff_ms(place, len(request.successors))
                    role.deadline_ms = quorum.now_ms + backoff
        quorum.reply(token, EpochAnswer(error, quorum.leader_id, quorum.epoch))

    def _problem_of_leader(self, cluster_id: str, epoch: int, leader_id: int) -> ErrorCode:
        quorum = self._quorum
        if cluster_id != quorum.identity.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if epoch < 0 or leader_id < 0:
            return ErrorCode.INVALID_REQUEST
        if epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if quorum.version == STATIC_VOTERS and leader_id not in quorum.voters.ids:
            return ErrorCode.INCONSISTENT_VOTER_SET
        known = quorum.leader_id if epoch == quorum.epoch else NO_NODE
        return ErrorCode.INVALID_REQUEST if known not in (NO_NODE, leader_id) else ErrorCode.NONE

    # --- answers ---

    def on_vote_answer(self, voter: int, request: VoteRequest, answer: VoteAnswer) -> bool:
        """Count a vote; false if it has to be asked again."""
        quorum = self._quorum
        if not quorum.learn_leader(answer.epoch, answer.leader_id):
            return False
        role = quorum.role
        if not isinstance(role, Ballot) or role.is_pre_vote != request.is_pre_vote or request.epoch != quorum.epoch:
            return True
        if answer.error is not ErrorCode.NONE:
            return False
        if answer.is_granted:
            role.granted.add(voter)
            role.rejected.discard(voter)
        else:
            role.rejected.add(voter)
        role.ask_again_ms.pop(voter, None)
        if role.is_pre_vote and not answer.is_granted:
            role.ask_again_ms[voter] = quorum.now_ms + quorum.settings.ask_again_ms
        return True

    def on_epoch_answer(self, voter: int, answer: EpochAnswer) -> bool:
        """Take the answer to BeginQuorumEpoch or EndQuorumEpoch; false if the request has to be repeated."""
        quorum = self._quorum
        if not quorum.learn_leader(answer.epoch, answer.leader_id) or answer.error is not ErrorCode.NONE:
            return False
        if isinstance(quorum.role, Resigned):
            quorum.role.unnotified.discard(voter)
        return True

    def on_refused(self, node: int) -> None:
        """The process of a node has ended. A follower of it asks for pre-votes soon, and not after the fetch timeout.

        Kafka waits for the timeout. A pre-vote changes nothing where the other voters still have the leader.
        """
        quorum = self._quorum
        role = quorum.role
        if isinstance(role, Follower) and quorum.leader_id == node:
            role.has_fetched = False
            role.deadline_ms = min(role.deadline_ms, quorum.refused_deadline())

    # --- time ---

    def poll(self) -> None:
        """Make the transitions for which time has passed or votes suffice, and send the requests of the role."""
        quorum = self._quorum
        while self._change_role():
            pass
        role = quorum.role
        if isinstance(role, Ballot):
            self._ask_for_votes(role)
        elif isinstance(role, Leader):
            self._announce(role)
        elif isinstance(role, Resigned):
            for voter in sorted(role.unnotified):
                self._send_end(voter, role.successors)

    def _change_role(self) -> bool:
        quorum = self._quorum
        role, now = quorum.role, quorum.now_ms
        if isinstance(role, Ballot):
            return self._decide(role)
        if isinstance(role, Leader):
            if self._has_lost_majority(role) or self._is_removed():
                self.resign(role)
                return True
            return False
        if now < role.deadline_ms:
            return False
        if isinstance(role, Resigned):
            quorum.become_unattached(quorum.epoch + 1)
        elif self.can_stand:
            quorum.become_prospective()
        else:
            quorum.become_unattached(quorum.epoch)
        return True

    @property
    def can_stand(self) -> bool:
        """Whether this replica starts elections: as a voter, and until its removal is committed.

        The log with the removal may be the longest one, and then no other replica can win (Raft dissertation, 4.2.2).
        """
        quorum = self._quorum
        history = quorum.log.history
        if quorum.is_voter or history.former_voters is None or history.voters_offset is None:
            return quorum.is_voter
        return history.voters_offset >= quorum.high_watermark and history.former_voters.is_voter(quorum.identity.key)

    def _decide(self, ballot: Ballot) -> bool:
        quorum = self._quorum
        if quorum.is_majority(ballot.granted):
            if ballot.is_pre_vote:
                quorum.become_candidate()
            else:
                quorum.become_leader(ballot.granted)
            return True
        could_win = quorum.is_majority(set(quorum.voters.ids) - ballot.rejected)
        if could_win and quorum.now_ms < ballot.deadline_ms:
            return False
        if ballot.is_pre_vote and quorum.leader_id not in (NO_NODE, quorum.identity.node_id):
            quorum.become_follower(quorum.epoch, quorum.leader_id)
        elif ballot.is_pre_vote or not could_win:
            quorum.become_unattached(quorum.epoch)
        else:
            quorum.become_prospective()
        return True

    def _has_lost_majority(self, leader: Leader) -> bool:
        quorum = self._quorum
        since = quorum.now_ms - quorum.settings.check_quorum_ms
        if leader.began_ms >= since:
            return False
        recent = {each.node_id for each in quorum.other_keys if leader.progress_of(each).fetched_ms > since}
        return not quorum.is_majority({*quorum.own_votes, *recent})

    def _is_removed(self) -> bool:
        """Whether the voters without this leader are committed."""
        quorum = self._quorum
        offset = quorum.log.history.voters_offset
        return not quorum.is_voter and offset is not None and offset < quorum.high_watermark

    def resign(self, leader: Leader) -> None:
        """Resign, and name the voters with the longest logs first."""
        quorum = self._quorum
        ends = {each: leader.progress_of(each).end_offset for each in quorum.other_keys}
        quorum.become_resigned(tuple(sorted(ends, key=lambda each: (-ends[each], each))))

    # --- requests ---

    def _ask_for_votes(self, ballot: Ballot) -> None:
        quorum = self._quorum
        identity = quorum.identity
        for voter, directory_id in quorum.other_keys:
            if voter in ballot.granted or ballot.ask_again_ms.get(voter, quorum.now_ms) > quorum.now_ms:
                continue
            if voter in ballot.rejected and not ballot.is_pre_vote:
                continue
            if quorum.requests.is_ready(voter, VoteRequest, quorum.now_ms):
                log_end = quorum.log.end
                quorum.send(
                    voter,
                    VoteRequest(
                        identity.cluster_id,
                        voter,
                        quorum.epoch,
                        identity.node_id,
                        log_end,
                        ballot.is_pre_vote,
                        directory_id,
                        identity.directory_id,
                    ),
                )

    def _announce(self, leader: Leader) -> None:
        quorum = self._quorum
        identity = quorum.identity
        for voter, directory_id in quorum.other_keys:
            fetched_ms = leader.progress_of(ReplicaKey(voter, directory_id)).fetched_ms
            heard = max(fetched_ms, leader.announced_ms.get(voter, -1.0))
            is_due = heard < 0 or heard + quorum.settings.begin_epoch_ms <= quorum.now_ms
            if is_due and quorum.requests.is_ready(voter, BeginEpochRequest, quorum.now_ms):
                leader.announced_ms[voter] = quorum.now_ms
                quorum.send(
                    voter,
                    BeginEpochRequest(identity.cluster_id, voter, quorum.epoch, identity.node_id, directory_id),
                )

    def _send_end(self, voter: int, successors: tuple[ReplicaKey, ...]) -> None:
        quorum = self._quorum
        if quorum.requests.is_ready(voter, EndEpochRequest, quorum.now_ms):
            identity = quorum.identity
            quorum.send(voter, EndEpochRequest(identity.cluster_id, quorum.epoch, identity.node_id, successors))
