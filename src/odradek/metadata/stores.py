"""Which metadata store a broker has: ZooKeeper where `zookeeper.connect` names one, else a SQLite file.

A file with `process.roles` is of KRaft, where `zookeeper.connect` means only where to migrate from: it is not used.
"""

from __future__ import annotations

from typing import Protocol

from odradek.ports.disk import Disk
from odradek.ports.installation import install_hint
from odradek.ports.store import MetadataStore, StoreError


class StoreConfig(Protocol):
    """What is read of a broker's configuration."""

    def text(self, name: str) -> str: ...

    def number(self, name: str) -> int: ...

    def optional_number(self, name: str) -> int | None: ...

    def words(self, name: str) -> list[str]: ...


async def open_store(config: StoreConfig, disk: Disk, embedded_path: str) -> MetadataStore:
    """Open it and begin a session; `embedded_path` is the SQLite file unless `odradek.metadata.store` names another.

    Raises StoreError.
    """
    connect = config.text("zookeeper.connect")
    if connect and not config.words("process.roles"):
        return await _open_zookeeper(connect, config, disk)
    from odradek.metadata.sqlite_store import SqliteStore

    path = config.text("odradek.metadata.store") or embedded_path
    return await SqliteStore.open(path, disk, session_timeout_ms=config.number("broker.session.timeout.ms"))


async def _open_zookeeper(connect: str, config: StoreConfig, disk: Disk) -> MetadataStore:
    try:
        from odradek.metadata.zookeeper_store import ZooKeeperStore
    except ImportError as error:
        raise StoreError(
            f"zookeeper.connect is set, but {error.name} is not installed: {install_hint('zookeeper')}"
        ) from error
    return await ZooKeeperStore.open(
        connect,
        disk,
        session_timeout_ms=config.number("zookeeper.session.timeout.ms"),
        connection_timeout_ms=config.optional_number("zookeeper.connection.timeout.ms"),
    )


def patience_seconds(config: StoreConfig) -> float:
    """How long a registration that a dead process left behind may last.

    Others of this machine see at once that it is dead; ZooKeeper waits for its session, and for its own next tick.
    """
    if config.text("zookeeper.connect") and not config.words("process.roles"):
        return config.number("zookeeper.session.timeout.ms") / 1000 * 1.5
    return 0.0
