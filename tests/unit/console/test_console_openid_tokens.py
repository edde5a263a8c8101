"""Access tokens of a login are exchanged before they end; a begun login ends in time."""

import asyncio
import json
from collections.abc import Mapping

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from odradek.client.errors import AuthenticationFailed, Disconnected
from odradek.console.clusters import Clusters
from odradek.console.openid import ATTEMPT_S, EARLY_S, AccessTokens, Attempts, Issuer, LoginRejected, Tokens
from odradek.console.sessions import SWEEP_S, Sessions
from odradek.console.settings import OpenIdSettings
from odradek.ports.http import FetchError

URL = "https://login.example"
KEY = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key()))


class Provider:
    """An issuer's answers."""

    def __init__(self, status: int | None = None) -> None:
        self.status = status
        self.forms: list[str] = []

    def fetch(self, url: str, _: float, form: bytes | None, __: Mapping[str, str] | None) -> bytes:
        if form is None:
            names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
            return json.dumps({"issuer": URL, "keys": [KEY]} | {name: f"{URL}/{name}" for name in names}).encode()
        if self.status is not None:
            error = FetchError(f"HTTP status {self.status}")
            error.status = self.status
            raise error
        self.forms.append(form.decode())
        number = len(self.forms)
        return json.dumps({"access_token": f"a{number}", "token_type": "bearer", "expires_in": 60}).encode()

    def tokens(self, now: list[float], **changes: object) -> AccessTokens:
        issuer = Issuer(OpenIdSettings(issuer=URL, client_id="console"), lambda: now[0], self.fetch)
        return AccessTokens(issuer, Tokens("a0", "r0", 100.0, "")._replace(**changes), lambda: now[0])  # type: ignore[arg-type]


def test_token_is_exchanged_before_it_ends_once_for_all() -> None:
    provider, now = Provider(), [99.0 - EARLY_S]
    tokens = provider.tokens(now)

    async def scenario() -> list[str]:
        found = [await tokens.token()]
        now[0] = 101.0 - EARLY_S
        found += await asyncio.gather(tokens.token(), tokens.token())
        now[0] += 60
        return [*found, await tokens.token()]

    assert asyncio.run(scenario()) == ["a0", "a1", "a1", "a2"]
    # The issuer did not replace the refresh token, so it stays good.
    assert provider.forms == ["grant_type=refresh_token&refresh_token=r0&client_id=console"] * 2


def test_token_without_refresh_is_sent_until_the_cluster_rejects_it() -> None:
    tokens = Provider(400).tokens([200.0], refresh="")
    assert asyncio.run(tokens.token()) == "a0"


@pytest.mark.parametrize(("status", "error"), [(400, AuthenticationFailed), (503, Disconnected)])
def test_failed_exchange_ends_the_login_only_when_rejected(status: int, error: type[Exception]) -> None:
    tokens = Provider(status).tokens([200.0])
    with pytest.raises(error):
        asyncio.run(tokens.token())


def test_login_ends_with_a_token_that_cannot_be_exchanged() -> None:
    """Connections that are open need no new token, so that the brokers did not end it."""
    provider, now = Provider(), [99.0]
    lasting, ending = provider.tokens(now), provider.tokens(now, refresh="")

    async def scenario() -> list[bool]:
        sessions = Sessions(60.0, lambda: 0.0)
        opened = [await sessions.open("alice", Clusters({}, 1.0), each) for each in (lasting, ending)]
        found = [sessions.find(each.id) is not None for each in opened]
        now[0] = 100.0
        return [*found, *(sessions.find(each.id) is not None for each in opened)]

    assert asyncio.run(scenario()) == [True, True, True, False]


@pytest.mark.parametrize(("status", "is_open"), [(None, True), (400, False), (503, True)])
def test_login_ends_when_its_issuer_rejects_the_exchange(status: int | None, is_open: bool) -> None:
    tokens = Provider(status).tokens([101.0 - EARLY_S])

    async def scenario() -> bool:
        sessions = Sessions(60.0, lambda: 0.0)
        opened = await sessions.open("alice", Clusters({}, 1.0), tokens)
        await sessions.renew_tokens()
        return sessions.find(opened.id) is not None

    assert asyncio.run(scenario()) is is_open


def test_logins_are_looked_at_before_their_tokens_end() -> None:
    assert SWEEP_S < EARLY_S


def test_begun_login_ends_in_time() -> None:
    now = [1000.0]
    attempts = Attempts(lambda: now[0])
    begun = attempts.begin()
    now[0] += ATTEMPT_S
    assert attempts.find(begun.cookie, begun.state) == begun
    now[0] += 1
    with pytest.raises(LoginRejected, match="too long"):
        attempts.find(begun.cookie, begun.state)


@pytest.mark.parametrize("cookie", ["", "x", "0.x", "9999999999.x", "é.ü"])
def test_cookie_of_another_origin_is_rejected(cookie: str) -> None:
    attempts = Attempts(lambda: 1000.0)
    with pytest.raises(LoginRejected, match="this browser"):
        attempts.find(cookie, attempts.begin().state)
    with pytest.raises(LoginRejected, match="this browser"):
        attempts.find(cookie, "")
