"""The check after a change of leader (KIP-320): what it finds, and what it must not take for a truncation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.client.cluster import Cluster
from odradek.client.model import TopicPartition
from odradek.client.positions import PartitionState
from odradek.client.validation import find_truncated
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseTopic,
)

KEY = TopicPartition("t", 0)


class OneLeader:
    """A cluster of one leader, whose epoch 1 ends at offset 75."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.metadata = SimpleNamespace(leader_epoch=lambda *_: 2)
        self._meanwhile = meanwhile

    async def leader(self, *_: object) -> Any:
        return SimpleNamespace(leader=1)

    async def request(self, *_: object) -> OffsetForLeaderEpochResponse:
        self._meanwhile()
        found = OffsetForLeaderEpochResponseEpochEndOffset(0, 0, 1, 75)
        return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderEpochResponseTopic("t", [found])])

    async def retrying(self, attempt: Callable[[], Awaitable[None]], _: str) -> None:
        await attempt()


@pytest.mark.parametrize(("read_on", "expected"), [(False, {KEY: 75}), (True, {})])
def test_a_position_that_moves_while_it_is_asked_about_is_not_judged(read_on: bool, expected: object) -> None:
    """Found by the simulator (cluster-118): an answer about the old epoch set a reader back that had read on."""
    state = PartitionState(KEY)
    state.seek(80, 1)

    def read() -> None:
        if read_on:
            state.position, state.position_epoch = 188, 2

    cluster = cast("Cluster", OneLeader(read))
    assert asyncio.run(find_truncated(cluster, {KEY: state})) == expected
