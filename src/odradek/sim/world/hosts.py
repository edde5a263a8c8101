"""A simulated cluster with its clients: hosts that start, crash and come back, and what they are handed as ports.

Everything that runs here is the product's own code; only the ports are the world's.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker, Inspection
from odradek.broker.ports import Ports
from odradek.broker.start_error import StartError
from odradek.metadata.stores.memory_store import MemoryTree
from odradek.ports.randomness import SeededRandom
from odradek.sim.checkers.history import History, PowerLoss, Violation
from odradek.sim.checkers.stored_metadata import StoredStates
from odradek.sim.world.disk import SimulatedDisk, Volume
from odradek.sim.world.loop import Process, SimulatedLoop
from odradek.sim.world.network import ProcessNetwork, SimulatedNetwork
from odradek.sim.world.store import SimulatedStore, StoreFaults

if TYPE_CHECKING:
    from odradek.sim.controllers.simulated_controllers import SimulatedControllers

EPOCH_MS = 1_700_000_000_000
PORT = 9092
START_SECONDS = 60.0
"""Within so long a broker starts or stops, pauses and cuts that others suffer at that time included."""


MAX_DRIFT = 0.045
"""By how much a broker's clock may be off: two of them by less than the margin's share of a lease (a tenth)."""


class SimulatedClock:
    """A host's clock: wall time may be off and jump; monotonic time does not, but its rate may be off."""

    __slots__ = ("_loop", "rate", "skew_ms")

    def __init__(self, loop: SimulatedLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms
        self.rate = 1.0
        """Seconds of this clock in a second."""

    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970, skew included."""
        return EPOCH_MS + int((self._loop.time() + self._loop.spent) * 1000) + self.skew_ms

    def monotonic(self) -> float:
        """Seconds since the start of the run, as this clock counts them."""
        return (self._loop.time() + self._loop.spent) * self.rate


class ClientHost:
    """A machine that runs one client program, again and again if it crashes."""

    __slots__ = ("clock", "ended", "gone", "name", "network", "process", "random", "restarts", "world")

    process: Process
    network: ProcessNetwork
    random: SeededRandom
    ended: asyncio.Future[None]

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.clock = SimulatedClock(world.loop, world.rng.randrange(-300, 300))
        self.restarts = 0
        self.gone = False
        """It died for good."""

    def options(self, **more: Any) -> dict[str, Any]:
        """What every client on this host is made with."""
        return {
            "bootstrap_servers": ",".join(f"{host.host}:{PORT}" for host in self.world.brokers),
            "client_id": f"{self.name}.{self.restarts}",
            "network": self.network,
            "random": self.random,
            **CLIENT_OPTIONS,
            **self.world.client_options,
            **more,
        }

    async def run(self, program: Callable[[ClientHost], Awaitable[None]]) -> None:
        """Run the program to its end, restarted after each crash."""
        world = self.world
        while True:
            self.restarts += 1
            name = f"{self.name}.{self.restarts}"
            process = self.process = Process(name, self.name)
            self.network = world.network.port_of(process)
            self.random = SeededRandom(f"{world.seed}:{name}")
            ended = self.ended = world.loop.create_future()
            task = world.loop.create_task(_main(program, self), name="main", context=process.context.copy())
            process.doomed.append(partial(_set, ended))
            await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED)
            if process.alive:
                ended.cancel()
                task.result()
                world.loop.kill(process)
                return
            if self.gone:
                return
            await asyncio.sleep(world.rng.uniform(0.05, 2.0))

    def crash(self) -> None:
        """kill -9; `run` starts it again."""
        if self.process.alive and not self.ended.done():
            self.world.note(f"{self.name} is killed")
            self.world.loop.kill(self.process)

    def vanish(self) -> None:
        """It dies and is not started again. Its machine may go dark with it: its peers receive no reset."""
        self.gone = True
        if self.world.rng.random() < 0.5:
            for stream in [s for s in self.world.network.streams if s.process is self.process]:
                stream.vanish()
        self.crash()


def _set(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)


async def _main(program: Callable[[ClientHost], Awaitable[None]], host: ClientHost) -> None:
    await program(host)


CLIENT_OPTIONS: dict[str, Any] = {
    "request_timeout_ms": 4_000,
    "retry_backoff_ms": 50,
    "retry_backoff_max_ms": 500,
    "reconnect_backoff_ms": 50,
    "reconnect_backoff_max_ms": 400,
    "socket_connection_setup_timeout_ms": 3_000,
    "metadata_max_age_ms": 20_000,
    "default_api_timeout_ms": 15_000,
}


class Machine:
    """A host with a disk and a clock, and most of the time a process."""

    __slots__ = ("clock", "host", "incarnation", "process", "volume", "world")

    def __init__(self, world: World, host: str, volume: Volume) -> None:
        self.world = world
        self.host = host
        self.volume = volume
        self.clock = SimulatedClock(world.loop)
        self.process: Process | None = None
        self.incarnation = 0

    @property
    def is_up(self) -> bool:
        """Whether there is a process, be it one that only starts."""
        return self.process is not None and self.process.alive

    def boot(self) -> tuple[Process, SimulatedDisk]:
        """Begin another process; its start is the caller's."""
        world = self.world
        self.incarnation += 1
        name = f"{self.host}.{self.incarnation}"
        process = self.process = Process(name, self.host)
        world.network.powered_off.discard(self.host)
        chance = random.Random(f"{world.seed}:disk:{name}")
        return process, SimulatedDisk(self.volume, process, world.loop, self.clock, chance)

    def kill(self) -> None:
        """kill -9: the page cache stays."""
        if self.process is not None and self.process.alive:
            self.world.note(f"{self.process.name} is killed")
            self.world.loop.kill(self.process)

    def lose_power(self, rng: random.Random) -> int:
        """The machine goes dark: its page cache is lost, its peers receive no reset.

        Returns how many files lost something.
        """
        process = self.process
        if process is not None and process.alive:
            for stream in [s for s in self.world.network.streams if s.process is process]:
                stream.vanish()
            self.world.loop.kill(process)
        self.world.network.powered_off.add(self.host)
        lost = self.volume.power_loss(rng)
        self.world.note(f"{self.host} loses power, {lost} files lose something")
        return lost


class BrokerHost(Machine):
    """A machine with a disk and, most of the time, a broker."""

    __slots__ = (
        "_watchers", "broker", "is_dark", "is_stopping", "may_be_clean", "node_id", "serves", "settings", "store",
    )  # fmt: skip

    def __init__(self, world: World, node_id: int, settings: Mapping[str, str]) -> None:
        super().__init__(world, f"b{node_id}", Volume())
        self.node_id = node_id
        self.settings = settings
        if world.clocks_drift:
            self.clock.rate = 1.0 + random.Random(f"{world.seed}:rate:{node_id}").uniform(-MAX_DRIFT, MAX_DRIFT)
        self.broker: Broker | None = None
        self.store: SimulatedStore | None = None
        """The metadata store; None where a quorum has the metadata."""
        self.is_dark = False
        """The machine has lost power, and the cluster has not overcome it yet."""
        self.serves = False
        """Whether the start of the newest process has come to its end."""
        self.is_stopping = False
        """Whether the newest process has been asked to stop."""
        self.may_be_clean = False
        """Whether the newest process may have found the marks of a clean stop."""
        self._watchers: list[Callable[[Broker], None]] = []

    def watch_ends(self, ended: Callable[[Broker], None]) -> None:
        """Call with the broker whenever its process ends, in whatever way."""
        self._watchers.append(ended)

    def _note_end(self) -> None:
        self.world.history.broker_ends.append(self.world.now())

    def pause(self, seconds: float) -> None:
        """Let the process, which must run, stand still; its session ends if the store does not wait for so long."""
        assert self.process is not None
        self.world.loop.pause(self.process, seconds)
        if self.store is not None:
            self.store.expire_if_silent(self.world.now() + seconds)

    async def start(self) -> bool:
        """Start the broker; whether it serves. A refusal without an injected fault is a violation."""
        world = self.world
        if self.is_up:
            # Another fault has come to its end first.
            return True
        # A process that is killed early in its start leaves the marks of the stop before it.
        self.may_be_clean = self.is_stopping or (self.may_be_clean and not self.serves)
        self.serves = self.is_stopping = False
        suffered = self.volume.faults.suffered
        process, disk = self.boot()
        name = process.name
        if world.controllers is None:
            self.store = SimulatedStore(
                world.tree, process, world.loop, world.store_faults, random.Random(f"{world.seed}:store:{name}"),
                world.session_seconds,
            )  # fmt: skip
            self.store.bound_sessions(world.bound_seconds, self.clock.monotonic)
        network, chance = world.network.port_of(process), SeededRandom(f"{world.seed}:{name}")
        ports = Ports(self.clock, disk, network, chance, self.store)
        broker = self.broker = Broker(BrokerConfig(self.settings), ports)
        ended: asyncio.Future[None] = world.loop.create_future()
        process.doomed.append(partial(_set, ended))
        process.doomed += [self._note_end, *(partial(watch, broker) for watch in self._watchers)]
        task = world.loop.create_task(broker.start(), name="start", context=process.context.copy())
        await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED, timeout=START_SECONDS)
        if not process.alive:
            return False
        if not task.done():
            raise Violation("broker starts", f"{name} does not serve {START_SECONDS} s after its start")
        error = task.exception()
        if error is not None:
            faulty = self.volume.faults.suffered > suffered or (self.store is not None and self.store.injected > 0)
            if not (faulty and isinstance(error, StartError | OSError)):
                raise Violation("broker starts", f"{name} refuses to start: {error!r}") from error
            world.note(f"{name} does not start: {error}")
            world.loop.kill(process)
            return False
        world.note(f"{name} serves")
        self.serves = True
        return True

    async def stop(self) -> bool:
        """As after SIGTERM. Whether it came to its end before it was killed."""
        process, broker = self.process, self.broker
        assert process is not None
        assert broker is not None
        if not self.is_up:
            return False
        if not self.serves:
            # Two faults overlap. A broker is not stopped in the middle of its start, which is given up.
            self.kill()
            return False
        self.world.note(f"{process.name} stops")
        self.is_stopping = True
        ended: asyncio.Future[None] = self.world.loop.create_future()
        process.doomed.append(partial(_set, ended))
        task = self.world.loop.create_task(broker.stop(), name="stop", context=process.context.copy())
        await asyncio.wait({task, ended}, return_when=asyncio.FIRST_COMPLETED, timeout=START_SECONDS)
        if not process.alive:
            return False
        if not task.done():
            raise Violation("broker stops", f"{process.name} still runs {START_SECONDS} s after SIGTERM")
        task.result()
        self.world.loop.kill(process)
        return True

    def inspect(self) -> Inspection | None:
        """The parts of the broker whose state is checked; None before its storage is open."""
        return None if self.broker is None else self.broker.inspect()

    @property
    def lacks_a_directory(self) -> bool:
        """Whether a log directory of the broker that runs is out of use."""
        found = self.inspect() if self.is_up else None
        return found is not None and any(each.offline is not None for each in found.directories.directories)

    def lose_power(self, rng: random.Random) -> int:
        """See `Machine`; the history has it, as acknowledged records may be lost then."""
        lost = super().lose_power(rng)
        self.world.history.power_losses.append(PowerLoss(self.world.now(), lost))
        return lost


