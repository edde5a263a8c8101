"""TLS under attack and in motion: old protocols, wrong certificates, a swap under load, and secrets."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.network import tls_listeners
from odradek.client import Admin
from odradek.client.errors import ClientError
from tests.conftest import MakeBroker
from tests.integration.tls_brokers import Security, with_broker
from tests.unit.ports.test_java_stores import STORES

SECONDS = 30
API_VERSIONS = bytes.fromhex("0000000b0012000000000007000174")
PLANTED = "planted-7f3a9c"
SWAPS = 5


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> Security:
    return Security(tmp_path_factory.mktemp("certificates"))


def client_hello(version: int) -> bytes:
    """The first message of a client that speaks that version at most."""
    suites = bytes.fromhex("c013c014c009c00a002f0035000a")
    body = version.to_bytes(2, "big") + os.urandom(32) + b"\0" + len(suites).to_bytes(2, "big") + suites + b"\1\0"
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


@pytest.mark.parametrize("version", [0x0300, 0x0301, 0x0302])
def test_versions_before_tls_1_2_are_rejected(version: int, security: Security, tmp_path: Path) -> None:
    def use(bootstrap: str) -> bytes:
        host, _, port = bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), SECONDS) as client:
            client.sendall(client_hello(version))
            return client.recv(7)

    answer = with_broker(security.settings(tmp_path), use)
    assert answer[:1] == b"\x15", "an alert"
    assert answer[5:7] in (b"\x02\x46", b"\x02\x28"), "fatal: protocol_version, or handshake_failure for SSL 3"


@pytest.mark.parametrize(
    ("names", "days", "text"),
    [
        ("subjectAltName=DNS:elsewhere", 30, "not valid: .*(Hostname mismatch|IP address mismatch)"),
        ("subjectAltName=DNS:localhost,IP:127.0.0.1", -1, "not valid: certificate has expired"),
    ],
)
def test_client_rejects_a_broker_with_a_wrong_certificate(
    names: str, days: int, text: str, security: Security, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = security.authority.issue("/CN=broker", names, days=days)

    async def ask(bootstrap: str) -> None:
        options: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": security.authority.file}
        async with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=200, **options) as admin:
            await admin.list_topics()

    def use(bootstrap: str) -> None:
        with pytest.raises(ClientError):
            asyncio.run(ask(bootstrap))

    with caplog.at_level(logging.WARNING, "odradek.client"):
        with_broker(security.settings(tmp_path, ssl_keystore_location=own.both), use)
    assert re.search(text, caplog.text)


def test_certificates_are_swapped_under_load_without_a_failure(
    security: Security, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients connect all the time and send on old connections, while the certificate changes, also to nonsense."""
    monkeypatch.setattr(tls_listeners, "CHECK_SECONDS", 0.02)
    store = tmp_path / "store.pem"
    store.write_text(Path(security.broker.both).read_text())
    settings = security.settings(tmp_path / "data", ssl_keystore_location=str(store))
    context = ssl.create_default_context(cafile=security.authority.file)
    fresh = [Path(security.authority.issue(f"/CN=swap-{n}").both).read_text() for n in range(SWAPS)]
    served: set[bytes] = set()
    requests = 0

    async def scenario() -> None:
        broker = Broker(BrokerConfig(settings))
        await broker.start()
        port = int(broker.bootstrap.rpartition(":")[2])
        over = asyncio.Event()

        async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal requests
            writer.write(API_VERSIONS)
            async with asyncio.timeout(SECONDS):
                head = await reader.readexactly(4)
                answer = await reader.readexactly(int.from_bytes(head, "big"))
            assert answer[:4] == API_VERSIONS[8:12]
            requests += 1

        async def load(*, reconnects: bool) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
            while not over.is_set():
                await exchange(reader, writer)
                if reconnects:
                    served.add(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
                    writer.close()
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
                await asyncio.sleep(0)
            writer.close()

        loads = [asyncio.ensure_future(load(reconnects=each)) for each in (True, True, False, False)]
        for number, each in enumerate(fresh):
            replacement = tmp_path / "next.pem"
            replacement.write_text("nonsense" if number == 2 else each)
            replacement.replace(store)
            wanted = len(served) + (number != 2)
            async with asyncio.timeout(SECONDS):
                while len(served) < wanted and not any(task.done() for task in loads):
                    await asyncio.sleep(0.005)
        over.set()
        await asyncio.gather(*loads)
        await broker.stop()

    asyncio.run(scenario())
    assert len(served) >= SWAPS - 1
    assert requests > SWAPS


def test_passwords_appear_nowhere(make_broker: MakeBroker, security: Security, tmp_path: Path) -> None:
    """Of the key, the stores and a provider: not in logs, arguments, files of the broker, answers."""
    locked = security.authority.issue("/CN=localhost", password=PLANTED)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text(PLANTED)
    properties = tmp_path / "server.properties"
    properties.write_text(
        "config.providers=dir\nconfig.providers.dir.class=DirectoryConfigProvider\n"
        "listeners=SSL://127.0.0.1:0,SASL_SSL://127.0.0.1:0,OTHER://127.0.0.1:0\n"
        "listener.security.protocol.map=SSL:SSL,SASL_SSL:SASL_SSL,OTHER:SSL\n"
        f"security.inter.broker.protocol=SSL\nssl.keystore.location={locked.both}\n"
        f"ssl.key.password=${{dir:{tmp_path}/secrets:key}}\nssl.truststore.location={security.authority.file}\n"
        f"listener.name.other.ssl.truststore.location={STORES / 'trust.jks'}\n"
        "listener.name.other.ssl.truststore.password=store-secret\n"
        "sasl.enabled.mechanisms=PLAIN\nlistener.name.sasl_ssl.plain.sasl.jaas.config="
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="{PLANTED}";\n'
    )
    broker = make_broker()
    command = broker.command()
    at = command.index("serve") + 1
    data = command[command.index("--data-dir") + 1]
    broker.command = lambda: [  # type: ignore[method-assign]
        *command[:at], str(properties), "--data-dir", data, "--log-level", "debug",
    ]  # fmt: skip
    broker.start()
    admin = AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": security.authority.file,
        }
    )
    resource = ConfigResource(ResourceType.BROKER, "1")
    described = admin.describe_configs([resource])[resource].result(SECONDS)
    answers = repr([(each.name, each.value, [s.value for s in each.synonyms.values()]) for each in described.values()])
    arguments = Path(f"/proc/{broker.pid}/cmdline").read_bytes().decode()
    broker.stop()
    files = [each for each in Path(data).rglob("*") if each.is_file()]
    assert files
    assert "ssl.key.password" in answers
    for secret in (PLANTED, "store-secret"):
        assert secret not in answers
        assert secret not in arguments
        assert secret not in broker.log(10_000_000)
        assert [each for each in files if secret.encode() in each.read_bytes()] == []
