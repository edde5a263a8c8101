"""`odradek serve --brokers N`: a cluster on one machine, a process per broker, started again when one dies.

The brokers share the metadata store in the first of `log.dirs`; each has a directory `broker-ID` of its own below every
one of them. They end with this process, however it ends: their standard input is a pipe from it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple, TextIO

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.storage.stored_files import METADATA_FILE
from odradek.cli.actions.cluster_restart import LOCK, PROCESSES
from odradek.cli.arguments.errors import UsageError
from odradek.cli.serving.console_process import ConsoleProcess
from odradek.cli.serving.data_directories import reject_broker_directory, reject_other_brokers
from odradek.cli.serving.service_manager import ServiceManager
from odradek.ports.clock import process_age
from odradek.ports.disk import DirectoryLock, Disk, SystemDisk
from odradek.ports.hosts import machine_name
from odradek.ports.network import listening_socket
from odradek.ports.process import signal_child

_FIRST_BACKOFF_SECONDS: Final = 0.1
_LONGEST_BACKOFF_SECONDS: Final = 10.0
_STEADY_SECONDS: Final = 10.0
"""A broker that served so long starts again at once when it dies."""
_KILL_AFTER_SECONDS: Final = 60.0
_READ_BYTES: Final = 64 * 1024
_MISCONFIGURED: Final = 2
_READY: Final = "odradek ready "
DEFAULT_LISTEN: Final = "127.0.0.1:9092"
LAST_PORT: Final = 65_535


def home_of(config: BrokerConfig, first_id: int = 1) -> Path:
    """The directory of what the brokers share: the metadata store, and the numbers of their processes."""
    return Path(config.log_dirs[0].replace("{id}", str(first_id)))


def rack_of_machine() -> str | None:
    """The rack of this machine's brokers where none is set: its host name, None if it has no name of its own.

    Asked once per cluster, so that brokers that start again later are in the rack of the others.
    """
    name = machine_name()
    return None if name.partition(".")[0] in ("", "localhost") else name


def shared_listener(listen: str | None, brokers: int, port: int) -> socket.socket:
    """The socket from which all brokers accept clients' first connections. Raises UsageError."""
    host, first = listen_address(listen)
    if not 0 <= port <= LAST_PORT:
        raise UsageError(f"--bootstrap-port {port}: ports are from 0 to {LAST_PORT}")
    if first and first <= port < first + brokers:
        raise UsageError(f"--bootstrap-port {port}: the brokers' own ports are {first} to {first + brokers - 1}")
    try:
        return listening_socket(host.strip("[]"), port)
    except OSError as error:
        raise UsageError(f"--bootstrap-port {port}: {error.strerror or error}") from error


class Machine(NamedTuple):
    """The brokers of this machine: how many, the id of the first one, and their rack where none is set."""

    brokers: int
    first_id: int = 1
    rack: str | None = None

    @property
    def ids(self) -> range:
        """The ids of the brokers."""
        return range(self.first_id, self.first_id + self.brokers)


def listen_address(listen: str | None) -> tuple[str, int]:
    """Host and port of the first broker; port 0 lets each one pick a free port."""
    host, _, port = (listen or DEFAULT_LISTEN).rpartition(":")
    return host, int(port)


def claim(home: Path, disk: Disk) -> DirectoryLock:
    """Keep other processes out of the directory. Raises UsageError where a single broker or another cluster is."""
    reject_broker_directory(home)
    try:
        disk.make_directories(str(home))
        return disk.lock(str(home / LOCK))
    except BlockingIOError as error:
        raise UsageError(f"{home}: another process uses this directory (it holds {LOCK})") from error
    except OSError as error:
        raise UsageError(f"{home}: {error.strerror or error}") from error


def broker_settings(
    given: Mapping[str, str], config: BrokerConfig, broker_id: int, machine: Machine, listen: tuple[str, int]
) -> dict[str, str]:
    """Settings of one of the brokers, beside the properties file.

    `given` are the settings of the command line; `{id}` in them stands for the id of each broker.
    """
    host, port = listen
    brokers = machine.brokers
    settings = {name: value.replace("{id}", str(broker_id)) for name, value in given.items()}
    settings |= {
        "node.id": str(broker_id),
        "broker.id": str(broker_id),
        "log.dirs": ",".join(f"{each}/broker-{broker_id}" for each in config.log_dirs).replace("{id}", str(broker_id)),
        "listeners": f"{_protocol(given)}://{host}:{port}",
    }
    # Those of the file belong to its own listeners and to one node.
    for name in ("advertised.listeners", "controller.quorum.bootstrap.servers", "controller.quorum.voters"):
        if config.given(name) is not None:
            settings.setdefault(name, "")
    if config.given("odradek.metadata.store") is None and config.given("zookeeper.connect") is None:
        settings["odradek.metadata.store"] = f"{home_of(config, machine.first_id)}/{METADATA_FILE}"
    if config.given("broker.rack") is None and machine.rack is not None:
        # Replicas of a partition are placed in different racks: a machine that dies takes one of them along.
        settings["broker.rack"] = machine.rack
    for name in ("offsets.topic.replication.factor", "transaction.state.log.replication.factor"):
        if config.given(name) is None:
            # Said, it holds while the others are still starting, too.
            settings[name] = str(min(brokers, 3))
    if config.given("default.replication.factor") is None:
        settings["default.replication.factor"] = str(min(brokers, 3))
        if brokers >= 3 and config.given("min.insync.replicas") is None:
            settings["min.insync.replicas"] = "2"
    return settings


