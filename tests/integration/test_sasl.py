"""Clients of four libraries log in by PLAIN and SCRAM, and peers that must not get in."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.start_error import StartError
from odradek.client import Admin, Consumer, Producer
from odradek.client.errors import AuthenticationFailed, ConfigError
from tests.certificates import Authority
from tests.integration.sasl_brokers import ADMIN_PASSWORD, ALICE, ALICE_PASSWORD, login, sasl_settings, with_sasl_broker

SECONDS = 30
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
RECORDS = [b"%d" % n for n in range(20)]


def options(bootstrap: str, mechanism: str) -> dict[str, Any]:
    return login(bootstrap) if mechanism == "PLAIN" else login(bootstrap, mechanism, ALICE, ALICE_PASSWORD)


async def odradek_round_trip(common: dict[str, Any]) -> list[bytes]:
    async with Producer(**common) as producer:
        for each in RECORDS:
            await producer.send("t", each)
    async with Consumer("t", **common, auto_offset_reset="earliest") as consumer:
        found: list[bytes] = []
        while len(found) < len(RECORDS):
            found += [record.value for record in await consumer.poll(SECONDS * 1000)]
        return found


async def aiokafka_round_trip(common: dict[str, Any]) -> list[bytes]:
    async with aiokafka.AIOKafkaProducer(**common) as producer:
        for each in RECORDS:
            await producer.send_and_wait("t", each)
    async with aiokafka.AIOKafkaConsumer("t", **common, auto_offset_reset="earliest") as consumer:
        return [(await asyncio.wait_for(consumer.getone(), SECONDS)).value for _ in RECORDS]


def kafka_python_round_trip(common: dict[str, Any]) -> list[bytes]:
    producer = kafka.KafkaProducer(**common)
    for each in RECORDS:
        producer.send("t", each)
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


def confluent_round_trip(common: dict[str, Any]) -> list[bytes]:
    shared = {
        "bootstrap.servers": common["bootstrap_servers"],
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": common["sasl_mechanism"],
        "sasl.username": common["sasl_plain_username"],
        "sasl.password": common["sasl_plain_password"],
    }
    producer = confluent_kafka.Producer(shared)
    for each in RECORDS:
        producer.produce("t", each)
    assert producer.flush(SECONDS) == 0
    consumer = confluent_kafka.Consumer(shared | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    while len(found) < len(RECORDS):
        messages = consumer.consume(len(RECORDS), SECONDS)
        assert messages, "no record in time"
        found += [each.value() or b"" for each in messages]
    consumer.close()
    return found


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("library", ["odradek", "aiokafka", "kafka_python", "confluent"])
def test_clients_log_in_and_produce_and_consume(library: str, mechanism: str, tmp_path: Path) -> None:
    async def use(bootstrap: str) -> list[bytes]:
        common = options(bootstrap, mechanism)
        if library == "odradek":
            return await odradek_round_trip(common)
        if library == "aiokafka":
            return await aiokafka_round_trip(common)
        round_trip = kafka_python_round_trip if library == "kafka_python" else confluent_round_trip
        return await asyncio.to_thread(round_trip, common)

    assert with_sasl_broker(sasl_settings(tmp_path), use) == RECORDS


def test_wrong_passwords_and_unknown_users_get_the_same_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def use(bootstrap: str) -> list[str]:
        found = []
        for mechanism in MECHANISMS:
            texts = set()
            for user, password in (("alice", "planted-1"), ("admin", "planted-2"), ("ghost\nforged line", "planted-3")):
                with pytest.raises(AuthenticationFailed) as raised:
                    async with Admin(**login(bootstrap, mechanism, user, password)) as admin:
                        await admin.list_topics()
                texts.add(str(raised.value))
            found.append(" ".join(texts))
        return found

    settings = sasl_settings(tmp_path, connection_failed_authentication_delay_ms="0")
    found = with_sasl_broker(settings, use)
    expected = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
    assert found == [f"{expected} {each}" for each in MECHANISMS]
    assert "planted" not in caplog.text
    assert ADMIN_PASSWORD not in caplog.text
    assert "\nforged line" not in caplog.text


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", ["function", "coroutine function"])
def test_credentials_come_from_the_program_at_each_login(mechanism: str, kind: str, tmp_path: Path) -> None:
    """A vault changes the password: the first one given is wrong, the next login asks again."""
    user, password = ("admin", ADMIN_PASSWORD) if mechanism == "PLAIN" else (ALICE, ALICE_PASSWORD)
    given: list[Any] = ["no pair", (user, "old"), (user, password), (user, password)]
    errors: list[str] = []

    def ask() -> tuple[str, str]:
        answer: tuple[str, str] = given.pop(0)
        return answer

    async def ask_vault() -> tuple[str, str]:
        return ask()

    async def use(bootstrap: str) -> None:
        common = {**login(bootstrap, mechanism), "enable_metrics_push": False}
        del common["sasl_plain_username"], common["sasl_plain_password"]
        common["sasl_credentials_provider"] = ask if kind == "function" else ask_vault
        async with Admin(**common, connections_max_idle_ms=100) as admin:
            for _ in range(2):
                with pytest.raises(AuthenticationFailed) as raised:
                    await admin.list_topics()
                errors.append(str(raised.value))
            await admin.list_topics()
            while admin.cluster.connections.open_count:
                await asyncio.sleep(0.01)
            await admin.list_topics()

    settings = sasl_settings(tmp_path, connection_failed_authentication_delay_ms="0")
    with_sasl_broker(settings, use)
    assert given == []
    assert "did not return (user name, password)" in errors[0]
    assert "invalid credentials" in errors[1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"sasl_mechanism": "PLAIN", "sasl_plain_username": "u"}, "and sasl_plain_username mean the same"),
        ({"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": "x"}, "and sasl_jaas_config mean the same"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "no effect with sasl_mechanism=OAUTHBEARER"),
        ({"sasl_mechanism": "GSSAPI"}, "no effect with sasl_mechanism=GSSAPI"),
    ],
)
def test_provider_of_credentials_that_does_not_go_is_an_error(options: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=f"sasl_credentials_provider.*{text}"):
        Admin(security_protocol="SASL_PLAINTEXT", sasl_credentials_provider=lambda: ("u", "p"), **options)  # type: ignore[arg-type]


def test_login_over_tls_gives_the_principal(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        name.replace("sasl_plaintext", "sasl_ssl"): value.replace("SASL_PLAINTEXT", "SASL_SSL")
        for name, value in sasl_settings(tmp_path / "data").items()
    } | {"ssl.keystore.type": "PEM", "ssl.keystore.location": authority.issue("/CN=localhost").both}

    async def scenario() -> set[str]:
        broker = Broker(BrokerConfig(settings))
        await broker.start()
        try:
            common = login(broker.bootstrap) | {"security_protocol": "SASL_SSL", "ssl_cafile": authority.file}
            async with Admin(**common) as admin:
                await admin.list_topics()
                parts: Any = broker._parts
                return {str(each.session.principal) for each in parts.server.connections.values()}
        finally:
            await broker.stop()

    assert asyncio.run(scenario()) == {"User:admin"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sasl_enabled_mechanisms": "PLAIN,DIGEST-MD5"}, "DIGEST-MD5 is not implemented"),
        ({"sasl_enabled_mechanisms": "PLAIN,GSSAPI"}, "gssapi.sasl.jaas.config: keyTab"),
        ({"sasl_enabled_mechanisms": ""}, "sasl.enabled.mechanisms"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": ""}, "plain.sasl.jaas.config is not set"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "x y;"}, "login module"),
    ],
)
def test_listener_that_cannot_authenticate_is_an_error(changes: dict[str, str], text: str, tmp_path: Path) -> None:
    settings = sasl_settings(tmp_path) | {
        name if name.startswith("listener.") else name.replace("_", "."): value for name, value in changes.items()
    }

    async def scenario() -> None:
        await Broker(BrokerConfig(settings)).start()

    with pytest.raises(StartError, match=text) as raised:
        asyncio.run(scenario())
    assert ADMIN_PASSWORD not in str(raised.value)
