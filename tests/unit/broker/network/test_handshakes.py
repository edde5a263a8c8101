"""Handshakes of accepted connections: limits in number and time, one line for each that fails."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.network import handshakes as module
from odradek.broker.network.handshakes import Handshakes
from odradek.ports.clock import SystemClock
from odradek.ports.network import Stream, TcpNetwork
from odradek.ports.tls import TlsStream, connect_tls
from tests.certificates import Authority
from tests.unit.ports.test_network import read_exactly

SECONDS = 30


class Listening:
    """A TLS listener with nothing behind it."""

    def __init__(self, context: ssl.SSLContext, seconds: float = SECONDS) -> None:
        self.handshakes = Handshakes(SystemClock(), seconds)
        self.done: asyncio.Queue[TlsStream] = asyncio.Queue()
        self.failed: asyncio.Queue[None] = asyncio.Queue()
        self._context = context
        self._listener = TcpNetwork().listen("127.0.0.1", 0, self._accept)

    def _accept(self, stream: Stream) -> None:
        self.handshakes.begin(stream, self._context, "SSL", self.done.put_nowait, lambda: self.failed.put_nowait(None))

    async def connect(self) -> Stream:
        return await TcpNetwork().connect("127.0.0.1", self._listener.port, SECONDS)

    def close(self) -> None:
        self._listener.close()
        self.handshakes.close()


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    authority = Authority(Path(tmp_path_factory.mktemp("certificates")))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue("/CN=localhost").both)
    return server, ssl.create_default_context(cafile=authority.file)


Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


def run(scenario: Callable[[], object]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]


def test_many_handshakes_complete(contexts: Contexts) -> None:
    async def scenario() -> None:
        listening = Listening(contexts[0])
        plain = await asyncio.gather(*(listening.connect() for _ in range(30)))
        secured = await asyncio.gather(*(connect_tls(each, contexts[1], "localhost", SECONDS) for each in plain))
        accepted = [await asyncio.wait_for(listening.done.get(), SECONDS) for _ in secured]
        assert len(listening.handshakes) == 0
        for each in (*secured, *accepted):
            each.close()
        listening.close()

    run(scenario)


def test_failure_behind_one_handshake_does_not_stop_the_others(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may not watch one more socket, or its certificate has what no code expects."""

    async def scenario() -> None:
        listening = Listening(contexts[0])
        reported: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        accept, failures = listening.done.put_nowait, [OSError("no space")]

        def done(stream: TlsStream) -> None:
            if failures:
                stream.close()
                raise failures.pop()
            accept(stream)

        monkeypatch.setattr(listening.done, "put_nowait", done)
        for _ in range(2):
            client = await connect_tls(await listening.connect(), contexts[1], "localhost", 5)
            client.close()
        (await asyncio.wait_for(listening.done.get(), SECONDS)).close()
        assert [str(each) for each in reported] == ["no space"]
        listening.close()

    run(scenario)


