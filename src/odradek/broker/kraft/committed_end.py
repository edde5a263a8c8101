"""Asks the active controller where the committed part of the metadata log ends."""

from __future__ import annotations

import asyncio
from typing import Final

from odradek.broker.cluster.peers import Purpose
from odradek.broker.cluster.remote_controller import AskController
from odradek.broker.kraft.followed_metadata import FollowedMetadata
from odradek.kraft.metadata_observer import ObserverIdentity, fetch_request
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.primitives import ZERO_UUID

_PAUSE_SECONDS: Final = 0.1
_NO_REPLICA: Final = -1
"""Who fetches: leaders keep no account of it."""


class CommittedEnd:
    """`find` asks until a controller answers."""

    __slots__ = ("_ask", "_follower", "_identity", "_timeout_ms")

    def __init__(self, ask: AskController, follower: FollowedMetadata, cluster_id: str, timeout_ms: float) -> None:
        self._ask = ask
        self._follower = follower
        self._identity = ObserverIdentity(cluster_id, _NO_REPLICA, ZERO_UUID)
        self._timeout_ms = timeout_ms

    async def find(self) -> int:
        """The offset after all records that were committed when this was called, or after more.

        Only the leader of the newest epoch that this broker knows answers. It has committed a record of that epoch, or
        its answer does not count: so its high watermark is past all that its predecessors have committed.
        """
        while True:
            found = await self._asked()
            if found >= 0:
                return found
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _asked(self) -> int:
        """The high watermark of the active controller; -1 if that is not known."""
        follower = self._follower
        request = fetch_request(self._identity, follower.epoch, follower.log_end, max_wait_ms=0)
        try:
            answer = await self._ask(request, FetchResponse, self._timeout_ms, Purpose.LEASES)
        except KafkaError:
            return -1
        parts = [part for topic in answer.responses for part in topic.partitions]
        if answer.error_code or len(parts) != 1 or parts[0].error_code != ErrorCode.NONE:
            return -1
        return parts[0].high_watermark
