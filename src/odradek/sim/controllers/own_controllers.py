"""Controllers of Odradek (`process.roles=controller`) on simulated machines, and what their logs have committed.

In the place of `ModelQuorum`: Raft, its executor, the decisions and the answers to brokers are the product's own code.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.ports import Ports
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.broker.start_error import StartError
from odradek.kraft.metadata_log import read_entries
from odradek.log.directories.checkpoint_formats import META_PROPERTIES, MetaProperties, format_meta_properties
from odradek.metadata.image import ClusterImage
from odradek.metadata.kraft.metadata_replay import MetadataReplay
from odradek.ports.disk import DiskError
from odradek.ports.randomness import SeededRandom
from odradek.records.batch import LOG_OVERHEAD, split_batches
from odradek.sim.checkers.history import Violation
from odradek.sim.controllers.active_controller import SESSION_SECONDS
from odradek.sim.controllers.model_log import ModelBatch
from odradek.sim.controllers.model_quorum import CLUSTER_ID, CONTROLLER_PORT
from odradek.sim.controllers.quorum_membership import RecordedRegistrations
from odradek.sim.world.disk import Inode, Volume
from odradek.sim.world.hosts import START_SECONDS, BrokerHost, Machine, World
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.sim.world.loop import Process, SimulatedLoop

_DIRECTORY: Final = "/meta"
_FIRST_NODE_ID: Final = 101
_READ_BYTES: Final = 1 << 20
_RESTART_SECONDS: Final = 1.0
"""After so long a process that ended by itself is started again."""

Committed = Callable[[ModelBatch], None]


class ControllerHost(Machine):
    """A machine with a disk and, most of the time, a controller."""

    def __init__(self, quorum: OwnQuorum, node_id: int, config: BrokerConfig) -> None:
        super().__init__(quorum.world, f"c{node_id}", _formatted(node_id))
        self.quorum = quorum
        self.node_id = node_id
        self.node: ControllerNode | None = None
        self._config = config
        self._suffered_before = 0
        self._is_ending = False

    @property
    def is_awake(self) -> bool:
        """Whether the process lives and does not stand still."""
        return self.process is not None and self.process.alive and self.process.paused_until <= self.world.now()

    @property
    def running(self) -> ControllerNode | None:
        """The controller, once its process has made its parts."""
        node = self.node
        return node if self.is_up and node is not None and node.has_parts else None

    @property
    def has_suffered(self) -> bool:
        """Whether the disk has failed the newest process."""
        return self.volume.faults.suffered > self._suffered_before

    async def start(self) -> None:
        """Start the controller, unless it runs. Raises Violation where it refuses to start, and its disk is good."""
        world = self.world
        if self.is_up:
            return
        process, disk = self.boot()
        self._suffered_before, self._is_ending = self.volume.faults.suffered, False
        name = process.name
        network, chance = world.network.port_of(process), SeededRandom(f"{world.seed}:{name}")
        node = self.node = ControllerNode(self._config, Ports(self.clock, disk, network, chance))
        node.on_change(partial(self.quorum.look, self, node))
        ended: asyncio.Future[None] = world.loop.create_future()
        process.doomed.append(partial(_end, ended))
        task = world.loop.create_task(node.start(), name="start", context=process.context.copy())
        await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED, timeout=START_SECONDS)
        if not process.alive:
            return
        if not task.done():
            raise Violation("controller starts", f"{name} does not serve {START_SECONDS} s after its start")
        error = task.exception()
        if isinstance(error, OSError | KafkaError | StartError) and self.has_suffered:
            self._end_process(process)
        elif error is not None:
            kind = "refuses to start" if isinstance(error, StartError) else "fails"
            raise Violation("controller starts", f"{name} {kind}: {error!r}") from error
        else:
            world.note(f"{name} serves")

    def end_failed(self, node: ControllerNode) -> None:
        """End a process that cannot continue, as `odradek serve` does; it is started again."""
        process = self.process
        if self._is_ending or process is None:
            return
        self._is_ending = True
        # Not in the context of the process: what starts the next one must outlive this one.
        end = self._stop_failed(node, process)
        self.world.loop.create_task(end, name=f"end of {process.name}", context=contextvars.Context())

    async def _stop_failed(self, node: ControllerNode, process: Process) -> None:
        loop = self.world.loop
        ended: asyncio.Future[None] = loop.create_future()
        process.doomed.append(partial(_end, ended))
        task = loop.create_task(node.stop(), name="stop", context=process.context.copy())
        await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED, timeout=START_SECONDS)
        if not process.alive:
            return  # whoever killed it starts it again
        error = task.exception() if task.done() else TimeoutError("it does not end")
        if error is not None and not isinstance(error, DiskError | KafkaError):
            loop.broken = Violation("controllers end", f"{process.name}: {error!r}")
        self._end_process(process)

    def _end_process(self, process: Process) -> None:
        loop = self.world.loop
        self.world.note(f"{process.name} ends: its disk has failed")
        self.world.mark("a controller ended with its disk")
        loop.kill(process)
        loop.call_later(_RESTART_SECONDS, self.quorum.restart, self)


def _end(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


def _formatted(node_id: int) -> Volume:
    """A disk with the directory as `storage format` leaves it."""
    volume = Volume()
    content = format_meta_properties(MetaProperties(CLUSTER_ID, node_id, node_id.to_bytes(16, "big")))
    inode = Inode()
    inode.write(0, content)
    inode.sync()
    path = f"{_DIRECTORY}/{META_PROPERTIES}"
    volume.directories[_DIRECTORY] = volume.durable_names[_DIRECTORY] = None
    volume.files[path] = volume.durable_names[path] = inode
    return volume


class OwnQuorum:
    """The controllers, and the log that all of them must agree on. Raises no Violation: it breaks the loop."""

    def __init__(self, world: World, size: int, rng: random.Random) -> None:
        self.world = world
        ids = range(_FIRST_NODE_ID, _FIRST_NODE_ID + size)
        self.bootstrap_servers = ",".join(f"c{node}:{CONTROLLER_PORT}" for node in ids)
        voters = ",".join(f"{node}@c{node}:{CONTROLLER_PORT}" for node in ids)
        snapshots = rng.choice(("2000", "8000", "20971520"))
        balances = rng.choice(("true", "false"))
        self.controllers = [
            ControllerHost(
                self,
                node,
                BrokerConfig(
                    {
                        "process.roles": "controller",
                        "node.id": str(node),
                        "listeners": f"CONTROLLER://c{node}:{CONTROLLER_PORT}",
                        "controller.listener.names": "CONTROLLER",
                        "controller.quorum.voters": voters,
                        "log.dirs": _DIRECTORY,
                        "broker.session.timeout.ms": str(int(SESSION_SECONDS * 1000)),
                        "min.insync.replicas": "2",
                        "default.replication.factor": "3",
                        "auto.leader.rebalance.enable": balances,
                        "leader.imbalance.check.interval.seconds": "5",
                        "metadata.log.max.record.bytes.between.snapshots": snapshots,
                    }
                ),
            )
            for node in ids
        ]
        self.committed_end = 0
        """The offset after the last committed record."""
        self.committed_batches: dict[int, ModelBatch] = {}
        """Committed batches by the offset after them."""
        self.images: dict[int, ClusterImage] = {0: ClusterImage(CLUSTER_ID)}
        """The image after each committed batch, by the offset after it."""
        self.heartbeats_at: dict[tuple[int, int], float] = {}
        """When a controller got the last heartbeat that it accepted, by broker and epoch."""
        self.unfenced_at: dict[tuple[int, int], float] = {}
        """See `CommittedLog`."""
        self._watchers: list[Committed] = []
        self._replay = MetadataReplay(ClusterImage(CLUSTER_ID))
        self._read: dict[str, int] = {}
        """How far the log of each process is compared."""
        self._leaders: dict[int, int] = {}

    @property
    def loop(self) -> SimulatedLoop:
        """Time."""
        return self.world.loop

    @property
    def image(self) -> ClusterImage:
        """The cluster as its committed records say."""
        return self._replay.image

    @property
    def leader(self) -> ControllerHost | None:
        """The active controller, of several the one of the newest epoch."""
        active = [
            (node.parts.replica.leader.epoch, host)
            for host in self.controllers
            if (node := host.running) is not None and node.parts.controller.is_active
        ]
        return max(active, key=lambda each: each[0], default=(0, None))[1]

    def watch_commits(self, notify: Committed) -> None:
        """Call with each batch at the moment at which it is committed."""
        self._watchers.append(notify)

    async def run(self) -> None:
        """Start all controllers."""
        try:
            await asyncio.gather(*(host.start() for host in self.controllers))
        except Violation as violation:
            self.world.loop.broken = violation

    def restart(self, host: ControllerHost) -> None:
        """Start a controller again, without waiting for it."""

        async def start() -> None:
            try:
                await host.start()
            except Violation as violation:
                self.world.loop.broken = violation

        self.world.loop.create_task(start(), name=f"start {host.host}")

    def heal(self) -> None:
        """Bring back what is down."""
        for host in self.controllers:
            host.volume.faults.write_error = host.volume.faults.sync_error = 0.0
            if not host.is_up:
                self.restart(host)

    # --- the log ---

    def look(self, host: ControllerHost, node: ControllerNode) -> None:
        """Compare what a controller holds for committed with what others have."""
        if host.node is not node or not host.is_up:
            return
        try:
            self._look(host, node)
        except Violation as violation:
            self.world.loop.broken = violation

    def _look(self, host: ControllerHost, node: ControllerNode) -> None:
        assert host.process is not None
        name, replica = host.process.name, node.parts.replica
        if node.has_failed.is_set():
            if not host.has_suffered:
                raise Violation("controllers continue", f"{name} has failed")
            if node.parts.controller.is_active:
                raise Violation("a controller that has failed gives up its leadership", f"{name} is active")
            host.end_failed(node)
            return
        if replica.leads_since is not None:
            epoch = replica.leader.epoch
            if self._leaders.setdefault(epoch, host.node_id) != host.node_id:
                raise Violation("one leader for each epoch", f"{name} and node {self._leaders[epoch]} in epoch {epoch}")
        committed = replica.known_high_watermark
        log = node.parts.storage.log
        offset = max(self._read.get(name, 0), log.start.offset)
        while committed is not None and offset < committed:
            data = memoryview(log.read(offset, _READ_BYTES, below=committed))
            for position, header in split_batches(data, allow_partial_tail=False):
                end = position + header.batch_length + LOG_OVERHEAD
                self._committed(name, header.base_offset, header.next_offset, header.partition_leader_epoch,
                                bytes(data[position:end]))  # fmt: skip
                offset = header.next_offset
            if not data:
                break
        self._read[name] = offset

    def _committed(self, name: str, base: int, end: int, epoch: int, data: bytes) -> None:
        known = self.committed_batches.get(end)
        if known is not None:
            if known.data != data:
                raise Violation("controllers commit the same log", f"{name} differs at offset {base}")
            return
        if base < self.committed_end:
            raise Violation("controllers commit the same log", f"{name} has a batch from {base} to {end}")
        if base > self.committed_end:
            raise Violation("controllers commit the same log", f"{name} commits {base} after {self.committed_end}")
        for entry in read_entries(data, whole=True):
            self._replay.read(entry)
        self.committed_end = end
        batch = ModelBatch(base, end, epoch, data, self._replay.image)
        self.committed_batches[end], self.images[end] = batch, batch.image
        for notify in self._watchers:
            notify(batch)


class OwnMembership(RecordedRegistrations):
    """Implements `Membership` for controllers of Odradek."""

    __slots__ = ("_quorum",)

    def __init__(self, quorum: OwnQuorum) -> None:
        super().__init__(quorum)
        self._quorum = quorum

    def is_fenced(self, host: BrokerHost) -> bool:
        """See `Membership`: by the committed records, or by a decision of the active controller."""
        images = [self._quorum.image]
        leader = self._quorum.leader
        if leader is not None and leader.node is not None:
            images.append(leader.node.parts.controller.image)
        found = [image.brokers.get(host.node_id) for image in images]
        return any(broker is None or not broker.is_active for broker in found)

    def deciding_epoch(self, awake: Collection[int]) -> int | None:
        """See `Membership`: wherever the brokers are."""
        leader = self._quorum.leader
        if leader is None or leader.node is None or not leader.is_awake:
            return None
        quorum = leader.node.parts.replica.machine.quorum
        return quorum.epoch if quorum.high_watermark == quorum.log.end_offset else None
