"""What must hold of each heartbeat of a broker: what it reports, and what controllers of Odradek answer.

The answer must be judged beside the request: when the record of an unfencing is committed, the broker has mostly
applied its registration, whatever it reported before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, cast

from odradek.broker.kraft.quorum_participation import QuorumParticipation
from odradek.sim.checkers.history import Violation
from odradek.sim.controllers.own_controllers import OwnQuorum
from odradek.sim.targets import replaced
from odradek.sim.world.hosts import World
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

_TARGET: Final = "odradek.broker.quorum.broker_requests:BrokerRequests.heartbeat"


def check_report(world: World, request: BrokerHeartbeatRequest) -> None:
    """Break the run if the process that this heartbeat is of has not applied what the heartbeat reports."""
    host = world.brokers[request.broker_id - 1]
    found = host.inspect() if host.is_up else None
    if found is None or found.participation.broker_epoch != request.broker_epoch:
        return
    assert isinstance(found.participation, QuorumParticipation)
    applied = found.participation.metadata_offset
    if request.current_metadata_offset > applied:
        world.loop.broken = Violation(
            "brokers report what they have applied",
            f"{host.host} reports offset {request.current_metadata_offset} and has applied {applied}",
        )


class _Heartbeats:
    """The heartbeats of one run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ready: set[tuple[int, int]] = set()
        """Registrations, by broker and epoch, that asked to be unfenced once they had been applied.

        A heartbeat that a slow connection delays may come after the one that unfenced its broker.
        """

    def received(self, request: BrokerHeartbeatRequest) -> None:
        """Note a heartbeat as it came."""
        check_report(self._world, request)
        if not request.want_fence and request.current_metadata_offset >= request.broker_epoch:
            self._ready.add((request.broker_id, request.broker_epoch))

    def answered(self, broker_id: int, broker_epoch: int, received_at: float, answer: BrokerHeartbeatResponse) -> None:
        """Judge the answer, and note it for the checkers that look at brokers."""
        quorum = cast(OwnQuorum, self._world.controllers)  # there are no others whose heartbeats are judged
        quorum.heartbeats_at[broker_id, broker_epoch] = received_at
        if not answer.is_fenced:
            quorum.unfenced_at[broker_id, broker_epoch] = self._world.now()
        if not answer.is_fenced and (broker_id, broker_epoch) not in self._ready:
            self._world.loop.broken = Violation(
                "a broker is unfenced once it has applied its registration",
                f"b{broker_id} is answered that it is unfenced in epoch {broker_epoch}, of which it has not reported "
                "that it has applied it and wants to be unfenced",
            )


@contextlib.contextmanager
def judged_heartbeats(world: World) -> Iterator[None]:
    """Judge all heartbeats to controllers of Odradek within the context. Traces are the same with it and without."""
    heartbeats = _Heartbeats(world)

    def judged(right: Callable[..., Awaitable[BrokerHeartbeatResponse]]) -> Any:
        async def heartbeat(self: Any, request: BrokerHeartbeatRequest, connection: int) -> BrokerHeartbeatResponse:
            broker_id, broker_epoch = request.broker_id, request.broker_epoch
            received_at = world.now()
            heartbeats.received(request)
            answer = await right(self, request, connection)
            heartbeats.answered(broker_id, broker_epoch, received_at, answer)
            return answer

        return heartbeat

    with replaced([(_TARGET, judged)]):
        yield
