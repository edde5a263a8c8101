"""When a broker reads the keys of bearer tokens: at the start, from time to time, and for a token of a new key."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.security import oauth
from odradek.broker.security.oauth import BearerTokens, OAuthSettings
from odradek.ports.http import FetchError
from odradek.security.jwt_rules import AcceptedToken, UnknownKey
from odradek.security.oauthbearer import BearerMessage

SETTINGS = OAuthSettings(
    "http://127.0.0.1:1/keys", ("http://127.0.0.1:1/keys",), "issuer", ("kafka",), (), "sub", "scope", 30,
    refresh_ms=3_600_000, retry_ms=100, retry_max_ms=300, timeout_ms=1_000,
)  # fmt: skip


class Issuer:
    """The keys that may be read, and the timers that the broker sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reads = 0
        self.failure: Exception | None = None
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr("odradek.security.jwt_rules.parse_keys", lambda body: [body])
        monkeypatch.setattr("odradek.security.jwt_rules.accept_token", self.accept)
        monkeypatch.setattr(oauth, "fetch", self.fetch)
        disk: Any = SimpleNamespace(run=self.run)
        clock: Any = SimpleNamespace(now_ms=lambda: 1_000_000, monotonic=lambda: self.now)
        self.tokens = BearerTokens(SETTINGS, disk, clock)

    async def run(self, _lane: str, work: Callable[..., Any], *arguments: Any) -> Any:
        return work(*arguments)

    def fetch(self, _url: str, _seconds: float) -> bytes:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return b"key %d" % self.reads

    def accept(self, token: str, keys: list[bytes], _rules: object, _now: float) -> AcceptedToken:
        if token.encode() not in keys:
            raise UnknownKey("unknown key")
        return AcceptedToken("alice", 9e9)

    async def check(self, token: str) -> str | None:
        """The client's name, None if the token's key is not known."""
        try:
            return (await self.tokens.check(BearerMessage(token, "", {}))).principal.name
        except UnknownKey:
            return None

    async def time_passes(self) -> float:
        """Run the only timer; the seconds for which it was set."""
        ((seconds, then),) = self.timers
        self.timers.clear()
        then()
        while not self.timers:
            await asyncio.sleep(0)
        return seconds


def run(monkeypatch: pytest.MonkeyPatch, test: Callable[[Issuer], Any]) -> None:
    async def scenario() -> None:
        issuer = Issuer(monkeypatch)
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", lambda seconds, then: issuer.timers.append((seconds, then)))
        await test(issuer)

    asyncio.run(scenario())


def test_broker_without_keys_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(issuer: Issuer) -> None:
        issuer.failure = FetchError("unreachable")
        with pytest.raises(ConfigError, match="no keys: unreachable"):
            await issuer.tokens.start()

    run(monkeypatch, test)


def test_keys_are_read_again_with_growing_pauses_after_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(issuer: Issuer) -> None:
        await issuer.tokens.start()
        assert await issuer.check("key 1") == "alice"
        issuer.failure = FetchError("unreachable")
        assert [await issuer.time_passes() for _ in range(4)] == [3600, 0.1, 0.2, 0.3]
        assert await issuer.check("key 1") == "alice"
        issuer.failure = None
        assert await issuer.time_passes() == 0.3
        issuer.failure = FetchError("unreachable")
        assert [await issuer.time_passes() for _ in range(2)] == [3600, 0.1]

    run(monkeypatch, test)


def test_keys_are_read_early_for_an_unknown_one_and_not_often(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(issuer: Issuer) -> None:
        await issuer.tokens.start()
        assert await issuer.check("key 2") == "alice"
        assert await issuer.check("key 3") is None
        assert issuer.reads == 2
        issuer.now = 9.9
        assert await issuer.check("key 3") is None
        issuer.now = 10.0
        assert await issuer.check("key 3") == "alice"
        assert issuer.reads == 3
        issuer.now, issuer.failure = 30.0, FetchError("unreachable")
        assert await issuer.check("key 4") is None
        assert await issuer.check("key 3") == "alice"

    run(monkeypatch, test)
