"""Connections to other brokers' TLS listeners: whose certificates are accepted."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.network.handshakes import Handshakes
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.client.connection import open_connection
from odradek.client.errors import Disconnected
from odradek.metadata.configs.catalog import BROKER
from odradek.ports.clock import SystemClock
from odradek.ports.network import Stream, TcpNetwork
from tests.certificates import Authority

SECONDS = 30


class Settings:
    """Settings of all listeners, with Kafka's defaults."""

    def __init__(self, **given: str) -> None:
        self._given = {f"ssl.{name.replace('_', '.')}": value for name, value in given.items()}

    def listener_text(self, _listener_name: str, name: str) -> str:
        return self._given.get(name, BROKER[name].default or "")


def failure_of(listeners: TlsListeners, host: str = "127.0.0.1", server: ssl.SSLContext | None = None) -> str:
    """Why a broker's connection to a listener that closes each connection fails."""

    async def scenario() -> str:
        handshakes = Handshakes(SystemClock(), SECONDS)
        context = server or listeners.server_context("SSL")
        assert context is not None

        def accept(stream: Stream) -> None:
            handshakes.begin(stream, context, "SSL", lambda secured: secured.close(), lambda: None)

        listener = TcpNetwork().listen("127.0.0.1", 0, accept)
        try:
            with pytest.raises(Disconnected) as raised:
                await open_connection(
                    TcpNetwork(), host, listener.port, client_id="b", setup_timeout_ms=30_000,
                    request_timeout_ms=30_000, secure=listeners.connector("SSL"),
                )  # fmt: skip
            return str(raised.value)
        finally:
            listener.close()
            handshakes.close()

    return asyncio.run(scenario())


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def make(authority: Authority) -> Callable[..., TlsListeners]:
    store = authority.issue("/CN=localhost").both
    elsewhere = authority.issue("/CN=x", "subjectAltName=DNS:elsewhere.example").both

    def make(*, of_this_host: bool = True, **given: str) -> TlsListeners:
        found = {"keystore_location": store if of_this_host else elsewhere, "truststore_location": authority.file}
        return TlsListeners(Settings(**(found | given)), ["SSL"])

    return make


def test_broker_accepts_the_certificate_of_another(make: Callable[..., TlsListeners]) -> None:
    assert failure_of(make(client_auth="required")).endswith("closed the connection")


def test_broker_rejects_a_certificate_of_another_host(make: Callable[..., TlsListeners]) -> None:
    listeners = make(of_this_host=False)
    assert "TLS handshake failed: the peer's certificate is not valid: IP address mismatch" in failure_of(listeners)


def test_host_names_are_not_verified_where_that_is_disabled(make: Callable[..., TlsListeners]) -> None:
    listeners = make(of_this_host=False, endpoint_identification_algorithm="")
    assert failure_of(listeners).endswith("closed the connection")


def test_broker_rejects_a_certificate_of_an_unknown_authority(
    make: Callable[..., TlsListeners], tmp_path: Path
) -> None:
    other = make(truststore_location=Authority(tmp_path, "other").file)
    assert "the peer's certificate is not valid: unable to get local issuer" in failure_of(other)


def test_expired_certificate_of_a_broker_is_rejected(make: Callable[..., TlsListeners], authority: Authority) -> None:
    expired = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    expired.load_cert_chain(authority.issue("/CN=localhost", days=-1).both)
    assert "certificate has expired" in failure_of(make(), server=expired)


def test_unreadable_mapping_rule_names_listener_and_setting(make: Callable[..., TlsListeners]) -> None:
    with pytest.raises(ConfigError, match=r"listener SSL: ssl.principal.mapping.rules: 'nonsense' is neither"):
        make(principal_mapping_rules="nonsense")
    assert make().connector("PLAINTEXT") is None
