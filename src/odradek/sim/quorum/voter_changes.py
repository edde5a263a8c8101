"""What happens to the voters of a simulated quorum: operators add and remove them, and disks are replaced.

Operators and accidents leave a majority of every set of voters alive that is, or may come, in force: without one, a
quorum stops for good, as it must.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from odradek.kraft.raft.effects import Received
from odradek.kraft.raft.messages import AddVoterRequest, RemoveVoterRequest, VoterChangeRequest
from odradek.kraft.raft.roles import Leader
from odradek.kraft.raft.voters import ReplicaKey, VoterSet
from odradek.sim.quorum.voter_records import simulated_voter
from odradek.sim.quorum.world import Host, QuorumWorld

_CLUSTER: Final = "cluster"
_LATEST_MS: Final = 3000.0
"""Messages arrive within this time."""


def _sets(world: QuorumWorld) -> list[VoterSet]:
    """The sets that are in force on a host, or were committed last."""
    found = [world.checker.voters_of(node) for node in world.hosts]
    return [each for each in found if each.ids]


def _alive(world: QuorumWorld, without: ReplicaKey | None = None) -> set[ReplicaKey]:
    return {host.key for host in world.hosts.values()} - {without}


def _has_majorities(sets: list[VoterSet], alive: set[ReplicaKey]) -> bool:
    """Whether each set can lose no further voter than those that are gone."""
    return all(len(each.keys & alive) > len(each.ids) // 2 for each in sets)


def _ask_leaders(world: QuorumWorld, request: VoterChangeRequest) -> None:
    for host in list(world.hosts.values()):
        if host.machine is not None and isinstance(host.machine.quorum.role, Leader):
            world.step(host, Received(request, None))


def _add(world: QuorumWorld, host: Host) -> None:
    """An operator adds a host that has caught up."""
    if host.machine is not None:
        _ask_leaders(world, AddVoterRequest(_CLUSTER, -1, simulated_voter(host.key)))


def _remove(world: QuorumWorld, host: Host) -> None:
    """An operator removes the present replica of a host, or one whose disk is gone."""
    alive = _alive(world)
    gone = [key for each in _sets(world) for key in sorted(each.keys) if key not in alive]
    key = gone[-1] if gone else host.key
    remaining = [VoterSet(voter for voter in each.voters if voter.key != key) for each in _sets(world)]
    if all(each.ids for each in remaining) and _has_majorities(remaining, alive):
        _ask_leaders(world, RemoveVoterRequest(_CLUSTER, -1, key))


def _replace_disk(world: QuorumWorld, host: Host) -> None:
    """A disk is replaced, unless another one is being replaced or the quorum could lose what it has committed."""
    sets = _sets(world)
    asked = any(each.asked_ms > world.now_ms - _LATEST_MS for each in world.hosts.values())
    has_gone = any(key not in _alive(world) for each in sets for key in each.keys)
    if not asked and not has_gone and _has_majorities(sets, _alive(world, host.key)):
        world.replace_disk(host)
        world.start_later(host)


VOTER_CHANGES: Final[tuple[tuple[str, Callable[[QuorumWorld, Host], None]], ...]] = (
    ("voter added", _add),
    ("voter added", _add),
    ("voter added", _add),
    ("voter added", _add),
    ("voter removed", _remove),
    ("voter removed", _remove),
    ("voter removed", _remove),
    ("disk replaced", _replace_disk),
    ("disk replaced", _replace_disk),
)
