"""Registrations and failed directories of brokers, as the store and the controller's channels report them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol, TypeVar

from odradek.broker.cluster.controller_channels import ControllerChannels
from odradek.broker.cluster.controller_store import ControllerStore
from odradek.broker.cluster.lease_grants import LeaseGrants
from odradek.broker.cluster.registrations import DIRECTORY_EVENTS, Registrations, burial, read_registrations
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.brokers import broker_changes, brokers_changed, replicas_offline, replicas_online
from odradek.controller.notices import PartitionNews
from odradek.controller.outcome import Decision
from odradek.metadata.image import Broker, ClusterImage
from odradek.metadata.nodes import BROKER_IDS, BROKER_SEQUENCE, BrokerNode
from odradek.ports.clock import Clock
from odradek.ports.store import BadVersion, Check, Delete, NoNode, Operation, Put, StoreError
from odradek.records.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 0.2
"""Pause before the store is read again after a failed event."""

T = TypeVar("T")

OfflineReplicas = Callable[[ClusterImage], list[TopicPartition]]
"""The replicas of the controller's own broker whose directory is offline."""


class Events(Protocol):
    """The events of the controller, in which decisions about brokers take effect."""

    image: ClusterImage

    async def carry_out(self, decision: Decision[T]) -> Sequence[T]:
        """Make a decision take effect; only within an event. Raises KafkaError."""
        ...

    async def ensure_elected(self) -> None:
        """Raises NotTheController if another controller has been elected."""
        ...

    def soon(self, event: Callable[[], Awaitable[object]], failed: Callable[[], None] = ...) -> None:
        """Run an event in its turn; `failed` is called if it fails."""
        ...

    def later(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        """Call `then` later, once for each name."""
        ...


class BrokerEvents:
    """Decides on brokers by the reports of channels (it implements ChannelEvents) and by the nodes of the store."""

    __slots__ = ("_channels", "_clock", "_config", "_events", "_leases", "_offline_here", "_store")

    def __init__(
        self,
        store: ControllerStore,
        config: BrokerConfig,
        clock: Clock,
        channels: ControllerChannels,
        leases: LeaseGrants,
        events: Events,
        offline_here: OfflineReplicas,
    ) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._channels = channels
        self._leases = leases
        self._events = events
        self._offline_here = offline_here

    def watch(self) -> list[Callable[[], None]]:
        """Watch registrations and directory events in the store; the callables end it."""
        store = self._store.store
        return [
            store.watch(BROKER_IDS, lambda _path: self.look_at_brokers_soon()),
            store.watch(DIRECTORY_EVENTS, lambda _path: self._events.soon(self.look_at_directories)),
        ]

    # --- reports of channels ---

    def broker_died(self, broker: Broker) -> None:
        """End the registration of a dead process."""
        # Its lease need not be waited for.
        self._leases.bury(broker)
        self._events.soon(lambda: self.bury(broker))

    def image_acknowledged(self, broker: Broker, version: int) -> None:
        """Note what the broker knows."""
        self._leases.acknowledge(broker, version)

    def registration_ended(self, broker: Broker) -> None:
        """Read the registrations: the broker has another one."""
        logger.info("broker %d has another registration than of epoch %d", broker.id, broker.epoch)
        self.look_at_brokers_soon()

    def deposed(self) -> None:
        """Ask the store whether this is still the controller."""
        self._events.soon(self._events.ensure_elected)

    def replicas_answered(self, broker: Broker, offline: list[PartitionNews], online: list[PartitionNews]) -> None:
        """Take replicas offline whose directory has failed, and online those held for offline that are not."""

        async def event() -> None:
            known = self._events.image.brokers.get(broker.id)
            if known is None or known.epoch != broker.epoch:
                return
            for reported, decide in ((offline, replicas_offline), (online, replicas_online)):
                if replicas := self._still_there(reported):
                    await self._events.carry_out(decide(self._events.image, broker.id, replicas, self._config))

        # A broker reports it once, in the answer to the image that it was sent.
        again = partial(self._channels.send_all_again, broker.id)
        self._events.soon(event, lambda: self._events.later(f"resend {broker.id}", RETRY_SECONDS, again))

    def _still_there(self, reported: Iterable[PartitionNews]) -> list[TopicPartition]:
        """Without those of a topic that was recreated since: its logs are others, in other directories perhaps."""
        topics = self._events.image.topics
        return [
            TopicPartition(topic.name, index)
            for topic, index, *_ in reported
            if topic.name in topics and topics[topic.name].id == topic.id
        ]

    # --- events ---

    def look_at_brokers_soon(self) -> None:
        """Read the registrations in an event of its own."""
        self._events.soon(self.look_at_brokers)

    def look_at_all_soon(self) -> None:
        """Read registrations and directory events: the store reports each once, and that event may have failed."""
        self.look_at_brokers_soon()
        self._events.soon(self.look_at_directories)

    async def bury(self, broker: Broker) -> None:
        """End the registration of a process that is known to be dead. Raises KafkaError, StoreError."""
        while operations := await burial(self._store.store, broker):
            try:
                await self._store.apply(operations)
            except (BadVersion, NoNode):
                # The store has noticed the death, too; or a broker has just registered; or there is another controller.
                await self._events.ensure_elected()
        await self.look_at_brokers()

    async def look_at_brokers(self) -> None:
        """Decide on brokers that came, went or restarted: the registrations in the store hold. Raises KafkaError."""
        found = await read_registrations(self._store.store)
        changes = broker_changes(self._events.image.brokers, found.brokers)
        if not changes:
            return
        decision = brokers_changed(self._events.image, found.brokers, self._config)
        await self._events.carry_out(self.cleared(decision, found))

    async def look_at_directories(self) -> None:
        """Ask the brokers whose directories failed. A new controller asks all brokers anyway."""
        store = self._store.store
        for name in await store.children(DIRECTORY_EVENTS):
            path = f"{DIRECTORY_EVENTS}/{name}"
            node = await store.get(path)
            if node is None:
                continue
            try:
                # Before the broker is asked: a failure in between leaves another node.
                await self._store.apply([Delete(path, node.version)])
            except (BadVersion, NoNode):
                await self._events.ensure_elected()
                self._events.soon(self.look_at_directories)
                continue
            except StoreError:
                # It may be deleted all the same, and then nothing reminds of it.
                self._ask_about_directories(name)
                raise
            if name == str(self._config.node_id):
                await self.look_at_own_directories()
            else:
                self._ask_about_directories(name)

    def _ask_about_directories(self, name: str) -> None:
        if name.isdecimal():
            self._channels.send_all_again(int(name))

    async def look_at_own_directories(self) -> None:
        """Take the replicas of this broker offline whose directory has failed. Raises KafkaError."""
        offline = self._offline_here(self._events.image)
        if offline:
            decision = replicas_offline(self._events.image, self._config.node_id, offline, self._config)
            await self._events.carry_out(decision)

    def cleared(self, decision: Decision[T], found: Registrations) -> Decision[T]:
        """The decision, and as its last step that registrations after an unclean end are clean: it is dealt with."""
        unclean = [broker for broker in found.brokers.values() if broker.unclean]
        if not unclean:
            return decision
        operations = list(decision.operations)
        last: list[Operation] = [Check(BROKER_SEQUENCE, found.sequence_version)]
        now_ms = self._clock.now_ms()
        image = decision.image
        for broker in unclean:
            clean = broker._replace(unclean=False)
            content = BrokerNode.encode(clean, now_ms, found.machines[broker.id])
            last.append(Put(BrokerNode.path(broker.id), content))
            image = image.with_broker(image.brokers[broker.id]._replace(unclean=False))
        return Decision([*operations, *last], image, decision.replies, [*decision.cuts, len(operations)])
