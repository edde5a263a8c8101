"""Connections to other brokers' TLS listeners: whose certificates are accepted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.network.distinguished_names import subject_of
from odradek.broker.network.handshakes import Handshakes
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.client.errors import Disconnected
from odradek.client.network.connection import open_connection
from odradek.controller.configs import ConfigChange, OperationType, ResourceChanges, ResourceType
from odradek.metadata.configs.catalog import BROKER
from odradek.ports.clock import SystemClock
from odradek.ports.network import Stream, TcpNetwork
from odradek.wire.errors import ErrorCode, KafkaError
from tests.certificates import Authority

SECONDS = 30


class Settings:
    """Settings of all listeners, with Kafka's defaults."""

    def __init__(self, **given: str) -> None:
        self._given = {f"ssl.{name.replace('_', '.')}": value for name, value in given.items()}
        self.dynamic: dict[str, str] = {}

    @property
    def node_id(self) -> int:
        return 1

    def given_listener_text(self, _listener_name: str, name: str) -> str:
        return self._given.get(name, BROKER[name].default or "")

    def listener_text(self, listener_name: str, name: str) -> str:
        found = self.dynamic.get(f"listener.name.{listener_name.lower()}.{name}")
        return self.given_listener_text(listener_name, name) if found is None else found


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
        return TlsListeners(Settings(**(found | given)), ["SSL"], SystemClock())

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


def subject_served(listeners: TlsListeners, authority: Authority) -> str:
    """The subject of the certificate that new connections get."""
    context = listeners.server_context("SSL")
    assert context is not None
    client = ssl.create_default_context(cafile=authority.file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepting = context.wrap_bio(to_server, to_client, server_side=True)
    connecting = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    for side in (connecting, accepting, connecting):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    certificate = connecting.getpeercert(binary_form=True)
    assert certificate is not None
    return subject_of(certificate)


class Watched:
    """A listener whose key store changes."""

    def __init__(self, authority: Authority, folder: Path) -> None:
        self.authority = authority
        self.store = folder / "store.pem"
        self.replace("/CN=first")
        self.settings = Settings(keystore_location=str(self.store), truststore_location=authority.file)
        self.listeners = TlsListeners(self.settings, ["SSL"], SystemClock())
        self.listeners.check_seconds = 0.001

    def replace(self, subject: str, days: int = 30) -> None:
        text = Path(self.authority.issue(subject, days=days).both).read_text()
        fresh = self.store.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.store)

    def after(self, change: Callable[[], object], expected: Callable[[], bool]) -> str:
        """The subject that is served once what is expected has come."""

        async def scenario() -> str:
            self.listeners.watch()
            assert subject_served(self.listeners, self.authority) == "CN=first"
            change()
            async with asyncio.timeout(SECONDS):
                while not expected():
                    await asyncio.sleep(0.001)
            self.listeners.close()
            return subject_served(self.listeners, self.authority)

        return asyncio.run(scenario())


def test_changed_certificate_is_served_to_new_connections(authority: Authority, tmp_path: Path) -> None:
    watched = Watched(authority, tmp_path)
    found = watched.after(
        lambda: watched.replace("/CN=second"),
        lambda: subject_served(watched.listeners, authority) == "CN=second",
    )
    assert found == "CN=second"


LOCATION = "listener.name.ssl.ssl.keystore.location"


def test_dynamic_store_of_a_listener_replaces_that_of_the_file(authority: Authority, tmp_path: Path) -> None:
    watched = Watched(authority, tmp_path)
    store = authority.issue("/CN=dynamic").both
    found = watched.after(
        lambda: watched.settings.dynamic.update({LOCATION: store}),
        lambda: subject_served(watched.listeners, authority) == "CN=dynamic",
    )
    assert found == "CN=dynamic"


def test_dynamic_store_that_is_set_already_is_used_from_the_start(authority: Authority, tmp_path: Path) -> None:
    watched = Watched(authority, tmp_path)
    watched.settings.dynamic[LOCATION] = authority.issue("/CN=dynamic").both

    async def served_at_once() -> str:
        watched.listeners.watch()
        watched.listeners.close()
        return subject_served(watched.listeners, authority)

    assert asyncio.run(served_at_once()) == "CN=dynamic"


def changes(*items: ConfigChange, broker: str = "1", replace: bool = False) -> ResourceChanges:
    return ResourceChanges(ResourceType.BROKER, broker, items, replace)


def test_update_of_a_store_is_checked_before_it_is_stored(
    make: Callable[..., TlsListeners], authority: Authority
) -> None:
    listeners = make()
    late = authority.issue("/CN=late", days=-1).both
    for name, value, reason in (
        (LOCATION, "/nowhere/store.pem", "No such file"),
        (LOCATION, late, "the certificate expired at"),
        ("listener.name.ssl.ssl.truststore.type", "ZIP", "JKS, PKCS12 or PEM is expected"),
        ("listener.name.other.ssl.keystore.location", late, "OTHER is no TLS listener of broker 1"),
    ):
        change = ConfigChange(name, OperationType.SET, value)
        with pytest.raises(KafkaError, match=reason) as raised:
            listeners.check_update(changes(change))
        assert raised.value.code == ErrorCode.INVALID_REQUEST
        listeners.check_update(changes(change, broker="2"))


