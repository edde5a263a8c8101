"""The cluster of `bench.followers` in virtual time: one processor for each node, and a network between them.

The nodes are the product's own code on the simulator's loop, network and disks. A step of a node costs it the
processor time that this machine needs for it; meanwhile the node does nothing else, and the others continue. A packet
takes 0.2 to 0.5 ms, the sync of a disk up to 2 ms. System calls and the bandwidth of the controller's link are not part
of it.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

from bench.followed_cluster import (
    CLUSTER,
    CONTROLLER,
    SNAPSHOT,
    decision_on,
    heartbeats,
    no_proof,
    properties_of,
    snapshot_of,
)
from bench.scale import Figure
from odradek.broker.cluster.peers import PeerLimits
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.quorum_addresses import quorum_servers
from odradek.broker.kraft.controllers import Controllers
from odradek.broker.kraft.metadata_follower import MetadataFollower
from odradek.broker.kraft.opening import follow_log
from odradek.broker.ports import Ports
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.log.directories.checkpoint_formats import META_PROPERTIES, MetaProperties, format_meta_properties
from odradek.metadata.image import ClusterImage
from odradek.ports.randomness import SeededRandom
from odradek.sim.world.disk import Inode, SimulatedDisk, Volume
from odradek.sim.world.hosts import SimulatedClock
from odradek.sim.world.loop import Process, SimulatedLoop
from odradek.sim.world.network import SimulatedNetwork

T = TypeVar("T")

_PORT: Final = 9093
_BROKER_PORT: Final = 9092
_FOLDER: Final = "/data"
_LOG: Final = f"{_FOLDER}/__cluster_metadata-0"
_LATENCY_SECONDS: Final = (0.0002, 0.0005)
_CHANGES: Final = 50


class MeasuredLoop(SimulatedLoop):
    """A step takes the processor time that it needs. The clock of its process advances within the step."""

    step_seconds = 0.0

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.charges = self
        self.used: dict[str, float] = {}
        """Processor seconds by process."""
        self._began = time.process_time()
        self._in_thread = 0.0

    def time(self) -> float:
        """Virtual seconds, those of the step under way included."""
        return super().time() + self._elapsed()

    def _elapsed(self) -> float:
        return time.process_time() - self._began - self._in_thread

    def step(self) -> None:
        """Run the next callback."""
        self._began, self._in_thread = time.process_time(), 0.0
        super().step()

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        """From the present moment of the step on."""
        return self.call_at(self.time() + max(0.0, delay), callback, *args, context=context)

    def off_loop(self, func: Callable[..., T], *args: Any) -> T:
        """What runs in a thread costs the loop nothing."""
        began = time.process_time()
        try:
            return func(*args)
        finally:
            self._in_thread += time.process_time() - began

    def end_step(self, process: Process | None) -> None:
        """The process pays for the step."""
        if process is None:
            return
        spent = self._elapsed()
        self._began, self._in_thread = time.process_time(), 0.0
        self.used[process.host] = self.used.get(process.host, 0.0) + spent
        self.pause(process, spent)


class _Chance(random.Random):
    """A network that delivers what it is sent in one piece."""

    def random(self) -> float:
        """As high as no fault is probable."""
        return 1.0 - 2**-53

    def uniform(self, a: float, b: float) -> float:
        """As `random.Random`."""
        return a + (b - a) * super().random()


class Cluster:
    """The nodes, and when each of the brokers got its newest image."""

    def __init__(self, partitions: int, count: int) -> None:
        self.loop = MeasuredLoop("followers")  # type: ignore[abstract]
        self.network = SimulatedNetwork(self.loop)
        self.network.rng, self.network.latency = _Chance(1), _LATENCY_SECONDS
        self.count = count
        self.times: dict[int, float] = {}
        self.followers: list[MetadataFollower] = []
        self._snapshot = Inode()
        self._snapshot.data = bytearray(snapshot_of(partitions, _BROKER_PORT))
        self._snapshot.durable = bytes(self._snapshot.data)
        self._processes: dict[str, Process] = {}
        # The controller sees that each broker listens.
        here = self.network.port_of(Process("listener", "127.0.0.1"))
        here.listen("127.0.0.1", _BROKER_PORT, lambda stream: stream.close())

    def ports(self, host: str, node_id: int) -> Ports:
        """Boot a machine whose disk has the snapshot; the ports of its process."""
        process = self._processes[host] = Process(f"{host}.1", host)
        meta = Inode()
        meta.write(0, format_meta_properties(MetaProperties(CLUSTER, node_id, (1 << 80 | node_id).to_bytes(16, "big"))))
        volume = Volume()
        for folder in (_FOLDER, _LOG):
            volume.directories[folder] = None
        volume.files |= {f"{_FOLDER}/{META_PROPERTIES}": meta, f"{_LOG}/{SNAPSHOT.file_name}": self._snapshot}
        clock = SimulatedClock(self.loop)
        disk = SimulatedDisk(volume, process, self.loop, clock, random.Random(node_id))
        return Ports(clock, disk, self.network.port_of(process), SeededRandom(host))

    async def on(self, host: str, work: Coroutine[Any, Any, T]) -> T:
        """Run something as the process of a host."""
        return await self.loop.create_task(work, context=self._processes[host].context)

    async def start_controller(self) -> ControllerNode:
        """The controller, once it is active and has its first records in its image."""
        settings = properties_of(CONTROLLER, Path(_FOLDER), f"c:{_PORT}")
        settings |= {"process.roles": "controller", "listeners": f"CONTROLLER://c:{_PORT}"}
        node = ControllerNode(BrokerConfig(settings), self.ports("c", CONTROLLER))
        await self.on("c", node.start())
        parts = node.parts
        while not parts.controller.is_active or parts.metadata.end_offset < parts.controller.next_offset:
            await asyncio.sleep(0.1)
        await self.on("c", heartbeats(node))
        return node

    async def start_broker(self, number: int) -> None:
        """The part of a broker that follows the metadata log, once it has all of it."""
        host = f"b{number}"
        config = BrokerConfig(properties_of(number, Path(_FOLDER), f"c:{_PORT}") | {"process.roles": "broker"})
        ports = self.ports(host, number)
        controllers = Controllers(ports.network, number, None, no_proof, PeerLimits.of(config))
        servers = quorum_servers(config)
        follower = await self.on(host, follow_log(config, ports, controllers, servers, CLUSTER))
        if not await follower.wait_until_caught_up(600):
            raise RuntimeError(f"broker {number} has not caught up: {follower.problem}")

        async def on_image(_image: ClusterImage, _end: int) -> None:
            self.times[number] = self.loop.time()

        follower.follow(on_image, self._broken)
        self.followers.append(follower)

    def _broken(self, error: BaseException) -> None:
        self.loop.broken = RuntimeError(f"a broker has failed: {error}")

    async def change(self, node: ControllerNode, what: str | int) -> Iterator[Figure]:
        """Let the controller decide, and wait until all brokers have all of it."""
        self.times.clear()
        used = dict(self.loop.used)
        begun, before = self.loop.time(), node.parts.controller.next_offset
        await self.on("c", node.parts.controller.decide(partial(decision_on, what)))
        committed, end = self.loop.time(), node.parts.controller.next_offset
        while any(follower.end_offset < end for follower in self.followers) or len(self.times) < self.count:
            await asyncio.sleep(0.001)
        times = sorted(self.times.values())
        await asyncio.sleep(0.05)  # until the next fetches wait for records

        def spent(host: str) -> float:
            return self.loop.used[host] - used.get(host, 0.0)

        brokers = [spent(f"b{number}") for number in range(self.count)]
        return iter(
            (
                Figure("records", end - before, "records"),
                Figure("committed after", (committed - begun) * 1e3, "ms"),
                Figure("the first broker knows after", (times[0] - begun) * 1e3, "ms"),
                Figure(f"the last of {self.count} knows after", (times[-1] - begun) * 1e3, "ms"),
                Figure("processor of the controller", spent("c") * 1e3, "ms"),
                Figure("processor of each broker", sum(brokers) / self.count * 1e3, "ms"),
            )
        )


async def _figures(cluster: Cluster) -> list[Figure]:
    node = await cluster.start_controller()
    for number in range(cluster.count):
        await cluster.start_broker(number)
    # The collector would look at the objects of all nodes in a step of one of them.
    gc.collect()
    gc.freeze()
    await asyncio.sleep(2)
    found = []
    for what, changes in (("one new leader", [f"topic-{n}" for n in range(_CHANGES)]), ("a broker is fenced", [0])):
        rows = [list(await cluster.change(node, change)) for change in changes]
        found += [
            Figure(f"{what}: {column[0].name}", median(each.value for each in column), column[0].unit)
            for column in zip(*rows, strict=True)
        ]
    return found


def simulate(partitions: int, count: int) -> Sequence[Figure]:
    """All figures of one size."""
    cluster = Cluster(partitions, count)
    try:
        found: Sequence[Figure] = cluster.loop.run_until_complete(_figures(cluster))
    finally:
        gc.unfreeze()
        cluster.loop.close()
    return found
