"""Clients of three libraries over TLS, and peers that must not get in."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.start_error import StartError
from odradek.cli.main import main
from odradek.client import Admin, Consumer, Producer
from odradek.client.admin import AlterConfig, ConfigResource, ConfigResourceType
from odradek.client.errors import ClientError
from odradek.wire.errors import KafkaError
from tests.certificates import Authority
from tests.conftest import MakeBroker
from tests.integration.clusters import states
from tests.integration.tls_brokers import Security, with_broker
from tests.integration.waiting import until

SECONDS = 30
RECORDS = [b"%d-" % n + b"x" * 5000 for n in range(100)]


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> Security:
    return Security(tmp_path_factory.mktemp("certificates"))


def confluent_options(bootstrap: str, security: Security) -> dict[str, str | int | float | bool]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": security.authority.file,
        "ssl.certificate.location": security.client.certificate,
        "ssl.key.location": security.client.key,
    }


def client_options(bootstrap: str, security: Security) -> dict[str, Any]:
    """Options of Odradek's own client."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": security.authority.file,
        "ssl_certfile": security.client.certificate,
        "ssl_keyfile": security.client.key,
    }


def confluent_round_trip(bootstrap: str, security: Security) -> list[bytes]:
    common = confluent_options(bootstrap, security)
    producer = confluent_kafka.Producer(common)
    for each in RECORDS:
        producer.produce("t", each, partition=0)
    assert producer.flush(SECONDS) == 0
    consumer = confluent_kafka.Consumer(common | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    while len(found) < len(RECORDS):
        messages = consumer.consume(100, SECONDS)
        assert messages, "no record in time"
        found += [each.value() or b"" for each in messages]
    consumer.close()
    return found


def kafka_python_round_trip(bootstrap: str, security: Security) -> list[bytes]:
    common = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": security.authority.file,
        "ssl_certfile": security.client.certificate,
        "ssl_keyfile": security.client.key,
    }
    producer = kafka.KafkaProducer(**common)
    for each in RECORDS:
        producer.send("t", each, partition=0)
    producer.flush(SECONDS)
    producer.close()
    consumer = kafka.KafkaConsumer("t", **common, auto_offset_reset="earliest", consumer_timeout_ms=SECONDS * 1000)
    found = []
    for record in consumer:
        found.append(record.value)
        if len(found) == len(RECORDS):
            break
    consumer.close()
    return found


def aiokafka_round_trip(bootstrap: str, security: Security) -> list[bytes]:
    async def main() -> list[bytes]:
        context = ssl.create_default_context(cafile=security.authority.file)
        context.load_cert_chain(security.client.certificate, security.client.key)
        common = {"bootstrap_servers": bootstrap, "security_protocol": "SSL", "ssl_context": context}
        async with aiokafka.AIOKafkaProducer(**common) as producer:
            for future in [await producer.send("t", each, partition=0) for each in RECORDS]:
                await future
        async with aiokafka.AIOKafkaConsumer("t", **common, auto_offset_reset="earliest") as consumer:
            return [(await asyncio.wait_for(consumer.getone(), SECONDS)).value for _ in RECORDS]

    return asyncio.run(main())


@pytest.mark.parametrize("round_trip", [confluent_round_trip, kafka_python_round_trip, aiokafka_round_trip])
def test_clients_produce_and_consume_with_certificates(
    round_trip: Callable[[str, Security], list[bytes]], security: Security, tmp_path: Path
) -> None:
    settings = security.settings(tmp_path, ssl_client_auth="required")
    assert with_broker(settings, lambda bootstrap: round_trip(bootstrap, security)) == RECORDS


JAVA_STORES = Path(__file__).parents[1] / "unit" / "ports" / "java_stores"


