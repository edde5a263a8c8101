"""The metadata store of a simulated cluster: one tree, a session per broker process, and answers that may not come."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from odradek.metadata.memory_store import MemoryStore, MemoryTree
from odradek.ports.store import Node, Operation, StoreUnavailable
from odradek.sim.loop import Process, SimulatedLoop


class StoreFaults:
    """Chances per call: the answer is lost before or after the change took effect."""

    __slots__ = ("injected", "lost", "slow")

    def __init__(self) -> None:
        self.lost = 0.0
        self.slow = 0.0
        self.injected = 0


class SimulatedStore:
    """A session of one process; its MetadataStore port."""

    __slots__ = ("_faults", "_loop", "_process", "_rng", "session")

    def __init__(
        self, tree: MemoryTree, process: Process, loop: SimulatedLoop, faults: StoreFaults, rng: random.Random
    ) -> None:
        self.session = MemoryStore(tree)
        self._process = process
        self._loop = loop
        self._faults = faults
        self._rng = rng
        # On one machine the store knows at once that its client is gone, as a file lock tells.
        process.doomed.append(self.session.expire)

    async def _delay(self) -> None:
        await asyncio.sleep(self._rng.uniform(0, 0.002) + self._rng.uniform(0, self._faults.slow))

    def _lost(self) -> bool:
        if self._faults.lost and self._rng.random() < self._faults.lost:
            self._faults.injected += 1
            return True
        return False

    async def get(self, path: str) -> Node | None:
        await self._delay()
        return await self.session.get(path)

    async def children(self, path: str) -> list[str]:
        await self._delay()
        return await self.session.children(path)

    async def subtree(self, path: str) -> dict[str, Node]:
        await self._delay()
        return await self.session.subtree(path)

    async def apply(self, operations: Sequence[Operation]) -> None:
        await self._delay()
        if self._lost():
            raise StoreUnavailable("the connection was lost before the request arrived")
        await self.session.apply(operations)
        await self._delay()
        if self._lost():
            raise StoreUnavailable("the connection was lost before the answer arrived")

    def watch(self, path: str, changed: Callable[[str], None]) -> Callable[[], None]:
        def later(where: str) -> None:
            self._loop.call_later(self._rng.uniform(0, 0.02), changed, where, context=self._process.context)

        return self.session.watch(path, later)

    async def close(self) -> None:
        await self.session.close()
