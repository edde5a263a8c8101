"""The invariants of a quorum, checked after every step of every replica.

Their names are those of Apache Kafka's Raft simulation and of the published TLA+ specifications of KRaft.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.kraft.raft.effects import Effects, InstallSnapshot, TruncateTo
from odradek.kraft.raft.machine import RaftMachine
from odradek.kraft.raft.messages import Batch, VoteAnswer
from odradek.kraft.raft.roles import Leader
from odradek.sim.quorum.disk import Entry, QuorumDisk


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
        self._disks = disks
        self._voters = tuple(voters)
        self._leaders: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._high_watermarks: dict[int, int] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._written: dict[tuple[int, int], tuple[str, int]] = {}

    def forget_process(self, node: int) -> None:
        """A process ended: its high watermark, which it does not store, may begin lower."""
        self._high_watermarks.pop(node, None)

    def check_vote(self, node: int, candidate: int, answer: VoteAnswer) -> None:
        """OneVotePerEpoch and VoteIsDurable, for each vote (not pre-vote) that is about to leave."""
        state = self._disks[node].state
        if answer.is_granted and (state.leader_epoch, state.voted_id) != (answer.epoch, candidate):
            raise Violation(
                "VoteIsDurable", f"{node} votes for {candidate} in {answer.epoch}, and its disk has {state}"
            )
        if answer.is_granted and self._votes.setdefault((node, answer.epoch), candidate) != candidate:
            raise Violation("OneVotePerEpoch", f"{node} votes twice in epoch {answer.epoch}")

    def check_step(self, node: int, machine: RaftMachine, effects: Effects) -> None:
        """Check a step whose effects are on the disk."""
        quorum, disk = machine.quorum, self._disks[node]
        if quorum.epoch < self._epochs.get(node, 0):
            raise Violation("MonotonicEpoch", f"{node} goes from epoch {self._epochs[node]} to {quorum.epoch}")
        self._epochs[node] = quorum.epoch
        is_leader = isinstance(quorum.role, Leader)
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
        advances = quorum.high_watermark > self._high_watermarks.get(node, 0)
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
        holders = [each for each in self._voters if self._disks[each].has_durably(offset, entry)]
        if len(holders) <= len(self._voters) // 2:
            raise Violation("MajorityReachedHighWatermark", f"{node} commits {offset}, which only {holders} have")
