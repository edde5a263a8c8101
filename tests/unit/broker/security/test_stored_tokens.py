"""Delegation tokens in the metadata store: which of them are listed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from odradek.broker.security import stored_tokens
from odradek.broker.security.stored_tokens import StoredTokens, token_settings
from odradek.broker.security.token_stores import NodeTokens
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.ports.randomness import SeededRandom
from odradek.security.delegation_tokens import DelegationToken, TokenSettings
from odradek.security.scram import MECHANISMS
from odradek.wire.errors import ErrorCode, KafkaError

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


BOB = "User:bob"


class InlineDisk:
    """Runs at once what a thread would do, and counts it."""

    runs = 0

    async def run(self, _lane: str, function: Any, *arguments: Any) -> Any:
        self.runs += 1
        return function(*arguments)


def tokens_of(secret: str = "secret", disk: Any = None) -> tuple[StoredTokens, Any]:
    clock: Any = Clock()
    settings = TokenSettings(secret, 90_000, 60_000)
    return StoredTokens(settings, NodeTokens(MemoryStore()), disk, clock, SeededRandom("t")), clock


async def code_of(call: Any) -> ErrorCode:
    try:
        await call
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_no_call_works_without_a_secret() -> None:
    async def run() -> None:
        tokens, _ = tokens_of("")
        calls = (
            tokens.create(ALICE, ALICE, (), -1),
            tokens.renew(b"mac", ALICE, -1),
            tokens.expire(b"mac", ALICE, -1),
            tokens.all(),
        )
        assert [await code_of(call) for call in calls] == [ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED] * 4
        assert await tokens.credential(MECHANISMS["SCRAM-SHA-256"], "id") is None

    asyncio.run(run())


def test_only_owner_and_renewers_change_a_token() -> None:
    async def run() -> None:
        tokens, clock = tokens_of()
        _, mac = await tokens.create(ALICE, ALICE, (BOB,), -1)
        assert await tokens.renew(mac, BOB, 5_000) == clock.wall_ms + 5_000
        assert await code_of(tokens.renew(mac, "User:eve", -1)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert await code_of(tokens.expire(mac, "User:eve", -1)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert await code_of(tokens.renew(mac[:-1], ALICE, -1)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    asyncio.run(run())


def test_expired_token_has_no_use_and_the_next_creation_deletes_it() -> None:
    async def run() -> None:
        store = NodeTokens(MemoryStore())
        clock: Any = Clock()
        disk: Any = InlineDisk()
        tokens = StoredTokens(TokenSettings("secret", 90_000, 60_000), store, disk, clock, SeededRandom("t"))
        token, mac = await tokens.create(ALICE, ALICE, (), -1)
        clock.wall_ms += 60_001
        assert await code_of(tokens.renew(mac, ALICE, -1)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert await code_of(tokens.expire(mac, ALICE, 5)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert await tokens.credential(MECHANISMS["SCRAM-SHA-256"], token.token_id) is None
        assert [each.token.token_id for each in await store.read()] == [token.token_id]
        other, _ = await tokens.create(ALICE, ALICE, (), -1)
        assert [each.token.token_id for each in await store.read()] == [other.token_id]

    asyncio.run(run())


def test_token_proves_its_owner_until_it_expires() -> None:
    async def run() -> None:
        disk = InlineDisk()
        tokens, _ = tokens_of(disk=disk)
        token, _ = await tokens.create(ALICE, BOB, (), -1)
        for name in ("SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-SHA-256"):
            found = await tokens.credential(MECHANISMS[name], token.token_id)
            assert found is not None
            _, proven = found
            assert proven.principal[:3] == ("User", "alice", True)
            assert proven.expires_ms == token.expiry_ms
        assert disk.runs == 2, "the credential of each mechanism is derived once"

    asyncio.run(run())


def test_credentials_of_old_tokens_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens are made and expire for as long as a broker runs."""
    monkeypatch.setattr(stored_tokens, "_MAX_CREDENTIALS", 2)

    async def run() -> None:
        disk = InlineDisk()
        tokens, _ = tokens_of(disk=disk)
        made = [(await tokens.create(ALICE, BOB, (), -1))[0].token_id for _ in range(3)]
        for token_id in (*made, made[2], made[1], made[0]):
            assert await tokens.credential(MECHANISMS["SCRAM-SHA-256"], token_id) is not None
        assert disk.runs == 4, "the first one alone is derived again"

    asyncio.run(run())


@pytest.mark.parametrize("token_id", ["", "a/b", "x" * 65, "ab.c", "-", "é!"])
def test_id_that_no_token_can_have_is_not_looked_up(token_id: str) -> None:
    class Unread:
        async def find(self, _token_id: str) -> DelegationToken | None:
            raise AssertionError("the id comes from a client that has proven nothing")

    async def run() -> None:
        store: Any = Unread()
        clock: Any = Clock()
        disk: Any = None
        tokens = StoredTokens(TokenSettings("secret", 1, 1), store, disk, clock, SeededRandom("t"))
        assert await tokens.credential(MECHANISMS["SCRAM-SHA-256"], token_id) is None

    asyncio.run(run())


def test_longest_id_with_every_character_is_looked_up() -> None:
    asked: list[str] = []

    class Reading:
        async def find(self, token_id: str) -> DelegationToken | None:
            asked.append(token_id)
            return None

    async def run() -> None:
        store: Any = Reading()
        clock: Any = Clock()
        disk: Any = None
        tokens = StoredTokens(TokenSettings("secret", 1, 1), store, disk, clock, SeededRandom("t"))
        assert await tokens.credential(MECHANISMS["SCRAM-SHA-256"], "a-_" + "0" * 61) is None

    asyncio.run(run())
    assert asked == ["a-_" + "0" * 61]


def test_settings_of_tokens_come_from_their_names() -> None:
    class Config:
        def __init__(self, **texts: str) -> None:
            self.texts = texts

        def text(self, name: str) -> str:
            return self.texts.get(name.replace(".", "_"), "")

        def number(self, name: str) -> int:
            return {"delegation.token.max.lifetime.ms": 1, "delegation.token.expiry.time.ms": 2}[name]

    newer, older = {"delegation_token_secret_key": "new"}, {"delegation_token_master_key": "old"}
    assert token_settings(Config(**newer, **older)) == TokenSettings("new", 1, 2)
    assert token_settings(Config(**older)) == TokenSettings("old", 1, 2)
