"""Changes of the voters: what the leader does with requests for them, and when a replica sends them.

One voter at a time, and only after the VotersRecord before it and a record of the leader's epoch are committed: without
these, two majorities without a common voter could be in force. With kraft.version 0 the voters are static, and the log
has neither their directories nor their listeners: each voter reports them to the leader of the epoch, which appends
them with kraft.version 1. Source: KIP-853, KIP-1186; Kafka's `AddVoterHandler`, `RemoveVoterHandler`,
`UpdateVoterHandler`, `LeaderState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.kraft.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    UpgradeVersionRequest,
    VoterChangeAnswer,
    VoterChangeRequest,
)
from odradek.kraft.raft.quorum import Quorum, append_pending
from odradek.kraft.raft.roles import Follower, Leader, VoterChange
from odradek.kraft.raft.voters import DYNAMIC_VOTERS, ReplicaKey, Voter, VoterSet
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.control_records import KRaftVersionRecord
from odradek.wire.primitives import ZERO_UUID


class _Problem(NamedTuple):
    """Why a change is rejected."""

    error: ErrorCode
    message: str


class VoterChanges:
    """Handles the requests of operators and replicas on the leader, and sends those of this replica."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum

    # --- the leader ---

    def on_request(self, request: VoterChangeRequest | UpgradeVersionRequest, token: Any) -> None:
        """Append the new voters, or reject the request."""
        quorum = self._quorum
        role = quorum.role
        problem = self._problem_of(request)
        if problem is None and isinstance(role, Leader):
            if isinstance(request, AddVoterRequest):
                problem = self._add(role, request, token)
            elif isinstance(request, RemoveVoterRequest):
                problem = self._remove(role, request, token)
            elif isinstance(request, UpgradeVersionRequest):
                problem = self._upgrade(role, request, token)
            else:
                problem = self._update(role, request, token)
        if problem is not None:
            quorum.answer_change(token, *problem)

    def _problem_of(self, request: VoterChangeRequest | UpgradeVersionRequest) -> _Problem | None:
        """Why this replica does not serve the request at all."""
        quorum = self._quorum
        if request.cluster_id != quorum.identity.cluster_id:
            return _Problem(ErrorCode.INCONSISTENT_CLUSTER_ID, f"This is cluster {quorum.identity.cluster_id}.")
        if isinstance(request, UpdateVoterRequest | UpgradeVersionRequest) and request.epoch != quorum.epoch:
            is_old = request.epoch < quorum.epoch
            error = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            return _Problem(error, f"The epoch is {quorum.epoch}.")
        if not isinstance(quorum.role, Leader):
            return _Problem(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Node {quorum.identity.node_id} is not the leader.")
        if isinstance(request, UpgradeVersionRequest):
            return None
        key = request.voter if isinstance(request, RemoveVoterRequest) else request.voter.key
        if key.node_id < 0 or key.directory_id == ZERO_UUID:
            return _Problem(ErrorCode.INVALID_REQUEST, "The request names no voter with its directory id.")
        return None

    def _problem_of_state(self, leader: Leader) -> _Problem | None:
        """Why the leader cannot change its voters now."""
        if self.has_change_under_way(leader):
            return _Problem(ErrorCode.REQUEST_TIMED_OUT, "The change of voters before this one is not committed.")
        if not leader.has_committed:
            return _Problem(ErrorCode.REQUEST_TIMED_OUT, "The leader has not yet committed a record of its epoch.")
        return None

    def _problem_of_membership(self, leader: Leader) -> _Problem | None:
        """Why the leader cannot add or remove a voter now."""
        problem = self._problem_of_state(leader)
        if problem is None and self._quorum.version < DYNAMIC_VOTERS:
            return _Problem(ErrorCode.UNSUPPORTED_VERSION, "Voters can be changed from kraft.version 1 on.")
        return problem

    def has_change_under_way(self, leader: Leader) -> bool:
        """Whether a VotersRecord of the log may not be committed."""
        offset = self._quorum.log.history.voters_offset
        return leader.change is not None or (offset is not None and offset >= self._quorum.high_watermark)

    def _add(self, leader: Leader, request: AddVoterRequest, token: Any) -> _Problem | None:
        quorum, voter = self._quorum, request.voter
        problem = self._problem_of_membership(leader)
        if problem is not None:
            return problem
        voters = quorum.voters.with_voter(voter)
        if voters is None:
            return _Problem(ErrorCode.DUPLICATE_VOTER, f"Node {voter.key.node_id} is a voter already.")
        if not voter.endpoints:
            return _Problem(ErrorCode.INVALID_REQUEST, "The request names no listener.")
        if not voter.supports(quorum.version):
            return _Problem(ErrorCode.INVALID_REQUEST, f"The replica does not support kraft.version {quorum.version}.")
        # Kafka accepts a replica that caught up within the last hour. One that has stopped since would count in every
        # majority and delay commits.
        since = quorum.now_ms - quorum.settings.check_quorum_ms
        if leader.progress_of(voter.key).caught_up_ms <= since:
            return _Problem(ErrorCode.REQUEST_TIMED_OUT, f"Node {voter.key.node_id} has not caught up with the leader.")
        self._append(leader, voters, token, waits=request.ack_when_committed)
        return None

    def _remove(self, leader: Leader, request: RemoveVoterRequest, token: Any) -> _Problem | None:
        problem = self._problem_of_membership(leader)
        if problem is not None:
            return problem
        voters = self._quorum.voters.without_voter(request.voter)
        if voters is None:
            text = f"Node {request.voter.node_id} with this directory is not a voter, or it is the last one."
            return _Problem(ErrorCode.VOTER_NOT_FOUND, text)
        self._append(leader, voters, token, waits=True)
        return None

    def _update(self, leader: Leader, request: UpdateVoterRequest, token: Any) -> _Problem | None:
        quorum, voter = self._quorum, request.voter
        problem = self._problem_of_state(leader)
        if problem is not None:
            return problem
        least, most = voter.min_kraft_version, voter.max_kraft_version
        if not 0 <= least <= most or not voter.supports(quorum.version) or not voter.endpoints:
            return _Problem(ErrorCode.INVALID_REQUEST, "The voter has no listener, or does not support kraft.version.")
        voters = quorum.voters.with_update(voter)
        if voters is None:
            return _Problem(ErrorCode.VOTER_NOT_FOUND, f"Node {voter.key.node_id} with this directory is not a voter.")
        if quorum.version < DYNAMIC_VOTERS:
            leader.reported[voter.key.node_id] = voter
            quorum.answer_change(token, ErrorCode.NONE)
        elif voters == quorum.voters:
            quorum.answer_change(token, ErrorCode.NONE)
        else:
            self._append(leader, voters, token, waits=False)
        return None

    def _upgrade(self, leader: Leader, request: UpgradeVersionRequest, token: Any) -> _Problem | None:
        """Append the new kraft.version, and the voters as they have reported themselves."""
        quorum, level = self._quorum, request.level
        problem = self._problem_of_state(leader)
        if problem is not None:
            return problem
        if level == quorum.version:
            quorum.answer_change(token, ErrorCode.NONE)
            return None
        known = {**leader.reported, quorum.identity.node_id: quorum.identity.voter}
        problem = self._problem_of_upgrade(level, known)
        if problem is not None:
            return problem
        if request.validate_only:
            quorum.answer_change(token, ErrorCode.NONE)
            return None
        voters = VoterSet(known[each] for each in quorum.voters.ids)
        append_pending(quorum, leader)
        offset = quorum.append_controls(KRaftVersionRecord(0, level), voters.to_record())
        # The same replicas, known by their directories from here on.
        for each in voters.keys:
            progress = leader.progress.pop(ReplicaKey(each.node_id), None)
            if progress is not None:
                leader.progress[each] = progress
        leader.change = VoterChange(token, offset, quorum.now_ms + quorum.settings.request_timeout_ms)
        return None

    def _problem_of_upgrade(self, level: int, known: Mapping[int, Voter]) -> _Problem | None:
        """Why the voters cannot take part in this kraft.version. Kafka's messages, but for the voters' ids."""
        quorum = self._quorum
        change = f"Invalid upgrade of kraft.version from version {quorum.version} to {level} because"
        if level < quorum.version:
            return _Problem(ErrorCode.INVALID_UPDATE_VERSION, f"{change} the new version is a downgrade")
        unheard = sorted(quorum.voters.ids - known.keys())
        if unheard:
            text = f"{change} voters {unheard} have not reported their directories and listeners in this epoch"
            return _Problem(ErrorCode.INVALID_UPDATE_VERSION, text)
        unable = [each for each in sorted(quorum.voters.ids) if not known[each].supports(level)]
        if unable:
            return _Problem(ErrorCode.INVALID_UPDATE_VERSION, f"{change} voters {unable} do not support it")
        return None

    def _append(self, leader: Leader, voters: VoterSet, token: Any, *, waits: bool) -> None:
        """Append the voters, after the records whose offsets are fixed already; answer now or once it is committed."""
        quorum = self._quorum
        append_pending(quorum, leader)
        offset = quorum.append_controls(voters.to_record())
        if waits:
            leader.change = VoterChange(token, offset, quorum.now_ms + quorum.settings.request_timeout_ms)
        else:
            quorum.answer_change(token, ErrorCode.NONE)

    # --- time ---

    def poll(self) -> None:
        """Change the leader's own entry if it is wrong, or send what this follower asks of the leader."""
        role = self._quorum.role
        if isinstance(role, Leader):
            self._update_own_entry(role)
        elif isinstance(role, Follower) and role.has_fetched:
            self._report_to_leader(role)

    def finish(self) -> None:
        """Answer the pending change when it is committed, or late."""
        quorum = self._quorum
        leader = quorum.role
        if not isinstance(leader, Leader) or leader.change is None:
            return
        change = leader.change
        if quorum.high_watermark > change.offset:
            leader.change = None
            quorum.answer_change(change.token, ErrorCode.NONE)
        elif quorum.now_ms >= change.deadline_ms:
            leader.change = None
            text = "The new voters are appended, and not yet committed."
            quorum.answer_change(change.token, ErrorCode.REQUEST_TIMED_OUT, text)

    def _update_own_entry(self, leader: Leader) -> None:
        """Change the leader's own entry if its listeners are others now."""
        quorum = self._quorum
        if self._wants_update() and self._problem_of_membership(leader) is None:
            voters = quorum.voters.with_update(quorum.identity.voter)
            assert voters is not None, "the leader is a voter"
            quorum.append_controls(voters.to_record())

    def _wants_update(self) -> bool:
        """Whether this voter's entry differs from what it is."""
        quorum, own = self._quorum, self._quorum.identity.voter
        entry = quorum.voters.find(own.key.node_id)
        return bool(own.endpoints) and quorum.is_voter and quorum.version >= DYNAMIC_VOTERS and entry != own

    def _report_to_leader(self, role: Follower) -> None:
        quorum = self._quorum
        if quorum.now_ms < role.report_ms:
            return
        request = self._next_request(role, quorum.identity.voter)
        if request is not None and quorum.requests.is_ready(quorum.leader_id, type(request), quorum.now_ms):
            role.report_ms = quorum.now_ms + quorum.settings.report_voter_ms
            quorum.send(quorum.leader_id, request)

    def _next_request(self, role: Follower, own: Voter) -> VoterChangeRequest | None:
        """What this follower wants of its leader, if anything."""
        quorum = self._quorum
        cluster_id, epoch = quorum.identity.cluster_id, quorum.epoch
        if not own.endpoints or own.key.directory_id == ZERO_UUID:
            return None
        if quorum.version < DYNAMIC_VOTERS:
            wants_report = quorum.is_voter and not role.has_reported
            return UpdateVoterRequest(cluster_id, epoch, own) if wants_report else None
        if self._wants_update():
            return UpdateVoterRequest(cluster_id, epoch, own)
        if quorum.is_voter or not quorum.settings.auto_join:
            return None
        former = quorum.voters.find(own.key.node_id)
        if former is not None:
            return RemoveVoterRequest(cluster_id, epoch, former.key)
        return AddVoterRequest(cluster_id, epoch, own, ack_when_committed=False)

    def on_answer(self, answer: VoterChangeAnswer) -> bool:
        """Take the leader's answer; false if the request has to be repeated."""
        quorum = self._quorum
        if answer.epoch >= 0 and not quorum.learn_leader(answer.epoch, answer.leader_id):
            return False
        is_done = answer.error is ErrorCode.NONE
        if isinstance(quorum.role, Follower) and quorum.version < DYNAMIC_VOTERS:
            quorum.role.has_reported = is_done
        return is_done
