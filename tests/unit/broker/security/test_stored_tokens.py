"""Delegation tokens in the metadata store: which of them are listed."""

from __future__ import annotations

import asyncio
from typing import Any

from odradek.broker.security.stored_tokens import StoredTokens
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
        tokens = StoredTokens(TokenSettings("secret", 90_000, 60_000), MemoryStore(), disk, clock, SeededRandom("t"))
        first, _ = await tokens.create(ALICE, ALICE, (), -1)
        clock.wall_ms += 40_000
        second, _ = await tokens.create(ALICE, ALICE, (), -1)
        assert {each.token_id for each, _ in await tokens.all()} == {first.token_id, second.token_id}
        clock.wall_ms += 30_000
        assert [each.token_id for each, _ in await tokens.all()] == [second.token_id]

    asyncio.run(run())
