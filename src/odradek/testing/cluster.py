"""Several real brokers as one cluster, each in a child process, for tests of failover and replication."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from odradek.client.model import ConsumerRecord
from odradek.testing.broker import Broker
from odradek.testing.contents import IsolationLevel, create_topic, produce, read_all, throttle

_SESSION_MS: Final = 3_000
_REPLICAS: Final = 3


class Cluster:
    """`async with Cluster(3) as cluster`: brokers 1 to 3, topics with three replicas of which two must be in sync."""

    __slots__ = ("_brokers", "_temporary", "folder")

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        folder: Path | None = None,
        links: Sequence[str] = (),
    ) -> None:
        """`settings` are those of all brokers; every broker has `links` of these names. ValueError for no brokers."""
        if brokers < 1:
            raise ValueError(f"{brokers} brokers: at least one is needed")
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="odradek-"))
        """Folders `broker-1`, `broker-2`, ..., and the metadata."""
        replicas = min(brokers, _REPLICAS)
        shared: dict[str, object] = {
            "odradek.metadata.store": self.folder / "metadata.sqlite",
            "zookeeper.session.timeout.ms": _SESSION_MS,
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "min.insync.replicas": max(1, replicas - 1),
            "transaction.state.log.min.isr": max(1, replicas - 1),
            **(settings or {}),
        }
        self._brokers = {
            number: Broker(shared | {"node.id": number}, folder=self.folder / f"broker-{number}", links=links)
            for number in range(1, brokers + 1)
        }

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
    def brokers(self) -> list[Broker]:
        """All brokers in the order of their ids, whether they run or not."""
        return list(self._brokers.values())

    def broker(self, broker_id: int) -> Broker:
        """One broker. KeyError for an id that the cluster does not have."""
        return self._brokers[broker_id]

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, for any Kafka client."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    def link_servers(self, name: str) -> str:
        """The addresses of all brokers by their links of one name. KeyError for an unknown name."""
        return ",".join(broker.link(name).bootstrap_servers for broker in self._brokers.values())

    def cut(self, client: str, *, silently: bool = False) -> None:
        """Cut the clients of the links of this name off from all brokers, as `Broker.cut`. KeyError."""
        for broker in self._brokers.values():
            broker.cut(client, silently=silently)

    def heal(self, client: str) -> None:
        """Carry the data of these clients again, at all brokers. KeyError."""
        for broker in self._brokers.values():
            broker.heal(client)

    async def start(self) -> None:
        """Start the brokers that do not run; returns when all serve. Raises BrokerFailed."""
        await asyncio.gather(*(broker.start() for broker in self._brokers.values() if not broker.is_running))

    async def stop(self) -> None:
        """Stop all brokers; the data stay. Raises BrokerFailed."""
        await asyncio.gather(*(broker.stop() for broker in self._brokers.values()))

    async def close(self) -> None:
        """Stop all brokers for good; a temporary folder is removed. Raises BrokerFailed."""
        try:
            await asyncio.gather(*(broker.close() for broker in self._brokers.values()))
        finally:
            if self._temporary:
                shutil.rmtree(self.folder, ignore_errors=True)

    async def leader_of(self, topic: str, partition: int = 0) -> Broker:
        """The broker that leads a partition. Raises KafkaError; LookupError while it has no leader."""
        async with self._running().admin() as admin:
            found = (await admin.describe_topics([topic]))[topic]
        if isinstance(found, Exception):
            raise found
        leader = found.partitions[partition].leader
        if leader not in self._brokers:
            raise LookupError(f"{topic}-{partition} has no leader")
        return self._brokers[leader]

    async def controller(self) -> Broker:
        """The broker that is the controller. Raises KafkaError; LookupError without one."""
        async with self._running().admin() as admin:
            found = (await admin.describe_cluster()).controller_id
        if found not in self._brokers:
            raise LookupError("the cluster has no controller")
        return self._brokers[found]

    def _running(self) -> Broker:
        for broker in self._brokers.values():
            if broker.is_running:
                return broker
        raise LookupError("no broker runs")

    async def throttle(
        self, bytes_per_second: float | None, *, client_id: str | None = None, user: str | None = None
    ) -> None:
        """As `Broker.throttle`, at each broker."""
        await throttle(self.bootstrap_servers, bytes_per_second, client_id, user)

    async def topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        *,
        replication_factor: int = -1,
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
