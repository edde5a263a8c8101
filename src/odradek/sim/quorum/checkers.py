"""The invariants of a quorum, checked after every step of every replica.

Their names are those of Apache Kafka's Raft simulation and of the published TLA+ specifications of KRaft.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from odradek.kraft.raft.effects import Effects, InstallSnapshot, TruncateTo
from odradek.kraft.raft.machine import RaftMachine
from odradek.kraft.raft.messages import Batch, VoteAnswer, VoteRequest
from odradek.kraft.raft.roles import Ballot, Leader
from odradek.kraft.raft.voters import ReplicaKey, VoterSet
from odradek.sim.quorum.disk import Entry, QuorumDisk
from odradek.sim.quorum.voter_records import replica_key
from odradek.wire.primitives import ZERO_UUID


class Violation(Exception):
    """An invariant does not hold; `name` is its name."""

    def __init__(self, name: str, story: str) -> None:
        super().__init__(f"{name}: {story}")
        self.name = name
        self.story = story


class QuorumChecker:
    """What all replicas have shown so far."""

    def __init__(self, disks: Mapping[int, QuorumDisk], voters: Iterable[int]) -> None:
        self.committed: list[Entry] = []
        """The committed records from offset 0 on."""
        self._disks = dict(disks)
        self._lost: dict[ReplicaKey, QuorumDisk] = {}
        """Disks that were replaced, as they were at the end."""
        self._static = VoterSet.of_ids(voters)
        self._leaders: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._high_watermarks: dict[int, int] = {}
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._written: dict[tuple[int, int], tuple[str, int]] = {}

    def replace_disk(self, node: int, disk: QuorumDisk) -> None:
        """A host has an empty disk: its replica is another one."""
        before = self._disks[node]
        self._lost[replica_key(node, before.directory)] = before
        self._disks[node] = disk
        self._epochs.pop(node, None)

    def forget_process(self, node: int) -> None:
        """A process ended: its high watermark, which it does not store, may begin lower."""
        self._high_watermarks.pop(node, None)

    def check_vote(self, node: int, request: VoteRequest, answer: VoteAnswer) -> None:
        """OneVotePerEpoch, VoteIsDurable and VoteIsOfItsDirectory, for each vote (not pre-vote) that will leave."""
        if not answer.is_granted:
            return
        disk, candidate = self._disks[node], request.candidate
        voter, state = replica_key(node, disk.directory), disk.state
        voted = state.leader_epoch, ReplicaKey(state.voted_id, state.voted_directory_id)
        if voted != (answer.epoch, candidate):
            raise Violation(
                "VoteIsDurable", f"{voter} votes for {candidate} in {answer.epoch}, and its disk has {state}"
            )
        if request.voter_directory_id not in (ZERO_UUID, voter.directory_id):
            raise Violation("VoteIsOfItsDirectory", f"{voter} votes in the place of {request.voter}")
        if self._votes.setdefault((voter, answer.epoch), candidate) != candidate:
            raise Violation("OneVotePerEpoch", f"{voter} votes twice in epoch {answer.epoch}")

    def check_step(self, node: int, machine: RaftMachine, effects: Effects) -> None:
        """Check a step whose effects are on the disk."""
        quorum, disk = machine.quorum, self._disks[node]
        if quorum.epoch < self._epochs.get(node, 0):
            raise Violation("MonotonicEpoch", f"{node} goes from epoch {self._epochs[node]} to {quorum.epoch}")
        self._epochs[node] = quorum.epoch
        is_leader = isinstance(quorum.role, Leader)
        if disk.directory and not any(isinstance(each, InstallSnapshot) for each in effects.log):
            self._check_voters(node, machine, effects)
        if is_leader:
            self._check_leader(node, quorum.epoch, disk)
            if any(isinstance(each, InstallSnapshot | TruncateTo) for each in effects.log):
                raise Violation("LeaderNeverLoadSnapshot", f"{node} replaces records of its own epoch {quorum.epoch}")
        for each in effects.log:
            if isinstance(each, Batch):
                self._check_written(node, each, disk)
        if disk.start.offset and (disk.start.offset, disk.start.epoch) != quorum.log.snapshot:
            raise Violation("SnapshotAtLogStart", f"{node} begins at {disk.start}, and has {quorum.log.snapshot}")
        if disk.end != quorum.log.end:
            raise Violation("SnapshotAtLogStart", f"{node} ends at {disk.end}, and believes in {quorum.log.end}")
        # The high watermark of a process that starts is the beginning of its log.
        advances = quorum.high_watermark > max(disk.start.offset, self._high_watermarks.get(node, 0))
        self._check_committed(node, quorum.high_watermark, disk)
        if is_leader and advances and disk.entry(quorum.high_watermark - 1).epoch != quorum.epoch:
            raise Violation("LeaderCommitsItsEpoch", f"{node} counts an older record in epoch {quorum.epoch}")

    def _check_leader(self, node: int, epoch: int, disk: QuorumDisk) -> None:
        if epoch in self._leaders:
            if self._leaders[epoch] != node:
                raise Violation("SingleLeader", f"{node} and {self._leaders[epoch]} lead epoch {epoch}")
            return
        is_newest = epoch > max(self._leaders, default=0)
        self._leaders[epoch] = node
        if not is_newest:
            # A process that was frozen wins an election late: a majority is in a later epoch and commits there.
            return
        for offset in range(len(self.committed)):
            if offset >= disk.end.offset or disk.entry(offset) != self.committed[offset]:
                raise Violation("LeaderHasAllAckedValues", f"{node}, leader of {epoch}, lacks offset {offset}")

    def _check_written(self, node: int, batch: Batch, disk: QuorumDisk) -> None:
        for offset in range(batch.base_offset, min(batch.base_offset + batch.record_count, disk.end.offset)):
            entry = disk.entry(offset)
            before = disk.entry(offset - 1).epoch if offset else 0
            found = (entry.value, before)
            if self._written.setdefault((offset, entry.epoch), found) != found:
                raise Violation("NoLogDivergence", f"{node} has another record at {offset} of epoch {entry.epoch}")

    def _check_committed(self, node: int, high_watermark: int, disk: QuorumDisk) -> None:
        before = self._high_watermarks.get(node, 0)
        if high_watermark < before:
            raise Violation("MonotonicHighWatermark", f"{node} goes from {before} to {high_watermark}")
        if high_watermark == before:
            return
        self._high_watermarks[node] = high_watermark
        if high_watermark > disk.end.offset:
            raise Violation("ConsistentCommittedData", f"{node} commits {high_watermark}, and ends at {disk.end}")
        for offset in range(before, high_watermark):
            entry = disk.entry(offset)
            if offset == len(self.committed):
                self._check_majority(node, offset, entry)
                self.committed.append(entry)
            elif entry != self.committed[offset]:
                raise Violation("ConsistentCommittedData", f"{node} has another committed record at {offset}")

    def _check_majority(self, node: int, offset: int, entry: Entry) -> None:
        # A voter whose disk was replaced counts with what it had: it votes no more, so that the next leader needs a
        # majority of the whole set among the others, and one of those has the record.
        voters = self.voters_of(node)
        holders = [
            key.node_id for key, disk in self._lost.items() if key in voters.keys and disk.has_durably(offset, entry)
        ]
        holders += [
            each
            for each in voters.ids
            if voters.is_voter(replica_key(each, self._disks[each].directory))
            and self._disks[each].has_durably(offset, entry)
        ]
        if not voters.is_majority(holders):
            story = f"{node} commits {offset}, which only {holders} of {sorted(voters.ids)} have"
            raise Violation("MajorityReachedHighWatermark", story)

    # --- voters ---

    def voters_of(self, node: int) -> VoterSet:
        """The voters that are in force by the log of a host."""
        found = self._disks[node].voters()
        return found[-1][1] if found else self._static if not self._disks[node].directory else VoterSet(())

    def _check_voters(self, node: int, machine: RaftMachine, effects: Effects) -> None:
        quorum, disk = machine.quorum, self._disks[node]
        sets = disk.voters()
        in_force = sets[-1][1] if sets else VoterSet(())
        if quorum.voters != in_force:
            raise Violation("VotersMatchLog", f"{node} believes in {quorum.voters}, and its log has {in_force}")
        # A replica that was removed may stand and lead until its removal is committed.
        is_voter = any(each.is_voter(replica_key(node, disk.directory)) for _, each in sets[-2:])
        if isinstance(quorum.role, Ballot) and not is_voter:
            raise Violation("StatesMatchRoles", f"{node} stands in epoch {quorum.epoch}, and is not a voter")
        if not isinstance(quorum.role, Leader):
            return
        if not is_voter:
            raise Violation("StatesMatchRoles", f"{node} leads epoch {quorum.epoch}, and is not a voter")
        base = min((each.base_offset for each in effects.log if isinstance(each, Batch)), default=disk.end.offset)
        for (before, old), (offset, new) in pairwise(sets):
            if offset >= base and before >= 0:
                self._check_change(node, quorum.epoch, before, offset)
            if offset >= base and not old.has_overlapping_majority(new):
                raise Violation("MajoritiesOverlap", f"{node} appends {new} after {old}")

    def _check_change(self, node: int, epoch: int, before: int, offset: int) -> None:
        """The rules of KIP-853 for a leader that appends voters at `offset`, after those at `before`."""
        if before >= len(self.committed):
            raise Violation("OneChangeAtATime", f"{node} changes voters at {offset}, and {before} is not committed")
        if not self.committed or self.committed[-1].epoch < epoch:
            raise Violation("ChangeAfterEpochBegan", f"{node} changes voters at {offset} of epoch {epoch} too early")
