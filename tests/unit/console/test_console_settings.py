"""Settings of the console: where it listens, whom it serves."""

from typing import Any

import pytest

from odradek.console.settings import ConsoleSettings, OpenIdSettings, SettingsError

CLUSTERS = {"c": {"bootstrap_servers": "127.0.0.1:9092"}}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "console.example"])
def test_console_beyond_loopback_needs_a_decision(host: str) -> None:
    with pytest.raises(SettingsError, match="--allow-anonymous"):
        ConsoleSettings(clusters=CLUSTERS, host=host)
    assert ConsoleSettings(clusters=CLUSTERS, host=host, allow_anonymous=True).host == host


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_console_on_loopback_needs_no_login(host: str) -> None:
    assert ConsoleSettings(clusters=CLUSTERS, host=host).is_loopback


def test_login_needs_sasl() -> None:
    with pytest.raises(SettingsError, match=r"security\.protocol"):
        ConsoleSettings(clusters=CLUSTERS, login=True)


@pytest.mark.parametrize(
    ("mechanism", "match"), [("GSSAPI", r"sasl\.mechanism=PLAIN"), ("OAUTHBEARER", "--oidc-issuer")]
)
def test_login_needs_a_mechanism_with_password(mechanism: str, match: str) -> None:
    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": mechanism}
    with pytest.raises(SettingsError, match=match):
        ConsoleSettings(clusters={"c": options}, login=True)


def test_issuer_needs_bearer_tokens_and_login() -> None:
    openid = OpenIdSettings(issuer="https://login.example", client_id="console")
    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    assert ConsoleSettings(clusters={"c": options}, login=True, openid=openid).openid is openid
    with pytest.raises(SettingsError, match="--login"):
        ConsoleSettings(clusters={"c": options}, openid=openid)
    with pytest.raises(SettingsError, match="OAUTHBEARER"):
        ConsoleSettings(clusters={"c": options | {"sasl_mechanism": "PLAIN"}}, login=True, openid=openid)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"issuer": "http://login.example"}, "https expected"),
        ({"issuer": "file:///etc/issuer"}, "https URL"),
        ({"issuer": "https://login.example?x=1"}, "without a query"),
        ({"client_id": ""}, "--oidc-client-id"),
    ],
)
def test_wrong_issuer_is_rejected(given: dict[str, Any], match: str) -> None:
    options: dict[str, Any] = {"issuer": "https://login.example", "client_id": "console"}
    with pytest.raises(SettingsError, match=match):
        OpenIdSettings(**options | given)


@pytest.mark.parametrize("url", ["kafka.example", "https://kafka.example/console", "ftp://kafka.example"])
def test_wrong_public_url_is_rejected(url: str) -> None:
    with pytest.raises(SettingsError, match="--public-url"):
        ConsoleSettings(clusters={"c": {}}, public_url=url)


def test_public_url_is_a_host_of_the_console() -> None:
    settings = ConsoleSettings(clusters={"c": {}}, public_url="https://kafka.example/")
    assert settings.accepts_host("kafka.example")
    assert not settings.accepts_host("login.example")
    assert settings.redirect_uri("127.0.0.1:8080") == "https://kafka.example/login/callback"


def test_host_names_are_those_of_the_settings() -> None:
    settings = ConsoleSettings(clusters=CLUSTERS, hosts=frozenset({"kafka.example.org"}))
    assert settings.accepts_host("kafka.example.org:8080")
    assert not settings.accepts_host("example.org")
    assert not settings.accepts_host("")
