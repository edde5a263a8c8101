"""Roles that certificates and tokens give, in the decisions of brokers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.client import Admin, KafkaError, NewTopic
from odradek.wire.acls import AclBinding, AclOperation, ResourceType
from odradek.wire.errors import ErrorCode
from tests.integration.tls_brokers import Security

SECONDS = 60
AUTHORIZER = {"authorizer.class.name": "odradek", "super.users": "Role:operators"}
OF_ANALYSTS = AclBinding(ResourceType.TOPIC, "orders", "Role:analysts", AclOperation.DESCRIBE)


async def see_roles_decide(bootstrap: str, options: Callable[[str], dict[str, Any]]) -> None:
    """`options` of a client with a role. Operators are super users, analysts see a topic, and others nothing."""
    async with Admin(bootstrap_servers=bootstrap, **options("operators")) as operator:
        assert not isinstance((await operator.create_topics([NewTopic("orders", 1, 1)]))["orders"], KafkaError)
        assert (await operator.acls.create([OF_ANALYSTS])) == {OF_ANALYSTS: None}
    async with Admin(bootstrap_servers=bootstrap, **options("analysts")) as analyst:
        assert not isinstance((await analyst.describe_topics(["orders"]))["orders"], KafkaError)
        denied = (await analyst.create_topics([NewTopic("other", 1, 1)]))["other"]
        assert isinstance(denied, KafkaError)
        assert denied.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with Admin(bootstrap_servers=bootstrap, **options("guests")) as guest:
        assert await guest.list_topics() == []


def with_broker(settings: dict[str, str], options: Callable[[str], dict[str, Any]]) -> None:
    async def scenario() -> None:
        broker = Broker(BrokerConfig(settings | AUTHORIZER))
        await broker.start()
        try:
            await asyncio.wait_for(see_roles_decide(broker.bootstrap, options), SECONDS)
        finally:
            await broker.stop()

    asyncio.run(scenario())


def test_units_of_certificates_are_roles(tmp_path: Path) -> None:
    security = Security(tmp_path / "certificates")
    settings = security.settings(
        tmp_path / "data",
        ssl_client_auth="required",
        security_inter_broker_protocol="SSL",
        odradek_ssl_role_attribute="OU",
    )

    def options(role: str) -> dict[str, Any]:
        own = security.authority.issue(f"/O=Acme/OU={role}/CN=alice")
        return {
            "security_protocol": "SSL",
            "ssl_cafile": security.authority.file,
            "ssl_certfile": own.certificate,
            "ssl_keyfile": own.key,
        }

    with_broker(settings, options)


@pytest.mark.parametrize("claim", ["groups", "realm_access.roles"])
def test_names_in_a_claim_of_tokens_are_roles(claim: str, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [public | {"kid": "one"}]}))
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "odradek.oauthbearer.role.claim.name": claim,
        "log.dirs": str(tmp_path / "data"),
    }

    def options(role: str) -> dict[str, Any]:
        now = time.time()
        content: Any = [role]
        for name in reversed(claim.split(".")):
            content = {name: content}
        token = jwt.encode(content | {"sub": "alice", "iat": now, "exp": now + 300}, key, "ES256", {"kid": "one"})
        return {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauth_token_provider": lambda: token,
        }

    with_broker(settings, options)
