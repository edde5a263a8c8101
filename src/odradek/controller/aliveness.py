"""Which leaders have ended or restarted: the answer depends on how brokers register. Pure.

On a store, a registration ends with the broker's session, and the state of a partition names the registration that its
leader was elected in. KRaft's records have no such field. There a broker stays registered until it is unregistered, a
fence says that its session has expired, and the controller moves leadership away in the decision that registers a new
incarnation (`registrations.register_broker`), so that no image has a leader that has restarted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from odradek.metadata.image import NO_BROKER, Broker, PartitionState


class Aliveness(Protocol):
    """Judges leaders by the registrations of brokers. `brokers`: the registered ones, by id."""

    def has_bounced(self, state: PartitionState, brokers: Mapping[int, Broker], /) -> bool:
        """Whether the leader's broker has registered again since the leader was elected."""
        ...

    def has_led(self, state: PartitionState, brokers: Mapping[int, Broker], /) -> bool:
        """Whether the leader was elected under the present registration of its broker."""
        ...

    def may_finish(self, leader: int, brokers: Mapping[int, Broker], /) -> bool:
        """Whether a leader that must not be elected may continue to lead while no other replica has all records."""
        ...

    def elected_in(self, leader: Broker, /) -> int:
        """The `leader_broker_epoch` of a partition that this broker is elected to lead."""
        ...


class SessionAliveness:
    """Registrations are nodes of a store (ZooKeeper, SQLite) that end with their session."""

    __slots__ = ()

    def has_bounced(self, state: PartitionState, brokers: Mapping[int, Broker]) -> bool:
        """Another registration than the one that the leader was elected in."""
        leader = brokers.get(state.leader)
        return leader is not None and leader.epoch != state.leader_broker_epoch

    def has_led(self, state: PartitionState, brokers: Mapping[int, Broker]) -> bool:
        """The registration that the leader was elected in."""
        leader = brokers.get(state.leader)
        return leader is not None and leader.epoch == state.leader_broker_epoch

    def may_finish(self, leader: int, brokers: Mapping[int, Broker]) -> bool:
        """A broker that shuts down or is silent, and still has its session."""
        return leader in brokers

    def elected_in(self, leader: Broker) -> int:
        """The epoch of its registration."""
        return leader.epoch


class RecordAliveness:
    """Registrations are records of KRaft's metadata log (KIP-631)."""

    __slots__ = ()

    def has_bounced(self, _state: PartitionState, _brokers: Mapping[int, Broker]) -> bool:
        """Never: the decision that registers an incarnation ends the leadership of the previous one."""
        return False

    def has_led(self, _state: PartitionState, _brokers: Mapping[int, Broker]) -> bool:
        """Never: the question arises while an incarnation registers, before it can lead."""
        return False

    def may_finish(self, leader: int, brokers: Mapping[int, Broker]) -> bool:
        """A broker in controlled shutdown, but not one whose session has expired."""
        found = brokers.get(leader)
        return found is not None and not found.fenced

    def elected_in(self, _leader: Broker) -> int:
        """None, as no record carries it."""
        return NO_BROKER


BY_SESSIONS: Final = SessionAliveness()
"""For clusters on a store."""
BY_RECORDS: Final = RecordAliveness()
"""For images that were replayed from KRaft's records."""
