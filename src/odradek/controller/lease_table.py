"""The controller's leases of leadership: which broker may lead for how long, and when a new leader may begin.

A broker leads partitions only while it holds a lease. The controller grants leases from its last confirmation by the
metadata store, so a controller that was replaced grants none that lasts longer than `lease_seconds` after the election
of its successor. A broker that lost the leadership of a partition is *deposed*: until it has acknowledged that, is
dead, or its lease has ended, no new leader begins. See docs/decisions/0011-leaders-hold-leases.md.

Pure: times are seconds of the controller's monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import Final, NamedTuple

from odradek.metadata.image import NO_BROKER, NO_LEADER, Broker, ClusterImage
from odradek.metadata.topic_changes import partition_changes

NEVER: Final = float("-inf")


class Grant(NamedTuple):
    """The controller's answer to a broker that asks for a lease."""

    seconds: float
    """How long the lease lasts from the moment of the answer; 0.0 for no lease."""
    may_begin: bool
    """Whether the partitions that the broker has newly got may be led now."""
    is_ending: bool = False
    """The controller gets no answers from the broker: others lead when this lease is over, so that they are not to be
    asked for promises."""


NO_GRANT: Final = Grant(0.0, may_begin=False)


class _Deposed(NamedTuple):
    version: int
    """The image that the broker has to acknowledge."""
    epoch: int
    """Its registration; -1 if that is not known."""
    until: float
    """When its lease has ended in any case."""


class LeaseTable:
    """Leases of all brokers during one reign."""

    __slots__ = (
        "_acknowledged",
        "_confirmed",
        "_dead",
        "_deposed",
        "_ended",
        "_granted",
        "_hidden_until",
        "_lease",
        "_own_id",
        "_own_until",
        "_predecessors_end",
        "_required",
    )

    def __init__(self, lease_seconds: float, own_id: int = NO_BROKER) -> None:
        """`own_id`: the broker in the controller's process."""
        self._lease = lease_seconds
        self._own_id = own_id
        self._own_until = inf
        self._ended: dict[int, float] = {}
        self._confirmed = NEVER
        self._predecessors_end = NEVER
        self._hidden_until = NEVER
        self._granted: dict[int, float] = {}
        self._acknowledged: dict[int, tuple[int, int]] = {}
        self._required: dict[int, int] = {}
        self._deposed: dict[int, _Deposed] = {}
        self._dead: dict[int, int] = {}

    @property
    def lease_seconds(self) -> float:
        """How long a lease lasts from the confirmation that it rests on."""
        return self._lease

    @property
    def confirmed_at(self) -> float:
        """When the newest confirmation was asked for."""
        return self._confirmed

    def begin(self, now: float, *, deposed_before: bool, ended: Mapping[int, float] | None = None) -> None:
        """Begin a reign; the election was written before `now`, and no earlier controller is confirmed after that.

        `deposed_before`: an earlier controller wrote that brokers are deposed, and may not have waited for them.
        `ended`: a broker which was the controller until its session ended, and with it its leases for itself, with the
        time at which that reign was first seen: no other controller's lease for it lasts longer than one from then.
        """
        self._granted.clear()
        self._acknowledged.clear()
        self._required.clear()
        self._dead.clear()
        self._deposed.clear()
        self._predecessors_end = now + self._lease
        self._ended = {broker_id: seen_at + self._lease for broker_id, seen_at in (ended or {}).items()}
        self._hidden_until = self._predecessors_end if deposed_before else NEVER

    def confirm(self, asked_at: float, own_until: float = inf) -> None:
        """The metadata store has confirmed this controller; it was asked at that time.

        `own_until`: it does not end the session of this process before that.
        """
        if asked_at >= self._confirmed:
            self._confirmed, self._own_until = asked_at, own_until

    def revoke_confirmation(self) -> None:
        """Grant nothing before the next confirmation: the reign is over, or a new one begins."""
        self._confirmed = NEVER

    def depose(self, brokers: Mapping[int, int], version: int) -> None:
        """The image of this version takes partitions from these brokers (id → registration epoch, -1 if unknown)."""
        for broker_id, epoch in brokers.items():
            until = max(self._granted.get(broker_id, NEVER), self._ended.get(broker_id, self._predecessors_end))
            self._required[broker_id] = version
            if epoch >= 0 and self._dead.get(broker_id) == epoch:
                continue
            self._deposed[broker_id] = _Deposed(version, epoch, until)

    def acknowledge(self, broker_id: int, epoch: int, version: int) -> None:
        """A broker knows the image of this version."""
        self._acknowledged[broker_id] = (epoch, version)
        deposed = self._deposed.get(broker_id)
        if deposed is not None and version >= deposed.version:
            del self._deposed[broker_id]

    def register(self, brokers: Iterable[Broker]) -> None:
        """A broker with a newer registration is another process, or has given up its lease before it registered."""
        for broker in brokers:
            deposed = self._deposed.get(broker.id)
            if deposed is not None and 0 <= deposed.epoch < broker.epoch:
                del self._deposed[broker.id]

    def bury(self, broker_id: int, epoch: int) -> None:
        """The process with this registration is dead."""
        self._dead[broker_id] = epoch
        deposed = self._deposed.get(broker_id)
        if deposed is not None and deposed.epoch <= epoch:
            del self._deposed[broker_id]

    def deposed(self, now: float) -> frozenset[int]:
        """The brokers that may still act as leaders of what they have lost."""
        for broker_id, deposed in list(self._deposed.items()):
            if deposed.until <= now:
                del self._deposed[broker_id]
        return frozenset(self._deposed)

    def is_quiet(self, now: float) -> bool:
        """Whether no broker may lead what the metadata store says another one leads."""
        return now >= self._hidden_until and not self.deposed(now)

    def grant(self, broker_id: int, epoch: int, now: float, session_end: float = inf) -> Grant:
        """A lease for the registration of a broker, if the broker knows everything that it has lost.

        It never lasts beyond `session_end`, when this controller fences the broker: its successors need not wait then.
        One for the controller's own broker never lasts beyond its session with the store, for the same reason.
        """
        ends = self._confirmed + self._lease
        is_ending = session_end < ends
        ends = min(ends, session_end, self._own_until if broker_id == self._own_id else inf)
        registration, version = self._acknowledged.get(broker_id, (-1, -1))
        if ends <= now or registration != epoch or version < self._required.get(broker_id, 0):
            return NO_GRANT._replace(is_ending=is_ending)
        waiting = self.deposed(now) - {broker_id}
        self._granted[broker_id] = max(self._granted.get(broker_id, NEVER), ends)
        return Grant(ends - now, may_begin=now >= self._hidden_until and not waiting, is_ending=is_ending)


def deposed_brokers(old: ClusterImage, new: ClusterImage) -> dict[int, int]:
    """The brokers that lead a partition in `old` and not in `new`, with their registration epochs (-1 if unknown).

    Without those that have registered again since they were elected, and without the leaders of deleted topics.
    """
    found: dict[int, int] = {}
    for _topic, _index, before, after in partition_changes(old, new):
        if before is None or before.leader in (NO_LEADER, after.leader) or before.leader in found:
            continue
        leader = before.leader
        registered = old.brokers.get(leader)
        epoch = before.leader_broker_epoch if registered is None else registered.epoch
        again = new.brokers.get(leader)
        if again is None or epoch < 0 or again.epoch == epoch:
            found[leader] = epoch
    return found