@pytest.mark.parametrize("kind", ["jks", "pkcs12"])
def test_stores_of_java_in_a_file_of_apache_kafka_are_used(kind: str, security: Security, tmp_path: Path) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "log.dirs": str(tmp_path),
        "ssl.keystore.location": str(JAVA_STORES / f"key.{kind}"),
        "ssl.keystore.password": "store-secret",
        "ssl.truststore.location": str(JAVA_STORES / f"trust.{kind}"),
        "ssl.truststore.password": "store-secret",
    }
    if kind == "jks":
        settings["ssl.key.password"] = "key-secret"
    context = trusting(security, str(JAVA_STORES / "ca.pem"))
    assert with_broker(settings, lambda bootstrap: answers(bootstrap, context))


API_VERSIONS = bytes.fromhex("0000000b0012000000000007000174")


def answers(bootstrap: str, context: ssl.SSLContext | None) -> bool:
    """Whether the broker answers an ApiVersions request."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), SECONDS) as plain:
        try:
            connection = plain if context is None else context.wrap_socket(plain, server_hostname=host)
            connection.sendall(API_VERSIONS)
            return connection.recv(100)[4:8] == bytes.fromhex("00000007")
        except (ssl.SSLError, ConnectionError):
            return False


def trusting(security: Security, file: str | None = None) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=file or security.authority.file)


def presenting(security: Security, certificate: str) -> ssl.SSLContext:
    context = trusting(security)
    context.load_cert_chain(certificate)
    return context


@pytest.mark.parametrize(
    ("client_auth", "without", "trusted"), [("none", True, True), ("requested", True, True), ("required", False, True)]
)
def test_client_certificates_are_asked_for_as_configured(
    client_auth: str, without: bool, trusted: bool, security: Security, tmp_path: Path
) -> None:
    def use(bootstrap: str) -> tuple[bool, bool]:
        presented = presenting(security, security.client.both)
        return answers(bootstrap, trusting(security)), answers(bootstrap, presented)

    assert with_broker(security.settings(tmp_path, ssl_client_auth=client_auth), use) == (without, trusted)


@pytest.mark.parametrize("client_auth", ["requested", "required"])
def test_invalid_client_certificates_are_rejected(client_auth: str, security: Security, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "other", "other CA").issue("/CN=mallory").both
    expired = security.authority.issue("/CN=late", days=-1).both

    def use(bootstrap: str) -> list[bool]:
        return [answers(bootstrap, presenting(security, each)) for each in (foreign, expired)]

    assert with_broker(security.settings(tmp_path / "data", ssl_client_auth=client_auth), use) == [False, False]


def test_clients_reject_a_broker_of_an_unknown_authority(security: Security, tmp_path: Path) -> None:
    stranger = trusting(security, Authority(tmp_path / "other", "other CA").file)
    assert not with_broker(security.settings(tmp_path / "data"), lambda bootstrap: answers(bootstrap, stranger))


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", "User:CN=alice,O=Acme"),
        ("RULE:^CN=(.*?),.*$/$1/U", "User:ALICE"),
        ("RULE:^CN=bob$/bob/", None),
    ],
)
def test_certificate_names_the_principal(
    rules: str, expected: str | None, security: Security, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = security.settings(tmp_path, ssl_client_auth="required", ssl_principal_mapping_rules=rules)
    host, context = "127.0.0.1", presenting(security, security.client.both)

    async def scenario() -> list[str]:
        broker = Broker(BrokerConfig(settings))
        await broker.start()
        port = int(broker.bootstrap.rpartition(":")[2])
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        try:
            writer.write(API_VERSIONS)
            await asyncio.wait_for(reader.read(100), SECONDS)
            assert broker._parts is not None
            return [str(each.session.principal) for each in broker._parts.server.connections.values()]
        finally:
            writer.close()
            await broker.stop()

    with caplog.at_level(logging.INFO, "odradek.connections"):
        assert asyncio.run(scenario()) == ([expected] if expected else [])
    if expected is None:
        assert "no rule of ssl.principal.mapping.rules matches 'CN=alice,O=Acme'" in caplog.text


def test_plain_text_to_the_tls_port_is_one_line(
    security: Security, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "odradek.security"):
        assert not with_broker(security.settings(tmp_path), lambda bootstrap: answers(bootstrap, None))
    (line,) = [each.getMessage() for each in caplog.records if each.name == "odradek.security"]
    assert line.startswith("TLS handshake of 127.0.0.1 on listener SSL failed: the peer does not speak TLS")


def test_tls_to_the_plain_text_port_is_one_line(
    security: Security, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    with caplog.at_level(logging.INFO, "odradek.connections"):
        assert not with_broker(plain, lambda bootstrap: answers(bootstrap, trusting(security)))
    (line,) = [each.getMessage() for each in caplog.records if each.name == "odradek.connections"]
    assert line.endswith("on listener PLAINTEXT ended: the peer speaks TLS, this side plain text")


def test_tls_1_2_is_rejected_where_only_1_3_is_enabled(security: Security, tmp_path: Path) -> None:
    limited = trusting(security)
    limited.maximum_version = ssl.TLSVersion.TLSv1_2

    def use(bootstrap: str) -> bool:
        return answers(bootstrap, limited)

    assert with_broker(security.settings(tmp_path / "a"), use)
    assert not with_broker(security.settings(tmp_path / "b", ssl_enabled_protocols="TLSv1.3"), use)


def test_brokers_replicate_over_tls(security: Security, tmp_path: Path, make_broker: MakeBroker) -> None:
    brokers = []
    for broker_id in (1, 2):
        settings = {
            "node.id": str(broker_id),
            "odradek.metadata.store": str(tmp_path / "metadata.sqlite"),
            "security.inter.broker.protocol": "SSL",
            "ssl.client.auth": "required",
        }
        own = security.settings(tmp_path / str(broker_id)) | settings
        del own["log.dirs"]
        brokers.append(make_broker(own, f"broker-{broker_id}").start())
    admin = AdminClient(confluent_options(brokers[1].bootstrap, security))
    admin.create_topics([NewTopic("t", 2, 2)])["t"].result(SECONDS)
    until(lambda: all(isr == [1, 2] for _, isr in states(admin, "t").values()), "both are in sync")
    producer = confluent_kafka.Producer(confluent_options(brokers[0].bootstrap, security) | {"acks": "all"})
    for each in RECORDS:
        producer.produce("t", each)
    assert producer.flush(SECONDS) == 0
    brokers[0].kill()
    until(lambda: {leader for leader, _ in states(admin, "t").values()} == {2}, "the other leads")


def test_tls_listener_without_certificate_ends_the_start(security: Security, tmp_path: Path) -> None:
    settings = security.settings(tmp_path, ssl_keystore_location=str(tmp_path / "missing.pem"))
    with pytest.raises(StartError, match=r"^listener SSL: ssl.keystore.location: .*missing.pem: No such file"):
        with_broker(settings, str)


def test_own_client_produces_and_consumes_with_certificates(security: Security, tmp_path: Path) -> None:
    async def round_trip(bootstrap: str) -> list[bytes | None]:
        options = client_options(bootstrap, security)
        async with Producer(**options) as producer:
            for each in RECORDS:
                await producer.send("t", each, partition=0)
            await producer.flush()
        async with Consumer("t", auto_offset_reset="earliest", **options) as consumer:
            found: list[bytes | None] = []
            async with asyncio.timeout(SECONDS):
                async for record in consumer:
                    found.append(record.value)
                    if len(found) == len(RECORDS):
                        break
            return found

    settings = security.settings(tmp_path, ssl_client_auth="required")
    assert with_broker(settings, lambda bootstrap: asyncio.run(round_trip(bootstrap))) == RECORDS


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"security_protocol": "PLAINTEXT"}, "expects TLS|closed the connection"),
        ({"ssl_cafile": "OTHER"}, "TLS handshake failed: the peer's certificate is not valid"),
        ({"ssl_certfile": "", "ssl_keyfile": ""}, "requires a certificate|closed the connection"),
    ],
)
def test_own_client_names_why_it_cannot_connect(
    change: dict[str, str], text: str, security: Security, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Authority(tmp_path / "other", "other CA").file
    changed = {name: other if value == "OTHER" else value for name, value in change.items()}

    async def ask(bootstrap: str) -> None:
        options = client_options(bootstrap, security) | changed
        if changed.get("security_protocol") == "PLAINTEXT":
            options = {name: value for name, value in options.items() if not name.startswith("ssl_")}
        async with Admin(**options, default_api_timeout_ms=200) as admin:
            await admin.list_topics()

    def use(bootstrap: str) -> None:
        with pytest.raises(ClientError):
            asyncio.run(ask(bootstrap))

    with caplog.at_level(logging.WARNING, "odradek.client"):
        with_broker(security.settings(tmp_path / "data", ssl_client_auth="required"), use)
    assert re.search(text, caplog.text)


def test_commands_connect_by_a_properties_file_of_kafka(
    security: Security, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={security.authority.file}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={security.client.both}\n"
    )

    def use(bootstrap: str) -> int:
        return main(["topics", "--list", "-b", bootstrap, "--command-config", str(file), "-o", "json"])

    assert with_broker(security.settings(tmp_path / "data", ssl_client_auth="required"), use) == 0
    assert capsys.readouterr().out.strip() == "[]"


def certificate_of(bootstrap: str) -> str:
    """The certificate that a new connection gets, as PEM."""
    return ssl.get_server_certificate(("127.0.0.1", int(bootstrap.rpartition(":")[2])), timeout=SECONDS)


def test_certificate_is_replaced_by_a_dynamic_setting(security: Security, tmp_path: Path) -> None:
    """As `kafka-configs --entity-type brokers --entity-name 1 --alter --add-config listener.name.…` does it."""
    setting = "listener.name.ssl.ssl.keystore.location"
    fresh = security.authority.issue("/CN=fresh").both
    settings = security.settings(tmp_path)

    async def alter(bootstrap: str, value: str) -> KafkaError | None:
        broker = ConfigResource(ConfigResourceType.BROKER, "1")
        async with Admin(**client_options(bootstrap, security)) as admin:
            return (await admin.alter_configs({broker: [AlterConfig(setting, value)]}))[broker]

    def use(bootstrap: str) -> bool:
        rejected = asyncio.run(alter(bootstrap, "/nowhere/store.pem"))
        assert rejected is not None
        assert "No such file" in str(rejected)
        before = certificate_of(bootstrap)
        assert asyncio.run(alter(bootstrap, fresh)) is None
        until(lambda: certificate_of(bootstrap) != before, "the new certificate is served")
        return True

    assert with_broker(settings, use)
    assert with_broker(settings, certificate_of).strip() in Path(fresh).read_text(), "also after a restart"


def test_certificate_is_replaced_while_a_client_is_connected(security: Security, tmp_path: Path) -> None:
    """The old connection stays open, new ones get the new certificate."""
    store = tmp_path / "store.pem"
    store.write_text(Path(security.broker.both).read_text())
    settings = security.settings(tmp_path / "data", ssl_keystore_location=str(store))

    def use(bootstrap: str) -> bool:
        host, _, port = bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), SECONDS) as plain:
            connection = trusting(security).wrap_socket(plain, server_hostname=host)
            before = certificate_of(bootstrap)
            store.write_text(Path(security.authority.issue("/CN=second").both).read_text())
            until(lambda: certificate_of(bootstrap) != before, "the new certificate is served")
            connection.sendall(API_VERSIONS)
            return connection.recv(100)[4:8] == bytes.fromhex("00000007")

    assert with_broker(settings, use)
