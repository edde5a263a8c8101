"""`odradek serve`: from a signal to the end."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.cli.commands import serve
from odradek.cli.main import main
from odradek.cli.serving import process_life, quorum_forming


class Waiting:
    """A broker that no controller ever reaches, as where it advertises an address that is not its own."""

    cancelled = False
    waits_for_store = False

    def __init__(self, _config: BrokerConfig) -> None:
        return

    async def start(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            Waiting.cancelled = True


def test_a_signal_ends_a_start_that_does_not_come_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "Broker", Waiting)
    monkeypatch.setattr(serve, "_START_SECONDS", 0.0)

    async def body() -> int:
        async with asyncio.timeout(60):
            return await serve._serve(BrokerConfig({}), process_life.until_stop())

    assert asyncio.run(body()) == 0
    assert Waiting.cancelled


def test_signal_ends_a_start_that_waits_for_the_store_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "Broker", Waiting)
    monkeypatch.setattr(serve, "_START_SECONDS", 1e6)
    monkeypatch.setattr(Waiting, "waits_for_store", True)
    monkeypatch.setattr(Waiting, "cancelled", False)

    async def body() -> int:
        async with asyncio.timeout(60):
            return await serve._serve(BrokerConfig({}), process_life.until_stop())

    assert asyncio.run(body()) == 0
    assert Waiting.cancelled


def test_signal_between_forming_and_start_ends_a_node_of_a_quorum(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A signal of the last moment of the forming set an event that the start did not look at."""

    async def form(_forming: quorum_forming.Forming) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    class Unreached(Waiting):
        waits_for_store = True

        async def start(self) -> None:
            await asyncio.wait_for(asyncio.Event().wait(), 10)

    monkeypatch.setattr(quorum_forming.Forming, "run", form)
    monkeypatch.setattr(serve, "Broker", Unreached)
    words = ["serve", "--quorum", "127.0.0.1:9092", "--data-dir", str(tmp_path / "data")]
    assert main(words) == 0


def test_ready_line_names_the_bound_address_when_it_differs() -> None:
    assert serve.ready_line("kafka1:9092", "0.0.0.0:9092").endswith(" bound=0.0.0.0:9092")
    assert "bound" not in serve.ready_line("127.0.0.1:9092", "127.0.0.1:9092")


def test_ready_line_names_the_http_listener_when_there_is_one() -> None:
    assert serve.ready_line("a:1", "a:1", "127.0.0.1:9644").endswith(" http=127.0.0.1:9644")
    assert "http" not in serve.ready_line("a:1", "a:1")


@pytest.mark.parametrize(
    "setting",
    [
        "ssl.keystore.password=PLANTED",
        "listener.name.internal.ssl.key.password=PLANTED",
        "ssl.key.password PLANTED",
        "sasl.jaas.config = PLANTED",
        "delegation.token.secret.key=PLANTED",
    ],
)
def test_secret_in_an_argument_is_rejected_and_not_repeated(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--set", setting]) == 2
    written = capsys.readouterr()
    assert written.err.startswith(f"odradek serve: --set {setting.partition('=')[0].partition(' ')[0]}: ")
    assert "PLANTED" not in written.err + written.out


def test_listen_is_rejected_when_the_file_protects_its_listener(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=SSL://127.0.0.1:9093\nsecurity.inter.broker.protocol=SSL\nssl.keystore.location=/none.pem\n"
    )
    assert main(["serve", str(file), "--listen", "127.0.0.1:0"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("odradek serve: --listen 127.0.0.1:0 would replace the SSL listener"), error
    assert "use --set listeners=SSL://127.0.0.1:0" in error


def test_process_allows_itself_the_most_files_that_it_may() -> None:
    limits = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft // 2, hard))
        process_life.allow_most_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
