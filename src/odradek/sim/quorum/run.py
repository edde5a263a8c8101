"""Runs of a quorum: faults and clients first, then a time without faults in which the quorum has to work."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from odradek.kraft.raft.effects import Resign
from odradek.kraft.raft.roles import Leader
from odradek.sim.quorum.checkers import Violation
from odradek.sim.quorum.voter_changes import VOTER_CHANGES
from odradek.sim.quorum.world import Host, QuorumWorld


class QuorumProfile(NamedTuple):
    """The replicas of a simulated quorum."""

    voters: int
    observers: int
    is_dynamic: bool = False
    """The voters are those of the log, and change."""


QUORUM_PROFILES: Final[Mapping[str, QuorumProfile]] = {
    "quorum": QuorumProfile(3, 1),
    "quorum5": QuorumProfile(5, 1),
    "voters": QuorumProfile(3, 2, is_dynamic=True),
}
_SAFETY_MS: Final = 10_000.0
_ELECTION_MS: Final = 4_000.0
_QUIET_MS: Final = 2_000.0
_LATEST_MS: Final = 30_000.0
"""Until then a leader that has left the voters has resigned, another one is elected, and its log is copied."""
_PROPOSE_MS: Final = 35.0
_FAULT_MS: Final = 250.0
_MOST_MESSAGES: Final = 40
"""Messages in the quiet time per replica and second, which requests without backoff exceed by far."""


@dataclass
class QuorumOutcome:
    """The result of one seed."""

    violation: str = ""
    story: str = ""
    simulated_seconds: float = 0.0
    real_seconds: float = 0.0
    steps: int = 0
    acked: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    trace: list[str] = field(default_factory=list)


def run_quorum(seed: int, profile: str) -> QuorumOutcome:
    """Run one seed of a profile of `QUORUM_PROFILES`."""
    began = time.process_time()
    found = QUORUM_PROFILES[profile]
    world = QuorumWorld(seed, found.voters, found.observers, is_dynamic=found.is_dynamic)
    outcome = QuorumOutcome()
    try:
        _work(world)
        _recover(world)
    except Violation as violation:
        outcome.violation, outcome.story = violation.name, violation.story
        world.note(str(violation))
    outcome.simulated_seconds = world.now_ms / 1000
    outcome.real_seconds = time.process_time() - began
    outcome.steps, outcome.acked = world.steps, len(world.acked)
    outcome.faults, outcome.trace = world.faults, world.trace
    return outcome


def _work(world: QuorumWorld) -> None:
    for host in world.hosts.values():
        world.start(host)
    world.run_until(1000.0)
    world.loss = world.random.choice((0.0, 0.02, 0.1))
    _propose(world, 0)
    _disturb(world)
    world.run_until(_SAFETY_MS)


def _propose(world: QuorumWorld, number: int) -> None:
    if world.now_ms < _SAFETY_MS:
        world.propose(f"v{number}")
        world.at(world.random.uniform(0, 2 * _PROPOSE_MS), lambda: _propose(world, number + 1))


def _disturb(world: QuorumWorld) -> None:
    if world.now_ms < _SAFETY_MS:
        host = _victim(world)
        name, fault = world.random.choice(_FAULTS + VOTER_CHANGES if world.is_dynamic else _FAULTS)
        world.faults[name] += 1
        world.note(f"{name}: {host.node}")
        fault(world, host)
        world.at(world.random.uniform(0, 2 * _FAULT_MS), lambda: _disturb(world))


def _victim(world: QuorumWorld) -> Host:
    """Any host; leaders more often."""
    hosts = list(world.hosts.values())
    leaders = [each for each in hosts if each.machine is not None and isinstance(each.machine.quorum.role, Leader)]
    return world.random.choice(leaders if leaders and world.random.random() < 0.4 else hosts)


def _kill(world: QuorumWorld, host: Host) -> None:
    world.kill(host, loses_power=False)
    world.start_later(host)


def _cut_power(world: QuorumWorld, host: Host) -> None:
    world.kill(host, loses_power=True)
    world.start_later(host)


def _cut_all_power(world: QuorumWorld, _: Host) -> None:
    for host in world.hosts.values():
        _cut_power(world, host)


def _kill_between(world: QuorumWorld, host: Host) -> None:
    host.operations_left = world.random.randint(0, 12)


def _kill_while_electing(world: QuorumWorld, host: Host) -> None:
    """Kill the leader, and others in the middle of the election that follows."""
    _kill(world, host)
    for each in world.hosts.values():
        world.at(world.random.uniform(200, 500), partial(_kill_between, world, each))


def _cut(world: QuorumWorld, host: Host) -> None:
    """Cut a host off from some others, in one direction or both."""
    others = [node for node in world.hosts if node != host.node]
    peers = world.random.sample(others, world.random.randint(1, len(others)))
    direction = world.random.randrange(3)
    pairs = {(host.node, peer) for peer in peers if direction != 1} | {
        (peer, host.node) for peer in peers if direction != 0
    }
    world.cuts |= pairs
    world.at(world.random.uniform(100, 2500), lambda: world.cuts.difference_update(pairs))


def _freeze(world: QuorumWorld, host: Host) -> None:
    host.frozen_until_ms = world.now_ms + world.random.uniform(50, 1500)


def _jump_clock(world: QuorumWorld, host: Host) -> None:
    host.clock_ms += world.random.uniform(-1000, 2000)


def _resign(world: QuorumWorld, host: Host) -> None:
    world.step(host, Resign())


def _snapshot(world: QuorumWorld, host: Host) -> None:
    world.compact_to_snapshot(host)


_FAULTS: Final[tuple[tuple[str, Callable[[QuorumWorld, Host], None]], ...]] = (
    ("kill", _kill),
    ("power loss", _cut_power),
    ("power loss of all", _cut_all_power),
    ("kill planned", _kill_between),
    ("kill planned", _kill_between),
    ("kill while electing", _kill_while_electing),
    ("cut", _cut),
    ("cut", _cut),
    ("freeze", _freeze),
    ("clock jump", _jump_clock),
    ("resign", _resign),
    ("snapshot", _snapshot),
    ("snapshot", _snapshot),
    ("snapshot", _snapshot),
)


def _recover(world: QuorumWorld) -> None:
    """Faults end: a leader must commit a new value on all replicas, and stay the leader. Raises Violation."""
    world.loss, world.jitter = 0.0, 1.0
    world.cuts.clear()
    for host in world.hosts.values():
        host.frozen_until_ms, host.operations_left = world.now_ms, -1
        world.start_if_dead(host)
    world.run_until(_SAFETY_MS + _ELECTION_MS)
    while (any(map(_leaves, world.hosts.values())) or _is_copying(world)) and world.now_ms < _LATEST_MS:
        world.run_until(world.now_ms + _ELECTION_MS)
    sent, epoch, until = world.sent, max(_epochs(world)), world.now_ms + _QUIET_MS
    world.propose("last")
    world.run_until(until)
    if "last" not in world.acked:
        raise Violation("Liveness", "no value was committed after the faults had ended")
    committed = {host.machine.quorum.high_watermark for host in world.hosts.values() if host.machine is not None}
    if committed != {len(world.checker.committed)}:
        raise Violation("Liveness", f"high watermarks {sorted(committed)} of {len(world.checker.committed)} records")
    if {epoch} != set(_epochs(world)):
        raise Violation("Liveness", f"epochs {_epochs(world)} after {epoch}, without a fault")
    rate = (world.sent - sent) / len(world.hosts) / (_QUIET_MS / 1000)
    if rate > _MOST_MESSAGES:
        raise Violation("Quiet", f"{rate:.0f} messages per replica and second without work")
    values = [each.value for each in world.checker.committed]
    missing = world.acked.difference(values)
    if missing:
        raise Violation("LeaderHasAllAckedValues", f"acknowledged values are missing: {sorted(missing)[:5]}")


def _leaves(host: Host) -> bool:
    """Whether a leader is no voter any longer: it resigns once that is committed, behind what was proposed before."""
    quorum = None if host.machine is None else host.machine.quorum
    return quorum is not None and isinstance(quorum.role, Leader) and not quorum.is_voter


def _is_copying(world: QuorumWorld) -> bool:
    """Whether replicas have yet to copy the leader's log, perhaps one record at a time, each synced."""
    return len({host.disk.end for host in world.hosts.values()}) > 1


def _epochs(world: QuorumWorld) -> list[int]:
    return [host.machine.quorum.epoch for host in world.hosts.values() if host.machine is not None]
