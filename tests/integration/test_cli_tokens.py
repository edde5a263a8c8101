"""`odradek tokens` at a running broker: who creates, sees, renews and expires a token, and what is printed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.main import main
from odradek.client import Admin
from odradek.client.errors import AuthenticationFailed
from tests.integration.sasl_brokers import ALICE, ALICE_PASSWORD, sasl_settings, with_sasl_broker

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
DAY_MS = 86_400_000

Command = Callable[..., Any]


def with_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], use: Callable[[Command, str], None], secret: str = "planted"
) -> None:
    """`use` with a function that runs the command as alice and returns its rows, or its output without `-o json`."""
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        f'sasl.jaas.config={SCRAM} required username="{ALICE}" password="{ALICE_PASSWORD}";\n'
    )

    async def serve(bootstrap: str) -> None:
        def command(*words: str, as_json: bool = True, status: int = 0) -> Any:
            capsys.readouterr()
            output = ("-o", "json") if as_json else ()
            assert main(["tokens", *words, "-b", bootstrap, "--command-config", str(file), *output]) == status
            printed = capsys.readouterr()
            return json.loads(printed.out) if as_json and not status else printed.out + printed.err

        await asyncio.to_thread(use, command, bootstrap)

    settings = {"connection_failed_authentication_delay_ms": "0"}
    if secret:
        settings["delegation_token_secret_key"] = secret
    with_sasl_broker(sasl_settings(tmp_path / "data", **settings), serve)


def log_in(bootstrap: str, token_id: str, password: str) -> None:
    async def work() -> None:
        jaas = f'{SCRAM} required username="{token_id}" password="{password}" tokenauth="true";'
        async with Admin(
            bootstrap_servers=bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_jaas_config=jaas,
        ) as admin:
            await admin.list_topics()

    asyncio.run(work())


def test_token_is_created_used_renewed_and_expired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def use(command: Command, bootstrap: str) -> None:
        (made,) = command("create", "--renewer-principal", "User:bob", "--max-life-time-period", str(DAY_MS))
        assert (made["owner"], made["requester"], made["renewers"]) == ("User:alice", "User:alice", ["User:bob"])
        log_in(bootstrap, made["token"], made["hmac"])
        (shown,) = command()
        assert shown == {name: value for name, value in made.items() if name != "hmac"}
        assert command("describe", "--show-hmac") == [made]
        renewed = command("renew", made["token"], "--renew-time-period", "60000", as_json=False)
        (later,) = command()
        assert renewed == f"Token {made['token']} expires at {later['expires']}.\n"
        assert later["expires"] < shown["expires"]
        command("expire", made["token"], as_json=False)
        assert command() == []
        with pytest.raises(AuthenticationFailed):
            log_in(bootstrap, made["token"], made["hmac"])

    with_command(tmp_path, capsys, use)


def test_tokens_of_other_owners_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def use(command: Command, bootstrap: str) -> None:
        del bootstrap
        command("create")
        assert len(command("--owner-principal", "User:alice")) == 1
        assert command("--owner-principal", "User:bob") == []

    with_command(tmp_path, capsys, use)


def test_token_that_does_not_exist_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def use(command: Command, bootstrap: str) -> None:
        del bootstrap
        text = command("renew", "unknown", as_json=False, status=1)
        assert "there is no token 'unknown'" in text
        assert text.count("\n") == 1

    with_command(tmp_path, capsys, use)


def test_missing_secret_of_the_cluster_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def use(command: Command, bootstrap: str) -> None:
        del bootstrap
        for words in (["create"], ["describe"], ["renew", "unknown"]):
            text = command(*words, as_json=False, status=1)
            assert "set delegation.token.secret.key" in text
            assert text.count("\n") == 1

    with_command(tmp_path, capsys, use, secret="")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["renew"], "needs a TOKEN_ID"),
        (["create", "id"], "takes no TOKEN_ID"),
        (["create", "--show-hmac"], "--show-hmac goes with describe only"),
        (["describe", "--renewer-principal", "User:a"], "goes with create only"),
        (["create", "--owner-principal", "User:a", "--owner-principal", "User:b"], "one owner"),
        (["create", "--owner-principal", "alice"], "is not a principal"),
        (["create", "--max-life-time-period", "0"], "--max-life-time-period"),
    ],
)
def test_options_that_contradict_each_other_are_an_error(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tokens", *words]) == 2
    assert text in capsys.readouterr().err
