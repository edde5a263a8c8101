"""The log: appends of the leader, fetches, snapshots and the high watermark. Sources: KIP-595, KIP-630."""

from __future__ import annotations

from typing import Any

from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.errors import CorruptMetadata
from odradek.kraft.metadata_observer import LogEnd
from odradek.kraft.raft.effects import (
    InstallSnapshot,
    Propose,
    SnapshotInstalled,
    SnapshotWritten,
    TruncateTo,
    WriteSnapshot,
)
from odradek.kraft.raft.messages import (
    NO_NODE,
    FetchAnswer,
    FetchRequest,
    SnapshotAnswer,
    SnapshotRequest,
)
from odradek.kraft.raft.quorum import BOOTSTRAP_NODE, NEVER, Quorum, append_pending
from odradek.kraft.raft.roles import Follower, Leader, ParkedFetch, Progress, Unattached
from odradek.wire.errors import ErrorCode


class Replication:
    """Serves fetches as the leader, and fetches as a follower."""

    def __init__(self, quorum: Quorum) -> None:
        self._quorum = quorum
        self._turn = 0

    # --- the leader ---

    def propose(self, event: Propose) -> None:
        """Gather records for the time of `append_linger_ms`; drop them if this replica does not lead the epoch."""
        quorum = self._quorum
        role = quorum.role
        if isinstance(role, Leader) and event.epoch == quorum.epoch:
            if not role.pending:
                role.linger_ms = quorum.now_ms + quorum.settings.append_linger_ms
            role.pending.append((event.record_count, event.payload))

    def on_synced(self, end: LogEnd) -> None:
        """Count the log up to this end as durable."""
        self._quorum.log.mark_synced(end)

    def on_snapshot_written(self, event: SnapshotWritten) -> None:
        """Begin the log at a snapshot. Raises CorruptMetadata for one of records that are not committed."""
        quorum = self._quorum
        if event.snapshot.end_offset > quorum.high_watermark:
            raise CorruptMetadata(
                f"{event.snapshot.file_name} holds records above the high watermark {quorum.high_watermark}"
            )
        if event.snapshot.end_offset > quorum.log.start.offset:
            quorum.log.begin_at(event.snapshot, event.size)

    def on_fetch(self, request: FetchRequest, token: Any) -> None:
        """Answer a fetch, or let it wait for records."""
        quorum = self._quorum
        error = self._problem_of(request)
        if error is not ErrorCode.NONE:
            quorum.reply(token, FetchAnswer(error, quorum.leader_id, quorum.epoch))
            return
        leader = quorum.role
        assert isinstance(leader, Leader)
        progress = leader.progress.setdefault(quorum.voters.key_of(request.replica), Progress())
        progress.note_fetch(request.connection, quorum.now_ms)
        found = quorum.log.check_position(request.log_end)
        if found is not None:
            progress.note_answer(request.connection, quorum.now_ms)
        if isinstance(found, CheckpointId):
            quorum.reply(token, FetchAnswer(error, quorum.leader_id, quorum.epoch, snapshot=found))
        elif found is not None:
            quorum.reply(token, FetchAnswer(error, quorum.leader_id, quorum.epoch, diverging=found))
        else:
            progress.end_offset = max(progress.end_offset, request.log_end.offset)
            if request.log_end.offset >= quorum.log.end_offset:
                progress.caught_up_ms = quorum.now_ms
            self.update_high_watermark(leader)
            wait = min(request.max_wait_ms, quorum.settings.fetch_max_wait_ms)
            leader.parked.append(ParkedFetch(token, request, quorum.now_ms + wait))

    def _problem_of(self, request: FetchRequest) -> ErrorCode:
        if request.log_end.offset < 0 or request.log_end.epoch < 0 or request.replica_id == self._quorum.leader_id:
            return ErrorCode.INVALID_REQUEST
        return self._problem_of_epoch(request)

    def _problem_of_epoch(self, request: FetchRequest | SnapshotRequest) -> ErrorCode:
        quorum = self._quorum
        if request.cluster_id != quorum.identity.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if request.epoch < quorum.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > quorum.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(quorum.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def on_fetch_snapshot(self, request: SnapshotRequest, token: Any) -> None:
        """Let the driver read bytes of the snapshot."""
        quorum = self._quorum
        error = self._problem_of_epoch(request)
        if error is ErrorCode.NONE:
            assert isinstance(quorum.role, Leader)
            progress = quorum.role.progress.setdefault(quorum.voters.key_of(request.replica), Progress())
            progress.note_fetch(request.connection, quorum.now_ms)
            progress.note_answer(request.connection, quorum.now_ms)
            if request.snapshot != quorum.log.snapshot:
                error = ErrorCode.SNAPSHOT_NOT_FOUND
            elif not 0 <= request.position < quorum.log.snapshot_size:
                error = ErrorCode.POSITION_OUT_OF_RANGE
        size = quorum.log.snapshot_size if error is ErrorCode.NONE else 0
        answer = SnapshotAnswer(error, quorum.leader_id, quorum.epoch, request.snapshot, size, request.position)
        quorum.reply(token, answer)

    def update_high_watermark(self, leader: Leader) -> None:
        """Commit what a majority of voters has on disk, if a record of this epoch is among it (Raft, section 5.4.2)."""
        quorum = self._quorum
        ends = [leader.progress_of(each).end_offset for each in quorum.other_keys]
        if quorum.is_voter:
            ends.append(quorum.log.synced_offset)
        ends.sort(reverse=True)
        committed = ends[len(quorum.voters.ids) // 2]
        if committed > leader.epoch_start:
            leader.has_committed = True
            quorum.advance_high_watermark(committed)

    @property
    def followed_ms(self) -> float:
        """Each voter of a majority was in this leader's epoch then, or later; -infinity if this replica does not lead.

        So no other replica had been elected by then. A sole voter has no successor: infinity.
        """
        quorum = self._quorum
        leader = quorum.role
        if not isinstance(leader, Leader):
            return -NEVER
        times = [leader.progress_of(each).followed_ms for each in quorum.other_keys]
        if quorum.is_voter:
            times.append(NEVER)
        times.sort(reverse=True)
        return times[len(quorum.voters.ids) // 2]

    def _answer_parked(self, leader: Leader) -> None:
        """Answer the fetches that have waited long enough, and those for which something is new."""
        quorum = self._quorum
        high_watermark = quorum.high_watermark if leader.has_committed else -1
        waiting = []
        for each in leader.parked:
            offset = each.request.log_end.offset
            has_news = offset < quorum.log.end_offset or each.request.high_watermark < high_watermark
            if has_news or quorum.now_ms >= each.deadline_ms:
                found = quorum.log.check_position(each.request.log_end)
                snapshot = found if isinstance(found, CheckpointId) else None
                read_from = offset if found is None else -1
                progress = leader.progress_of(quorum.voters.key_of(each.request.replica))
                progress.note_answer(each.request.connection, quorum.now_ms)
                quorum.reply(
                    each.token,
                    FetchAnswer(
                        ErrorCode.NONE, quorum.leader_id, quorum.epoch, high_watermark, None, snapshot, read_from
                    ),
                )
            else:
                waiting.append(each)
        leader.parked = waiting

    # --- the follower ---

    def on_fetch_answer(self, sender: int, request: FetchRequest, answer: FetchAnswer) -> bool:
        """Do to the log what the leader answers; false if the fetch has failed.

        Raises CorruptMetadata where the leader contradicts committed records: the replica must not continue.
        """
        quorum = self._quorum
        is_current = request.epoch == quorum.epoch
        if not quorum.learn_leader(answer.epoch, answer.leader_id) or answer.error is not ErrorCode.NONE:
            return False
        role = quorum.role
        if not isinstance(role, Follower) or not is_current or sender != quorum.leader_id:
            return True
        role.deadline_ms = quorum.now_ms + quorum.settings.fetch_timeout_ms
        role.has_fetched = True
        if request.log_end != quorum.log.end or role.snapshot is not None:
            return True
        if answer.snapshot is not None:
            self._begin_snapshot(role, answer.snapshot)
        elif answer.diverging is not None:
            self._truncate(answer.diverging)
        else:
            self._append(answer)
            quorum.advance_high_watermark(answer.high_watermark)
        return True

    def _append(self, answer: FetchAnswer) -> None:
        quorum = self._quorum
        for batch in answer.batches:
            if batch.base_offset != quorum.log.end_offset or batch.epoch > quorum.epoch:
                raise CorruptMetadata(
                    f"leader {quorum.leader_id} of epoch {quorum.epoch} sent offset {batch.base_offset} of epoch "
                    f"{batch.epoch} after offset {quorum.log.end_offset}"
                )
            quorum.log.append(batch.epoch, batch.record_count)
            for offset, control in enumerate(batch.controls, batch.base_offset):
                quorum.log.history.append(offset, control)
            quorum.change_log(batch)

    def _truncate(self, diverging: LogEnd) -> None:
        quorum = self._quorum
        offset = quorum.log.common_offset(diverging)
        if offset < quorum.high_watermark:
            raise CorruptMetadata(
                f"leader {quorum.leader_id} of epoch {quorum.epoch} lacks committed records: its log ends at {offset}, "
                f"and records are committed to offset {quorum.high_watermark}"
            )
        quorum.log.truncate_to(offset)
        quorum.change_log(TruncateTo(offset))

    def _begin_snapshot(self, role: Follower, found: CheckpointId) -> None:
        if found.end_offset < self._quorum.high_watermark:
            raise CorruptMetadata(
                f"leader {self._quorum.leader_id} offers {found.file_name}, and records are committed to offset "
                f"{self._quorum.high_watermark}"
            )
        role.snapshot, role.snapshot_bytes = found, 0

    def on_snapshot_answer(self, sender: int, request: SnapshotRequest, answer: SnapshotAnswer) -> bool:
        """Write bytes of a snapshot, and install it when it is complete; false if the snapshot is given up."""
        quorum = self._quorum
        is_current = request.epoch == quorum.epoch
        is_known = quorum.learn_leader(answer.epoch, answer.leader_id)
        role = quorum.role
        if not isinstance(role, Follower) or not is_current or sender != quorum.leader_id:
            return is_known
        if request.snapshot != role.snapshot or request.position != role.snapshot_bytes:
            return True
        end = answer.position + len(answer.data)
        fits = (answer.snapshot, answer.position) == (role.snapshot, role.snapshot_bytes)
        if (
            not is_known
            or answer.error is not ErrorCode.NONE
            or not fits
            or not role.snapshot_bytes < end <= answer.size
        ):
            role.snapshot = None
            return False
        role.deadline_ms = quorum.now_ms + quorum.settings.fetch_timeout_ms
        role.has_fetched = True
        quorum.change_log(WriteSnapshot(request.snapshot, answer.position, answer.data))
        role.snapshot_bytes = end
        if end == answer.size:
            role.snapshot = None
            quorum.log.replace_by(request.snapshot, answer.size)
            quorum.change_log(InstallSnapshot(request.snapshot))
            quorum.advance_high_watermark(request.snapshot.end_offset)
        return True

    def on_snapshot_installed(self, event: SnapshotInstalled) -> None:
        """Take the voters of the snapshot."""
        quorum = self._quorum
        if quorum.log.snapshot == event.snapshot:
            quorum.log.history.replace_by(event.snapshot.end_offset, event.controls)

    # --- time ---

    def poll(self) -> None:
        """Append what has waited, answer fetches, and fetch."""
        quorum = self._quorum
        role = quorum.role
        if isinstance(role, Leader):
            if role.pending and quorum.now_ms >= role.linger_ms:
                append_pending(quorum, role)
            self.update_high_watermark(role)
            self._answer_parked(role)
        elif isinstance(role, Follower):
            self._fetch_from_leader(role)
        elif isinstance(role, Unattached):
            self._fetch_from(self._next_server())

    def _fetch_from_leader(self, role: Follower) -> None:
        quorum = self._quorum
        if role.snapshot is None:
            self._fetch_from(quorum.leader_id)
        elif quorum.requests.is_ready(quorum.leader_id, SnapshotRequest, quorum.now_ms):
            identity = quorum.identity
            quorum.send(
                quorum.leader_id,
                SnapshotRequest(
                    identity.cluster_id,
                    identity.node_id,
                    quorum.epoch,
                    role.snapshot,
                    role.snapshot_bytes,
                    identity.directory_id,
                ),
            )

    def _next_server(self) -> int:
        """The voter or bootstrap server to ask for the leader; each in turn."""
        quorum = self._quorum
        others = quorum.other_voters + [BOOTSTRAP_NODE - each for each in range(quorum.identity.bootstrap_servers)]
        return others[self._turn % len(others)] if others else NO_NODE

    def _fetch_from(self, server: int) -> None:
        """Fetch, which says that all below the end of the log is on the disk: therefore it waits for the sync."""
        quorum = self._quorum
        log = quorum.log
        if server == NO_NODE or log.synced_offset < log.end_offset:
            return
        if quorum.requests.is_ready(server, FetchRequest, quorum.now_ms):
            self._turn += 1
            identity = quorum.identity
            quorum.send(
                server,
                FetchRequest(
                    identity.cluster_id,
                    identity.node_id,
                    quorum.epoch,
                    log.end,
                    quorum.high_watermark,
                    quorum.settings.fetch_max_wait_ms,
                    identity.directory_id,
                ),
            )
