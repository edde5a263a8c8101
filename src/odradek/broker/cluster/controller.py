"""The elected controller: one event at a time, from a decision through the store to the next image and to the brokers.

The shape is that of Kafka's `KafkaController` and `ControllerEventManager`: events queue, and each is decided on the
image that the one before left behind. A change is in the store, then in the image, then known to this broker, then
answered; the other brokers are told meanwhile. Every write checks that no other controller has been elected since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from odradek.api.services.controller_service import NotTheController
from odradek.broker.cluster.controller_channel import Connect, ControllerChannel, Differences
from odradek.broker.cluster.registrations import DIRECTORY_EVENTS, Registrations, burial, read_registrations
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.task_failures import logs_failure
from odradek.client.connections import retrieve_failure
from odradek.controller.batching import batches
from odradek.controller.brokers import (
    ReplicaRef,
    broker_changes,
    brokers_changed,
    everything_settled,
    leaders_sought,
    registered,
    replicas_offline,
    replicas_online,
    shutting_down,
)
from odradek.controller.change_report import change_report
from odradek.controller.config_effects import UNCLEAN_ELECTION, topics_with_changed, with_effects
from odradek.controller.configs import AlteredResource, ResourceChanges, alter_configs
from odradek.controller.elections import ElectionType, elect_leaders
from odradek.controller.in_sync import IsrChange, IsrChanged, alter_partitions
from odradek.controller.internal_topics import creatable
from odradek.controller.leader_balance import imbalanced_partitions, is_balanced
from odradek.controller.notices import ToldPartition
from odradek.controller.outcome import Decision
from odradek.controller.topics import (
    MAX_PARTITIONS_DELETED_AT_ONCE,
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    MorePartitions,
    NewTopic,
    TopicReference,
    create_partitions,
    create_topics,
    delete_topics,
)
from odradek.metadata.changes import load_image, read_subtree
from odradek.metadata.image import NO_BROKER, Broker, ClusterImage
from odradek.metadata.nodes import (
    BROKER_IDS,
    BROKER_SEQUENCE,
    CONTROLLER_EPOCH,
    PRODUCER_ID_BLOCK,
    BrokerNode,
    ConfigNode,
    DeletionNode,
    ProducerIdBlock,
    ProducerIdBlockNode,
    TopicNode,
)
from odradek.ports.clock import Clock
from odradek.ports.randomness import Random
from odradek.ports.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NoNode,
    Operation,
    Put,
    SessionExpired,
    StoreError,
)
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)
_log_failure = logs_failure(logger, "an event of the controller failed")

PRODUCER_IDS_PER_BLOCK: Final = 1000
MAX_PRODUCER_ID: Final = (1 << 63) - 1
TELL_SECONDS: Final = 0.5
"""How long an answer to a client waits for the other brokers to know of a change."""
LOOK_AGAIN_SECONDS: Final = 0.2
_BYTES_TO_DELETE_A_PARTITION: Final = 1000
"""At most, in a transaction of the metadata store."""
FIRST_BALANCE_SECONDS: Final = 5.0

T = TypeVar("T")
Take = Callable[[ClusterImage], Awaitable[None] | None]


class Controller:
    """The controller as long as `is_active`. `reign` when elected, `resign` when that is over."""

    __slots__ = (
        "_channels",
        "_clock",
        "_config",
        "_connect",
        "_differences",
        "_epoch_version",
        "_last",
        "_node_id",
        "_random",
        "_stale",
        "_store",
        "_take",
        "_timers",
        "_unwatch",
        "epoch",
        "image",
        "is_active",
        "offline_here",
        "on_resigned",
    )

    def __init__(
        self, store: MetadataStore, config: BrokerConfig, clock: Clock, random: Random, take: Take, connect: Connect
    ) -> None:
        """`take` gives this broker the image, before a change is answered."""
        self._store = store
        self._config = config
        self._clock = clock
        self._random = random
        self._take = take
        self._connect = connect
        self._node_id = config.node_id
        self._channels: dict[int, ControllerChannel] = {}
        self._differences = Differences()
        self._last: asyncio.Task[object] | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._unwatch: list[Callable[[], None]] = []
        self._epoch_version = ANY_VERSION
        self._stale = True
        self.epoch = NO_BROKER
        self.image = ClusterImage()
        self.is_active = False
        self.on_resigned: Callable[[], None] = lambda: None
        """Called when the controller found out by itself that it is none any more."""
        self.offline_here: Callable[[ClusterImage], list[ReplicaRef]] = lambda _image: []
        """Replicas of this broker whose directory is offline: what the others say in their answers."""

    # --- reign ---

    async def reign(self, epoch: int, epoch_version: int) -> None:
        """Take over as the controller of this epoch; the version is that of its node.

        Loads the cluster and finishes what the controller before left half done. Raises KafkaError.
        """
        self.resign()
        # An event of an earlier reign would decide on the image that this one has not loaded yet: all topics gone.
        await self.settled()
        self.epoch = epoch
        self._epoch_version = epoch_version
        self.is_active = True
        self._stale = True
        version, self.image = self.image.version, ClusterImage()
        self.image.version = version
        self._unwatch = [
            self._store.watch(BROKER_IDS, lambda _path: self._look_at_brokers_soon()),
            self._store.watch(DIRECTORY_EVENTS, lambda _path: self._soon(self._look_at_directories)),
        ]
        logger.info("broker %d is the controller, epoch %d", self._node_id, epoch)
        try:
            await self._in_turn(self._refreshed)
        except KafkaError:
            if self.epoch == epoch:
                self.resign()
            raise

    def resign(self) -> None:
        """Decide nothing more and tell nobody anything."""
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
        if self.is_active:
            self.is_active = False
            logger.info("broker %d is no longer the controller of epoch %d", self._node_id, self.epoch)

    async def settled(self) -> None:
        """Wait for the events under way."""
        last = self._last
        if last is not None and not last.done():
            await asyncio.wait({last})

    # --- requests of clients ---

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Sequence[CreatedTopic]:
        return await self._announced(
            lambda image: create_topics(image, topics, self._config, self._random, validate_only=validate_only)
        )

    async def delete_topics(self, references: Sequence[TopicReference]) -> Sequence[DeletedTopic]:
        at_once = MAX_PARTITIONS_DELETED_AT_ONCE
        if self._store.max_transaction_bytes:
            at_once = min(at_once, max(1, self._store.max_transaction_bytes // _BYTES_TO_DELETE_A_PARTITION))
        return await self._announced(lambda image: delete_topics(image, references, self._config, at_once=at_once))

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Sequence[GrownTopic]:
        return await self._announced(
            lambda image: create_partitions(image, topics, self._random, validate_only=validate_only)
        )

    async def alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Sequence[AlteredResource]:
        async def event() -> Sequence[AlteredResource]:
            before = self.image
            altered = alter_configs(before, resources, self._config, validate_only=validate_only)
            replies = await self._carry_out(with_effects(before, altered, self._config))
            if topics_with_changed(UNCLEAN_ELECTION, before, self.image):
                await self._carry_out(leaders_sought(self.image, self._config))
            return replies

        return await self._in_turn(event)

    async def auto_create(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Create those that are missing, internal ones with their settings; the names that could not be created."""
        live = len(self.image.live_brokers())
        created = await self.create_topics([creatable(name, self._config, live) for name in dict.fromkeys(names)])
        failures: dict[str, ErrorCode] = {}
        for topic in created:
            # Somebody else may have been quicker: then it is there, as was asked.
            if topic.failure is not None and topic.failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                failures[topic.name] = topic.failure.code
                logger.info("cannot create topic %s: %s", topic.name, topic.failure.message or topic.failure.code.name)
        return failures

    async def change(self, decide: Callable[[ClusterImage], Decision[T]]) -> Sequence[T]:
        """Let a pure decision on the newest image take effect; its replies. Raises KafkaError."""

        async def event() -> Sequence[T]:
            return await self._carry_out(decide(self.image))

        return await self._in_turn(event)

    async def unregister_broker(self, broker_id: int) -> None:
        self._require_active()
        if broker_id not in self.image.brokers:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
        # A registration here is a live session, not a record that outlasts its broker as in KRaft.
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {broker_id} is running; it is unregistered by its end")

    # --- requests of brokers ---

    async def alter_partitions(
        self, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]
    ) -> Sequence[IsrChanged]:
        """Raises KafkaError STALE_BROKER_EPOCH among others."""
        return await self.change(lambda image: alter_partitions(image, broker_id, broker_epoch, changes, self._config))

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Sequence[ReplicaRef]:
        """Partitions that the broker still leads since nobody else can. Raises KafkaError STALE_BROKER_EPOCH, ..."""
        remaining = await self._announced(lambda image: shutting_down(image, broker_id, broker_epoch, self._config))
        logger.info("broker %d shuts down; it still leads %d partitions", broker_id, len(remaining))
        return remaining

    async def next_producer_id_block(self, broker_id: int | None = None, broker_epoch: int | None = None) -> range:
        """Producer ids that nobody else will ever hand out. Raises KafkaError STALE_BROKER_EPOCH, ..."""

        async def event() -> range:
            if broker_id is not None and broker_epoch is not None:
                registered(self.image, broker_id, broker_epoch)
            return await self._next_producer_id_block(broker_id)

        return await self._in_turn(event)

    async def broker_failed(self, broker: Broker) -> None:
        """The process of this registration is known to be dead: end it before its session does. Raises KafkaError."""

        await self._in_turn(lambda: self._bury(broker))

    # --- one event at a time ---

    def _require_active(self) -> None:
        if not self.is_active:
            raise NotTheController(ErrorCode.NOT_CONTROLLER)

    async def _in_turn(self, event: Callable[[], Awaitable[T]]) -> T:
        """Run an event after all earlier ones. It goes on to its end even if the one who asked has gone."""
        self._require_active()
        previous, epoch = self._last, self.epoch

        async def run() -> T:
            if previous is not None and not previous.done():
                await asyncio.wait({previous})
            if not self.is_active or self.epoch != epoch:
                raise NotTheController(ErrorCode.NOT_CONTROLLER)
            try:
                if self._stale and event != self._refreshed:
                    await self._refreshed()
                return await event()
            except SessionExpired as error:
                self._end_reign()
                raise NotTheController(ErrorCode.NOT_CONTROLLER) from error
            except StoreError as error:
                self._stale = True
                self._later("look", LOOK_AGAIN_SECONDS, self._look_at_all_soon)
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store cannot be read: {error}") from error
            except KafkaError:
                if self._stale:
                    # What was to finish half a change was lost, too, and who asked for it need not ask again.
                    self._later("look", LOOK_AGAIN_SECONDS, self._look_at_all_soon)
                raise

        task = self._last = asyncio.get_running_loop().create_task(run())
        task.add_done_callback(retrieve_failure)
        return await asyncio.shield(task)

    def _soon(self, event: Callable[[], Awaitable[object]], failed: Callable[[], None] = lambda: None) -> None:
        """Run an event that nobody waits for; one that fails while this is the controller is looked after later.

        `failed` is for what no look at the store brings to light.
        """

        async def run() -> None:
            try:
                await self._in_turn(event)
            except NotTheController:
                pass
            except KafkaError as error:
                logger.warning("controller: %s", error)
                self._later("look", LOOK_AGAIN_SECONDS, self._look_at_all_soon)
                failed()

        if self.is_active:
            task = asyncio.get_running_loop().create_task(run())
            task.add_done_callback(_log_failure)

    def _later(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        """Call later, once, however often this is asked meanwhile."""
        if name in self._timers or not self.is_active:
            return

        def fire() -> None:
            del self._timers[name]
            then()

        self._timers[name] = asyncio.get_running_loop().call_later(seconds, fire)

    async def _announced(self, decide: Callable[[ClusterImage], Decision[T]]) -> Sequence[T]:
        """Answer only when the other brokers know, too, or are slow to answer."""
        before = self.image
        replies = await self.change(decide)
        image = self.image
        if image is not before and self._channels:
            waiting = [channel.when_acknowledged(image.version) for channel in self._channels.values()]
            await asyncio.wait(waiting, timeout=TELL_SECONDS)
        return replies

    async def _carry_out(self, decision: Decision[T]) -> Sequence[T]:
        if decision.operations:
            limit = self._store.max_transaction_bytes
            await self._apply(list(batches(decision.operations, decision.cuts, limit * 8 // 10)))
        if decision.image is not self.image:
            await self._publish(decision.image)
        return decision.replies

    async def _apply(self, transactions: Iterable[Sequence[Operation]]) -> None:
        guard = Check(CONTROLLER_EPOCH, self._epoch_version)
        try:
            for operations in transactions:
                await self._store.apply([guard, *operations])
        except SessionExpired:
            raise
        except StoreError as error:
            # Whether it took effect is open, and what we believed of the store may be wrong: look before going on.
            logger.warning("metadata store: %s", error)
            await self._ensure_elected()
            if not self._stale:
                self._stale = True
                await self._refreshed()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store refused the change: {error}") from error

    async def _ensure_elected(self) -> None:
        """Raises NotTheController if another controller has been elected, StoreError if nobody can tell."""
        node = await self._store.get(CONTROLLER_EPOCH)
        if node is None or node.version != self._epoch_version:
            self._end_reign()
            raise NotTheController(ErrorCode.NOT_CONTROLLER)

    def _end_reign(self) -> None:
        self.resign()
        self.on_resigned()

    async def _publish(self, image: ClusterImage) -> None:
        if not self.is_active:
            return
        if not self._stale:
            _report(self.image, image)
        self.image = image
        try:
            waiting = self._take(image)
            if waiting is not None:
                await waiting
        finally:
            # The others must not wait for what this broker fails to do.
            if self.is_active:
                self._tell(image)

    def _tell(self, image: ClusterImage) -> None:
        for broker_id, channel in list(self._channels.items()):
            broker = image.brokers.get(broker_id)
            if broker is None or broker.epoch != channel.broker.epoch:
                channel.close()
                del self._channels[broker_id]
        for broker_id, broker in image.brokers.items():
            if broker_id == self._node_id:
                continue
            if broker_id not in self._channels:
                self._channels[broker_id] = ControllerChannel(broker, self._connect, self, self._differences)
            self._channels[broker_id].offer(image)
        if self._channels and self._config.flag("auto.leader.rebalance.enable"):
            self._later("balance", FIRST_BALANCE_SECONDS, self._balance_soon)

    # --- what channels report ---

    def broker_died(self, broker: Broker) -> None:
        self._soon(lambda: self._bury(broker))

    def registration_ended(self, broker: Broker) -> None:
        logger.info("broker %d has another registration than of epoch %d", broker.id, broker.epoch)
        self._look_at_brokers_soon()

    def deposed(self) -> None:
        self._soon(self._ensure_elected)

    def replicas_answered(self, broker: Broker, offline: list[ToldPartition], online: list[ToldPartition]) -> None:
        async def event() -> None:
            known = self.image.brokers.get(broker.id)
            if known is None or known.epoch != broker.epoch:
                return
            for told, decide in ((offline, replicas_offline), (online, replicas_online)):
                if replicas := self._still_there(told):
                    await self._carry_out(decide(self.image, broker.id, replicas, self._config))

        # A broker says it once, in the answer to what it is told.
        again = partial(self._tell_again, broker.id)
        self._soon(event, lambda: self._later(f"tell {broker.id}", LOOK_AGAIN_SECONDS, again))

    def _tell_again(self, broker_id: int) -> None:
        if broker_id in self._channels:
            self._channels[broker_id].tell_again()

    def _still_there(self, told: Iterable[ToldPartition]) -> list[ReplicaRef]:
        """Not of a topic that was made anew since: its logs are others, in other directories perhaps."""
        topics = self.image.topics
        return [
            ReplicaRef(topic.name, index)
            for topic, index, *_ in told
            if topic.name in topics and topics[topic.name].id == topic.id
        ]

    # --- events ---

    async def _bury(self, broker: Broker) -> None:
        while operations := await burial(self._store, broker):
            try:
                await self._store.apply([Check(CONTROLLER_EPOCH, self._epoch_version), *operations])
            except (BadVersion, NoNode):
                # The store has noticed the death, too, or some broker has just registered; or the throne is lost.
                await self._ensure_elected()
        await self._look_at_brokers()

    def _look_at_brokers_soon(self) -> None:
        self._soon(self._look_at_brokers)

    def _look_at_all_soon(self) -> None:
        """The store tells once that something is there to be looked at, and that look may be what failed."""
        self._look_at_brokers_soon()
        self._soon(self._look_at_directories)

    async def _look_at_brokers(self) -> None:
        """Whatever the store says of registrations now is what holds."""
        found = await read_registrations(self._store)
        changes = broker_changes(self.image.brokers, found.brokers)
        if not changes:
            return
        await self._carry_out(self._cleared(brokers_changed(self.image, found.brokers, self._config), found))

    async def _look_at_directories(self) -> None:
        """Ask the brokers whose directories failed. A new controller asks everybody anyway."""
        for name in await self._store.children(DIRECTORY_EVENTS):
            path = f"{DIRECTORY_EVENTS}/{name}"
            node = await self._store.get(path)
            if node is None:
                continue
            try:
                # Before it is asked: a failure in between leaves another node.
                await self._store.apply([Check(CONTROLLER_EPOCH, self._epoch_version), Delete(path, node.version)])
            except (BadVersion, NoNode):
                await self._ensure_elected()
                self._soon(self._look_at_directories)
                continue
            except StoreError:
                # It may be deleted all the same, and then nothing reminds of it.
                self._ask_about_directories(name)
                raise
            if name == str(self._node_id):
                await self._own_directories()
            else:
                self._ask_about_directories(name)

    def _ask_about_directories(self, name: str) -> None:
        if name.isdecimal():
            self._tell_again(int(name))

    async def _own_directories(self) -> None:
        offline = self.offline_here(self.image)
        if offline:
            await self._carry_out(replicas_offline(self.image, self._node_id, offline, self._config))

    def _cleared(self, decision: Decision[T], found: Registrations) -> Decision[T]:
        """With the last step of a registration after an unclean end: all its partitions have taken notice of it."""
        unclean = [broker for broker in found.brokers.values() if broker.unclean]
        if not unclean:
            return decision
        operations = list(decision.operations)
        last: list[Operation] = [Check(BROKER_SEQUENCE, found.sequence_version)]
        now_ms = self._clock.now_ms()
        image = decision.image
        for broker in unclean:
            clean = broker._replace(unclean=False)
            last.append(Put(BrokerNode.path(broker.id), BrokerNode.encode(clean, now_ms)))
            image = image.with_broker(image.brokers[broker.id]._replace(unclean=False))
        return Decision([*operations, *last], image, decision.replies, [*decision.cuts, len(operations)])

    async def _refreshed(self) -> None:
        """Load the cluster, finish what is half done, go on from there. Raises StoreError, KafkaError."""
        found = await read_registrations(self._store)
        image = (await load_image(self._store, self.image.version + 1)).with_controller(self._node_id, self.epoch)
        image = image.with_brokers(self._still_leaving(found.brokers))
        image = _with_offline(image, self.image)
        image = await self._finish_deletions(image)
        decision = self._cleared(everything_settled(image, self._config), found)
        _report(image, decision.image)
        await self._carry_out(decision)
        await self._own_directories()
        self._stale = False

    def _still_leaving(self, brokers: dict[int, Broker]) -> dict[int, Broker]:
        before = self.image.brokers
        return {
            i: broker._replace(fenced=True)
            if i in before and before[i].fenced and before[i].epoch == broker.epoch
            else broker
            for i, broker in brokers.items()
        }

    async def _finish_deletions(self, image: ClusterImage) -> ClusterImage:
        names = sorted(image.topics_in_deletion)
        for name in names:
            nodes = set(await read_subtree(self._store, TopicNode.path(name)))
            nodes.update(await read_subtree(self._store, ConfigNode.topic_path(name)))
            # Those below first; the marker last.
            operations: list[Operation] = [Delete(path) for path in sorted(nodes, key=lambda p: (-p.count("/"), p))]
            operations.append(Delete(DeletionNode.path(name)))
            limit = self._store.max_transaction_bytes
            await self._apply(batches(operations, range(1, len(operations)), limit * 8 // 10))
        return image.without_topics(names) if names else image

    async def _next_producer_id_block(self, broker_id: int | None) -> range:
        node = await self._store.get(PRODUCER_ID_BLOCK)
        first = 0 if node is None else ProducerIdBlockNode.decode(node.data).last + 1
        last = first + PRODUCER_IDS_PER_BLOCK - 1
        if last > MAX_PRODUCER_ID:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used.")
        block = ProducerIdBlock(self._node_id if broker_id is None else broker_id, first, last)
        data = ProducerIdBlockNode.encode(block)
        operation = Create(PRODUCER_ID_BLOCK, data) if node is None else Put(PRODUCER_ID_BLOCK, data, node.version)
        await self._apply([[operation]])
        return range(first, last + 1)

    # --- leaders where they belong ---

    def _balance_soon(self) -> None:
        self._soon(self._balance)

    async def _balance(self) -> None:
        percentage = self._config.number("leader.imbalance.per.broker.percentage")
        partitions = imbalanced_partitions(self.image, percentage)
        if partitions:
            logger.info("electing the preferred leaders of %d partitions", len(partitions))
            await self._carry_out(elect_leaders(self.image, ElectionType.PREFERRED, partitions, self._config))
        if not is_balanced(self.image):
            interval = self._config.number("leader.imbalance.check.interval.seconds")
            self._later("balance", interval, self._balance_soon)


def _report(old: ClusterImage, new: ClusterImage) -> None:
    """Log what changed for operators."""
    if logger.isEnabledFor(logging.INFO):
        for level, text in change_report(old, new):
            logger.log(level, "%s", text)


def _with_offline(image: ClusterImage, before: ClusterImage) -> ClusterImage:
    """The image as loaded, with the directories that brokers under the same registration have reported as failed."""
    topics = []
    for name, topic in image.topics.items():
        known = before.topics.get(name)
        if known is None or known.id != topic.id:
            continue
        states = list(topic.partitions)
        for index, state in enumerate(known.partitions[: len(states)]):
            offline = tuple(b for b in state.offline_replicas if _same_registration(b, before, image))
            if offline:
                states[index] = states[index]._replace(offline_replicas=offline)
        if any(new is not old for new, old in zip(states, topic.partitions, strict=True)):
            topics.append(topic._replace(partitions=tuple(states)))
    return image.with_topics(topics) if topics else image


def _same_registration(broker_id: int, before: ClusterImage, after: ClusterImage) -> bool:
    old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
    return old is not None and new is not None and old.epoch == new.epoch