def _protocol(given: Mapping[str, str]) -> str:
    """The protocol of the listeners: of those that the command line sets, else plain text."""
    return given.get("listeners", "PLAINTEXT").partition("://")[0]


def next_backoff(backoff: float, served_seconds: float) -> float:
    """Seconds until a broker that served so long is started again; `backoff` was waited the last time."""
    if served_seconds > _STEADY_SECONDS:
        return _FIRST_BACKOFF_SECONDS
    return min(backoff * 2, _LONGEST_BACKOFF_SECONDS)


async def lines_of(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """What a process writes, line by line, however long they are: the stream's own iterator fails at 64 KB."""
    parts: list[bytes] = []
    while data := await stream.read(_READ_BYTES):
        *ended, rest = data.split(b"\n")
        for line in ended:
            yield b"".join((*parts, line)).decode(errors="replace").rstrip()
            parts.clear()
        parts.append(rest)
    if any(parts):
        yield b"".join(parts).decode(errors="replace").rstrip()


class _Child:
    """One broker: its process while it has one, and where it serves."""

    __slots__ = ("bootstrap", "bound", "broker_id", "process", "ready", "status")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.process: asyncio.subprocess.Process | None = None
        self.ready = asyncio.Event()
        self.bootstrap = ""
        self.bound = ""
        self.status = 0


class Supervisor:
    """`await run()` until a signal ends the cluster; the exit status."""

    __slots__ = (
        "_arguments",
        "_children",
        "_config",
        "_console",
        "_disk",
        "_given",
        "_home",
        "_machine",
        "_manager",
        "_out",
        "_prefixed",
        "_shared",
        "_stop",
    )

    def __init__(
        self, arguments: argparse.Namespace, config: BrokerConfig, given: Mapping[str, str], out: TextIO
    ) -> None:
        """Raises UsageError for settings that several brokers cannot share."""
        if config.given("listeners") is not None and "listeners" not in given:
            raise UsageError("--brokers needs its listeners from --listen HOST:PORT, not from the properties file")
        first_port, count, first_id = (
            listen_address(arguments.listen)[1],
            arguments.brokers,
            1 if arguments.first_id is None else arguments.first_id,
        )
        if first_port + count - 1 > LAST_PORT:
            raise UsageError(
                f"--listen {arguments.listen}: {count} brokers need {count} ports, there are none above 65535"
            )
        self._arguments = arguments
        self._config = config
        self._given = given
        self._machine = Machine(count, first_id, rack_of_machine())
        self._home = home_of(config, first_id)
        self._disk = SystemDisk(group_reads=config.flag("odradek.group.access"))
        self._manager = ServiceManager.from_environment(os.environ)
        self._out = out
        self._prefixed = arguments.log_format == "text"
        self._children = [_Child(broker_id) for broker_id in self._machine.ids]
        self._shared: socket.socket | None = None
        self._stop = asyncio.Event()
        self._console = ConsoleProcess()

    async def run(self) -> int:
        """Raises UsageError when the directory cannot be theirs."""
        reject_other_brokers(self._home, self._machine.ids)
        lock = claim(self._home, self._disk)
        try:
            if (port := self._arguments.bootstrap_port) is not None:
                self._shared = shared_listener(self._arguments.listen, len(self._children), port)
            return await self._supervise()
        finally:
            if self._shared is not None:
                self._shared.close()
            (self._home / PROCESSES).unlink(missing_ok=True)
            lock.release()

    async def _supervise(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        keepers = [loop.create_task(self._keep(child)) for child in self._children]
        ready = loop.create_task(self._report_ready())
        alive = loop.create_task(self._manager.keep_alive())
        await self._stop.wait()
        ready.cancel()
        self._manager.stopping("stopping the brokers")
        await self._console.stop()
        for child in self._children:
            if child.process is not None:
                signal_child(child.process, signal.SIGTERM)
        _, unfinished = await asyncio.wait(keepers, timeout=_KILL_AFTER_SECONDS)
        for child in self._children:
            if unfinished and child.process is not None:
                signal_child(child.process, signal.SIGKILL)
        await asyncio.wait(keepers)
        alive.cancel()
        return max(child.status for child in self._children)

    async def _report_ready(self) -> None:
        for child in self._children:
            await child.ready.wait()
        bootstrap = ",".join(child.bootstrap for child in self._children)
        if self._shared is not None:
            # Under the name that clients reach the first broker by.
            bootstrap = f"{self._children[0].bootstrap.rpartition(':')[0]}:{self._shared.getsockname()[1]}"
        brokers = ",".join(f"{c.broker_id}:{c.process.pid}" for c in self._children if c.process is not None)
        line = f"{_READY}bootstrap={bootstrap} pid={os.getpid()} brokers={brokers} seconds={process_age():.2f}"
        print(line, file=self._out, flush=True)
        self._manager.ready(f"{len(self._children)} brokers serve on {bootstrap}")
        if self._arguments.console:
            served = await self._console.start(bootstrap, self._arguments.console)
            print(served or "odradek console: ended", file=self._out, flush=True)

    # --- one broker ---

    def _address(self, child: _Child) -> tuple[str, int]:
        """The port that it had before, or the one that `--listen` gives it."""
        host, port = listen_address(self._arguments.listen)
        if child.bound:
            return host, int(child.bound.rpartition(":")[2])
        return host, port and port + child.broker_id - self._machine.first_id

    async def _keep(self, child: _Child) -> None:
        """Start it, and again whenever it dies, until the cluster stops."""
        loop = asyncio.get_running_loop()
        backoff = _FIRST_BACKOFF_SECONDS
        while not self._stop.is_set():
            begun = loop.time()
            try:
                child.status = await self._run_once(child)
            except OSError as error:
                child.status = 1
                self._say(child, f"cannot be started: {error}")
            if self._stop.is_set():
                break
            if not child.bootstrap and child.status == _MISCONFIGURED:
                self._stop.set()  # it has said why, and trying again would not help
                break
            child.status = 0
            backoff = next_backoff(backoff, loop.time() - begun)
            self._say(child, f"ended; it is started again in {backoff:.1f} s")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(backoff):
                    await self._stop.wait()

    async def _run_once(self, child: _Child) -> int:
        settings = broker_settings(self._given, self._config, child.broker_id, self._machine, self._address(child))
        arguments = self._arguments
        command = [sys.executable, "-m", "odradek.cli.main", "serve", "--until-input-ends"]
        command += [f"--log-level={arguments.log_level}", f"--log-format={arguments.log_format}"]
        if arguments.properties:
            command.append(arguments.properties)
        descriptors = () if self._shared is None else (self._shared.fileno(),)
        command += [f"--accept-from={descriptor}" for descriptor in descriptors]
        pipe = asyncio.subprocess.PIPE
        # A signal of the terminal is for this process, which passes it on.
        process = child.process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, pass_fds=descriptors
        )
        assert process.stdin is not None
        # Not as arguments, which other users of the machine can read. The pipe stays open until this process ends.
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        assert process.stdout is not None
        assert process.stderr is not None
        self._note_processes()
        if self._stop.is_set():
            signal_child(process, signal.SIGTERM)
        await asyncio.gather(self._follow_output(child, process.stdout), self._follow_log(child, process.stderr))
        return await process.wait()

    def _note_processes(self) -> None:
        """For `odradek cluster restart`, in the data directory."""
        content = {
            "supervisor": os.getpid(),
            "brokers": {str(c.broker_id): c.process.pid for c in self._children if c.process is not None},
        }
        file = f"{self._home}/{PROCESSES}"
        try:
            self._disk.write_atomic(file, json.dumps(content).encode(), sync=False)
        except OSError as error:
            # As on a full disk: the broker runs, and what it writes has to be read.
            _report(f"{file}: {error.strerror}")

    async def _follow_output(self, child: _Child, lines: asyncio.StreamReader) -> None:
        async for text in lines_of(lines):
            if text.startswith(_READY):
                fields = dict(field.partition("=")[::2] for field in text.removeprefix(_READY).split())
                child.bootstrap = fields["bootstrap"]
                child.bound = fields.get("bound", child.bootstrap)
                child.ready.set()
            self._say(child, text)

    async def _follow_log(self, child: _Child, lines: asyncio.StreamReader) -> None:
        async for text in lines_of(lines):
            self._say(child, text)

    def _say(self, child: _Child, text: str) -> None:
        prefix = f"[broker {child.broker_id}] " if self._prefixed else ""
        _report(f"{prefix}{text}")


def _report(text: str) -> None:
    # A reader that does not take it, a full disk or a closed terminal, does not stop the brokers: they are read on.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
