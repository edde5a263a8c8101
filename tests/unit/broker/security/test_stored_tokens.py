"""Delegation tokens in the metadata store: which of them are listed."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.broker.security.stored_tokens import StoredTokens
from odradek.broker.security.token_stores import NodeTokens
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.ports.randomness import SeededRandom
from odradek.security.delegation_tokens import TokenSettings

ALICE = "User:alice"


class Clock:
    wall_ms = 1_000_000

    def now_ms(self) -> int:
        return self.wall_ms


def test_expired_tokens_are_not_listed() -> None:
    async def run() -> None:
        clock: Any = Clock()
        disk: Any = None
        tokens = StoredTokens(
            TokenSettings("secret", 90_000, 60_000), NodeTokens(MemoryStore()), disk, clock, SeededRandom("t")
        )
        first, _ = await tokens.create(ALICE, ALICE, (), -1)
        clock.wall_ms += 40_000
        second, _ = await tokens.create(ALICE, ALICE, (), -1)
        assert {each.token_id for each, _ in await tokens.all()} == {first.token_id, second.token_id}
        clock.wall_ms += 30_000
        assert [each.token_id for each, _ in await tokens.all()] == [second.token_id]

    asyncio.run(run())


def test_token_is_deleted_by_a_negative_period_and_expires_after_another() -> None:
    async def run() -> None:
        clock: Any = Clock()
        disk: Any = None
        tokens = StoredTokens(
            TokenSettings("secret", 90_000, 60_000), NodeTokens(MemoryStore()), disk, clock, SeededRandom("t")
        )
        kept, mac = await tokens.create(ALICE, ALICE, (), -1)
        _, other_mac = await tokens.create(ALICE, ALICE, (), -1)
        assert await tokens.expire(other_mac, ALICE, -1) == clock.wall_ms
        assert [each.token_id for each, _ in await tokens.all()] == [kept.token_id]
        assert await tokens.expire(mac, ALICE, 5_000) == clock.wall_ms + 5_000
        clock.wall_ms += 4_999
        assert len(await tokens.all()) == 1
        clock.wall_ms += 2
        assert await tokens.all() == []

    asyncio.run(run())
