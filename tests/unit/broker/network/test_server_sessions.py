"""Connections from their acceptance to their end: who the client is, and when its address may connect again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.session import ANONYMOUS, Principal
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.network.handshakes import Handshakes
from odradek.broker.network.limits import RequestLimits
from odradek.broker.network.server import Allowance, Guards, Server
from odradek.broker.network.turns import Turns
from odradek.quotas.connection_rates import ConnectionRates
from odradek.wire.frames import ReceiveBuffers
from tests.unit.broker.network.test_connection import ScriptedStream

ALICE = Principal("User", "alice")


class World:
    """A server whose connections arrive when `connect` is called; TLS handshakes succeed at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, principal: Any = None, *, has_login: bool = False) -> None:
        self.audited: list[tuple[Any, ...]] = []
        self.admitted: list[Any] = []
        self.accept: Callable[[Any], None] = lambda _stream: None
        monkeypatch.setattr(Handshakes, "begin", lambda _self, stream, _context, _name, secured, _gone: secured(stream))

        def named(_listener: str, _stream: object) -> Any:
            if isinstance(principal, Exception):
                raise principal
            return principal

        tls = None if principal is None else SimpleNamespace(server_context=lambda _name: object(), principal=named)
        logins = SimpleNamespace(guards=lambda _name: has_login, admit=self.admitted.append)
        audit = SimpleNamespace(
            logged_in=lambda session, *how: self.audited.append((session.peer_host, *how)),
            login_failed=lambda *how: self.audited.append(("failed", *how)),
        )
        guards: Any = Guards(tls, logins, audit)  # type: ignore[arg-type]
        config = BrokerConfig({"max.connections.per.ip": "1"})
        clock: Any = SimpleNamespace(monotonic=lambda: 0.0)
        allowance = Allowance(RequestLimits(), ConnectionRates(11, 1000), ReceiveBuffers(None), Turns())
        network: Any = self
        dispatch: Any = lambda _frame, _connection: None  # noqa: E731
        self.server = Server(network, dispatch, config, clock, allowance, guards)
        self.server.listen("CLIENTS", "127.0.0.1", 0)

    def listen(self, _host: str, _port: int, accept: Callable[[Any], None]) -> Any:
        self.accept = accept
        return SimpleNamespace(close=lambda: None)

    def connect(self, host: str = "10.0.0.1") -> ScriptedStream:
        stream = ScriptedStream()
        stream.peer_host = host
        self.accept(stream)
        return stream

    @property
    def principals(self) -> list[Any]:
        return [connection.session.principal for connection in self.server.connections.values()]


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def scenario() -> None:
        await test()

    asyncio.run(scenario())


def test_address_may_connect_again_when_its_connection_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        world.server.open()
        first = world.connect()
        assert world.connect().closed, "one connection of an address"
        assert not first.closed
        assert not world.connect("10.0.0.2").closed
        (connection, _) = world.server.connections.values()
        connection.close("test")
        assert not world.connect().closed
        assert world.server.accepted == 3
        world.server.close()
        assert not world.server.connections

    run(test)


def test_certificate_names_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch, ALICE)
        world.server.open()
        world.connect()
        assert world.principals == [ALICE]
        assert [(each[0], each[-1]) for each in world.audited] == [("10.0.0.1", "User:alice")]
        world.server.close()

    run(test)


def test_client_without_a_certificate_is_no_login(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch, ANONYMOUS)
        world.server.open()
        world.connect()
        assert (world.principals, world.audited) == ([ANONYMOUS], [])
        world.server.close()

    run(test)


def test_login_names_the_client_whatever_its_certificate_says(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch, ALICE, has_login=True)
        world.server.open()
        world.connect()
        assert (world.principals, world.audited) == ([ANONYMOUS], [])
        assert [session.peer_host for session in world.admitted] == ["10.0.0.1"]
        world.server.close()

    run(test)


def test_certificate_that_no_rule_matches_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch, ValueError("no rule"))
        world.server.open()
        assert world.connect().closed
        assert (world.principals, [each[0] for each in world.audited]) == ([], ["failed"])
        assert world.audited[0][-1] == "no rule"
        assert world.connect().closed
        assert len(world.audited) == 2, "it was not rejected for the number of its connections"
        world.server.close()

    run(test)


def test_connections_that_wait_are_closed_with_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        world = World(monkeypatch)
        early = world.connect()
        assert (early.closed, world.server.connections) == (False, {})
        world.server.close()
        assert early.closed

    run(test)
