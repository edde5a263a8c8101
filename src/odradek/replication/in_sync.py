"""A leader's record of its followers, and which of them are in sync. Pure: time comes in as an argument.

Source: Kafka's `Replica` and the parts of `Partition` that shrink and expand the ISR (KIP-497, KIP-903).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

UNKNOWN_OFFSET: Final = -1
UNKNOWN_EPOCH: Final = -1
DEFAULT_MAX_LAG_MS: Final = 30_000
NEVER_MS: Final = -(1 << 62)


class FollowerProgress:
    """How far one follower has come, by its last fetch. Offsets are -1 until it has fetched from this leader.

    Times are milliseconds of the monotonic clock: a wall clock that is set must not empty the ISR.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "end_offset",
        "fetched_ms",
        "leader_end_offset",
        "log_start_offset",
        "rejected",
    )

    def __init__(self, broker_id: int, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN_EPOCH
        self.end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.caught_up_ms = caught_up_ms
        """The last moment at which it had everything that the leader had."""
        self.fetched_ms = NEVER_MS
        self.leader_end_offset = UNKNOWN_OFFSET
        """Where the leader's log ended at the follower's last fetch."""
        self.rejected = False
        """Whether the controller rejected it as ineligible, as it does while it shuts down. It is not proposed then."""

    def fetched(
        self, offset: int, log_start_offset: int, broker_epoch: int, leader_end_offset: int, now_ms: int
    ) -> None:
        """Note a fetch from the offset: all records below it are in the follower's log.

        A follower that has reached the leader's end offset of its previous fetch was caught up then, even if the leader
        is always a little ahead.
        """
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self.leader_end_offset and self.fetched_ms > self.caught_up_ms:
            self.caught_up_ms = self.fetched_ms
        self.end_offset = offset
        self.log_start_offset = log_start_offset
        if broker_epoch != self.broker_epoch:
            self.broker_epoch = broker_epoch
            self.rejected = False
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = now_ms

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Whether the follower has every record, or had within `max_lag_ms`."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= max_lag_ms


def committed_offset(
    leader_end_offset: int,
    followers: Mapping[int, FollowerProgress],
    maximal_isr: Iterable[int],
    max_lag_ms: int,
    now_ms: int,
    is_eligible: Callable[[int, int], bool],
) -> int:
    """The offset up to which all counted replicas have the log; -1 if one of them has not fetched yet.

    Replicas count that are in the ISR or may soon be, and also those that keep up outside it: the high watermark must
    not run away from a follower that is about to join.
    """
    lowest = leader_end_offset
    for broker_id, follower in followers.items():
        if follower.end_offset < lowest and (
            broker_id in maximal_isr
            or (
                follower.is_caught_up(leader_end_offset, now_ms, max_lag_ms)
                and is_eligible(broker_id, follower.broker_epoch)
            )
        ):
            lowest = follower.end_offset
    return lowest


def lagging(
    followers: Mapping[int, FollowerProgress],
    isr: Iterable[int],
    local_id: int,
    leader_end_offset: int,
    now_ms: int,
    max_lag_ms: int,
) -> list[int]:
    """Members of the ISR that have not been caught up for `replica.lag.time.max.ms`."""
    result = []
    for broker_id in isr:
        if broker_id == local_id:
            continue
        follower = followers.get(broker_id)
        if follower is None or not follower.is_caught_up(leader_end_offset, now_ms, max_lag_ms):
            result.append(broker_id)
    return result


class IsrProposal:
    """A change of the ISR that the controller has been, or is to be, asked for."""

    __slots__ = ("isr", "partition_epoch", "refused")

    def __init__(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.isr = isr
        self.partition_epoch = partition_epoch
        """The partition epoch of the state that it changes."""
        self.refused = False
        """The controller knows better: its next LeaderAndIsr ends the matter."""
