"""The followers of one partition as their leader knows them: their progress, and the ISR that it proposes.

Source: the leader's side of Kafka's `Partition` (`maybeExpandIsr`, `maybeShrinkIsr`, `updateFollowerFetchState`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, Protocol

from odradek.log.partition_log import PartitionLog
from odradek.metadata.image import PartitionState
from odradek.replication.in_sync import NEVER_MS, FollowerProgress, IsrProposal, lagging
from odradek.replication.leadership import Leadership
from odradek.replication.readers import PartitionReaders
from odradek.wire.errors import ErrorCode, KafkaError

_TRY_AGAIN: Final = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)


class Deletions(Protocol):
    """Deletions of records that wait for followers."""

    @property
    def waiters(self) -> Collection[Any]:
        """Requests that wait until followers have deleted records."""
        ...

    def release(self) -> None:
        """Call back the deletions that are complete."""
        ...


class LedReplica(Protocol):
    """The partition, as far as its followers depend on it."""

    topic: str
    index: int
    local_id: int
    log: PartitionLog
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    leader_epoch_start_offset: int
    high_watermark: int
    readers: PartitionReaders

    @property
    def deletion(self) -> Deletions:
        """The deletions that wait."""
        ...

    def advance_high_watermark(self, appended_bytes: int) -> None:
        """Recompute the high watermark."""
        ...

    def propose(self) -> None:
        """Have the controller asked for the proposed ISR."""
        ...

    def apply_state(self, state: PartitionState) -> None:
        """Take over a state from the controller."""
        ...


class Surroundings(Protocol):
    """What followers depend on beyond their partition."""

    @property
    def now_ms(self) -> Callable[[], int]:
        """Milliseconds of the monotonic clock."""
        ...

    @property
    def max_lag_ms(self) -> int:
        """`replica.lag.time.max.ms`."""
        ...

    @property
    def is_eligible(self) -> Callable[[int, int], bool]:
        """Whether a broker, by the epoch that its fetches carry, may join an ISR."""
        ...

    @property
    def leadership(self) -> Leadership | None:
        """The broker's right to act as a leader; None: it always may."""
        ...


