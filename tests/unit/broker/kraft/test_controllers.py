"""Connections to controllers, and the one that is active."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from odradek.broker.cluster.peers import PeerLimits, Purpose
from odradek.broker.cluster.remote_controller import ControllerAway
from odradek.broker.kraft import controllers
from odradek.broker.kraft.controllers import Controllers
from odradek.client.errors import Disconnected, RequestTimedOut, TransportError, UnsupportedByBroker
from odradek.kraft.metadata_observer import Server
from odradek.ports.network import TcpNetwork
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tests.unit.broker.cluster.broker_proofs import no_proof

FIRST, SECOND = Server("a", 1), Server("b", 2)
REQUEST = AllocateProducerIdsRequest(1, 2)


class AConnection:
    def __init__(self, host: str) -> None:
        self.host = host
        self.closed: Exception | None = None
        self.failure: Exception | None = None
        self.is_silent = False
        self.in_flight = 0

    def version_of(self, _request: type) -> int:
        if self.host == "old":
            raise UnsupportedByBroker("the broker does not offer it")
        return 0

    async def request(self, *_: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        if self.is_silent:
            await asyncio.Event().wait()
        return AllocateProducerIdsResponse(producer_id_start=ord(self.host[0]))

    def close(self) -> None:
        self.closed = Disconnected("closed")


class World:
    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.opened: list[AConnection] = []
        patch.setattr(controllers, "open_connection", self._open)
        self.controllers = Controllers(TcpNetwork(), 7, None, no_proof, PeerLimits())

    async def _open(self, _network: Any, host: str, _port: int, **options: Any) -> AConnection:
        assert options["client_id"] == "broker-7"
        await asyncio.sleep(0)
        self.opened.append(AConnection(host))
        return self.opened[-1]

    async def ask(self, purpose: Purpose = Purpose.OWN) -> int:
        answer = await self.controllers.ask(REQUEST, AllocateProducerIdsResponse, 1000, purpose)
        return answer.producer_id_start


def run(monkeypatch: pytest.MonkeyPatch, scenario: Callable[[World], Any]) -> None:
    asyncio.run(scenario(World(monkeypatch)))


def test_requests_go_to_the_active_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(ControllerAway):
            await world.ask()
        world.controllers.note_active(FIRST)
        assert await world.ask() == ord("a")
        world.controllers.note_active(SECOND)
        assert await world.ask() == ord("b")

    run(monkeypatch, scenario)


def test_request_to_a_former_controller_fails_when_another_is_active(monkeypatch: pytest.MonkeyPatch) -> None:
    """The former one may stand still."""

    async def scenario(world: World) -> None:
        world.controllers.note_active(FIRST)
        await world.ask()
        world.opened[0].is_silent = True
        asked = asyncio.create_task(world.ask())
        await asyncio.sleep(0)
        for still_waits in (FIRST, None):
            world.controllers.note_active(still_waits)
            await asyncio.sleep(0.01)
            assert not asked.done()
        world.controllers.note_active(SECOND)
        with pytest.raises(ControllerAway):
            await asked

    run(monkeypatch, scenario)


def test_one_connection_serves_requests_of_one_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.controllers.note_active(FIRST)
        await asyncio.gather(world.ask(), world.ask(), world.ask(Purpose.FORWARDED))
        await world.ask()
        assert len(world.opened) == 2

    run(monkeypatch, scenario)


def test_broken_connection_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.controllers.note_active(FIRST)
        await world.ask()
        world.opened[0].failure = world.opened[0].closed = Disconnected("reset")
        assert await world.ask() == ord("a")
        world.opened[1].failure = Disconnected("reset")
        with pytest.raises(ControllerAway, match="reset"):
            await world.ask()

    run(monkeypatch, scenario)


def test_fetch_after_one_that_was_given_up_has_a_connection_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader takes the next fetch on a connection for the proof that its last answer has come."""

    async def scenario(world: World) -> None:
        async def fetch() -> None:
            await world.controllers.fetch(FIRST, REQUEST, AllocateProducerIdsResponse, 1000)

        await fetch()
        await fetch()
        assert len(world.opened) == 1
        world.opened[0].in_flight = 1
        await fetch()
        assert len(world.opened) == 2
        assert world.opened[0].closed is not None
        world.controllers.note_active(FIRST)
        await world.ask()
        world.opened[2].in_flight = 1
        await world.ask()
        assert len(world.opened) == 3, "requests of other kinds share one"

    run(monkeypatch, scenario)


def test_controller_without_an_api_is_an_error_of_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(KafkaError) as caught:
            await world.controllers.fetch(Server("old", 1), REQUEST, AllocateProducerIdsResponse, 1000)
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION

    run(monkeypatch, scenario)


def test_unreachable_controller_is_a_transport_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise UnsupportedByBroker("no ApiVersions")

    async def scenario(world: World) -> None:
        monkeypatch.setattr(controllers, "open_connection", refuse)
        with pytest.raises(TransportError):
            await world.controllers.fetch(FIRST, REQUEST, AllocateProducerIdsResponse, 1000)

    run(monkeypatch, scenario)


def test_closed_controllers_leave_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        world.controllers.note_active(FIRST)
        await world.ask()
        world.controllers.close()
        assert all(each.closed is not None for each in world.opened)

    run(monkeypatch, scenario)


def test_failed_request_of_a_caller_that_gave_up_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the client's connection closes while the one to the controller is about to time out."""
    complaints: list[dict[str, Any]] = []

    async def time_out(*_: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RequestTimedOut("no answer") from None

    async def scenario(world: World) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        world.controllers.note_active(FIRST)
        await world.ask()
        world.opened[0].request = time_out  # type: ignore[method-assign]
        asked = asyncio.create_task(world.ask())
        await asyncio.sleep(0.001)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await asyncio.sleep(0.001)

    run(monkeypatch, scenario)
    gc.collect()
    assert complaints == []
