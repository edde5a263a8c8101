"""Cookies of a console that browsers reach by https."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from odradek.console.guard import Guard
from odradek.console.sessions import COOKIE, Sessions
from odradek.console.settings import ConsoleSettings, OpenIdSettings


async def themed(_request: Request) -> Response:
    response = PlainTextResponse("done")
    response.set_cookie("odradek_theme", "dark")
    return response


PASSWORDS = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
TOKENS = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
LOGINS: dict[str, dict[str, Any]] = {
    "none": {"clusters": {"main": {}}},
    "password": {"clusters": {"main": PASSWORDS}, "login": True},
    "issuer": {
        "clusters": {"main": TOKENS},
        "login": True,
        "openid": OpenIdSettings(issuer="https://login.example", client_id="console"),
    },
}


@pytest.mark.parametrize("login", LOGINS)
@pytest.mark.parametrize(("public_url", "count"), [("https://kafka.example", 2), ("http://kafka.example", 0), ("", 0)])
def test_cookies_are_secure_when_the_public_url_is_https(login: str, public_url: str, count: int) -> None:
    """The id of a login beside any other cookie."""
    settings = ConsoleSettings(**LOGINS[login], public_url=public_url)
    app = Guard(Starlette(routes=[Route("/healthy", themed)]), settings, Sessions(60.0, lambda: 0.0))
    found = TestClient(app, base_url="http://127.0.0.1").get("/healthy").headers.get_list("set-cookie")
    assert len(found) == 2
    assert sum("; Secure" in each for each in found) == count


@pytest.mark.parametrize("other", ['theme={"dark":true}', "a b=c", 'state="x', "list[0]=é"])
def test_cookie_is_found_behind_those_of_other_programs(other: str) -> None:
    """Browsers send the cookies of all programs of a host, whatever their ports."""
    app = Guard(Starlette(routes=[Route("/healthy", themed)]), ConsoleSettings(**LOGINS["none"]), Sessions(60.0, float))
    header = f"{other}; {COOKIE}={'v' * 43}".encode()
    answer = TestClient(app, base_url="http://127.0.0.1").get("/healthy", headers={b"cookie": header})
    assert not any(COOKIE in each for each in answer.headers.get_list("set-cookie"))
