"""What must hold of brokers that send no heartbeat: the active controller fences them after their session."""

from __future__ import annotations

from typing import Final

from odradek.sim.checkers.history import Violation
from odradek.sim.controllers.active_controller import SESSION_SECONDS
from odradek.sim.controllers.own_controllers import OwnQuorum
from odradek.sim.world.hosts import World

_SLACK_SECONDS: Final = 2.0
"""For the decision and its commit."""
_COMMIT_SECONDS: Final = 1.0
"""A leader that has not committed its whole log for so long may be cut off."""


class SilentBrokers:
    """Looks at the brokers of controllers of Odradek. Each controller gives each broker a session of its own."""

    def __init__(self, world: World, quorum: OwnQuorum) -> None:
        self._world = world
        self._quorum = quorum
        self._reign: tuple[str, int] | None = None
        self._reigns_since = 0.0
        self._committed_at = 0.0
        self._active_since: dict[tuple[int, int], float] = {}

    def look(self) -> None:
        """Look once. Raises Violation."""
        now = self._world.now()
        self._look_at_leader(now)
        active = {(each.id, each.epoch) for each in self._quorum.image.brokers.values() if each.is_active}
        self._active_since = {key: self._active_since.get(key, now) for key in active}
        for key, active_since in self._active_since.items():
            reported_at = self._quorum.heartbeats_at.get(key, 0.0)
            silent_since = max(reported_at, active_since, self._reigns_since)
            if now - silent_since > SESSION_SECONDS + _SLACK_SECONDS:
                raise Violation(
                    "a silent broker is fenced",
                    f"b{key[0]} is unfenced in epoch {key[1]}; {self._reign} leads since {self._reigns_since:.3f} "
                    f"and accepted the last heartbeat of the broker at {reported_at:.3f}",
                )

    def _look_at_leader(self, now: float) -> None:
        host = self._quorum.leader
        node = None if host is None or not host.is_awake else host.running
        if host is None or node is None or host.process is None:
            self._reign, self._reigns_since = None, now
            return
        replica = node.parts.replica
        quorum = replica.machine.quorum
        if quorum.high_watermark == quorum.log.end_offset:
            self._committed_at = now
        reign = host.process.name, replica.leader.epoch
        if reign != self._reign or now - self._committed_at > _COMMIT_SECONDS:
            self._reign, self._reigns_since = reign, now
