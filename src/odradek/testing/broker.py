"""A real broker for tests, in a child process or a thread, with a folder and ports of its own."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from odradek.client.admin import Admin
from odradek.client.model import ConsumerRecord
from odradek.log.directories.checkpoint_formats import (
    META_PROPERTIES,
    STORE_FORMAT,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from odradek.testing.child_process import BrokerFailed, ChildProcess
from odradek.testing.contents import IsolationLevel, create_topic, produce, read_all, throttle
from odradek.testing.faulty_ports import READS, WRITES
from odradek.testing.links import Link

if TYPE_CHECKING:
    from odradek.testing.broker_thread import BrokerThread

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 30.0
_HOST: Final = "127.0.0.1"
_LISTENER: Final = "PLAINTEXT"

# What makes tests wait elsewhere: groups begin at once, and internal topics are small. How full the disk of the machine
# is that runs the tests is no problem of the broker that they test.
QUICK: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "odradek.health.free.space.min.percent": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


class Broker:
    """`async with Broker() as broker`: it serves within some 0.2 s at `broker.bootstrap_servers`.

    `settings` are a broker's by Kafka's names. Without `folder` the data live in a temporary one that goes with
    the broker. `links` are names of ways to the broker that a test can cut: see `link`. `cluster_id` is the id of a new
    cluster, by default one that the broker makes; the data of another cluster are an error of `start`. With
    `in_process` it runs in a thread of this process, where breakpoints and coverage reach it, and cannot be killed or
    paused.
    """

    __slots__ = ("_cluster_id", "_links", "_process", "_settings", "_temporary", "folder", "port")

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        folder: Path | None = None,
        links: Sequence[str] = (),
        cluster_id: str | None = None,
        in_process: bool = False,
    ) -> None:
        self._cluster_id = cluster_id
        self._settings = QUICK | {name: _text(value) for name, value in (settings or {}).items()}
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="odradek-"))
        """Data, and the log `broker.log`."""
        self.port = 0
        """The port on 127.0.0.1, the same after each start; 0 before the first one."""
        self._links = {name: Link() for name in links}
        self.folder.mkdir(parents=True, exist_ok=True)
        log_path = self.folder / "broker.log"
        self._process = _new_thread(log_path) if in_process else ChildProcess(log_path)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for any Kafka client."""
        return f"{_HOST}:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether its process exists, paused or not."""
        return self._process.is_running

    @property
    def pid(self) -> int | None:
        """The number of its process, which is this one with `in_process`; None before the start."""
        return self._process.pid

    def log(self) -> str:
        """The last lines that it has logged."""
        return self._process.log()

    def link(self, name: str) -> Link:
        """A way to the broker of its own. KeyError for a name that `links` does not have."""
        return self._links[name]

    def cut(self, client: str, *, silently: bool = False) -> None:
        """Cut the clients of the link of this name off from the broker, as `Link.cut`; others continue. KeyError."""
        self._links[client].cut(silently=silently)

    def heal(self, client: str) -> None:
        """Carry the data of these clients again, as `Link.heal`. KeyError."""
        self._links[client].heal()

    # --- the process ---

    async def start(self, timeout_s: float = START_SECONDS) -> None:
        """Start it, on its data and its port; returns when it serves.

        Raises BrokerFailed; BrokerTimedOut if it does not serve within `timeout_s` seconds.
        """
        self._set_cluster_id()
        for link in self._links.values():
            if not link.port:
                await link.open()
        found = await self._process.start(self._all_settings(), timeout_s)
        self.port = found["ports"][_LISTENER]
        for name, link in self._links.items():
            link.lead_to(found["ports"][_listener_of(name)])

    def _set_cluster_id(self) -> None:
        """As `kafka-storage format` does, in a folder that no broker has used; the broker compares it with its data."""
        path = self._data / META_PROPERTIES
        if self._cluster_id is None:
            return
        if not path.exists():
            self._data.mkdir(exist_ok=True)
            identity = MetaProperties(self._cluster_id, None, None, STORE_FORMAT)
            path.write_bytes(format_meta_properties(identity))
            return
        found = parse_meta_properties(path.read_bytes()).cluster_id
        if found != self._cluster_id:
            raise BrokerFailed(f"the data in {self._data} are of cluster {found}, not of {self._cluster_id}")

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def _all_settings(self) -> dict[str, str]:
        listeners = {_LISTENER: self.port, **{_listener_of(name): 0 for name in self._links}}
        advertised = {_LISTENER: self.port, **{_listener_of(name): link.port for name, link in self._links.items()}}
        return {
            "log.dirs": str(self._data),
            "listeners": ",".join(f"{name}://{_HOST}:{port}" for name, port in listeners.items()),
            "advertised.listeners": ",".join(f"{name}://{_HOST}:{port}" for name, port in advertised.items()),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in listeners),
            **self._settings,
        }

    async def stop(self) -> None:
        """SIGTERM, and wait until it has stopped; the data stay. Raises BrokerFailed if it takes longer than 30 s."""
        await self._process.stop(STOP_SECONDS)

    async def kill(self) -> None:
        """SIGKILL: a crash of the process. Raises BrokerFailed with `in_process`."""
        await self._process.kill()

    async def restart(self) -> None:
        """Stop it if it runs, and start it on the same data and port."""
        await self.stop()
        await self.start()

    def pause(self) -> None:
        """The process stands still, its connections stay (SIGSTOP). Raises BrokerFailed with `in_process`."""
        self._process.pause()

    def resume(self) -> None:
        """A paused process runs again."""
        self._process.resume()

    async def close(self) -> None:
        """Stop it for good; a temporary folder is removed."""
        try:
            await self._process.stop(STOP_SECONDS)
        finally:
            for link in self._links.values():
                await link.close()
            if self._temporary:
                shutil.rmtree(self.folder, ignore_errors=True)

    # --- its disk and its clock ---

    async def fail_disk(self, error: int = errno.EIO, *, reads: bool = False, directory: Path | None = None) -> None:
        """Writes and syncs fail from now on, by default as on a broken disk; `errno.ENOSPC` is a full one.

        With `reads` those that the broker does itself fail, too (fetches are sent by the kernel). `directory` limits
        the fault to the files below it. Raises BrokerFailed.
        """
        await self._disk(error=error, operations=WRITES | READS if reads else WRITES, directory=directory)

    async def slow_disk(self, sync_s: float) -> None:
        """Every sync takes so many seconds longer. Raises BrokerFailed."""
        await self._disk(sync_s=sync_s)

    async def heal_disk(self) -> None:
        """The disk works; a log directory that has failed stays offline until a restart. Raises BrokerFailed."""
        await self._disk()

    async def _disk(
        self,
        *,
        error: int = 0,
        operations: Iterable[str] = (),
        directory: Path | None = None,
        sync_s: float = 0.0,
    ) -> None:
        await self._process.command(
            disk={
                "error": error,
                "operations": sorted(operations),
                "directory": "" if directory is None else str(directory),
                "sync_seconds": sync_s,
            }
        )

    async def shift_clock(self, shift_ms: int) -> None:
        """The broker's wall clock is off by so much from now on, until its process ends. Raises BrokerFailed."""
        await self._process.command(shift_ms=shift_ms)

    # --- its clients ---

    async def throttle(
        self, bytes_per_second: float | None, *, client_id: str | None = None, user: str | None = None
    ) -> None:
        """Limit what clients write and read, each way, by Kafka's quotas; None removes the limit.

        Of one client id, one user, or one id of a user; without both, of each client id that has no limit of its own.
        In a cluster each broker allows so much. Raises KafkaError; ValueError for a limit that is not above 0.
        """
        await throttle(self.bootstrap_servers, bytes_per_second, client_id, user)

    # --- what it stores ---

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Admin]:
        """An admin client for a while."""
        async with Admin(bootstrap_servers=self.bootstrap_servers) as admin:
            yield admin

    async def topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and return its name, by default one that is not used yet. Raises KafkaError."""
        return await create_topic(self.bootstrap_servers, name, partitions, replication_factor, configs)

    async def produce(self, topic: str, *values: bytes | str | None, key: bytes | str | None = None) -> None:
        """Write records and wait until they are acknowledged. Raises KafkaError."""
        await produce(self.bootstrap_servers, topic, values, key)

    async def records(
        self, topic: str, *, isolation_level: IsolationLevel = "read_committed"
    ) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """All records of a topic up to its end now, by partition and offset. Raises KafkaError."""
        return await read_all(self.bootstrap_servers, topic, isolation_level)


def _new_thread(log_path: Path) -> BrokerThread:
    # The modules of a broker are loaded into this process only where it runs one.
    from odradek.testing.broker_thread import BrokerThread

    return BrokerThread(log_path)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _listener_of(link: str) -> str:
    return f"LINK_{link.upper().replace('-', '_')}"
