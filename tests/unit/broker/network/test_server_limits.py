"""Which connections a broker accepts, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.network.server import Allowance, Server
from odradek.broker.network.turns import Turns
from odradek.ports.network import Stream
from odradek.quotas.connection_rates import ConnectionRates


class Door(Server):
    """A server that notes whom it serves."""

    def __init__(self, served: list[str], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._served = served

    def _serve(self, stream: Stream, listener_name: str) -> None:
        self._served.append(f"{listener_name} {stream.peer_host}")


class Network:
    """Connections arrive when `connect` is called."""

    def __init__(self, **settings: str) -> None:
        self.now = 0.0
        self.accept: Callable[[Stream], None] = lambda _stream: None
        self.served: list[str] = []
        self.closed: list[str] = []
        config = BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        allowance: Any = Allowance(None, ConnectionRates(11, 1000), None, Turns())  # type: ignore[arg-type]
        self.server = Door(self.served, self, None, config, clock, allowance)
        self.server.listen("CLIENTS", "127.0.0.1", 0)

    def listen(self, _host: str, _port: int, accept: Callable[[Stream], None]) -> Any:
        self.accept = accept
        return SimpleNamespace(close=lambda: None)

    def connect(self, host: str) -> None:
        stream: Any = SimpleNamespace(peer_host=host, close=lambda: self.closed.append(host))
        self.accept(stream)


def test_connection_waits_until_its_listener_is_open() -> None:
    network = Network()
    network.connect("10.0.0.1")
    assert (network.served, network.closed) == ([], [])
    network.server.open("OTHERS")
    assert network.served == []
    network.server.open("CLIENTS")
    assert network.served == ["CLIENTS 10.0.0.1"]


@pytest.mark.parametrize(
    ("settings", "served"),
    [
        ({"max_connections_per_ip": "2"}, 2),
        ({"max_connections_per_ip": "1", "max_connections_per_ip_overrides": "10.0.0.9:5,10.0.0.1:3"}, 3),
        ({"max_connections_per_ip": "1", "max_connections_per_ip_overrides": "10.0.0.9:5"}, 1),
    ],
)
def test_connections_of_an_address_beyond_its_number_are_closed(
    settings: dict[str, str], served: int, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network(**settings)
    network.server.open()
    for _ in range(4):
        network.connect("10.0.0.1")
    assert len(network.served) == served
    assert network.closed == ["10.0.0.1"] * (4 - served)
    assert caplog.messages[0] == "connection from 10.0.0.1 refused: max.connections.per.ip reached"


@pytest.mark.parametrize(
    ("override", "host"),
    [("10.0.0.1:0", "::ffff:10.0.0.1"), ("[2001:DB8:0::1]:0", "2001:db8::1"), ("fe80::1:0", "fe80::1%eth0")],
)
def test_override_holds_for_every_spelling_of_an_address(override: str, host: str) -> None:
    """A socket of all addresses, of IPv4 as well, shows those of IPv4 within IPv6."""
    network = Network(max_connections_per_ip_overrides=override)
    network.server.open()
    network.connect(host)
    assert (network.served, network.closed) == ([], [host])


def test_connections_beyond_the_most_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    network = Network(max_connections="0")
    network.server.open()
    network.connect("10.0.0.1")
    assert (network.served, network.closed) == ([], ["10.0.0.1"])
    assert caplog.messages == ["connection from 10.0.0.1 refused: max.connections reached"]


def test_connections_are_served_in_order_at_the_creation_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[tuple[float, list[str]]]:
        network = Network(max_connection_creation_rate="1")
        timers: list[tuple[float, Callable[[], None]]] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "call_later", lambda seconds, then: timers.append((seconds, then)))
        network.server.open()
        for number in range(14):
            network.connect(f"10.0.0.{number}")
        seen = [(0.0, list(network.served))]
        while timers:
            assert len(timers) == 1, "one timer for all that wait"
            seconds, then = timers.pop()
            assert seconds > 0.0
            network.now += seconds
            then()
            seen.append((network.now, list(network.served)))
        return seen

    seen = asyncio.run(scenario())
    assert len(seen) > 1, "some of them had to wait"
    assert seen[-1][1] == [f"CLIENTS 10.0.0.{number}" for number in range(14)]


def test_connections_that_wait_for_their_turn_count_for_their_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an address gets as many connections as it opens while `max.connection.creation.rate` delays them."""
    later: list[Callable[[], None]] = []
    loop = SimpleNamespace(call_later=lambda _delay, call: later.append(call))
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    network = Network(max_connection_creation_rate="1", max_connections_per_ip="20")
    network.server.open()
    for _ in range(30):
        network.connect("10.0.0.1")
    assert len(network.served) < 20
    while later:
        network.now += 10
        later.pop()()
    assert len(network.served) == 20
    assert network.closed == ["10.0.0.1"] * 10