class RunProfile(Protocol):
    """The parts of a profile that faults, workloads and checkers read from the world."""

    @property
    def name(self) -> str:
        """As `--profile` names it."""
        ...

    @property
    def workloads(self) -> tuple[str, ...]:
        """Names of the workloads that run."""
        ...

    @property
    def loses_power(self) -> bool:
        """Whether machines lose power during the run."""
        ...


class Membership(Protocol):
    """Registrations of brokers as the cluster has them."""

    def is_registered(self, host: BrokerHost) -> bool:
        """Whether the cluster counts on the newest process of the host, which lives."""
        ...

    def registered_epoch(self, host: BrokerHost) -> int | None:
        """The epoch of the broker's registration, of which process ever; None without one."""
        ...

    def is_trusted(self, host: BrokerHost) -> bool:
        """Whether the registered broker's logs have lost nothing."""
        ...

    def is_fenced(self, host: BrokerHost) -> bool:
        """Whether the controller fences the broker, or has just decided to."""
        ...

    def deciding_epoch(self, awake: Collection[int]) -> int | None:
        """The epoch of the controller that works, where these brokers are awake; None where none does.

        With each epoch the sessions of all brokers begin again.
        """
        ...


class World:
    """Hosts, network, metadata store, history: all of one seed."""

    __slots__ = (
        "bound_seconds", "brokers", "client_options", "clients", "clocks_drift", "controllers", "faults", "history",
        "keeps_producers", "loop", "marks", "membership", "network", "power", "profile", "racks", "rng", "seed",
        "session_seconds", "stopping", "store_faults", "stored", "tree", "unclean_topics",
    )  # fmt: skip

    membership: Membership
    """What the cluster knows of its brokers; of several brokers only."""

    def __init__(self, loop: SimulatedLoop, seed: str, profile: RunProfile) -> None:
        self.loop = loop
        self.seed = seed
        self.profile = profile
        self.rng = random.Random(f"{seed}:world")
        self.network = SimulatedNetwork(loop)
        self.tree = MemoryTree()
        self.store_faults = StoreFaults()
        self.history = History()
        self.brokers: list[BrokerHost] = []
        self.clients: list[ClientHost] = []
        self.client_options: Mapping[str, Any] = {}
        """What all clients are made with beyond `CLIENT_OPTIONS`: how they log in."""
        self.faults: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.clocks_drift = False
        """Whether the brokers' monotonic clocks have different rates, by as much as leases allow."""
        self.session_seconds = 0.0
        """How long the metadata store may believe in a dead broker."""
        self.bound_seconds = 0.0
        """For so long the metadata store ends the session of no live process that has renewed it; 0 for no bound."""
        self.stored = StoredStates(frozenset())
        """What the controllers of a cluster have written."""
        self.power = ""
        """Which power losses its machines suffer: see `cluster`."""
        self.racks: tuple[str, ...] = ()
        """Where brokers and consumers stand, if consumers are to read from the nearest replica."""
        self.unclean_topics: frozenset[str] = frozenset()
        """Topics that may be led by a replica that is not in sync."""
        self.keeps_producers = True
        """A producer that was acknowledged anything is known for ever."""
        self.controllers: SimulatedControllers | None = None
        """The controllers of a KRaft cluster; None where brokers have a metadata store."""
        self.stopping = False
        """The liveness phase has begun: no new work, what is under way comes to its end."""

    def now(self) -> float:
        """Seconds since the start of the run."""
        return self.loop.time()

    def is_stopping(self) -> bool:
        """Whether the liveness phase has begun."""
        return self.stopping

    def serves(self, process: Process) -> bool:
        """Whether the process is a broker on which clients rely: it has started, and does not stop."""
        return any(host.process is process and host.serves and not host.is_stopping for host in self.brokers)

    def note(self, text: str) -> None:
        """Add a line to the trace; its text is part of the trace's digest."""
        self.loop.trace.note(self.loop.time(), text)

    def mark(self, name: str) -> None:
        """A rare situation was reached."""
        self.marks[name] += 1

    def client(self, name: str) -> ClientHost:
        """A new host for a client program."""
        host = ClientHost(self, name)
        self.clients.append(host)
        return host