def test_half_handshake_ends_at_its_deadline(contexts: Contexts, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        listening = Listening(contexts[0], seconds=0.05)
        silent = await listening.connect()
        await asyncio.wait_for(listening.failed.get(), SECONDS)
        assert await read_exactly(silent, 1) == b""
        assert len(listening.handshakes) == 0
        silent.close()
        listening.close()

    with caplog.at_level(logging.INFO):
        run(scenario)
    assert caplog.messages == ["TLS handshake of 127.0.0.1 on listener SSL failed: not complete after 0.05 s"]


def test_plain_text_is_one_line_of_the_log(contexts: Contexts, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        listening = Listening(contexts[0])
        client = await listening.connect()
        client.send(b"\x00\x00\x00\x1f\x00\x12" + bytes(29), False)
        await asyncio.wait_for(listening.failed.get(), SECONDS)
        await read_exactly(client, 100)
        client.close()
        listening.close()

    with caplog.at_level(logging.INFO):
        run(scenario)
    (line,) = caplog.messages
    assert line.startswith("TLS handshake of 127.0.0.1 on listener SSL failed: the peer does not speak TLS")


def test_open_handshakes_are_limited(
    contexts: Contexts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_HANDSHAKES_FROM", 2)

    async def scenario() -> None:
        listening = Listening(contexts[0])
        silent = [await listening.connect() for _ in range(3)]
        await asyncio.wait_for(listening.failed.get(), SECONDS)
        assert len(listening.handshakes) == 2
        silent[0].close()
        await asyncio.wait_for(listening.failed.get(), SECONDS)
        assert len(listening.handshakes) == 1
        listening.close()
        assert len(listening.handshakes) == 0
        for each in silent[1:]:
            each.close()

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert caplog.messages == [
        "connection from 127.0.0.1 on listener SSL rejected: 2 TLS handshakes are open, 2 of that address"
    ]


def test_oldest_silent_handshake_gives_way(
    contexts: Contexts, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_HANDSHAKES_FROM", 2)
    monkeypatch.setattr(module, "STALLED_SECONDS", 0.0)

    async def scenario() -> None:
        listening = Listening(contexts[0])
        silent = [await listening.connect() for _ in range(2)]
        client = await connect_tls(await listening.connect(), contexts[1], "localhost", SECONDS)
        accepted = await asyncio.wait_for(listening.done.get(), SECONDS)
        assert await read_exactly(silent[0], 1) == b"", "the first one is closed"
        assert len(listening.handshakes) == 1
        for each in (client, accepted, *silent):
            each.close()
        listening.close()

    with caplog.at_level(logging.INFO):
        run(scenario)
    assert "gave way to a newer connection" in caplog.text


@pytest.mark.parametrize("pieces", [1, 5])
def test_first_message_of_a_peer_is_limited(pieces: int, contexts: Contexts, caplog: pytest.LogCaptureFixture) -> None:
    """A ClientHello of 100 kB in TLS records of 10,000 bytes, of which OpenSSL would keep all."""

    async def scenario() -> None:
        listening = Listening(contexts[0])
        client = await listening.connect()
        hello = b"\x01" + (100_000).to_bytes(3, "big") + b"\x03\x03" + bytes(99_998)
        records = [b"\x16\x03\x01" + len(hello[at : at + 10_000]).to_bytes(2, "big") + hello[at : at + 10_000]
                   for at in range(0, 70_000, 10_000)]  # fmt: skip
        step = -(-len(records) // pieces)
        for at in range(0, len(records), step):
            client.send(b"".join(records[at : at + step]), False)
            await asyncio.sleep(0)
        await asyncio.wait_for(listening.failed.get(), SECONDS)
        client.close()
        listening.close()

    with caplog.at_level(logging.INFO):
        run(scenario)
    assert "the first message of the peer is larger than 65536 bytes" in caplog.text


def test_complete_handshake_leaves_no_deadline(contexts: Contexts) -> None:
    """The deadline of a handshake would end the connection that came out of it."""
    delays: list[tuple[float, asyncio.TimerHandle]] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        call_later = loop.call_later

        def noted(delay: float, *arguments: Any) -> asyncio.TimerHandle:
            delays.append((delay, call_later(delay, *arguments)))
            return delays[-1][1]

        listening = Listening(contexts[0], seconds=SECONDS + 1)
        loop.call_later = noted  # type: ignore[assignment, method-assign]
        client = await connect_tls(await listening.connect(), contexts[1], "localhost", SECONDS)
        accepted = await asyncio.wait_for(listening.done.get(), SECONDS)
        (deadline,) = [handle for delay, handle in delays if delay == SECONDS + 1]
        assert deadline.cancelled()
        client.close()
        accepted.close()
        listening.close()

    run(scenario)


def test_handshakes_that_are_ready_together_share_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice for each would keep clients that are served already waiting as long as many others connect."""
    slices: list[int] = []
    monkeypatch.setattr(Handshakes, "_step", lambda handshakes: slices.append(len(handshakes._ready)))

    async def scenario() -> None:
        handshakes = Handshakes(SystemClock(), SECONDS)
        ready: Any = SimpleNamespace(watch=None)
        for _ in range(3):
            handshakes._is_ready(ready)
        await asyncio.sleep(0)

    run(scenario)
    assert slices == [3]
