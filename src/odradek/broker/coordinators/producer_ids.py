"""Producer ids out of blocks that the controller hands to this broker (Kafka's RPCProducerIdManager)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from odradek.transactions.events import NoProducerIds
from odradek.wire.errors import ErrorCode, KafkaError

_PREFETCH_PART = 10
"""The next block is asked for when only a tenth of the current one is left."""


class ProducerIds:
    """`next_block` returns ids that no other broker hands out; the rest of a block is lost when the broker stops."""

    __slots__ = ("_block", "_fetch", "_loop", "_low", "_next_block", "_prefetched")

    def __init__(self, next_block: Callable[[], Awaitable[range]], loop: asyncio.AbstractEventLoop) -> None:
        self._next_block = next_block
        self._loop = loop
        self._block = range(0)
        self._prefetched = range(0)
        self._low = 0
        self._fetch: asyncio.Task[None] | None = None

    def take(self) -> int:
        """A new producer id. Raises NoProducerIds; then `refill` and take again."""
        if not self._block:
            self._block, self._prefetched = self._prefetched, range(0)
            if not self._block:
                raise NoProducerIds
            self._low = len(self._block) // _PREFETCH_PART
        taken = self._block[0]
        self._block = self._block[1:]
        if len(self._block) <= self._low and not self._prefetched:
            self._begin_fetch()
        return taken

    async def refill(self) -> None:
        """Wait for a block. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, as Kafka does, if none can be had."""
        if not self._block and not self._prefetched:
            await asyncio.shield(self._begin_fetch())

    async def new(self) -> int:
        """A new producer id, once a block of them is here."""
        while True:
            try:
                return self.take()
            except NoProducerIds:
                await self.refill()

    def _begin_fetch(self) -> asyncio.Task[None]:
        if self._fetch is None:
            self._fetch = self._loop.create_task(self._fetch_block())
            self._fetch.add_done_callback(_look_at)
        return self._fetch

    async def _fetch_block(self) -> None:
        try:
            self._prefetched = await self._next_block()
        except KafkaError as error:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
        finally:
            self._fetch = None


def _look_at(task: asyncio.Task[None]) -> None:
    """Ignore a failed prefetch: the next request that finds no ids fetches again."""
    if not task.cancelled():
        task.exception()
