"""`Broker` and `Cluster` for tests without an event loop: the same methods, which wait.

The brokers' processes and links are served by an event loop in a background thread, as the blocking clients are.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek.client.blocking import Blocking, shared
from odradek.client.model import ConsumerRecord
from odradek.testing.broker import START_SECONDS, Broker
from odradek.testing.cluster import Cluster
from odradek.testing.contents import IsolationLevel


class BlockingLink:
    """As `Link`."""

    __slots__ = ("_blocking", "_broker", "_name")

    def __init__(self, broker: Broker, name: str, blocking: Blocking) -> None:
        """KeyError for a name that the broker does not have."""
        broker.link(name)
        self._broker = broker
        self._name = name
        self._blocking = blocking

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for the clients of this link."""
        return self._broker.link(self._name).bootstrap_servers

    def cut(self, *, silently: bool = False) -> None:
        """As `Link.cut`."""
        link = self._broker.link(self._name)
        self._blocking.call(lambda: link.cut(silently=silently))

    def heal(self) -> None:
        """As `Link.heal`."""
        self._blocking.call(self._broker.link(self._name).heal)

    def slow_down(self, *, delay_s: float = 0.0, bytes_per_second: int = 0) -> None:
        """As `Link.slow_down`."""
        link = self._broker.link(self._name)
        self._blocking.call(lambda: link.slow_down(delay_s=delay_s, bytes_per_second=bytes_per_second))


