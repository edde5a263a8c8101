"""Which metadata store a broker has: ZooKeeper where `zookeeper.connect` names one, else a SQLite file.

A file with `process.roles` is of KRaft, where `zookeeper.connect` means only where to migrate from: it is not used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from odradek.metadata.nodes import BROKER_IDS, CONTROLLER, BrokerNode, ControllerNode
from odradek.ports.disk import Disk
from odradek.ports.installation import install_hint
from odradek.ports.store import MetadataStore, SessionExpired, StoreError, StoreUnavailable, WrongStore, name_of

logger = logging.getLogger(__name__)

_WAIT: Final = "odradek.zookeeper.wait.ms"
_NOTICE_SECONDS: Final = 2.0
_RETRY_SECONDS: Final = 1.0

_APACHE_NODES = ("/isr_change_notification", "/config/changes")
"""Nodes that brokers of Apache Kafka create when they start (its `ZkData.PersistentZkPaths`), and Odradek never."""
_ELSEWHERE = "set zookeeper.connect to another ensemble or chroot, or move with `odradek import`"


class StoreConfig(Protocol):
    """What is read of a broker's configuration."""

    def text(self, name: str) -> str:
        """The value of a textual configuration."""
        ...

    def number(self, name: str) -> int:
        """The value of a numeric configuration."""
        ...

    def optional_number(self, name: str) -> int | None:
        """The value of a numeric configuration; None if it is not set."""
        ...

    def flag(self, name: str) -> bool:
        """The value of a boolean configuration."""
        ...

    def words(self, name: str) -> list[str]:
        """The members of a list."""
        ...


async def open_store(config: StoreConfig, disk: Disk, embedded_path: str) -> MetadataStore:
    """Open it and begin a session; `embedded_path` is the SQLite file unless `odradek.metadata.store` names another.

    Raises StoreError.
    """
    connect = config.text("zookeeper.connect")
    if connect and not config.words("process.roles"):
        return await _open_zookeeper(connect, config, disk)
    from odradek.metadata.stores.sqlite_store import SqliteStore

    path = config.text("odradek.metadata.store") or embedded_path
    return await SqliteStore.open(path, disk, session_timeout_ms=config.number("broker.session.timeout.ms"))


async def _open_zookeeper(connect: str, config: StoreConfig, disk: Disk) -> MetadataStore:
    try:
        from odradek.metadata.stores.zookeeper_access import zookeeper_access
        from odradek.metadata.stores.zookeeper_store import ZooKeeperStore
    except ImportError as error:
        raise StoreError(
            f"zookeeper.connect is set, but {error.name} is not installed: {install_hint('zookeeper')}"
        ) from error

    access = zookeeper_access(config)

    async def begin() -> MetadataStore:
        return await ZooKeeperStore.open(
            connect,
            disk,
            session_timeout_ms=config.number("zookeeper.session.timeout.ms"),
            connection_timeout_ms=config.optional_number("zookeeper.connection.timeout.ms"),
            access=access,
        )

    store = await when_available(begin, connect, config.number(_WAIT) / 1000)
    try:
        await refuse_foreign_cluster(store, connect)
    except BaseException:
        await store.close()
        raise
    return store


async def when_available(begin: Callable[[], Awaitable[MetadataStore]], place: str, seconds: float) -> MetadataStore:
    """Begin a session with ZooKeeper, which may start later than the brokers do: try for that long, at least once.

    Kafka's `zookeeper.connection.timeout.ms` bounds an attempt. Raises StoreError, StoreUnavailable at the end.
    """
    loop = asyncio.get_running_loop()
    over, late = asyncio.Event(), asyncio.Event()

    def report() -> None:
        late.set()
        text = "no session with ZooKeeper at %s yet: trying for %g s (%s); a signal ends the broker"
        logger.warning(text, place, seconds, _WAIT)

    timers = [loop.call_later(seconds, over.set), loop.call_later(_NOTICE_SECONDS, report)]
    try:
        while True:
            try:
                store = await begin()
            except (StoreUnavailable, SessionExpired) as error:
                if over.is_set() or not seconds:
                    raise StoreUnavailable(f"{error} (tried for {seconds:g} s: {_WAIT})") from error
                await asyncio.sleep(min(_RETRY_SECONDS, seconds))
            else:
                break
    finally:
        for timer in timers:
            timer.cancel()
    if late.is_set():
        logger.info("session with ZooKeeper at %s begun", place)
    return store


async def refuse_foreign_cluster(store: MetadataStore, place: str) -> None:
    """Raise WrongStore where brokers or a controller of Apache Kafka are registered, or were; StoreError.

    One of our brokers that registered beside them would become their controller once that one's session ends.
    """
    nodes = await store.subtree(BROKER_IDS)
    brokers = sorted(
        int(name_of(path))
        for path, node in nodes.items()
        if path != BROKER_IDS and not BrokerNode.is_of_odradek(path, node.data)
    )
    controller = await store.get(CONTROLLER)
    found = [f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"] if brokers else []
    if controller is not None and not ControllerNode.is_of_odradek(controller.data):
        found.append(f"controller {ControllerNode.decode(controller.data)}")
    if found:
        raise WrongStore(
            f"{' and '.join(found)} of Apache Kafka registered in "
            f"ZooKeeper at {place}, and a cluster has brokers of one product only: {_ELSEWHERE}"
        )
    for path in _APACHE_NODES:
        if await store.get(path) is not None:
            raise WrongStore(f"{path} in ZooKeeper at {place} belongs to a cluster of Apache Kafka: {_ELSEWHERE}")


def patience_seconds(config: StoreConfig) -> float:
    """How long a registration that a dead process left behind may last.

    Others of this machine see at once that it is dead; ZooKeeper waits for its session, and for its own next tick.
    """
    if config.text("zookeeper.connect") and not config.words("process.roles"):
        return config.number("zookeeper.session.timeout.ms") / 1000 * 1.5
    return 0.0
