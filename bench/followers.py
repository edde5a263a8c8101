"""./dev bench followers: a controller with the metadata of a large cluster, and many brokers that follow its log.

The controller is a process of its own, one voter. The brokers are the part of a broker that follows the metadata log,
each with a log, a connection and an image of its own, all in a second process; they hold no partitions. Both begin with
the same snapshot. Then partitions get another leader, one after the other, and at last the controller fences a broker.

Times are by the clock, from the decision to the moment at which the last of the brokers has the image. Brokers share a
processor here, which those of a cluster do not; with `--simulated`, each has one (`bench.simulated_followers`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

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
from bench.servers import free_port
from bench.simulated_followers import simulate
from odradek.broker.cluster.peers import PeerLimits
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.quorum_addresses import quorum_servers
from odradek.broker.kraft.controllers import Controllers
from odradek.broker.kraft.followed_metadata import OnImage
from odradek.broker.kraft.metadata_follower import MetadataFollower
from odradek.broker.kraft.opening import follow_log
from odradek.broker.ports import Ports
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.log.directories.checkpoint_formats import META_PROPERTIES, MetaProperties, format_meta_properties
from odradek.metadata.image import ClusterImage

_CHANGES: Final = 100


def _format(folder: Path, node_id: int, snapshot: bytes) -> None:
    log = folder / "__cluster_metadata-0"
    log.mkdir(parents=True)
    content = format_meta_properties(MetaProperties(CLUSTER, node_id, (1 << 80 | node_id).to_bytes(16, "big")))
    (folder / META_PROPERTIES).write_bytes(content)
    (log / SNAPSHOT.file_name).write_bytes(snapshot)


# --- the controller's process ---


def controller_process(folder: Path, port: int, asked: Connection) -> None:
    """Serve until None is asked for; else a topic's partition 0 to elect, or a broker to fence."""
    asyncio.run(_controller(folder, port, asked))


async def _controller(folder: Path, port: int, asked: Connection) -> None:
    settings = properties_of(CONTROLLER, folder, f"127.0.0.1:{port}")
    settings |= {"process.roles": "controller", "listeners": f"CONTROLLER://127.0.0.1:{port}"}
    node = ControllerNode(BrokerConfig(settings))
    await node.start()
    while not node.parts.controller.is_active or node.parts.metadata.end_offset < node.parts.controller.next_offset:
        await asyncio.sleep(0.01)
    await heartbeats(node)
    loop = asyncio.get_running_loop()
    asked.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    while (what := await loop.run_in_executor(None, asked.recv)) is not None:
        begun, used = time.monotonic(), time.process_time()
        before = node.parts.controller.next_offset
        await node.parts.controller.decide(partial(decision_on, what))
        asked.send((begun, time.monotonic(), node.parts.controller.next_offset - before, used))
        await loop.run_in_executor(None, asked.recv)
        asked.send(time.process_time() - used)
    await node.stop()


# --- the brokers' process ---