class BlockingBroker:
    """`with BlockingBroker() as broker`: as `Broker`."""

    __slots__ = ("_blocking", "_broker")

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        folder: Path | None = None,
        links: Sequence[str] = (),
        cluster_id: str | None = None,
        in_process: bool = False,
        broker: Broker | None = None,
    ) -> None:
        """`broker` is one to wrap; the other arguments are for a new one."""
        self._blocking = shared()
        self._broker = broker or Broker(
            settings, folder=folder, links=links, cluster_id=cluster_id, in_process=in_process
        )

    def __enter__(self) -> Self:
        self._blocking.run(self._broker.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for any Kafka client."""
        return self._broker.bootstrap_servers

    @property
    def folder(self) -> Path:
        """Data, and the log `broker.log`."""
        return self._broker.folder

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self._broker.port

    @property
    def is_running(self) -> bool:
        """Whether its process exists, paused or not."""
        return self._broker.is_running

    @property
    def pid(self) -> int | None:
        """The number of its process; None before the start."""
        return self._broker.pid

    def log(self) -> str:
        """The last lines that it has logged."""
        return self._broker.log()

    def link(self, name: str) -> BlockingLink:
        """As `Broker.link`."""
        return BlockingLink(self._broker, name, self._blocking)

    def start(self, timeout_s: float = START_SECONDS) -> None:
        """As `Broker.start`."""
        self._blocking.run(self._broker.start(timeout_s))

    def cut(self, client: str, *, silently: bool = False) -> None:
        """As `Broker.cut`."""
        self._blocking.call(lambda: self._broker.cut(client, silently=silently))

    def heal(self, client: str) -> None:
        """As `Broker.heal`."""
        self._blocking.call(self._broker.heal, client)

    def stop(self) -> None:
        """As `Broker.stop`."""
        self._blocking.run(self._broker.stop())

    def kill(self) -> None:
        """As `Broker.kill`."""
        self._blocking.run(self._broker.kill())

    def restart(self) -> None:
        """As `Broker.restart`."""
        self._blocking.run(self._broker.restart())

    def pause(self) -> None:
        """As `Broker.pause`."""
        self._broker.pause()

    def resume(self) -> None:
        """As `Broker.resume`."""
        self._broker.resume()

    def close(self) -> None:
        """As `Broker.close`."""
        self._blocking.run(self._broker.close())

    def fail_disk(self, error: int = errno.EIO, *, reads: bool = False, directory: Path | None = None) -> None:
        """As `Broker.fail_disk`."""
        self._blocking.run(self._broker.fail_disk(error, reads=reads, directory=directory))

    def slow_disk(self, sync_s: float) -> None:
        """As `Broker.slow_disk`."""
        self._blocking.run(self._broker.slow_disk(sync_s))

    def heal_disk(self) -> None:
        """As `Broker.heal_disk`."""
        self._blocking.run(self._broker.heal_disk())

    def shift_clock(self, shift_ms: int) -> None:
        """As `Broker.shift_clock`."""
        self._blocking.run(self._broker.shift_clock(shift_ms))

    def throttle(
        self, bytes_per_second: float | None, *, client_id: str | None = None, user: str | None = None
    ) -> None:
        """As `Broker.throttle`."""
        self._blocking.run(self._broker.throttle(bytes_per_second, client_id=client_id, user=user))

    def topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """As `Broker.topic`."""
        created = self._broker.topic(name, partitions, replication_factor=replication_factor, configs=configs)
        return self._blocking.run(created)

    def produce(self, topic: str, *values: bytes | str | None, key: bytes | str | None = None) -> None:
        """As `Broker.produce`."""
        self._blocking.run(self._broker.produce(topic, *values, key=key))

    def records(
        self, topic: str, *, isolation_level: IsolationLevel = "read_committed"
    ) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """As `Broker.records`."""
        return self._blocking.run(self._broker.records(topic, isolation_level=isolation_level))


class BlockingCluster:
    """`with BlockingCluster(3) as cluster`: as `Cluster`."""

    __slots__ = ("_blocking", "_cluster", "_faces")

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        folder: Path | None = None,
        links: Sequence[str] = (),
    ) -> None:
        """As `Cluster`."""
        self._blocking = shared()
        self._cluster = Cluster(brokers, settings, folder=folder, links=links)
        self._faces = {broker: BlockingBroker(broker=broker) for broker in self._cluster.brokers}

    def __enter__(self) -> Self:
        self._blocking.run(self._cluster.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def brokers(self) -> list[BlockingBroker]:
        """All brokers in the order of their ids, whether they run or not."""
        return list(self._faces.values())

    def broker(self, broker_id: int) -> BlockingBroker:
        """One broker. KeyError for an id that the cluster does not have."""
        return self._faces[self._cluster.broker(broker_id)]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for any Kafka client."""
        return self._cluster.bootstrap_servers

    def link_servers(self, name: str) -> str:
        """As `Cluster.link_servers`."""
        return self._cluster.link_servers(name)

    def cut(self, client: str, *, silently: bool = False) -> None:
        """As `Cluster.cut`."""
        self._blocking.call(lambda: self._cluster.cut(client, silently=silently))

    def heal(self, client: str) -> None:
        """As `Cluster.heal`."""
        self._blocking.call(self._cluster.heal, client)

    def log(self) -> str:
        """The last lines that the brokers have logged."""
        return "\n".join(broker.log() for broker in self._cluster.brokers)

    def start(self) -> None:
        """As `Cluster.start`."""
        self._blocking.run(self._cluster.start())

    def stop(self) -> None:
        """As `Cluster.stop`."""
        self._blocking.run(self._cluster.stop())

    def close(self) -> None:
        """As `Cluster.close`."""
        self._blocking.run(self._cluster.close())

    def leader_of(self, topic: str, partition: int = 0) -> BlockingBroker:
        """As `Cluster.leader_of`."""
        return self._faces[self._blocking.run(self._cluster.leader_of(topic, partition))]

    def controller(self) -> BlockingBroker:
        """As `Cluster.controller`."""
        return self._faces[self._blocking.run(self._cluster.controller())]

    def throttle(
        self, bytes_per_second: float | None, *, client_id: str | None = None, user: str | None = None
    ) -> None:
        """As `Cluster.throttle`."""
        self._blocking.run(self._cluster.throttle(bytes_per_second, client_id=client_id, user=user))

    def topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """As `Cluster.topic`."""
        created = self._cluster.topic(name, partitions, replication_factor=replication_factor, configs=configs)
        return self._blocking.run(created)

    def produce(self, topic: str, *values: bytes | str | None, key: bytes | str | None = None) -> None:
        """As `Cluster.produce`."""
        self._blocking.run(self._cluster.produce(topic, *values, key=key))

    def records(
        self, topic: str, *, isolation_level: IsolationLevel = "read_committed"
    ) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """As `Cluster.records`."""
        return self._blocking.run(self._cluster.records(topic, isolation_level=isolation_level))
