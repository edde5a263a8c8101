"""Delegation tokens of a KRaft cluster: the controller writes them, and every broker admits their bearers."""

from __future__ import annotations

import asyncio
import base64
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.client.admin import Admin, NewTopic
from odradek.client.admin.tokens import DelegationToken
from odradek.client.errors import AuthenticationFailed
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.quorum.controllers_in_process import Quorum, format_directory, quorum, until

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
USERS = ("SCRAM-SHA-256=[name=alice,password=secret]", "SCRAM-SHA-256=[name=bob,password=secret]")
LOGIN = f'{SCRAM} required username="alice" password="secret";'
SETTINGS = {
    "delegation.token.secret.key": "planted",
    "connection.failed.authentication.delay.ms": "0",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "brokers:inter.broker.listener.name": "PLAINTEXT",
    "brokers:sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "brokers:sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "brokers:listener.name.plaintext.scram-sha-256.sasl.jaas.config": LOGIN,
}


def login(running: Quorum, broker: int, user: str, password: str, *, is_token: bool = False) -> dict[str, Any]:
    """Options of a client of one broker."""
    mark = ' tokenauth="true"' if is_token else ""
    return {
        "bootstrap_servers": running.brokers[broker].bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_jaas_config": f'{SCRAM} required username="{user}" password="{password}"{mark};',
    }


def by_token(running: Quorum, broker: int, token: DelegationToken) -> dict[str, Any]:
    return login(running, broker, token.token_id, base64.b64encode(token.hmac).decode(), is_token=True)


def test_token_that_a_controller_creates_logs_in_at_every_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        form = partial(format_directory, users=USERS)
        async with asyncio.timeout(60), quorum(tmp_path, 3, (1, 2), SETTINGS, form) as running:
            async with Admin(**login(running, 1, "alice", "secret")) as admin:
                token = await admin.tokens.create(renewers=["User:bob"], max_lifetime_ms=3_600_000)
                assert token.owner == "User:alice"
                for each in running.controllers.values():
                    await until(partial(_has_token, each, token))
            for broker in (1, 2):
                async with Admin(**by_token(running, broker, token)) as admin:
                    await admin.create_topics([NewTopic(f"by-token-{broker}", 1, 1)])
                    with pytest.raises(KafkaError) as raised:
                        await admin.tokens.create()
                    assert raised.value.code is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            await running.stop(running.active.parts.replica.leader.leader_id)
            await running.wait_until_active()
            async with Admin(**login(running, 2, "bob", "secret")) as admin:
                assert await admin.tokens.renew(token.hmac, 1000) < token.expiry_ms
                await admin.tokens.expire(token.hmac)
                while await admin.tokens.describe():
                    await asyncio.sleep(0.01)
            with pytest.raises(AuthenticationFailed):
                async with Admin(**by_token(running, 2, token)) as admin:
                    await admin.describe_cluster()

    asyncio.run(scenario())


def _has_token(node: Any, token: DelegationToken) -> bool:
    return token.token_id in node.parts.metadata.image.tokens