class Brokers:
    """All followers, and when each of them got its newest image."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._times: dict[int, float] = {}
        self._all = asyncio.Event()
        self._images: dict[int, ClusterImage] = {}

    def expect(self) -> None:
        """Wait for the next image of each."""
        self._times.clear()
        self._all.clear()

    def follower(self, number: int) -> OnImage:
        """What a broker calls with each image."""

        async def on_image(image: ClusterImage, _end: int) -> None:
            self._images[number] = image
            self._times[number] = time.monotonic()
            if len(self._times) == self._count:
                self._all.set()

        return on_image

    async def times(self) -> list[float]:
        """When each has learned of the change, in order."""
        async with asyncio.timeout(120):
            await self._all.wait()
        return sorted(self._times.values())


async def _brokers(folder: Path, snapshot: bytes, count: int, port: int, asked: Connection) -> list[Figure]:
    controller_mib = await asyncio.get_running_loop().run_in_executor(None, asked.recv)
    brokers, ports = Brokers(count), Ports()
    before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    async with AsyncExitStack() as opened:
        used = time.process_time()
        for number in range(count):
            home = folder / f"broker-{number}"
            _format(home, number, snapshot)
            settings = properties_of(number, home, f"127.0.0.1:{port}") | {"process.roles": "broker"}
            config = BrokerConfig(settings)
            controllers = Controllers(ports.network, number, None, no_proof, PeerLimits.of(config))
            opened.callback(controllers.close)
            follower: MetadataFollower = await follow_log(config, ports, controllers, quorum_servers(config), CLUSTER)
            opened.push_async_callback(follower.close)
            if not await follower.wait_until_caught_up(60):
                raise RuntimeError(f"broker {number} has not caught up: {follower.problem}")
            follower.follow(brokers.follower(number), lambda error: sys.exit(f"a broker has failed: {error}"))
        started = (time.process_time() - used) / count
        each_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mib) / count
        await asyncio.sleep(1)
        names = [f"topic-{number}" for number in range(_CHANGES)]
        elections = [await _change(name, brokers, count, asked) for name in names]
        death = await _change(0, brokers, count, asked)
    asked.send(None)
    figures = [
        Figure("memory of the controller", controller_mib, "MiB"),
        Figure("memory of each broker's metadata", each_mib, "MiB"),
        Figure("start of each broker's metadata, processor", started, "s"),
    ]
    for what, rows in (("one new leader", elections), ("a broker is fenced", [death])):
        figures += [
            Figure(f"{what}: {name}", median(row[name][0] for row in rows), rows[0][name][1]) for name in rows[0]
        ]
    return figures


async def _change(what: str | int, brokers: Brokers, count: int, asked: Connection) -> dict[str, tuple[float, str]]:
    loop = asyncio.get_running_loop()
    brokers.expect()
    used = time.process_time()
    asked.send(what)
    begun, committed, records, _ = await loop.run_in_executor(None, asked.recv)
    times = await brokers.times()
    brokers_used = time.process_time() - used
    asked.send("used")
    controller_used = await loop.run_in_executor(None, asked.recv)
    return {
        "records": (records, "records"),
        "committed after": ((committed - begun) * 1e3, "ms"),
        "the first broker knows after": ((times[0] - begun) * 1e3, "ms"),
        f"the last of {count} knows after": ((times[-1] - begun) * 1e3, "ms"),
        "processor of the controller": (controller_used * 1e3, "ms"),
        "processor of each broker": (brokers_used / count * 1e3, "ms"),
    }


def measure(partitions: int, count: int) -> Sequence[Figure]:
    """All figures of one size."""
    with ExitStack() as opened:
        name = opened.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-followers-"))
        folder, port = Path(name), free_port()
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        snapshot = snapshot_of(partitions, listener.getsockname()[1])
        _format(folder / "controller", CONTROLLER, snapshot)
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=controller_process, args=(folder / "controller", port, theirs))
        process.start()
        try:
            return asyncio.run(_brokers(folder, snapshot, count, port, ours))
        finally:
            process.join(30)
            process.kill()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="./dev bench followers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("partitions", nargs="?", type=int, default=100_000)
    parser.add_argument("--brokers", type=int, default=100, help="that follow the log (default: 100)")
    parser.add_argument("--simulated", action="store_true", help="in virtual time, each node on a processor of its own")
    given = parser.parse_args(arguments)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    table = Table(title=f"{given.partitions:,} partitions, {given.brokers} brokers ({load})", title_justify="left")
    for column in ("", "figure", "unit"):
        table.add_column(column, justify="right" if column == "figure" else "left")
    if given.simulated:
        figures = simulate(given.partitions, given.brokers)
    else:
        figures = measure(given.partitions, given.brokers)
    for figure in figures:
        table.add_row(figure.name, f"{figure.value:,.4g}", figure.unit)
    Console(width=None if os.isatty(1) else 110).print(table)
    return 0
