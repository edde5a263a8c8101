"""Settings of the console: where it listens, whom it serves."""

import pytest

from odradek.console.settings import ConsoleSettings, SettingsError, host_of

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


def test_login_needs_a_mechanism_with_password() -> None:
    options = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
    with pytest.raises(SettingsError, match=r"sasl\.mechanism"):
        ConsoleSettings(clusters={"c": options}, login=True)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("LocalHost:8080", "localhost"),
        ("[::1]:8080", "::1"),
        ("example.org", "example.org"),
        ("", ""),
        ("a:1:2", "a:1:2"),
    ],
)
def test_host_is_read_from_header(header: str, host: str) -> None:
    assert host_of(header) == host


def test_host_names_are_those_of_the_settings() -> None:
    settings = ConsoleSettings(clusters=CLUSTERS, hosts=frozenset({"kafka.example.org"}))
    assert settings.accepts_host("kafka.example.org:8080")
    assert not settings.accepts_host("example.org")
    assert not settings.accepts_host("")
