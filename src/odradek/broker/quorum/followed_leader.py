"""Waits of a leader of the quorum until it knows that a majority follows it: before that it may have a successor."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from odradek.api.services.controller_service import NotTheController
from odradek.kraft.raft.machine import RaftMachine
from odradek.kraft.raft.roles import Leader
from odradek.ports.clock import Clock
from odradek.wire.errors import ErrorCode


class _Wait(NamedTuple):
    """Until a majority of the voters is known to have been in the epoch at `since_ms` or later."""

    epoch: int
    since_ms: float
    done: asyncio.Future[None]


class FollowedLeader:
    """`wait`, and `look` after each step of the machine; `close` ends all waits."""

    __slots__ = ("_clock", "_is_closed", "_machine", "_waits")

    def __init__(self, machine: RaftMachine, clock: Clock) -> None:
        """`clock` is the one whose times the machine takes."""
        self._machine = machine
        self._clock = clock
        self._is_closed = False
        self._waits: list[_Wait] = []

    async def wait(self, epoch: int) -> None:
        """Return once no successor can have been elected more than half a fetch timeout before this call.

        A majority of the voters is known to have followed this leader since. Known is what a fetch proves that follows
        an answer on the same connection: it was sent after the answer, whenever it is read. Followers fetch every
        `fetch_max_wait_ms` or more often, so that a leader that is followed does not wait.

        Raises NotTheController if this replica does not lead the epoch, or loses it.
        """
        since_ms = self._clock.monotonic() * 1000 - self._machine.quorum.settings.fetch_timeout_ms / 2
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits.append(_Wait(epoch, since_ms, done))
        self.look()
        await done

    def look(self) -> None:
        """End the waits of a leader that is followed, and all for an epoch that this replica leads no longer."""
        if not self._waits:
            return
        quorum, followed_ms = self._machine.quorum, self._machine.followed_ms
        leads_in = quorum.epoch if isinstance(quorum.role, Leader) and not self._is_closed else -1
        kept = []
        for each in self._waits:
            if each.done.done():
                continue  # the caller has given up
            if each.epoch != leads_in:
                each.done.set_exception(NotTheController(ErrorCode.NOT_CONTROLLER))
            elif followed_ms >= each.since_ms:
                each.done.set_result(None)
            else:
                kept.append(each)
        self._waits = kept

    def close(self) -> None:
        """Take part no longer: no leader is followed."""
        self._is_closed = True
        self.look()