def test_update_of_a_store_that_works_is_allowed(make: Callable[..., TlsListeners], authority: Authority) -> None:
    listeners = make()
    fresh = authority.issue("/CN=fresh").both
    listeners.check_update(changes(ConfigChange(LOCATION, OperationType.SET, fresh)))
    listeners.check_update(changes(ConfigChange(LOCATION, OperationType.DELETE, None)))
    listeners.check_update(changes(ConfigChange("ssl.client.auth", OperationType.SET, "none")))  # others judge it


def test_replaced_settings_are_checked_with_what_they_take_back(authority: Authority, tmp_path: Path) -> None:
    watched = Watched(authority, tmp_path)
    watched.listeners.check_update(changes(replace=True))  # nothing is set, nothing changes
    fresh = authority.issue("/CN=fresh").both
    watched.listeners.check_update(changes(ConfigChange(LOCATION, OperationType.SET, fresh), replace=True))
    watched.settings.dynamic[LOCATION] = fresh
    Path(watched.settings.given_listener_text("SSL", "ssl.keystore.location")).unlink()
    with pytest.raises(KafkaError, match="No such file"):
        watched.listeners.check_update(changes(replace=True))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda watched: watched.settings.dynamic.update({LOCATION: "/nowhere"}), "No such file"),
        (lambda watched: watched.settings.dynamic.update({LOCATION[:-8] + "type": "ZIP"}), "PEM is expected"),
        (lambda watched: watched.replace("/CN=late", days=-1), "the certificate expired at"),
        (lambda watched: watched.store.write_text("nonsense"), "no private key in PEM"),
        (lambda watched: watched.store.unlink(), "No such file"),
    ],
)
def test_unusable_certificate_leaves_the_previous_one(
    change: Callable[[Watched], object],
    reason: str,
    authority: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    watched = Watched(authority, tmp_path)
    assert watched.after(lambda: change(watched), lambda: bool(caplog.messages)) == "CN=first"
    (line,) = caplog.messages
    assert reason in line
    assert line.endswith("connections get the previous ones")


def test_certificate_that_could_not_be_read_is_read_again(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker has no descriptor left when it is replaced, or no right to read it: neither ends with a new file."""
    watched = Watched(authority, tmp_path)
    left = 3
    load = ssl.SSLContext.load_cert_chain

    def fails_at_first(context: ssl.SSLContext, *args: Any) -> None:
        nonlocal left
        if left:
            left -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        load(context, *args)

    def change() -> None:
        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", fails_at_first)
        watched.replace("/CN=second")

    found = watched.after(change, lambda: subject_served(watched.listeners, authority) == "CN=second")
    assert found == "CN=second"
    (line,) = caplog.messages
    assert "Too many open files" in line


SERVE_A_CLIENT = """
import asyncio, sys
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker import lifecycle
from odradek.broker.ports import Ports
from odradek.client import Consumer, Producer, TopicPartition

async def serve(folder):
    settings = {"node.id": "1", "log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:0"}
    broker = lifecycle.Broker(BrokerConfig(settings, is_single=True), Ports())
    await broker.start()
    await broker.load_the_rest()
    options = {"bootstrap_servers": broker.bootstrap}
    async with Producer(**options) as producer, Consumer(**options, auto_offset_reset="earliest") as consumer:
        await producer.send_and_wait("orders", b"value", partition=0)
        consumer.assign([TopicPartition("orders", 0)])
        assert await anext(aiter(consumer))
    await broker.stop()

lifecycle.LOAD_PAUSE_SECONDS = 0
asyncio.run(serve(sys.argv[1]))
print(*sys.modules)
"""
SECURITY = re.compile(
    r"odradek\.(ports\.(tls|java_stores)|broker\.network\.(handshakes|principal_rules)|authorization|api\.authorization"
    r"|broker\.authorization|api\.audit|broker\.audit|client\.security\.(sasl|bearer|kerberos)"
    r"|broker\.security\.(oauth|kerberos|sasl_listeners)|security\.(jaas|jwt|kerberos|gssapi|oauth|digest)"
    r"|metadata\.stores\.zookeeper)|cryptography|jwt|gssapi|kazoo"
)


def test_broker_and_client_without_security_load_no_module_for_it(tmp_path: Path) -> None:
    """Start, memory and requests of a plain broker cost nothing for TLS, logins, ACLs and the audit topic."""
    done = subprocess.run(
        [sys.executable, "-c", SERVE_A_CLIENT, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert [name for name in done.stdout.split() if SECURITY.match(name)] == []
