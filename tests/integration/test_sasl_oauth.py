"""Clients log in by bearer tokens; keys are read from a file or a local issuer, and again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.sasl.oauth
import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.start_error import StartError
from odradek.client import Admin
from odradek.client.errors import AuthenticationFailed
from tests.integration.token_issuer import Issuer

SECONDS = 30


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    yield made
    made.close()


def settings(data: Path, url: str, **others: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        ),
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "me",
        "connection.failed.authentication.delay.ms": "0",
        "log.dirs": str(data),
    } | {name.replace("_", "."): value for name, value in others.items()}


def login(bootstrap: str, token: Callable[[], str]) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": token,
    }


async def principals(broker: Broker) -> set[str]:
    parts: Any = broker._parts
    return {str(each.session.principal) for each in parts.server.connections.values()}


def served(config: dict[str, str], use: Callable[[Broker], Any]) -> Any:
    async def scenario() -> Any:
        broker = Broker(BrokerConfig(config))
        await broker.start()
        try:
            return await asyncio.wait_for(use(broker), SECONDS)
        finally:
            await broker.stop()

    return asyncio.run(scenario())


async def ask(broker: Broker, token: Callable[[], str]) -> set[str]:
    async with Admin(**login(broker.bootstrap, token)) as admin:
        await admin.list_topics()
        return await principals(broker)


def test_clients_of_four_libraries_log_in_by_token(issuer: Issuer, tmp_path: Path) -> None:
    class ForAiokafka(aiokafka.abc.AbstractTokenProvider):
        async def token(self) -> str:
            return issuer.token()

    class ForKafkaPython(kafka.net.sasl.oauth.AbstractTokenProvider):
        def token(self) -> str:
            return issuer.token()

    async def use(broker: Broker) -> None:
        assert await ask(broker, issuer.token) == {"User:alice"}
        common = login(broker.bootstrap, issuer.token)
        async with aiokafka.AIOKafkaProducer(**common | {"sasl_oauth_token_provider": ForAiokafka()}) as producer:
            await producer.send_and_wait("t", b"x")
        provider = {"sasl_oauth_token_provider": ForKafkaPython()}
        await asyncio.to_thread(lambda: kafka.KafkaAdminClient(**common | provider).close())
        confluent = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "sasl_plaintext",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda _: (issuer.token(), time.time() + 300),
            }
        )
        confluent.produce("t", b"x")
        assert await asyncio.to_thread(confluent.flush, SECONDS) == 0

    served(settings(tmp_path, f"{issuer.url}/keys"), use)


def test_tokens_that_prove_nothing_are_rejected(
    issuer: Issuer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    forger = Issuer()
    forger.close()
    tokens = [issuer.token(exp=1), issuer.token(aud="x"), issuer.token(iss="x"), forger.token(), "a.b.c"]

    async def use(broker: Broker) -> None:
        for each in tokens:
            with pytest.raises(AuthenticationFailed, match="Authentication failed during authentication"):
                await ask(broker, partial(str, each))

    served(settings(tmp_path, f"{issuer.url}/keys"), use)
    assert not [each for each in tokens if each in caplog.text]


def test_new_keys_are_read_when_a_token_names_them(issuer: Issuer, tmp_path: Path) -> None:
    async def use(broker: Broker) -> None:
        assert await ask(broker, issuer.token) == {"User:alice"}
        issuer.rotate("two")
        assert await ask(broker, issuer.token) == {"User:alice"}
        issuer.rotate("three")
        with pytest.raises(AuthenticationFailed):
            await ask(broker, issuer.token)  # not read again so soon

    served(settings(tmp_path, f"{issuer.url}/keys"), use)
    assert len(issuer.requests) == 2


def test_keys_and_tokens_may_be_files(issuer: Issuer, tmp_path: Path) -> None:
    keys, token = tmp_path / "keys.json", tmp_path / "token"
    keys.write_text(issuer.jwks())
    token.write_text(issuer.token() + "\n")

    async def use(broker: Broker) -> set[str]:
        options = login(broker.bootstrap, issuer.token) | {
            "sasl_oauth_token_provider": None,
            "sasl_oauthbearer_token_endpoint_url": token.as_uri(),
        }
        async with Admin(**options) as admin:
            await admin.list_topics()
            return await principals(broker)

    assert served(settings(tmp_path / "data", keys.as_uri()), use) == {"User:alice"}


def test_token_is_fetched_with_client_credentials(issuer: Issuer, tmp_path: Path) -> None:
    async def use(broker: Broker) -> set[str]:
        options = login(broker.bootstrap, issuer.token) | {
            "sasl_oauth_token_provider": None,
            "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
            "sasl.oauthbearer.client.credentials.client.id": "app",
            "sasl.oauthbearer.client.credentials.client.secret": "s:ecret",
            "sasl.oauthbearer.scope": "produce",
        }
        async with Admin(**options) as admin:
            await admin.list_topics()
            return await principals(broker)

    assert served(settings(tmp_path, f"{issuer.url}/keys"), use) == {"User:alice"}
    assert issuer.requests[1] == "/token Basic YXBwOnMlM0FlY3JldA== grant_type=client_credentials&scope=produce"


def test_session_ends_with_the_token(issuer: Issuer, tmp_path: Path) -> None:
    """The client authenticates again with a new token, and no call fails."""
    made: list[str] = []

    def token() -> str:
        made.append(issuer.token(exp=time.time() + 8))
        return made[-1]

    async def use(broker: Broker) -> None:
        async with Admin(**login(broker.bootstrap, token)) as admin:
            while len(made) < 2:
                await admin.list_topics()
                await asyncio.sleep(0.1)
            await admin.list_topics()

    served(settings(tmp_path, f"{issuer.url}/keys", sasl_oauthbearer_clock_skew_seconds="0"), use)


@pytest.mark.parametrize(
    ("url", "status", "changes", "text"),
    [
        ("", 200, {}, "sasl.oauthbearer.jwks.endpoint.url is not set"),
        ("file:///missing", 200, {}, "no keys: file:///missing: No such file"),
        ("http://example.com/keys", 200, {}, "https expected"),
        ("URL/keys", 500, {}, "HTTP status 500"),
        ("URL/keys", 302, {}, "HTTP status 302"),
        ("URL/token", 200, {}, "not a JSON Web Key Set"),
        ("URL/keys", 200, {"odradek.oauthbearer.allowed.urls": "https://other/keys"}, "not an allowed URL"),
        (
            "URL/keys",
            200,
            {
                "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
                    'unsecuredLoginStringClaim_sub="alice";'
                )
            },
            "tokens without a signature prove nothing",
        ),
    ],
)
def test_broker_without_keys_does_not_start(
    url: str, status: int, changes: dict[str, str], text: str, issuer: Issuer, tmp_path: Path
) -> None:
    issuer.status = status

    async def use(_: Broker) -> None:
        raise AssertionError

    with pytest.raises(StartError, match=text):
        served(settings(tmp_path / "data", url.replace("URL", issuer.url)) | changes, use)
    assert not (tmp_path / "data").exists()
