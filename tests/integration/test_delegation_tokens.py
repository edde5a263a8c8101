"""Delegation tokens of a running broker: made, used, renewed, expired, and by whom."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.client import Admin
from odradek.client.errors import AuthenticationFailed
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest as Create
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequestRenewer as Renewer
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenResponse
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest as Describe
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenRequestOwner as Owner
from odradek.wire.messages.describe_delegation_token import DescribeDelegationTokenResponse
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest as Expire
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenResponse
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest as Renew
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenResponse
from tests.integration.sasl_brokers import ALICE, ALICE_PASSWORD, add_users, login, sasl_settings, with_sasl_broker

RESPONSES: dict[Any, Any] = {
    Create: CreateDelegationTokenResponse,
    Describe: DescribeDelegationTokenResponse,
    Expire: ExpireDelegationTokenResponse,
    Renew: RenewDelegationTokenResponse,
}
HOUR_MS = 3_600_000


async def ask(options: dict[str, Any], request: Any) -> Any:
    async with Admin(**options) as admin:
        return await admin.cluster.request_any(request, RESPONSES[type(request)])


def by_token(bootstrap: str, token: Any, mac: bytes | None = None, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    password = base64.b64encode(bytes(token.hmac) if mac is None else mac).decode()
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{token.token_id}" password="{password}" tokenauth="true";'
        ),
    }


def alice(bootstrap: str) -> dict[str, Any]:
    return login(bootstrap, "SCRAM-SHA-512", ALICE, ALICE_PASSWORD)


def served(tmp_path: Path, use: Callable[[str], Awaitable[Any]], **more: str) -> Any:
    settings = {"delegation_token_secret_key": "planted", "connection_failed_authentication_delay_ms": "0"} | more
    return with_sasl_broker(sasl_settings(tmp_path, **settings), use)


def test_token_logs_in_as_its_owner(tmp_path: Path) -> None:
    async def use(bootstrap: str) -> None:
        token = await ask(alice(bootstrap), Create(None, None, [Renewer("User", "admin")], HOUR_MS))
        assert (token.error_code, token.principal_name) == (0, "alice")
        assert token.expiry_timestamp_ms == token.max_timestamp_ms == token.issue_timestamp_ms + HOUR_MS
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            async with Admin(**by_token(bootstrap, token, mechanism=mechanism)) as admin:
                assert await admin.list_topics() == []
        denied = await ask(by_token(bootstrap, token), Create())
        assert denied.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        for wrong in (by_token(bootstrap, token, b"x"), login(bootstrap, "SCRAM-SHA-256", token.token_id, "x")):
            with pytest.raises(AuthenticationFailed):
                await ask(wrong, Describe(None))

    served(tmp_path, use)


def test_owner_and_renewer_change_a_token_and_others_do_not(tmp_path: Path) -> None:
    async def use(bootstrap: str) -> None:
        await add_users(bootstrap, [("bob", "b")])
        bob = login(bootstrap, "SCRAM-SHA-256", "bob", "b")
        token = await ask(alice(bootstrap), Create(None, None, [Renewer("User", "admin")], -1))
        renewed = await ask(login(bootstrap), Renew(token.hmac, 1000))
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms < token.expiry_timestamp_ms
        assert (await ask(bob, Renew(token.hmac, 1000))).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await ask(bob, Expire(token.hmac, -1))).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await ask(bob, Renew(b"x", 1000))).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert (await ask(bob, Describe(None))).tokens == []
        for options in (alice(bootstrap), login(bootstrap)):
            (shown,) = (await ask(options, Describe(None))).tokens
            assert (shown.token_id, bytes(shown.hmac)) == (token.token_id, bytes(token.hmac))
        assert (await ask(alice(bootstrap), Describe([Owner("User", "bob")]))).tokens == []
        # A renewer is named as an owner is, as in Kafka.
        for options in (alice(bootstrap), login(bootstrap)):
            assert len((await ask(options, Describe([]))).tokens) == 1
        assert len((await ask(alice(bootstrap), Describe([Owner("User", "admin")]))).tokens) == 1
        assert (await ask(bob, Describe([]))).tokens == []
        assert (await ask(alice(bootstrap), Expire(token.hmac, -1))).error_code == 0
        assert (await ask(alice(bootstrap), Describe(None))).tokens == []
        with pytest.raises(AuthenticationFailed):
            await ask(by_token(bootstrap, token), Describe(None))

    served(tmp_path, use)


def test_expired_token_proves_nothing(tmp_path: Path) -> None:
    async def use(bootstrap: str) -> None:
        token = await ask(alice(bootstrap), Create(None, None, [], 1))
        await asyncio.sleep(0.01)
        assert (await ask(alice(bootstrap), Renew(token.hmac, 1000))).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert (await ask(alice(bootstrap), Describe(None))).tokens == []
        with pytest.raises(AuthenticationFailed):
            await ask(by_token(bootstrap, token), Describe(None))

    served(tmp_path, use)


def test_tokens_need_a_secret_and_a_user(tmp_path: Path) -> None:
    async def use(bootstrap: str) -> None:
        disabled = await ask(alice(bootstrap), Create())
        assert disabled.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    served(tmp_path, use, delegation_token_secret_key="")


def test_renewers_are_users(tmp_path: Path) -> None:
    async def use(bootstrap: str) -> int:
        return (await ask(alice(bootstrap), Create(None, None, [Renewer("Group", "x")], -1))).error_code

    assert served(tmp_path, use) == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_token_for_another_user_needs_a_right(tmp_path: Path) -> None:
    """With ACLs, only a super user may create a token of somebody else and see it (KIP-373)."""

    async def use(bootstrap: str) -> None:
        other = Create("User", "carol", [], -1)
        denied = await ask(alice(bootstrap), other)
        assert denied.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        token = await ask(login(bootstrap), other)
        assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "carol", "admin")
        mine = await ask(alice(bootstrap), Create(None, None, [], -1))
        assert [each.token_id for each in (await ask(alice(bootstrap), Describe(None))).tokens] == [mine.token_id]
        shown = {each.token_id for each in (await ask(login(bootstrap), Describe(None))).tokens}
        assert shown == {token.token_id, mine.token_id}

    served(tmp_path, use, authorizer_class_name="odradek", super_users="User:admin")
