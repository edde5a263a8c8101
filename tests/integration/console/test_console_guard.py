"""What every request to the console passes: Host header, tokens of forms, read-only mode, headers of responses."""

import pytest
from starlette.testclient import TestClient

from odradek.console.app import CHANGES, OWN
from odradek.console.guard import HEADERS
from odradek.console.pages import overview
from tests.integration.console.consoles import AT, post, token

FORMS = [path.format(cluster="test", topic="t") for path, _ in (*CHANGES, *OWN)]


def test_foreign_host_name_is_rejected(client: TestClient) -> None:
    response = client.get(AT, headers={"host": "attacker.example:8080"})
    assert response.status_code == 421
    assert "attacker.example" not in response.text


@pytest.mark.parametrize("path", FORMS)
def test_form_is_rejected_without_token(client: TestClient, path: str) -> None:
    assert client.post(path, data={"topic": "t"}).status_code == 403


@pytest.mark.parametrize("path", FORMS)
def test_form_is_rejected_with_token_of_another_browser(client: TestClient, path: str) -> None:
    stolen = token(client)
    other = TestClient(client.app, base_url="http://127.0.0.1:8080")
    assert other.post(path, data={"csrf": stolen}).status_code == 403


@pytest.mark.parametrize(
    "headers", [{"origin": "http://attacker.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
)
def test_form_of_another_site_is_rejected(client: TestClient, headers: dict[str, str]) -> None:
    form = {"csrf": token(client), "theme": "dark"}
    assert client.post("/theme", data=form, headers=headers).status_code == 403


@pytest.mark.parametrize("path", [path.format(cluster="test", topic="t") for path, _ in CHANGES])
def test_change_is_rejected_by_read_only_console(reader: TestClient, path: str) -> None:
    response = post(reader, path, topic="t", confirm="t")
    assert response.status_code == 403
    assert "--allow-changes" in response.text


@pytest.mark.parametrize("path", [AT, AT + "/topics", AT + "/topics/missing", "/static/console.css", "/nowhere"])
def test_response_forbids_foreign_content(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"


def test_failure_of_a_page_has_the_headers(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(_admin: object) -> None:
        raise RuntimeError("a secret of the program")

    monkeypatch.setattr(overview, "look", fail)
    browser = TestClient(client.app, base_url="http://127.0.0.1:8080", raise_server_exceptions=False)
    response = browser.get(AT)
    assert response.status_code == 500
    assert "secret" not in response.text
    for name, value in HEADERS.items():
        assert response.headers[name] == value
    assert response.headers["cache-control"] == "no-store"


def test_cookie_is_closed_to_scripts_and_sites(client: TestClient) -> None:
    fresh = TestClient(client.app, base_url="http://127.0.0.1:8080")
    cookie = fresh.get("/healthy").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_form_in_another_encoding_is_rejected(client: TestClient) -> None:
    assert client.post("/theme", json={"theme": "dark"}).status_code == 415


def test_too_large_form_is_rejected(client: TestClient) -> None:
    form = {"csrf": token(client), "theme": "x" * 3_000_000}
    assert client.post("/theme", data=form).status_code == 413


def test_theme_is_kept_in_a_cookie(client: TestClient) -> None:
    try:
        assert 'data-theme="dark"' in post(client, "/theme", theme="dark").text
    finally:
        client.cookies.delete("odradek_theme")


def test_return_after_form_stays_on_this_site(client: TestClient) -> None:
    form = {"csrf": token(client), "theme": "auto"}
    response = client.post(
        "/theme", data=form, headers={"referer": "http://attacker.example//evil.example/x"}, follow_redirects=False
    )
    assert response.headers["location"] == "/"
