"""Who may change an ISR: the leader of the epoch by its proposals, and the controller when a broker goes."""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.metadata.image import NO_LEADER, PartitionState
from odradek.records.topic_partition import PartitionKey
from odradek.replication.partition import Partition
from odradek.sim.checkers.history import Violation
from odradek.sim.world.hosts import World

_ON_RECORDS: Final = -1
"""Records do not carry the registration in which a leader was elected."""


class LeaderKnowledge(NamedTuple):
    """A leader that lives, under the registration in which it was elected, at the moment of a write."""

    stays: bool
    """Whether the controller has no reason to take leadership from it: not fenced, not stopping, its directory is in
    use."""
    leader_epoch: int
    """The epoch in which it leads, as far as it knows; -1 if it does not know that it leads."""
    proposal: frozenset[int]
    """The ISR that it asks for; empty if it asks for none."""
    has_begun: bool = True
    """Whether it waits no longer for the leaders before it."""


def check_isr_change(
    key: PartitionKey, before: PartitionState, after: PartitionState, leader: LeaderKnowledge | None
) -> None:
    """Check one written change. `leader` is None if the former leader cannot be asked. Raises Violation.

    A leader never proposes an ISR without itself. Only its own proposal of its epoch adds members while it leads, and
    only once it has begun: the leaders before may act by promises until then, and a new member has promised nothing.
    """
    if leader is None:
        return
    step = f"{key}: ISR {before.isr} of leader {before.leader}, epoch {before.leader_epoch}, became {after.isr}"
    moves_away = before.leader not in after.replicas or before.leader in before.removing_replicas
    if leader.stays and not moves_away and before.leader not in after.isr:
        raise Violation("a leader that stays is in the ISR", f"{step}; leader {after.leader}, {after.leader_epoch}")
    joined = set(after.isr) - set(before.isr)
    if joined and after.leader == before.leader:
        if leader.leader_epoch != before.leader_epoch:
            raise Violation("only the leader expands the ISR", f"{step}; the leader knows epoch {leader.leader_epoch}")
        if not joined <= leader.proposal:
            raise Violation("only the leader expands the ISR", f"{step}; it proposes {sorted(leader.proposal)}")
        if not leader.has_begun:
            raise Violation("a leader has begun before it expands the ISR", step)


def leader_knowledge(
    world: World, key: PartitionKey, before: PartitionState, topic_id: bytes
) -> LeaderKnowledge | None:
    """The leader of the state as it is now; None if it is down, or lives under another registration."""
    if before.leader == NO_LEADER:
        return None
    host = world.brokers[before.leader - 1]
    found = host.inspect() if host.is_up else None
    if found is None or not world.membership.is_registered(host):
        return None
    if before.leader_broker_epoch not in (_ON_RECORDS, world.membership.registered_epoch(host)):
        return None
    partition = found.partitions.opened_partition(*key)
    if partition is None or partition.topic_id != topic_id:
        return None
    stays = not host.is_stopping and not world.membership.is_fenced(host) and not found.partitions.is_offline(*key)
    has_begun = found.leadership is None or not found.leadership.is_pending(*key)
    return LeaderKnowledge(stays, _led_epoch(partition), _proposal(partition), has_begun)


def _led_epoch(partition: Partition) -> int:
    return partition.leader_epoch if partition.is_leader else -1


def _proposal(partition: Partition) -> frozenset[int]:
    proposal = partition.followers.proposal
    return frozenset() if proposal is None else frozenset(proposal.isr)