class Followers:
    """Empty unless this broker leads the partition. The ISR itself is the partition's, as the controller has set it."""

    __slots__ = ("_environment", "_partition", "counted", "offline", "progress", "proposal")

    def __init__(self, partition: LedReplica, environment: Surroundings) -> None:
        self._partition = partition
        self._environment = environment
        self.progress: dict[int, FollowerProgress] = {}
        """The progress of the other replicas by broker id."""
        self.counted: frozenset[int] = frozenset()
        """Members of the ISR and those that the proposal would add: the high watermark waits for all of them."""
        self.offline: tuple[int, ...] = ()
        """Replicas on dead brokers or in failed directories, which may still fetch until they notice."""
        self.proposal: IsrProposal | None = None
        """The ISR that this leader asks the controller for; None while it asks for none."""

    def begin(self, isr_before: tuple[int, ...], *, continues: bool) -> None:
        """Start to lead with the replicas and the ISR of a new state, in the same epoch if it `continues`."""
        partition = self._partition
        now_ms = self._environment.now_ms()
        # Another broker may have led in between, unknown to this one, and made the followers truncate their logs.
        known = self.progress if continues else {}
        self.stop_waiting_for([member for member in isr_before if member not in partition.isr and member in known])
        self.progress = {
            broker_id: known.get(broker_id)
            or FollowerProgress(broker_id, now_ms if broker_id in partition.isr else NEVER_MS)
            for broker_id in partition.replicas
            if broker_id != partition.local_id
        }
        for follower in self.progress.values():
            follower.rejected = False
        self.count()

    def end(self) -> None:
        """Forget the followers: this broker no longer leads."""
        self.proposal = None
        self.progress = {}
        self.counted = frozenset()

    def apply_offline(self, offline: tuple[int, ...]) -> bool:
        """Take over which replicas are offline; returns whether that has changed."""
        changed = offline != self.offline
        self.offline = offline
        return changed

    def drop_outdated_proposal(self, partition_epoch: int, *, new_epoch: bool) -> None:
        """Forget a proposal that was made for an earlier state than this one."""
        if self.proposal is not None and (new_epoch or partition_epoch > self.proposal.partition_epoch):
            self.proposal = None

    def fetched(self, broker_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int, now_ms: int) -> None:
        """Note a fetch from the offset: the follower has all records below it.

        Call it after the epochs are checked and the histories have not diverged. Raises KafkaError
        UNKNOWN_LEADER_EPOCH for a broker that is no replica here, OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER for a
        fetch of an earlier life of that broker.
        """
        follower = self.progress.get(broker_id)
        if follower is None:
            # A reassignment that this leader has not applied yet may have made it a replica.
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = self._partition.log
        end_offset = log.end_offset
        if not log.log_start_offset <= fetch_offset <= end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if broker_epoch < follower.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        before = follower.end_offset
        follower.fetched(fetch_offset, log_start_offset, broker_epoch, end_offset, now_ms)
        if broker_id not in self.counted:
            self._expand_isr(follower)
        if fetch_offset != before:
            self._partition.advance_high_watermark(0)
        if self._partition.deletion.waiters:
            self._partition.deletion.release()

    def _expand_isr(self, follower: FollowerProgress) -> None:
        """Propose the follower as in sync if it has all that is committed, and what the epoch began with.

        A leader before may act by the promises of those that it asked until this one begins. The follower may have
        promised nothing, and could be elected.
        """
        if (
            self.proposal is None
            and not follower.rejected
            and self.has_begun
            and follower.end_offset >= self._partition.high_watermark
            and follower.end_offset >= self._partition.leader_epoch_start_offset
            and self.is_eligible(follower.broker_id, follower.broker_epoch)
        ):
            self._propose((*self._partition.isr, follower.broker_id))

    def reconsider(self) -> None:
        """After a change of the live brokers: propose replicas that may join, do not wait for those that may not."""
        for broker_id, follower in self.progress.items():
            follower.rejected = False
            if broker_id not in self.counted:
                self._expand_isr(follower)
        self._partition.advance_high_watermark(0)
        self._partition.deletion.release()

    def take_in(self) -> None:
        """Propose followers that have caught up and whose fetches do not name the partition.

        They may have caught up while the controller was asked to remove them from the ISR, or before this leader began.
        A partition that takes no writes is not named in a later fetch.
        """
        if self.proposal is not None or len(self._partition.isr) == len(self._partition.replicas):
            return
        for session in self._partition.readers.sessions:
            session.refresh()
        since_ms = self._environment.now_ms() - self._environment.max_lag_ms
        for broker_id, follower in self.progress.items():
            if broker_id not in self.counted and follower.fetched_ms >= since_ms:
                self._expand_isr(follower)

    def shrink_isr(self) -> None:
        """Propose to remove members that have not been caught up for `replica.lag.time.max.ms`."""
        if self.proposal is not None or not self.progress:
            return
        environment = self._environment
        out = lagging(
            self.progress,
            self._partition.isr,
            self._partition.local_id,
            self._partition.log.end_offset,
            environment.now_ms(),
            environment.max_lag_ms,
        )
        if out:
            self._propose(tuple(broker_id for broker_id in self._partition.isr if broker_id not in out))
        # A follower that has stopped keeping up without being in the ISR held the high watermark back until now.
        self._partition.advance_high_watermark(0)

    def _propose(self, isr: tuple[int, ...]) -> None:
        self.proposal = IsrProposal(isr, self._partition.partition_epoch)
        self.count()
        self._partition.propose()

    def count(self) -> None:
        """Compute the replicas that the high watermark waits for: the ISR, and those that the proposal would add."""
        proposal = self.proposal
        self.counted = frozenset(self._partition.isr if proposal is None else (*self._partition.isr, *proposal.isr))
        if self._partition.deletion.waiters:
            self._partition.deletion.release()

    def isr_with_epochs(self, proposal: IsrProposal, broker_epoch: int) -> tuple[tuple[int, int], ...]:
        """The proposed members with the registration that each fetched under, -1 if unknown (KIP-903)."""
        return tuple(
            (member, broker_epoch if member == self._partition.local_id else self.progress[member].broker_epoch)
            for member in proposal.isr
            if member == self._partition.local_id or member in self.progress
        )

    def proposal_answered(self, proposal: IsrProposal, error: ErrorCode, state: PartitionState | None) -> None:
        """Apply the controller's answer to the proposal."""
        if self.proposal is not proposal:
            return
        if error in _TRY_AGAIN:
            # The controller certainly did not apply it: the ISR is unchanged.
            self.proposal = None
            self.count()
            if error is ErrorCode.INELIGIBLE_REPLICA:
                self._reject([member for member in proposal.isr if member not in self._partition.isr])
            self._partition.advance_high_watermark(0)
        elif error or state is None:
            # It conflicts with a state that is not known here yet, maybe the result of an earlier attempt of the same
            # proposal. The high watermark continues to wait for the members of both ISRs.
            proposal.refused = True
        else:
            self.proposal = None
            self.count()
            self._partition.apply_state(state)
            self._partition.advance_high_watermark(0)

    @property
    def has_begun(self) -> bool:
        """Whether this leader waits no longer for the leaders before: see `Leadership`."""
        leadership = self._environment.leadership
        return leadership is None or not leadership.is_pending(self._partition.topic, self._partition.index)

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a follower may join the ISR: its directory has not failed, and its broker is alive."""
        return broker_id not in self.offline and self._environment.is_eligible(broker_id, broker_epoch)

    def _reject(self, members: list[int]) -> None:
        """Do not propose them again before the brokers, this partition's state or their registrations change.

        The image does not show that a broker shuts down, and such a follower fetches after every append until then.
        """
        self.stop_waiting_for(members)
        for member in members:
            follower = self.progress.get(member)
            if follower is not None:
                follower.rejected = True

    def stop_waiting_for(self, members: list[int]) -> None:
        """Exclude followers that the controller keeps out of the ISR from the high watermark until they catch up again.

        They shut down or their directory has failed: they kept up until now, and may never fetch again.
        """
        for member in members:
            follower = self.progress.get(member)
            if follower is not None:
                follower.caught_up_ms = follower.fetched_ms = NEVER_MS
