"""`odradek users`: of stopped brokers, and over the network as one of them."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.cli.arguments.variables import PASSWORD_VARIABLE
from odradek.cli.main import main

SETTINGS = """
listeners=SASL_PLAINTEXT://127.0.0.1:0
security.inter.broker.protocol=SASL_PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
log.dirs={data}
"""
CLIENT = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="planted";
"""


@pytest.fixture
def server(tmp_path: Path) -> str:
    file = tmp_path / "server.properties"
    file.write_text(SETTINGS.format(data=tmp_path / "data"))
    return str(file)


def users(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main(["users", "list", "-o", "json", *words]) == 0
    return [(each["user"], each["mechanism"], each["iterations"]) for each in json.loads(capsys.readouterr().out)]


def test_first_user_of_an_empty_store_administers_the_others(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "planted")
    assert main(["users", "create", "admin", "--config", server]) == 0
    file = tmp_path / "client.properties"
    file.write_text(CLIENT)

    def use(bootstrap: str) -> None:
        common = ("-b", bootstrap, "--command-config", str(file))
        assert main(["users", "create", "bob", "--mechanism", "SCRAM-SHA-256", "--iterations", "4096", *common]) == 0
        assert users(capsys, *common) == [
            ("admin", "SCRAM-SHA-256", 8192), ("admin", "SCRAM-SHA-512", 8192), ("bob", "SCRAM-SHA-256", 4096),
        ]  # fmt: skip
        assert main(["users", "create", "bob", "--mechanism", "SCRAM-SHA-256", *common]) == 2
        assert main(["users", "delete", "bob", *common]) == 0
        assert main(["users", "delete", "bob", *common]) == 2
        assert main(["users", "create", "eve", "--config", server]) == 1
        monkeypatch.setenv(PASSWORD_VARIABLE, "changed")
        assert main(["users", "alter", "admin", *common]) == 0
        assert main(["users", *common]) == 1

    async def scenario() -> None:
        broker = Broker(BrokerConfig.load(server))
        await broker.start()
        try:
            await asyncio.to_thread(use, broker.bootstrap)
        finally:
            await broker.stop()

    asyncio.run(scenario())
    printed = capsys.readouterr()
    assert "planted" not in printed.out + printed.err
    assert users(capsys, "--config", server) == [("admin", "SCRAM-SHA-256", 8192), ("admin", "SCRAM-SHA-512", 8192)]


def test_password_comes_from_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    monkeypatch.delenv(PASSWORD_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO("secret\n"))
    assert main(["users", "create", "alice", *data]) == 0
    file = tmp_path / "password"
    file.write_text("secret\n")
    assert main(["users", "alter", "alice", "--password-file", str(file), "--iterations", "5000", *data]) == 0
    assert [each[2] for each in users(capsys, *data)] == [5000, 5000]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["create"], "needs the NAME"),
        (["delete", "alice", "--iterations", "5000"], "create and alter"),
        (["list", "alice"], "takes no NAME"),
        (["create", "alice", "--password-file", "/missing"], "No such file"),
        (["create", "alice", "-b", "a:1"], "contradicts"),
        (["alter", "alice"], "there is no user"),
    ],
)
def test_wrong_usage_is_one_line(
    words: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["users", *words, "--data-dir", str(tmp_path / "data")]) == 2
    assert text in capsys.readouterr().err


def test_number_of_iterations_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, "secret")
    assert main(["users", "create", "alice", "--iterations", "100", "--data-dir", str(tmp_path / "data")]) == 1
    assert "Too few iterations" in capsys.readouterr().err
