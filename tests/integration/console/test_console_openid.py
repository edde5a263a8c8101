"""Login at an OpenID provider: its access token is the user's credential at the cluster, so that ACLs count."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from odradek.console.settings import OpenIdSettings
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import AT, console, token
from tests.integration.token_issuer import CLIENT, SECRET, Issuer, bearer_settings

LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def started() -> Iterator[Issuer]:
    """The issuer of this module."""
    made = Issuer()
    made.name = made.url
    yield made
    made.close()


@pytest.fixture
def issuer(started: Issuer) -> Issuer:
    """The issuer, which gives out right tokens."""
    started.id_claims, started.access_claims, started.configuration, started.status = {}, {}, {}, 200
    started.requests.clear()
    return started


@pytest.fixture(scope="module")
def bearers(started: Issuer) -> Iterator[str]:
    """A broker whose clients log in by tokens of the issuer; only the user root may do anything."""
    settings = bearer_settings(started)
    with BlockingBroker(settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def gate(bearers: str, issuer: Issuer, tmp_path: Path) -> Iterator[TestClient]:
    """A console whose logins are those of the issuer."""
    openid = OpenIdSettings(issuer=issuer.url, client_id=CLIENT, client_secret=SECRET)
    with console(
        bearers, options=LOGIN, login=True, openid=openid, allow_changes=True, audit_log=str(tmp_path / "audit")
    ) as opened:
        yield opened


def leave_for_issuer(client: TestClient) -> str:
    """The address of the issuer's login."""
    response = client.get("/login/openid", follow_redirects=False)
    assert response.status_code == 303
    return str(response.headers["location"])


def enter(client: TestClient, issuer: Issuer, user: str = "alice") -> Any:
    """Log in; the page to which the browser came back."""
    return client.get(issuer.consent(leave_for_issuer(client), user))


def test_login_page_leads_to_the_issuer(gate: TestClient, issuer: Issuer) -> None:
    page = gate.get(AT).text
    assert f"Log in at {issuer.url}" in page
    assert 'type="password"' not in page
    assert "scope=openid&" in leave_for_issuer(gate)


def test_console_acts_as_the_user_of_the_token(gate: TestClient, issuer: Issuer, tmp_path: Path) -> None:
    assert 'http-equiv="refresh"' in enter(gate, issuer, "root").text
    gate.post(AT + "/create-topic", data={"csrf": token(gate), "topic": "private"})
    page = gate.get(AT + "/topics").text
    assert "private" in page
    assert "<b>root</b>" in page
    gate.post("/logout", data={"csrf": token(gate)})
    enter(gate, issuer, "bob")
    assert "private" not in gate.get(AT + "/topics").text
    rejected = gate.post(AT + "/create-topic", data={"csrf": token(gate), "topic": "bobs"})
    assert "AUTHORIZATION_FAILED" in rejected.text
    lines = [json.loads(each) for each in (tmp_path / "audit").read_text().splitlines()]
    created = [each for each in lines if each["action"] == "create topic"]
    assert [(each["user"], each["target"]) for each in created] == [("root", "private")]


def test_login_without_this_browsers_cookie_is_rejected(gate: TestClient, issuer: Issuer) -> None:
    """Another person's answer of the issuer, sent to this browser, opens no session."""
    back = issuer.consent(leave_for_issuer(gate))
    gate.cookies.clear()
    response = gate.get(back)
    assert response.status_code == 403
    assert "did not begin in this browser" in response.text
    assert not [each for each in issuer.requests if each.startswith("/token")]


def test_state_of_another_login_is_rejected(gate: TestClient, issuer: Issuer) -> None:
    first = issuer.consent(leave_for_issuer(gate))
    leave_for_issuer(gate)
    assert gate.get(first).status_code == 403


def test_code_is_good_once(gate: TestClient, issuer: Issuer) -> None:
    url = leave_for_issuer(gate)
    back = issuer.consent(url)
    cookies = dict(gate.cookies)
    assert gate.get(back).status_code == 200
    gate.cookies.clear()
    gate.cookies.update(cookies)
    response = gate.get(back)
    assert response.status_code == 403
    assert "token endpoint" in response.text


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"nonce": "other"}, "of another login"),
        ({"nonce": None}, "of another login"),
        ({"aud": "other"}, "for another audience"),
        ({"aud": [CLIENT, "other"]}, "issued to another client"),
        ({"azp": "other"}, "issued to another client"),
        ({"iss": "https://other"}, "of another issuer"),
        ({"exp": 1}, "has expired"),
        ({"sub": ""}, "has no claim sub"),
    ],
)
def test_wrong_id_token_is_rejected(gate: TestClient, issuer: Issuer, claims: dict[str, Any], reason: str) -> None:
    issuer.id_claims = claims
    response = enter(gate, issuer)
    assert response.status_code == 403
    assert reason in response.text
    assert gate.get(AT, follow_redirects=False).status_code == 303


def test_access_token_that_the_cluster_rejects_opens_no_session(gate: TestClient, issuer: Issuer) -> None:
    issuer.access_claims = {"aud": "another service"}
    response = enter(gate, issuer)
    assert response.status_code == 403
    assert "The cluster does not accept the access token" in response.text


def test_issuers_error_is_shown_as_text(gate: TestClient) -> None:
    asked = parse_qs(urlsplit(leave_for_issuer(gate)).query)
    query = {"state": asked["state"][0], "error": "access_denied", "error_description": "<script>alert(1)</script>"}
    response = gate.get("/login/callback", params=query)
    assert response.status_code == 403
    assert "&lt;script&gt;alert(1)" in response.text
    assert "<script>alert(1)" not in response.text


def test_answer_that_names_another_issuer_is_rejected(gate: TestClient, issuer: Issuer) -> None:
    back = issuer.consent(leave_for_issuer(gate))
    assert "of another issuer" in gate.get(f"{back}&iss=https://other").text


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "https://other"},
        {"token_endpoint": "http://192.0.2.1/token"},
        {"jwks_uri": "file:///etc/passwd"},
        {"code_challenge_methods_supported": ["plain"]},
    ],
)
def test_wrong_configuration_of_the_issuer_is_rejected(gate: TestClient, issuer: Issuer, wrong: dict[str, Any]) -> None:
    issuer.configuration = wrong
    response = gate.get("/login/openid", follow_redirects=False)
    assert response.status_code == 502
    assert "cannot be asked" in response.text


def test_form_with_a_password_does_nothing_with_an_issuer(gate: TestClient) -> None:
    form = {"csrf": token(gate, "/login"), "user": "root", "password": "x"}
    assert gate.post("/login", data=form, follow_redirects=False).headers["location"] == "/"
    assert gate.get(AT, follow_redirects=False).status_code == 303
