"""Controllers of a quorum, and brokers on them, in this process: real sockets and files, short timeouts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.broker.storage.bootstrap_records import first_records
from odradek.log.directories.checkpoint_formats import MetaProperties, format_meta_properties
from odradek.log.directories.ownership import BOOTSTRAP
from odradek.metadata.image import Broker as Registered
from odradek.metadata.image import Endpoint
from odradek.ports.randomness import SystemRandom

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
_CONTROLLER = {
    "controller.quorum.election.timeout.ms": "150",
    "controller.quorum.append.linger.ms": "0",
}
_OF_CONTROLLERS, _OF_BROKERS = "controllers:", "brokers:"
_QUICK = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "100",
    "odradek.self.fence.margin.ms": "500",
    "offsets.topic.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def format_directory(
    directory: Path, node_id: int, cluster_id: str = CLUSTER, features: Sequence[str] = (), users: Sequence[str] = ()
) -> None:
    """Write what `storage format` does; `features` as of `--feature`, and `users` as of `--add-scram`."""
    directory.mkdir(parents=True, exist_ok=True)
    content = format_meta_properties(MetaProperties(cluster_id, node_id, SystemRandom().uuid()))
    (directory / "meta.properties").write_bytes(content)
    if features or users:
        records = first_records(features, None, users, SystemRandom())
        (directory / BOOTSTRAP).write_bytes(records.file_content(0))


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def add_broker(node: ControllerNode, broker_id: int = 7, *addresses: tuple[str, int]) -> None:
    """Register and unfence a broker without a process, whose session does not end."""
    controller = node.parts.controller
    names = ("PLAINTEXT", "SECOND")
    endpoints = {name: Endpoint(*each, "PLAINTEXT") for name, each in zip(names, addresses or [("h", 1)], strict=False)}
    broker = Registered(
        broker_id, controller.next_offset, None, endpoints,
        incarnation_id=bytes(15) + bytes([broker_id]), log_dirs=(bytes(15) + b"\xff",),
        features={"metadata.version": (7, 30), "group.version": (0, 1), "transaction.version": (0, 2)},
    )  # fmt: skip
    await controller.decide(lambda c: c.register_broker(broker, -1))
    controller.sessions.touch(broker_id, controller.image.brokers[broker_id].epoch, 1 << 40, 1e12)
    await controller.decide(lambda c: c.fence_brokers((), [broker_id]))


class Quorum:
    """Controllers by id, from 100 on; brokers by id, from 1 on."""

    def __init__(
        self,
        directory: Path,
        controllers: int,
        settings: Mapping[str, str],
        form: Callable[[Path, int], None] = format_directory,
    ) -> None:
        """Settings of both kinds of nodes; names that begin with `controllers:` or `brokers:` are of one kind alone."""
        ids = range(100, 100 + controllers)
        self.directory = directory
        self.host = "127.0.0.1"
        """Where controllers listen."""
        self.log_dirs = 1
        """Log directories of each broker."""
        self.ports = dict(zip(ids, free_ports(controllers), strict=True))
        self.controllers: dict[int, ControllerNode] = {}
        self.brokers: dict[int, Broker] = {}
        kinds = _OF_CONTROLLERS, _OF_BROKERS
        self._settings = {**_QUICK, **{name: value for name, value in settings.items() if not name.startswith(kinds)}}
        self._of_controllers, self._of_brokers = (
            {name.removeprefix(kind): value for name, value in settings.items() if name.startswith(kind)}
            for kind in kinds
        )
        for node in ids:
            form(directory / f"controller-{node}", node)

    @property
    def voters(self) -> str:
        """`controller.quorum.voters`."""
        return ",".join(f"{node}@127.0.0.1:{port}" for node, port in self.ports.items())

    @property
    def active(self) -> ControllerNode:
        """The only active controller. Raises StopIteration without one."""
        (found,) = (each for each in self.controllers.values() if each.parts.controller.is_active)
        return found

    @property
    def bootstrap(self) -> str:
        """Addresses of the brokers."""
        return ",".join(each.bootstrap for each in self.brokers.values())

    def config(self, node: int) -> BrokerConfig:
        """The settings of a controller."""
        return BrokerConfig(
            {
                **_CONTROLLER,
                **self._settings,
                **self._of_controllers,
                "process.roles": "controller",
                "node.id": str(node),
                "controller.listener.names": "CONTROLLER",
                "listeners": f"CONTROLLER://{self.host}:{self.ports[node]}",
                "controller.quorum.voters": self.voters,
                "log.dirs": str(self.directory / f"controller-{node}"),
            }
        )

    async def start(self, *nodes: int) -> None:
        """Start controllers."""
        for node in nodes:
            self.controllers[node] = ControllerNode(self.config(node))
            await self.controllers[node].start()

    async def stop(self, node: int) -> None:
        """Stop a controller."""
        await self.controllers.pop(node).stop()

    async def wait_until_active(self) -> ControllerNode:
        """The active controller, once there is exactly one."""
        await until(lambda: sum(each.parts.controller.is_active for each in self.controllers.values()) == 1)
        return self.active

    async def start_brokers(self, *nodes: int) -> None:
        """Start brokers that join the cluster."""
        for node in nodes:
            config = BrokerConfig(
                {
                    **self._settings,
                    **self._of_brokers,
                    "process.roles": "broker",
                    "node.id": str(node),
                    "listeners": "PLAINTEXT://127.0.0.1:0",
                    "controller.listener.names": "CONTROLLER",
                    "controller.quorum.voters": self.voters,
                    "log.dirs": ",".join(str(self.directory / f"broker-{node}-{i}") for i in range(self.log_dirs)),
                    "offsets.topic.replication.factor": "1",
                    "transaction.state.log.replication.factor": "1",
                    "transaction.state.log.min.isr": "1",
                }
            )
            self.brokers[node] = Broker(config)
        await asyncio.gather(*(self.brokers[node].start() for node in nodes))

    async def close(self) -> None:
        """Stop all, the brokers first."""
        for broker in self.brokers.values():
            await broker.stop()
        for node in list(self.controllers):
            await self.stop(node)


@asynccontextmanager
async def quorum(
    directory: Path,
    controllers: int = 1,
    brokers: Iterable[int] = (),
    settings: Mapping[str, str] | None = None,
    form: Callable[[Path, int], None] = format_directory,
) -> AsyncIterator[Quorum]:
    """A running cluster, its directories formatted by `form`."""
    running = Quorum(directory, controllers, settings or {}, form)
    try:
        await running.start(*running.ports)
        await running.wait_until_active()
        await running.start_brokers(*brokers)
        yield running
    finally:
        await running.close()
