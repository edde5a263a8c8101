"""Brokers of a cluster without sockets and logs: real stores, memberships, controllers and views, and calls between
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, cast

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.controller_requests import ControllerRequests
from odradek.broker.cluster.controller_watch import ControllerWatch
from odradek.broker.cluster.membership import Membership
from odradek.broker.cluster.stored_configs import StoredConfigs
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.client.errors import ClientError, Disconnected
from odradek.client.network.connection import Connection
from odradek.metadata.image import Broker, ClusterImage, Endpoint
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.clock import SystemClock
from odradek.ports.randomness import SeededRandom
from odradek.ports.store import MetadataStore, Operation, StoreError, StoreUnavailable
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartitionError,
    LeaderAndIsrResponseTopicError,
)
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class Line:
    """In the place of a connection to a member."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.identifier = len(member.lines)
        self.listener: Callable[[Any], None] | None = None
        self.closed = False

    def request(self, request: Any, response_type: Any, version: int, timeout_ms: float) -> asyncio.Task[Any]:
        # What travels is what the wire's codec makes of it.
        out = bytearray()
        request.encode(out, version)
        decoded, _ = type(request).decode(memoryview(out), 0, version)
        return asyncio.get_running_loop().create_task(self.member.serve(self, decoded))

    def watch_close(self, listener: Callable[[Any], None] | None) -> None:
        self.listener = listener

    def close(self, reason: ClientError | None = None) -> None:
        if not self.closed:
            self.closed = True
            if self.listener is not None:
                self.listener(self)


class Replicas:
    """The replicas of a member."""

    def __init__(self, member: Member) -> None:
        self.member = member

    def is_offline(self, topic: str, index: int) -> bool:
        return self.member.is_offline(topic, index)

    def stop(self, places: Iterable[tuple[str, int]], delete: bool) -> None:
        self.member.deleted.extend(places if delete else [])


class Member:
    """One broker."""

    def __init__(self, cluster: Cluster, broker_id: int, settings: dict[str, str], store: MetadataStore) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.store = store
        self.alive = True
        self.silent = False
        self.unreachable = False
        """Whether it does not answer the controller's questions for a sign of life."""
        self.refusing = False
        """Whether connections are rejected, as by a closed port, though it is alive."""
        # Members ask for no leases: a test that takes its time must not fence them.
        patience = {"broker.session.timeout.ms": "600000"}
        self.config = BrokerConfig({"node.id": str(broker_id), **patience, **settings})
        self.view = ClusterView(self.config)
        self.configs = StoredConfigs(store, self.view)
        clock = SystemClock()
        self.controller = Controller(
            store,
            self.config,
            clock,
            SeededRandom(broker_id),
            self.view,
            cluster.connect,
            self.offline_replicas,
        )
        self.membership = Membership(store, clock, self.controller, registered=self.view.registered, judged=self._judge)
        self.requests = ControllerRequests(broker_id, store, self.view, Replicas(self))
        self.judged = 0
        """How often the controller reported that no partition relies on the records that it may have lost."""
        self.watch = ControllerWatch(broker_id, cluster.connect, self.membership.controller_died)
        self.view.subscribe(self.watch.follow)
        self.lines: list[Line] = []
        self.asked: list[Any] = []
        self.deleted: list[tuple[str, int]] = []
        self.bad_replicas: set[tuple[str, int]] = set()
        self.is_offline: Callable[[str, int], bool] = lambda topic, index: (topic, index) in self.bad_replicas

    def offline_replicas(self, image: ClusterImage) -> list[TopicPartition]:
        return [
            TopicPartition(name, index)
            for name, topic in image.topics.items()
            for index, state in enumerate(topic.partitions)
            if self.id in state.replicas and self.is_offline(name, index)
        ]

    def _judge(self) -> None:
        self.judged += 1

    @property
    def image(self) -> ClusterImage:
        return self.view.image

    @property
    def epoch(self) -> int:
        return self.membership.broker_epoch

    async def start(self, *, unclean: bool = False) -> Member:
        await self.configs.load()
        endpoints = {"PLAINTEXT": Endpoint(f"host{self.id}", 9092, "PLAINTEXT")}
        await self.membership.join(Broker(self.id, -1, None, endpoints, unclean=unclean))
        return self

    async def stop(self) -> None:
        self.watch.close()
        await self.membership.leave()
        await self.die(session_ends=False)
        await self.store.close()

    async def die(self, *, session_ends: bool) -> None:
        """Like a process that is killed: its connections break, new ones are rejected."""
        self.alive = False
        self.membership._leaving = True
        self.controller.resign()
        self.watch.close()
        for line in self.lines:
            line.close()
        if session_ends:
            await self.store.close()

    def refuse(self) -> None:
        self.refusing = True
        for line in self.lines:
            line.close()

    async def serve(self, line: Line, request: Any) -> Any:
        await asyncio.sleep(0)
        if not self.alive or line.closed:
            raise Disconnected("reset")
        while self.silent:
            await asyncio.sleep(0.01)
        if isinstance(request, ApiVersionsRequest):
            while self.unreachable:
                await asyncio.sleep(0.01)
            return ApiVersionsResponse()
        self.asked.append(request)
        try:
            if isinstance(request, LeaderAndIsrRequest):
                codes = await self.requests.leader_and_isr(request, line.identifier)
                topics: dict[bytes, LeaderAndIsrResponseTopicError] = {}
                for (topic_id, index), code in codes.items():
                    found = topics.setdefault(topic_id, LeaderAndIsrResponseTopicError(topic_id, []))
                    found.partition_errors.append(LeaderAndIsrResponsePartitionError(index, code))
                return LeaderAndIsrResponse(0, list(topics.values()))
            if isinstance(request, UpdateMetadataRequest):
                await self.requests.update_metadata(request, line.identifier)
                return UpdateMetadataResponse(0)
            assert isinstance(request, StopReplicaRequest)
            await self.requests.stop_replica(request, line.identifier)
            return StopReplicaResponse(0, [])
        except KafkaError as error:
            kinds = {
                LeaderAndIsrRequest: LeaderAndIsrResponse,
                UpdateMetadataRequest: UpdateMetadataResponse,
                StopReplicaRequest: StopReplicaResponse,
            }
            return kinds[type(request)](error.code)


