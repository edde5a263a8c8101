"""Whose requests are read in which turn of the event loop, where more connections are readable than it has time for.

A poll of the sockets calls back for each readable connection, and timers, tasks and sockets that become readable
meanwhile wait until all have been served: with a thousand requests for the time of them all. So a connection that comes
late in a turn waits for another one. Each turn has time for those that wait, in their order, and more time for those
that have just become readable: a client that comes after the thousand does not wait for them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Protocol

NEW_SECONDS: Final = 0.003
"""Of requests that are served in one turn, before further connections wait."""
WAITING_SECONDS: Final = 0.002
"""Of requests of connections that wait, in one turn; or the requests of one of them."""
WATCHED_SECONDS: Final = 0.001
"""After so much work the end of the turn is watched for: to do it in each turn would cost a busy broker more."""


class TakesTurns(Protocol):
    """A connection that has been called back too late in a turn."""

    def take_turn(self) -> None:
        """Read, and serve what came."""
        ...


class Turns:
    """The turns of all connections of an event loop. The dispatcher adds what each request took to `worked`.

    A connection that is called back looks whether `worked` is above `WATCHED_SECONDS`, and only then asks `is_over`:
    it does so for every read, where a call would be dear. Work counts from the last turn whose end was watched for, so
    that a turn can be taken for longer by `WATCHED_SECONDS`.
    """

    __slots__ = ("_is_full", "_is_watched", "_waiting", "worked")

    def __init__(self) -> None:
        self.worked = 0.0
        """Seconds of requests."""
        self._is_full = False
        self._is_watched = False
        self._waiting: deque[TakesTurns] = deque()

    def is_over(self) -> bool:
        """Whether connections that are called back now wait for another turn."""
        if not self._is_watched:
            self._watch()
        self._is_full = self._is_full or self.worked > NEW_SECONDS
        return self._is_full

    def wait(self, connection: TakesTurns) -> None:
        """Call the connection in a later turn; it must not be called back for reads until then."""
        self._waiting.append(connection)

    def _watch(self) -> None:
        self._is_watched = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Another turn: serve some of those that wait, before the loop polls its sockets."""
        self._is_watched = self._is_full = False
        self.worked = 0.0
        waiting = self._waiting
        try:
            while waiting and self.worked < WAITING_SECONDS:
                waiting.popleft().take_turn()
        finally:
            self.worked = 0.0
            if waiting:
                self._watch()
