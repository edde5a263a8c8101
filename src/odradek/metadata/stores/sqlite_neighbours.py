"""The other processes that have the same SQLite store open: who lives, who is silent, and how to wake them.

A dead process is noticed by the end of its pipe, at once and without asking. Only a process that lives but does nothing
(stopped, or its event loop stuck) is found by its lease, which every process renews from its event loop, so that a
loop that does not turn counts as silent. While a process is alone it does nothing at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable

from odradek.metadata.stores.sqlite_tree import lease_path
from odradek.ports.liveness import Lease, Peer

logger = logging.getLogger(__name__)

RENEWALS = 3
"""How often a lease is renewed within the session timeout."""
_WATCHED_SHARE = 0.6
"""How much of the timeout a lease must have been seen unchanged: a process that was stopped itself has not looked."""


class Neighbours:
    """Lives on the loop as long as a session."""

    __slots__ = (
        "_died",
        "_due",
        "_lease",
        "_loop",
        "_path",
        "_peers",
        "_renewed",
        "_session",
        "_silent",
        "_timeout",
        "_timer",
        "_unwoken",
        "_woken",
    )

    def __init__(
        self,
        path: str,
        timeout: float,
        woken: Callable[[], None],
        died: Callable[[int], None],
        silent: Callable[[int, float | None], None],
    ) -> None:
        """`woken`: there may be news; `died` and `silent`: with a session (and its last sign of life)."""
        self._path = path
        self._timeout = timeout
        self._woken = woken
        self._died = died
        self._silent = silent
        self._loop = asyncio.get_running_loop()
        self._peers: dict[int, Peer] = {}
        self._unwoken: set[int] = set()
        """For whom there was no descriptor when there was something new for them."""
        self._lease: Lease | None = None
        self._session = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._renewed = 0.0

    def begin(self, session: int, lease: Lease) -> None:
        """Begin with this process's session and lease; other processes can wake it from here on."""
        self._session = session
        self._lease = lease
        self._renewed = 0.0
        lease.listen(self._loop, self._woken)

    def update(self, sessions: Iterable[int]) -> None:
        """Those that there are, the own one among them."""
        current = set(sessions)
        for gone in self._peers.keys() - current:
            self.forget(gone)
        self._unwoken &= current
        for session in current - self._peers.keys() - {self._session}:
            peer = self._find(session)
            if peer is not None and session in self._unwoken:
                peer.wake()
                self._unwoken.discard(session)
        if current - {self._session}:
            if self._timer is None:
                self._tick_at(self._loop.time())
        elif self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def forget(self, session: int) -> None:
        """Watch the process of a session no longer."""
        peer = self._peers.pop(session, None)
        if peer is not None:
            peer.close()

    def rank(self, besides: Container[int]) -> int:
        """How many of the others are older, not counting some."""
        return sum(session < self._session and session not in besides for session in self._peers)

    def wake(self, sessions: Iterable[int]) -> None:
        """Wake the processes of these sessions: there is news for them in the file."""
        for session in sessions:
            peer = self._peers.get(session) or self._find(session)
            if peer is not None:
                peer.wake()
            else:
                self._unwoken.add(session)

    def end(self, *, dead: bool = False) -> None:
        """Give up the lease; `dead`: leave it as a process does that is killed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()
        self._unwoken.clear()
        if self._lease is not None:
            if dead:
                self._lease.abandon()
            else:
                self._lease.end()
            self._lease = None

    def _find(self, session: int) -> Peer | None:
        try:
            peer = Peer(lease_path(self._path, session), self._loop.time())
        except ProcessLookupError:
            self._died(session)
            return None
        except OSError as error:
            # Out of descriptors: the next tick tries again. The news of others, and other sessions, do not wait for it.
            logger.warning(
                "metadata store: cannot watch the process of session %d: %s; trying again", session, error.strerror
            )
            return None
        self._peers[session] = peer
        peer.watch(self._loop, lambda: self._died(session))
        return peer

    # --- leases ---

    def renew(self) -> float:
        """Renew this process's lease; the time before which no other process ends its session as silent."""
        now = self._loop.time()
        if self._lease is not None:
            try:
                self._lease.renew(now)
            except OSError as error:
                logger.warning("metadata store: cannot renew the lease: %s; trying again", error.strerror)
            else:
                self._renewed = now
        return self._renewed + self._timeout

    def _tick_at(self, due: float) -> None:
        self._due = due
        self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        interval = self._timeout / RENEWALS
        if self._lease is None:
            return
        self.renew()
        if now - self._due > interval:
            # This process was stopped itself: the others may have written meanwhile.
            for peer in self._peers.values():
                peer.since = now
        following = now + interval
        for session, peer in list(self._peers.items()):
            peer.look(now)
            ends = max((peer.stamp or 0.0) + self._timeout, peer.since + _WATCHED_SHARE * self._timeout)
            if now >= ends:
                self._silent(session, peer.stamp)
            else:
                following = min(following, ends)
        self._tick_at(following)
        # A safety net: every change wakes this process anyway.
        self._woken()
