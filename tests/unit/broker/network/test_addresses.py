"""Log lines for the operator about the addresses of listeners."""

import logging

import pytest

from odradek.broker.configuration.broker_config import Listener
from odradek.broker.network.addresses import BoundListener, address_notices, bootstrap_of, is_loopback
from odradek.metadata.image import Endpoint


def bound(host: str, socket_host: str | None = None) -> BoundListener:
    return BoundListener(Listener("PLAINTEXT", host, 9195, "PLAINTEXT"), socket_host or host)


def notices(listener: BoundListener, advertised_host: str, *, is_derived: bool = True) -> list[tuple[int, str]]:
    advertised = {"PLAINTEXT": Endpoint(advertised_host, 9195, "PLAINTEXT")}
    return list(address_notices(listener, advertised, is_derived=is_derived))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1"])
def test_listener_on_loopback_gives_no_notice(host: str) -> None:
    assert notices(bound(host), host) == []


@pytest.mark.parametrize("host", ["", "0.0.0.0"])
def test_listener_on_all_interfaces_is_a_warning(host: str) -> None:
    (level, text), (second, advertised) = notices(bound(host, "0.0.0.0"), "kafka1.example.org")
    assert (level, second) == (logging.WARNING, logging.INFO)
    assert text.startswith("listener PLAINTEXT is bound to 0.0.0.0:9195 (all interfaces) without authentication: ")
    assert "clients receive the address kafka1.example.org:9195" in advertised
    assert advertised.endswith("set advertised.listeners=PLAINTEXT://HOST:9195")


def test_listener_on_one_address_is_a_warning() -> None:
    ((level, text),) = notices(bound("10.1.2.3"), "10.1.2.3")
    assert level == logging.WARNING
    assert "bound to 10.1.2.3:9195 without authentication" in text


def test_derived_address_that_others_cannot_reach_is_a_warning() -> None:
    _, (level, text) = notices(bound("", "0.0.0.0"), "localhost")
    assert level == logging.WARNING
    assert "receive the address localhost:9195, which only this machine reaches" in text


def test_advertised_address_that_is_set_gives_no_notice() -> None:
    assert len(notices(bound("", "0.0.0.0"), "kafka1.example.org", is_derived=False)) == 1


def test_bootstrap_is_the_advertised_address_of_a_wildcard() -> None:
    advertised = {"PLAINTEXT": Endpoint("2001:db8::1", 19092, "PLAINTEXT")}
    assert bootstrap_of(bound("", "0.0.0.0"), advertised) == "[2001:db8::1]:19092"
    assert bootstrap_of(bound("", "0.0.0.0"), {}) == "0.0.0.0:9195"
    assert bootstrap_of(bound("127.0.0.1"), advertised) == "127.0.0.1:9195"


def test_names_other_than_localhost_are_not_loopback() -> None:
    assert is_loopback("localhost")
    assert not is_loopback("localhosts.example.org")
    assert not is_loopback("0.0.0.0")
