"""The metadata store of a simulated cluster: one tree, a session per broker process, and answers that may not come."""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Sequence

from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.store import Changed, ConnectionLost, Node, Operation, Stop
from odradek.sim.world.loop import Process, SimulatedLoop

_CUT_TIMEOUT_SECONDS = 1.0


class StoreFaults:
    """Chances per call: the answer is lost before or after the change took effect."""

    __slots__ = ("_listener", "lost", "max_transaction_bytes", "slow")

    def __init__(self) -> None:
        self.lost = 0.0
        self.slow = 0.0
        self.max_transaction_bytes = 0
        """How large a transaction may be, as ZooKeeper limits it; 0 is no limit."""
        self._listener: Callable[[Sequence[Operation]], None] = _ignored

    def watch_changes(self, listener: Callable[[Sequence[Operation]], None]) -> None:
        """Call the listener, instead of an earlier one, with each transaction that took effect."""
        self._listener = listener

    def applied(self, operations: Sequence[Operation]) -> None:
        """Notify the listener of a transaction that took effect."""
        self._listener(operations)


def _ignored(_operations: Sequence[Operation]) -> None:
    return None


class SimulatedStore:
    """The MetadataStore port of one process."""

    __slots__ = (
        "_bound",
        "_faults",
        "_loop",
        "_memory",
        "_monotonic",
        "_process",
        "_renewed_at",
        "_rng",
        "_session_seconds",
        "cut_until",
        "dies_in",
        "injected",
        "max_transaction_bytes",
        "patience",
        "slow",
        "troubled_at",
    )

    def __init__(
        self,
        tree: MemoryTree,
        process: Process,
        loop: SimulatedLoop,
        faults: StoreFaults,
        rng: random.Random,
        session_seconds: float = 0.0,
    ) -> None:
        """`session_seconds`: how long the session of a dead process may last."""
        self._bound = 0.0
        self._monotonic: Callable[[], float] = loop.time
        self._renewed_at = loop.time()
        self._memory = MemoryStore(tree)
        self._process = process
        self._loop = loop
        self._faults = faults
        self._rng = rng
        self._session_seconds = session_seconds
        self.max_transaction_bytes = faults.max_transaction_bytes
        self.dies_in = 0
        """The process dies right after so many writes from now on; 0 is never."""
        self.injected = 0
        """How many requests of the process have failed by a fault."""
        self.cut_until = 0.0
        """Until then the process does not reach the store, and is not notified of anything."""
        self.patience = _CUT_TIMEOUT_SECONDS
        """After how many seconds the process gives up a request that does not reach the store."""
        self.slow = 0.0
        """How many seconds more a request and its answer may take each, for this process alone."""
        self.troubled_at = 0.0
        """When a fault last slowed or failed a request of the process, or its session ended or was opened again."""
        process.doomed.append(self._died)

    def _died(self) -> None:
        """On one machine the store knows at once that its client is gone, as by a file lock; elsewhere, later."""
        if self._session_seconds and self._rng.random() < 0.6:
            after = self._rng.uniform(0, self._session_seconds)
            self._loop.call_later(after, self._memory.expire, context=contextvars.Context())
        else:
            self._memory.expire()

    def bound_sessions(self, seconds: float, monotonic: Callable[[], float]) -> None:
        """End the session of a live process only this time after it was renewed; `monotonic` is the process's clock."""
        self._bound = seconds
        self._monotonic = monotonic

    def expire(self) -> None:
        """The store gives the session up although its client lives.

        A store that bounds sessions does so only when their time is over: until then the process does not reach it.
        """
        now = self._loop.time()
        self.troubled_at = now
        ends = self._renewed_at + self._bound
        if ends <= now:
            self._memory.expire()
        else:
            self.cut_until = max(self.cut_until, ends)
            self._loop.call_at(ends, self._expire_unless_renewed, context=contextvars.Context())

    def expire_if_silent(self, until: float) -> None:
        """End the session of a process that stands still until then, if that is longer than the store waits."""
        if not self._bound:
            return
        self.renew_session()
        ends = self._renewed_at + self._bound
        if ends < until:
            self._loop.call_at(ends, self._expire_unless_renewed, context=contextvars.Context())

    def _expire_unless_renewed(self) -> None:
        if self._renewed_at + self._bound <= self._loop.time():
            self._memory.expire()

    def renew_session(self) -> float | None:
        """As `MetadataStore.renew_session`; a process that does not reach the store renews nothing."""
        if not self._bound:
            return None
        now = self._loop.time()
        if self.cut_until <= now:
            self._renewed_at = now
        return self._monotonic() + self._renewed_at + self._bound - now

    def reconnect(self) -> None:
        """The store is reached again, as by a client of it that gives requests up soon."""
        self.cut_until = min(self.cut_until, self._loop.time())
        self.patience = _CUT_TIMEOUT_SECONDS

    @property
    def is_expired(self) -> bool:
        """Whether the store has given the session up."""
        return self._memory.is_expired

    @property
    def is_reached(self) -> bool:
        """Whether the process is served by the store now."""
        return self.cut_until <= self._loop.time() and not self._memory.is_expired

    @property
    def served_since(self) -> float:
        """Since when a process that is served has had its requests answered and its notifications as usual."""
        return max(self.troubled_at, self.cut_until)

    @property
    def session(self) -> int:
        """The id of the session."""
        return self._memory.session

    async def _delay(self) -> None:
        left = self.cut_until - self._loop.time()
        if left > 0:
            await asyncio.sleep(min(left, self.patience))
            self._inject()
            raise ConnectionLost("the store cannot be reached")
        slow = self._faults.slow + self.slow
        await asyncio.sleep(self._rng.uniform(0, 0.002) + self._rng.uniform(0, slow))
        if slow:
            self.troubled_at = self._loop.time()

    def _inject(self) -> None:
        self.injected += 1
        self.troubled_at = self._loop.time()

    def _lost(self) -> bool:
        if self._faults.lost and self._rng.random() < self._faults.lost:
            self._inject()
            return True
        return False

    async def get(self, path: str) -> Node | None:
        """As `MetadataStore.get`."""
        await self._delay()
        return await self._memory.get(path)

    async def children(self, path: str) -> list[str]:
        """As `MetadataStore.children`."""
        await self._delay()
        return await self._memory.children(path)

    async def subtree(self, path: str) -> dict[str, Node]:
        """As `MetadataStore.subtree`."""
        await self._delay()
        return await self._memory.subtree(path)

    async def apply(self, operations: Sequence[Operation]) -> None:
        """As `MetadataStore.apply`; a fault may lose the request, or the answer after the write."""
        await self._delay()
        if self._lost():
            raise ConnectionLost("the connection was lost before the request arrived")
        await self._memory.apply(operations)
        self._faults.applied(operations)
        if self.dies_in:
            self.dies_in -= 1
            if not self.dies_in:
                self._loop.kill(self._process)
        await self._delay()
        if self._lost():
            raise ConnectionLost("the connection was lost before the answer arrived")

    def _notified_in(self) -> float:
        return self._rng.uniform(0, 0.02) + max(0.0, self.cut_until - self._loop.time())

    def watch(self, path: str, changed: Changed) -> Stop:
        """As `MetadataStore.watch`."""

        def later(where: str) -> None:
            self._loop.call_later(self._notified_in(), changed, where, context=self._process.context)

        return self._memory.watch(path, later)

    def watch_session(self, expired: Callable[[], None]) -> Stop:
        """As `MetadataStore.watch_session`."""

        def later() -> None:
            self._loop.call_later(self._notified_in(), expired, context=self._process.context)

        return self._memory.watch_session(later)

    async def reopen(self) -> None:
        """As `MetadataStore.reopen`."""
        await self._delay()
        await self._memory.reopen()
        self.troubled_at = self._loop.time()

    async def close(self) -> None:
        """As `MetadataStore.close`."""
        await self._memory.close()
