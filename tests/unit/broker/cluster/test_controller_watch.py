"""The connection on which a broker notices that the controller's process has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.broker.cluster.controller_watch import ControllerWatch
from odradek.metadata.image import Broker, ClusterImage, Endpoint


class AConnection:
    """One that stays open until it is closed here."""

    closed = False

    def request(self, *_: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    def watch_close(self, _listener: object) -> None:
        """See `Connection`."""

    def close(self, _reason: object = None) -> None:
        self.closed = True


class World:
    """Broker 1, which watches the controller."""

    def __init__(self) -> None:
        self.connections: dict[int, AConnection] = {}
        self.watch = ControllerWatch(1, self.connect, self.died)

    async def connect(self, broker: Broker) -> Any:
        self.connections[broker.id] = AConnection()
        return self.connections[broker.id]

    async def died(self, broker: Broker) -> None:
        raise AssertionError(f"broker {broker.id} lives")

    async def follow(self, controller_id: int) -> None:
        brokers = {i: Broker(i, i, None, {"PLAINTEXT": Endpoint("h", 9090 + i, "PLAINTEXT")}) for i in (1, 2, 3)}
        self.watch.follow(ClusterImage(), ClusterImage("c").with_brokers(brokers).with_controller(controller_id, 1))
        for _ in range(5):
            await asyncio.sleep(0)

    @property
    def open(self) -> list[int]:
        return [broker_id for broker_id, each in self.connections.items() if not each.closed]


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(World())

    asyncio.run(main())


def test_newest_controller_alone_is_watched() -> None:
    async def scenario(world: World) -> None:
        await world.follow(2)
        assert world.open == [2]
        await world.follow(3)
        assert world.open == [3]
        await world.follow(1)
        assert world.open == [], "this broker is the controller"

    run(scenario)


def test_closed_watch_has_no_connection_and_begins_none() -> None:
    """A broker that stops would hold a connection of the controller, and end an election at the wrong time."""

    async def scenario(world: World) -> None:
        await world.follow(2)
        world.watch.close()
        assert world.open == []
        await world.follow(3)
        assert world.open == []

    run(scenario)
