"""An application, its clients and real brokers on one event loop: virtual time, and faults that follow from a seed.

    async def scenario(sim: Simulation) -> None:
        await sim.topic("orders")
        worker = sim.program("worker", lambda: work(sim.bootstrap_servers))
        await sim.faults(60)
        await worker.ended()

    simulate(scenario, seed=7)

Everything that happens follows from the seed: the same one gives the same run. An hour of waiting costs no time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import logging
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.client.model import ConsumerRecord
from odradek.client.surroundings import Surroundings, simulate_surroundings
from odradek.sim.faults import nemesis
from odradek.sim.world.disk import UNLIMITED
from odradek.sim.world.hosts import PORT, BrokerHost, ClientHost, World
from odradek.sim.world.loop import ProcessKilled, SimulationDeadlock, new_loop
from odradek.testing.broker import QUICK
from odradek.testing.contents import IsolationLevel, create_topic, produce, read_all
from odradek.testing.fault_kinds import FAULTS, NEED_PROGRAMS, evict, members

Scenario: TypeAlias = Callable[["Simulation"], Awaitable[Any]]

_SEED_VARIABLE: Final = "ODRADEK_SEED"
_TRACE_LINES: Final = 40
_SESSION_SECONDS: Final = 4.0
_REPLICAS: Final = 3


class SimulationFailed(AssertionError):
    """A run in which nothing can happen any longer, or that did not end in time."""


class Run(NamedTuple):
    """A run that came to its end."""

    seed: int
    result: Any
    """What the scenario returned."""
    simulated_seconds: float
    real_seconds: float
    digest: str
    """A hash of everything that happened: the same for the same seed and code."""
    trace: list[str]
    """The last events, with virtual times."""


class SimulatedBroker:
    """One broker of a simulation."""

    __slots__ = ("_host", "_world")

    def __init__(self, host: BrokerHost, world: World) -> None:
        self._host = host
        self._world = world

    @property
    def broker_id(self) -> int:
        """Its node.id."""
        return self._host.node_id

    @property
    def is_running(self) -> bool:
        """Whether its process exists, paused or not."""
        return self._host.is_up

    async def start(self) -> None:
        """Start it if it does not run; returns when it serves. Raises SimulationFailed if it is killed meanwhile."""
        if not await self._host.start():
            raise SimulationFailed(f"broker {self.broker_id} was killed while it started")

    async def stop(self) -> None:
        """As after SIGTERM: returns when it has stopped."""
        await self._host.stop()

    def kill(self) -> None:
        """As after SIGKILL."""
        self._host.kill()

    def lose_power(self) -> None:
        """Its machine loses power, and what was not synced to the disk."""
        self._host.lose_power(self._world.rng)

    def pause(self, seconds: float) -> None:
        """It stands still for so long, as in a pause of its machine."""
        if self._host.process is not None:
            self._host.pause(seconds)

    def slow_disk(self, seconds: float) -> None:
        """Each sync takes up to so many seconds longer, until `heal_disk`."""
        self._host.volume.faults.slow = seconds

    def fill_disk(self) -> None:
        """Its disk is full until `heal_disk`. A log directory whose write fails is offline until a restart."""
        self._host.volume.capacity = self._host.volume.used()

    def heal_disk(self) -> None:
        """Its disk has room and is fast; a log directory that is offline stays so until a restart."""
        self._host.volume.faults.slow = 0.0
        self._host.volume.capacity = UNLIMITED


class Program:
    """A part of the application that runs in a process of its own, and again after each kill."""

    __slots__ = ("_host", "_task", "_world")

    def __init__(self, host: ClientHost, world: World, task: asyncio.Task[None]) -> None:
        self._host = host
        self._world = world
        self._task = task

    @property
    def name(self) -> str:
        """As given to `Simulation.program`."""
        return self._host.name

    @property
    def starts(self) -> int:
        """How often it has been started."""
        return self._host.restarts

    def kill(self) -> None:
        """Nothing of it runs on, `finally` blocks included; a new start follows within 2 s."""
        self._host.crash()

    def pause(self, seconds: float) -> None:
        """It stands still for so long, as in a long garbage collection."""
        self._world.loop.pause(self._host.process, seconds)

    def cut_off(self, seconds: float, broker_id: int | None = None) -> None:
        """No packet passes between it and one broker, by default any, for so long. LookupError for an unknown id."""
        until = self._world.now() + seconds
        brokers = [broker for broker in self._world.brokers if broker_id in (None, broker.node_id)]
        if not brokers:
            raise LookupError(f"there is no broker {broker_id}")
        for broker in brokers:
            for way in ((self.name, broker.host), (broker.host, self.name)):
                self._world.network.link(*way).cut_until = until

    async def ended(self) -> None:
        """Wait until its function has returned. Raises what it raised."""
        await asyncio.shield(self._task)

    def stop(self) -> None:
        """Kill it for good."""
        self._host.gone = True
        self._host.crash()


class Simulation:
    """What a scenario is given: the brokers, and ways to run programs and to do damage."""

    __slots__ = ("_programs", "_settings", "_world", "brokers", "random")

    def __init__(self, world: World, brokers: int, settings: Mapping[str, object]) -> None:
        self._world = world
        self._settings = {name: str(value) for name, value in settings.items()}
        self._programs: list[Program] = []
        self.random = random.Random(f"{world.seed}:scenario")
        """For the scenario's own choices; they follow from the seed."""
        for number in range(1, brokers + 1):
            host = BrokerHost(world, number, self._settings_of(number, brokers))
            host.volume.directories["/data"] = None
            host.volume.durable_names["/data"] = None
            world.brokers.append(host)
        self.brokers = [SimulatedBroker(host, world) for host in world.brokers]
        """All brokers in the order of their ids."""

    def _settings_of(self, number: int, brokers: int) -> dict[str, str]:
        replicas = min(brokers, _REPLICAS)
        in_sync = str(max(1, replicas - 1))
        return {
            **QUICK,
            "node.id": str(number),
            "log.dirs": "/data",
            "listeners": f"PLAINTEXT://b{number}:{PORT}",
            "default.replication.factor": str(replicas),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "min.insync.replicas": in_sync,
            "transaction.state.log.min.isr": in_sync,
            "zookeeper.session.timeout.ms": str(int(_SESSION_SECONDS * 1000)),
            **self._settings,
        }

    @property
    def bootstrap_servers(self) -> str:
        """For clients that programs make; they reach no other network."""
        return ",".join(f"{host.host}:{PORT}" for host in self._world.brokers)

    def broker(self, broker_id: int) -> SimulatedBroker:
        """One broker. LookupError for an id that there is not."""
        for broker in self.brokers:
            if broker.broker_id == broker_id:
                return broker
        raise LookupError(f"there is no broker {broker_id}")

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._world.now()

    def note(self, text: str) -> None:
        """Add a line to the trace, which is printed with a failure."""
        self._world.note(text)

    def program(self, name: str, function: Callable[[], Awaitable[Any]]) -> Program:
        """Run a coroutine function as a process of its own; when it is killed, it is started again.

        What it raises ends the run. ValueError if the name is taken.
        """
        if any(program.name == name for program in self._programs):
            raise ValueError(f"there is a program {name} already")
        host = self._world.client(name)
        loop = asyncio.get_running_loop()
        program = Program(host, self._world, loop.create_task(host.run(_within(function)), name=name))
        program._task.add_done_callback(self._program_ended)
        self._programs.append(program)
        return program

    def _program_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._world.loop.broken = error

    async def faults(
        self, seconds: float, kinds: Collection[str] = (), *, between_s: float = 2.0, overlapping: float = 0.2
    ) -> None:
        """Random faults for so long, then heal all of them. ValueError for a kind that `FAULTS` does not have.

        `kinds` are names of `FAULTS`, by default all. `between_s` is the mean time between two, `overlapping` the share
        of faults whose successor does not wait for their end.
        """
        unknown = set(kinds).difference(FAULTS)
        if unknown:
            raise ValueError(f"unknown faults {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
        chosen = [kind for name, kind in FAULTS.items() if not kinds or name in kinds]
        if not self._world.clients:
            # Without programs there is no client to kill, and no link to cut.
            chosen = [kind for kind in chosen if kind.fault not in NEED_PROGRAMS]
        profile = nemesis.Profile("application", tuple(chosen), between_s, (), overlapping=overlapping)
        await nemesis.torment(self._world, profile, seconds)
        await self.heal()

    async def evict(self, group_id: str) -> str:
        """Remove a member of a group that follows from the seed, as if its session had expired, and return its id.

        The member runs on, and learns of it with its next request. LookupError if the group has no member.
        """
        found = [member for member in members(self._world) if member.group_id == group_id]
        if not found:
            raise LookupError(f"group {group_id} has no member")
        chosen = self.random.choice(found)
        await evict(self._world, chosen)
        return chosen.member_id

    async def heal(self) -> None:
        """End all faults: brokers run, the network carries, disks work."""
        await nemesis.heal(self._world)

    async def topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and return its name, by default one that is not used yet. Raises KafkaError."""
        name = name or f"topic-{self._world.loop.steps}"
        return await create_topic(self.bootstrap_servers, name, partitions, replication_factor, configs)

    async def produce(self, topic: str, *values: bytes | str | None, key: bytes | str | None = None) -> None:
        """Write records and wait until they are acknowledged. Raises KafkaError."""
        await produce(self.bootstrap_servers, topic, values, key)

    async def records(
        self, topic: str, *, isolation_level: IsolationLevel = "read_committed"
    ) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """All records of a topic up to its end now, by partition and offset. Raises KafkaError."""
        return await read_all(self.bootstrap_servers, topic, isolation_level)


def _within(function: Callable[[], Awaitable[Any]]) -> Callable[[ClientHost], Awaitable[None]]:
    """A host's program whose clients use the host's network."""

    async def run(host: ClientHost) -> None:
        simulate_surroundings(Surroundings(host.network, host.clock, host.random))
        await function()

    return run


class _Profile(NamedTuple):
    name: str = "application"
    workloads: tuple[str, ...] = ()
    loses_power: bool = False


def simulate(
    scenario: Scenario,
    seed: int = 0,
    *,
    brokers: int = 1,
    settings: Mapping[str, object] | None = None,
    time_limit_s: float = 86_400.0,
) -> Run:
    """Run a scenario once. `settings` are those of all brokers by Kafka's names.

    Raises what the scenario or a program raises, with a note that names the seed, the command that repeats the run, and
    its last events; SimulationFailed if nothing can happen any longer, or `time_limit_s` virtual seconds have passed.
    """
    loop = new_loop(f"application-{seed}")
    world = World(loop, loop.seed, _Profile())
    world.session_seconds = _SESSION_SECONDS
    started = time.process_time()
    with _without_collector(), _noted_logs(world):
        try:
            result = loop.run_until_complete(_live(world, scenario, brokers, settings or {}, time_limit_s))
        except SimulationDeadlock as error:
            failure = SimulationFailed(f"nothing can happen any longer: {error}")
            _add_notes(failure, scenario, seed, world)
            raise failure from error
        except Exception as error:
            _add_notes(error, scenario, seed, world)
            raise
        finally:
            trace, digest, simulated = list(loop.trace.lines), loop.trace.digest(), loop.time()
            with _silent_ends():
                loop.close()
    return Run(seed, result, simulated, time.process_time() - started, digest, trace)


async def _live(
    world: World, scenario: Scenario, brokers: int, settings: Mapping[str, object], time_limit_s: float
) -> Any:
    simulation = Simulation(world, brokers, settings)
    config = BrokerConfig(world.brokers[0].settings)
    world.bound_seconds = config.number("broker.session.timeout.ms") / 1000
    await asyncio.gather(*(broker.start() for broker in simulation.brokers))
    host = world.client("scenario")
    # Faults of programs are not for the scenario itself.
    world.clients.remove(host)
    results: list[Any] = []

    async def run() -> None:
        results.append(await scenario(simulation))

    running = asyncio.create_task(host.run(_within(run)), name="scenario")
    done, _ = await asyncio.wait((running,), timeout=time_limit_s)
    if not done:
        raise SimulationFailed(f"the scenario has not ended after {time_limit_s:g} virtual seconds")
    running.result()
    return results[0]


def search(
    scenario: Scenario,
    seeds: Iterable[int] = range(100),
    *,
    brokers: int = 1,
    settings: Mapping[str, object] | None = None,
    time_limit_s: float = 86_400.0,
) -> list[Run]:
    """Run a scenario with one seed after another. Raises with the first one that fails, as `simulate`.

    Where the environment has ODRADEK_SEED, only that seed runs: so a failure is repeated.
    """
    chosen = os.environ.get(_SEED_VARIABLE)
    if chosen is not None:
        seeds = [int(chosen)]
    return [simulate(scenario, seed, brokers=brokers, settings=settings, time_limit_s=time_limit_s) for seed in seeds]


def _add_notes(error: Exception, scenario: Scenario, seed: int, world: World) -> None:
    command = _command(scenario, seed)
    lines = "\n".join(f"    {line}" for line in list(world.loop.trace.lines)[-_TRACE_LINES:])
    error.add_note(f"simulation with seed {seed} failed at {world.now():.3f} s; to repeat it: {command}")
    error.add_note(f"the last events (virtual seconds, what happened):\n{lines}")


def _command(scenario: Scenario, seed: int) -> str:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test:
        return f"{_SEED_VARIABLE}={seed} python -m pytest '{test}'"
    path = inspect.getsourcefile(scenario) or sys.argv[0]
    return f"{_SEED_VARIABLE}={seed} python {os.path.relpath(Path(path))}"


class _TraceHandler(logging.Handler):
    """Log records of brokers and clients as lines of the trace."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        self._world.note(f"{record.levelname.lower()} {record.name}: {record.getMessage()}")


@contextlib.contextmanager
def _noted_logs(world: World) -> Iterator[None]:
    handler, logger = _TraceHandler(world), logging.getLogger("odradek")
    before = (logger.level, logger.propagate)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """The garbage collector would run finalizers at moments that do not follow from the seed."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def _silent_ends() -> Iterator[None]:
    """Coroutines of killed processes may report errors when they are closed; these have no meaning."""
    before = sys.unraisablehook
    sys.unraisablehook = _ignore_end
    try:
        yield
    finally:
        sys.unraisablehook = before


def _ignore_end(unraisable: Any) -> None:
    if not isinstance(unraisable.exc_value, ProcessKilled | RuntimeError | GeneratorExit):
        sys.__unraisablehook__(unraisable)