class Cluster:
    """All members share one tree."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.tree = MemoryTree()
        self.settings = settings or {}
        self.members: dict[int, Member] = {}

    async def add(self, broker_id: int, *, unclean: bool = False, store: MetadataStore | None = None) -> Member:
        member = Member(self, broker_id, self.settings, store or MemoryStore(self.tree))
        self.members[broker_id] = member
        return await member.start(unclean=unclean)

    async def of(self, *ids: int) -> list[Member]:
        found = [await self.add(broker_id) for broker_id in ids]
        await self.until(lambda: self.controller is not None and self.agrees())
        return found

    async def connect(self, broker: Broker) -> Connection:
        await asyncio.sleep(0)
        member = self.members[broker.id]
        if not member.alive or member.refusing:
            raise Disconnected("refused") from ConnectionRefusedError()
        line = Line(member)
        member.lines.append(line)
        return cast(Connection, line)

    @property
    def controller(self) -> Controller | None:
        active = [m.controller for m in self.members.values() if m.alive and m.controller.is_active]
        return active[0] if len(active) == 1 else None

    @property
    def reigning(self) -> Controller:
        found = self.controller
        assert found is not None
        return found

    def agrees(self) -> bool:
        """Whether every live broker knows what the controller knows."""
        controller = self.controller
        if controller is None:
            return False
        live = [m for m in self.members.values() if m.alive and not m.silent]
        return {m.id for m in live} <= controller.image.brokers.keys() and all(
            known_of(m.image) == known_of(controller.image) for m in live
        )

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for it; thirty seconds are more than any of this takes."""
        async with asyncio.timeout(30):
            while not condition():
                await asyncio.sleep(0.001)

    async def close(self) -> None:
        for member in self.members.values():
            if member.alive:
                await member.stop()


def known_of(image: ClusterImage) -> object:
    """What brokers know of the cluster; of registrations only what the controller sends, of leaders no epoch."""
    return (
        image.controller_id,
        image.controller_epoch,
        {i: (b.epoch, b.rack, b.endpoints) for i, b in image.brokers.items()},
        {
            name: (topic.id, tuple(state._replace(leader_broker_epoch=-1) for state in topic.partitions))
            for name, topic in image.topics.items()
        },
    )


def run(test: Callable[[Cluster], Awaitable[None]], settings: dict[str, str] | None = None) -> None:
    async def main() -> None:
        cluster = Cluster(settings)
        await test(cluster)
        await cluster.close()

    asyncio.run(main())


class DyingStore:
    """A store whose process ends around its n-th write, after it took effect or before."""

    def __init__(self, inner: MemoryStore) -> None:
        self.inner = inner
        self.writes_left = -1
        self.after = True
        self.on_death: Callable[[], None] = lambda: None
        self.failure: StoreError | None = None
        self.failures: list[StoreError | None] = []
        """What becomes of the next writes, one each."""
        self.get, self.children, self.subtree = inner.get, inner.children, inner.subtree
        self.watch, self.watch_session, self.reopen = inner.watch, inner.watch_session, inner.reopen
        self.close, self.renew_session = inner.close, inner.renew_session

    @property
    def session(self) -> int:
        return self.inner.session

    max_transaction_bytes = 400
    """Small, so that everything that may be cut is cut."""

    async def apply(self, operations: Sequence[Operation]) -> None:
        if self.failures:
            self.failure = self.failures.pop(0)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            if self.after:
                await self.inner.apply(operations)
            raise failure
        if self.writes_left == 0:
            self.writes_left = -1
            if self.after:
                await self.inner.apply(operations)
            self.on_death()
            raise StoreUnavailable("the process is gone")
        self.writes_left -= 1
        await self.inner.apply(operations)
