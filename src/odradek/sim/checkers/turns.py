"""What must hold of the turns of connections: one that waits for its turn is served soon."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any, Final

from odradek.sim.checkers.history import Violation
from odradek.sim.targets import replaced
from odradek.sim.world.hosts import World
from odradek.sim.world.loop import PROCESS, Process

LONGEST_SECONDS: Final = 1.0
"""Of a process that is not paused. Turns follow each other within some ms."""
_WAIT: Final = "odradek.broker.network.turns:Turns.wait"
_TAKE: Final = "odradek.broker.network.connection:InboundConnection.take_turn"


class _Waiting:
    """The connections that wait for their turn."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since: dict[Any, tuple[float, Process | None]] = {}

    def began(self, connection: Any) -> None:
        """Note that the connection waits, and look at it later."""
        loop = self._world.loop
        self._since[connection] = loop.time(), PROCESS.get()
        self._look_later(connection)

    def _look_later(self, connection: Any) -> None:
        # In no process's context: a broker that is paused or dead is looked at, too.
        self._world.loop.call_later(LONGEST_SECONDS, self._look, connection, context=contextvars.Context())

    def ended(self, connection: Any) -> None:
        """Note that the connection is served."""
        self._since.pop(connection, None)

    def _look(self, connection: Any) -> None:
        """Break the run if the connection waits still, and its process could have served it."""
        since, process = self._since.get(connection, (None, None))
        loop = self._world.loop
        if since is None or connection.closed or process is None or not process.alive:
            self._since.pop(connection, None)
        elif max(since, process.paused_until) + LONGEST_SECONDS > loop.time():
            self._look_later(connection)
        else:
            loop.broken = Violation(
                "a connection gets its turn",
                f"{process.name} has not read from {connection.session.peer_host} for {loop.time() - since:.3f} s",
            )


@contextlib.contextmanager
def judged_turns(world: World) -> Iterator[None]:
    """Judge the turns of all connections to brokers within the context."""
    waiting = _Waiting(world)

    def judged_wait(right: Callable[[Any, Any], None]) -> Any:
        def wait(self: Any, connection: Any) -> None:
            waiting.began(connection)
            right(self, connection)

        return wait

    def judged_take(right: Callable[[Any], None]) -> Any:
        def take_turn(self: Any) -> None:
            waiting.ended(self)
            right(self)

        return take_turn

    with replaced([(_WAIT, judged_wait), (_TAKE, judged_take)]):
        yield
