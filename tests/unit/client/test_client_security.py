"""TLS options of the client: names of Kafka and of other clients, and what is an error; logins by bearer token."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.client.config import resolve_admin
from odradek.client.errors import AuthenticationFailed, ConfigError
from odradek.client.security.sasl import logins
from odradek.client.security.tls import secure_connections
from odradek.ports.randomness import SeededRandom
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from odradek.wire.messages.sasl_handshake import SaslHandshakeResponse
from tests.certificates import Authority, Certificate


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    return authority.issue("/CN=me", password="secret")


def secured(**options: Any) -> bool:
    return secure_connections(resolve_admin({"security_protocol": "ssl"} | options)) is not None


def test_plain_text_is_the_default() -> None:
    assert secure_connections(resolve_admin({})) is None


def test_certificates_may_be_named_as_in_other_clients(authority: Authority, own: Certificate) -> None:
    assert secured(
        ssl_cafile=authority.file, ssl_certfile=own.certificate, ssl_keyfile=own.key, ssl_password="secret",
        ssl_check_hostname=False,
    )  # fmt: skip


def test_certificates_may_be_named_as_in_kafka(authority: Authority, own: Certificate) -> None:
    assert secured(
        **{
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": authority.file,
            "ssl.keystore.location": own.both,
            "ssl.key.password": "secret",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.enabled.protocols": "TLSv1.3",
        }
    )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ssl_cafile": "/missing"}, "ssl.truststore.location: /missing: No such file"),
        ({"ssl_certfile": "OWN", "ssl_keyfile": "KEY"}, "cannot be decrypted with ssl.key.password"),
        ({"ssl_certfile": "OWN", "ssl_keyfile": "KEY", "ssl_password": "x"}, "cannot be decrypted"),
        ({"ssl_certfile": "OWN"}, "no private key in PEM"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "TLSv1.1"),
    ],
)
def test_unusable_files_are_an_error(options: dict[str, str], text: str, own: Certificate) -> None:
    files = {"OWN": own.certificate, "KEY": own.key}
    with pytest.raises(ConfigError, match=text) as raised:
        secured(**{name: files.get(value, value) for name, value in options.items()})
    assert Path(own.key).read_text() not in str(raised.value)


# --- bearer tokens ---


def test_broker_that_accepts_a_token_after_it_rejected_it_is_not_believed() -> None:
    answers = [b'{"status":"invalid_token"}', b""]
    messages: list[bytes] = []

    async def request(asked: Any, *_: Any) -> Any:
        if not isinstance(asked, SaslAuthenticateRequest):
            return SaslHandshakeResponse(0, ["OAUTHBEARER"])
        messages.append(bytes(asked.auth_bytes))
        return SaslAuthenticateResponse(0, None, answers.pop(0), 0)

    async def log_in() -> None:
        await logins(config, SeededRandom(1))(connection, 1000)

    connection: Any = SimpleNamespace(host="broker", version_of=lambda _: 1, request=request)
    bearer = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: "t"}
    config = resolve_admin({"security_protocol": "SASL_PLAINTEXT"} | bearer)
    with pytest.raises(AuthenticationFailed, match=r'rejected the token: \{"status":"invalid_token"\}'):
        asyncio.run(log_in())
    assert messages[1:] == [b"\x01"]
