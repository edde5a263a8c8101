"""Login with users of the cluster: the console acts as the user, so that ACLs and passwords of the cluster count."""

import json
import re
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.client.admin import NewTopic
from odradek.console.sessions import COOKIE, MAX_FAILURES
from tests.integration.console.consoles import AT, ask_as, console, token, until
from tests.integration.sasl_brokers import ADMIN, ADMIN_PASSWORD, ALICE, ALICE_PASSWORD, login


@pytest.fixture
def gate(secured: str, tmp_path: Path) -> Iterator[TestClient]:
    """A console with logins."""
    options = {name: value for name, value in login(secured).items() if name != "bootstrap_servers"}
    with console(secured, options=options, login=True, allow_changes=True, audit_log=str(tmp_path / "audit")) as opened:
        yield opened


def enter(client: TestClient, user: str, password: str, **arguments: Any) -> Any:
    """Send the login form."""
    form = {"csrf": token(client, "/login"), "user": user, "password": password}
    return client.post("/login", data=form, **arguments)


@pytest.mark.parametrize("path", ["/", AT, AT + "/topics", AT + "/topics/t/messages/stream", AT + "/group?name=g"])
def test_page_leads_to_the_login_without_session(gate: TestClient, path: str) -> None:
    response = gate.get(path, follow_redirects=False)
    assert response.status_code == 303
    assert response.headers["location"] == "/login"


def test_part_of_a_page_leads_the_page_to_the_login_without_session(gate: TestClient) -> None:
    """The login in the place of the part had no such part, so that the page became empty."""
    response = gate.get(AT, headers={"hx-request": "true", "hx-trigger": "live"}, follow_redirects=False)
    assert (response.status_code, response.headers["hx-redirect"]) == (401, "/login")


def test_pages_that_renew_themselves_do_not_keep_a_login(secured: str) -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    with console(secured, options=options, login=True, idle_s=1.0) as client:
        enter(client, ADMIN, ADMIN_PASSWORD)
        part = re.search('<div id="live" hx-get="[^"]+" hx-trigger="every', client.get(AT).text)
        assert part is not None
        until(lambda: client.get(AT, headers={"hx-request": "true", "hx-trigger": "live"}).status_code == 401)


def test_wrong_password_is_rejected(gate: TestClient) -> None:
    response = enter(gate, ADMIN, "wrong")
    assert response.status_code == 403
    assert "does not accept" in response.text


def test_user_gets_a_new_cookie_and_logs_out(gate: TestClient) -> None:
    before = token(gate, "/login") and gate.cookies[COOKIE]
    assert "Overview" in enter(gate, ADMIN, ADMIN_PASSWORD).text
    assert gate.cookies[COOKIE] != before
    page = gate.get(AT)
    assert ADMIN_PASSWORD not in page.text
    gate.post("/logout", data={"csrf": token(gate)})
    assert gate.get(AT, follow_redirects=False).status_code == 303


def test_second_login_of_a_browser_ends_the_first(gate: TestClient) -> None:
    enter(gate, ADMIN, ADMIN_PASSWORD)
    before = gate.cookies[COOKIE]
    form = {"csrf": token(gate), "user": "bob", "password": "bob-secret"}
    assert gate.post("/login", data=form).status_code == 200
    assert gate.cookies[COOKIE] != before
    gate.cookies.clear()
    gate.cookies[COOKIE] = before
    assert gate.get(AT, follow_redirects=False).status_code == 303


def test_console_acts_as_the_user(gate: TestClient, tmp_path: Path) -> None:
    enter(gate, ADMIN, ADMIN_PASSWORD)
    gate.post(AT + "/create-topic", data={"csrf": token(gate), "topic": "private"})
    assert "private" in gate.get(AT + "/topics").text
    gate.post("/logout", data={"csrf": token(gate)})
    enter(gate, "bob", "bob-secret")
    assert "private" not in gate.get(AT + "/topics").text
    response = gate.post(AT + "/create-topic", data={"csrf": token(gate), "topic": "bobs"})
    assert response.status_code == 400
    assert "AUTHORIZATION_FAILED" in response.text
    lines = [json.loads(each) for each in (tmp_path / "audit").read_text().splitlines()]
    assert [(each["user"], each["action"], each["target"]) for each in lines if each["action"] == "create topic"] == [
        (ADMIN, "create topic", "private")
    ]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_user_logs_in(secured: str, mechanism: str) -> None:
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    with console(secured, options=options, login=True) as client:
        assert enter(client, ALICE, ALICE_PASSWORD + "x").status_code == 403
        response = enter(client, ALICE, ALICE_PASSWORD)
        assert "Overview" in response.text
        assert f"<b>{ALICE}</b>" in response.text
        assert ALICE_PASSWORD not in response.text


def test_address_waits_after_many_failures(gate: TestClient) -> None:
    for _ in range(MAX_FAILURES):
        assert enter(gate, ADMIN, "wrong").status_code == 403
    assert enter(gate, ADMIN, ADMIN_PASSWORD).status_code == 429


def test_many_logins_at_a_time_do_not_pass_the_limit(gate: TestClient) -> None:
    form = {"csrf": token(gate, "/login"), "user": ADMIN, "password": "wrong"}
    with ThreadPoolExecutor(3 * MAX_FAILURES) as pool:
        answers = list(pool.map(lambda _: gate.post("/login", data=form).status_code, range(3 * MAX_FAILURES)))
    assert sorted(answers) == [403] * MAX_FAILURES + [429] * 2 * MAX_FAILURES


@contextmanager
def served(bootstrap: str, folder: Path, *options: str) -> Iterator[str]:
    """The URL of a console with logins in a process of its own, because the test client returns complete answers."""
    settings = folder / "client.properties"
    settings.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    command = [sys.executable, "-m", "odradek.cli.main", "console", "--listen", "127.0.0.1:0", "--login", *options]
    command += ["--command-config", str(settings), "-b", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split("url=")[1].split()[0]
        finally:
            process.terminate()


def logged_in(url: str) -> tuple[urllib.request.OpenerDirector, str]:
    """A browser after its login, and the token of its forms."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())

    def csrf(text: str) -> str:
        found = re.search('name="csrf" value="([0-9a-f]{64})"', text)
        assert found is not None
        return found[1]

    form = {"csrf": csrf(browser.open(f"{url}login").read().decode()), "user": ADMIN, "password": ADMIN_PASSWORD}
    page = browser.open(f"{url}login", urllib.parse.urlencode(form).encode()).read().decode()
    return browser, csrf(page)


def end_of(stream: Any) -> str:
    """The text of the stream's last event."""
    deadline = time.monotonic() + 15
    while stream.readline() != b"event: end\n":
        assert time.monotonic() < deadline, "the stream has not ended within 60 s"
    return str(stream.readline().decode())


@pytest.mark.parametrize("how", ["logout", "idle"])
def test_live_view_ends_with_the_login(secured: str, tmp_path: Path, how: str) -> None:
    options = ["--idle-timeout", "2"] if how == "idle" else []
    topic = f"live-{how}"
    ask_as(login(secured), lambda admin: admin.create_topics([NewTopic(topic, 1, 1)]))
    with served(secured, tmp_path, *options) as url:
        browser, csrf = logged_in(url)
        with browser.open(f"{url}c/cluster/topics/{topic}/messages/stream?from=live", timeout=60) as stream:
            assert stream.readline() == b"event: progress\n"
            if how == "logout":
                browser.open(f"{url}logout", urllib.parse.urlencode({"csrf": csrf}).encode()).close()
            assert "The login has ended" in end_of(stream)
