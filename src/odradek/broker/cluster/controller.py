"""The elected controller: one event at a time, from a decision through the store to the next image and to the brokers.

The shape is that of Kafka's `KafkaController` and `ControllerEventManager`: events queue, and each is decided on the
image that the one before left behind. A change is in the store, then in the image, then known to this broker, then
answered; the other brokers are notified meanwhile. Every write checks that no other controller has been elected since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from odradek.api.requests.long_work import LongWork
from odradek.api.services.controller_service import NotTheController
from odradek.broker.cluster.broker_events import RETRY_SECONDS, BrokerEvents, OfflineReplicas
from odradek.broker.cluster.contacts import Contacts
from odradek.broker.cluster.controller_channel import Connect, ControlTimeouts
from odradek.broker.cluster.controller_channels import ControllerChannels
from odradek.broker.cluster.controller_store import ControllerStore
from odradek.broker.cluster.deposed_mark import DeposedMark
from odradek.broker.cluster.event_queue import EventQueue
from odradek.broker.cluster.fencing import Fencing
from odradek.broker.cluster.leader_balancing import LeaderBalance
from odradek.broker.cluster.lease_grants import LeaseGrants
from odradek.broker.cluster.registrations import read_registrations
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.task_failures import logs_failure
from odradek.controller.brokers import leaders_sought, recovered_partitions, registered, shutting_down, with_states_of
from odradek.controller.change_report import change_report
from odradek.controller.config_effects import UNCLEAN_ELECTION, topics_with_changed, with_effects
from odradek.controller.configs import AlteredResource, ResourceChanges, alter_configs
from odradek.controller.election_counts import ElectionCounts
from odradek.controller.in_sync import IsrChange, IsrChanged, alter_partitions
from odradek.controller.lease_table import Grant, deposed_brokers
from odradek.controller.outcome import Decided, Decision
from odradek.controller.topics import (
    MAX_PARTITIONS_DELETED_AT_ONCE,
    CreatedTopic,
    DeletedTopic,
    GrownTopic,
    MorePartitions,
    NewTopic,
    TopicReference,
    create_partitions_in_steps,
    create_topics_in_steps,
    delete_topics,
)
from odradek.metadata.changes import load_image
from odradek.metadata.image import NO_BROKER, Broker, ClusterImage
from odradek.ports.clock import Clock
from odradek.ports.randomness import Random
from odradek.ports.store import (
    MetadataStore,
    Operation,
    SessionExpired,
    StoreError,
)
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)
_log_failure = logs_failure(logger, "an event of the controller failed")

TELL_SECONDS: Final = 0.5
"""How long an answer to a client waits for the other brokers to know of a change."""
_BYTES_TO_DELETE_A_PARTITION: Final = 1000
"""At most, in a transaction of the metadata store."""

T = TypeVar("T")


class OwnView(Protocol):
    """The cluster as the controller's own broker knows it."""

    @property
    def image(self) -> ClusterImage:
        """What it knows; of brokers that are dead, too, until it learns of that."""
        ...

    def take(self, image: ClusterImage) -> Awaitable[None] | None:
        """Give the broker an image, before the change is answered."""
        ...


class Controller:
    """The controller as long as `is_active`. `reign` when elected, `resign` when that is over."""

    __slots__ = (
        "_balance",
        "_brokers",
        "_channels",
        "_config",
        "_events",
        "_has_published",
        "_mark",
        "_node_id",
        "_random",
        "_replaced",
        "_stale",
        "_store",
        "_unwatch",
        "_view",
        "_work",
        "elections",
        "epoch",
        "fencing",
        "image",
        "is_active",
        "leases",
    )

    def __init__(
        self,
        store: MetadataStore,
        config: BrokerConfig,
        clock: Clock,
        random: Random,
        view: OwnView,
        connect: Connect,
        offline_here: OfflineReplicas = lambda _image: [],
    ) -> None:
        """`offline_here` has the replicas of this broker whose directory is offline; other brokers report theirs."""
        self._store = ControllerStore(store)
        self._config = config
        self._random = random
        self._view = view
        self._node_id = config.node_id
        self._work = LongWork(clock.monotonic, config.number("odradek.loop.slice.ms"))
        self._events = EventQueue()
        timeouts = ControlTimeouts(
            config.number("broker.session.timeout.ms"), config.number("controller.socket.timeout.ms")
        )
        self._channels = ControllerChannels(config.node_id, connect, timeouts)
        self.leases = LeaseGrants(self._store, clock, connect, config)
        """The leases that it grants."""
        self._has_published = False
        self._brokers = BrokerEvents(self._store, config, clock, self._channels, self.leases, self, offline_here)
        self._mark = DeposedMark(config.node_id, self._store, self.leases, self)
        self._balance = LeaderBalance(config, self)
        self.fencing = Fencing(config, clock, self, Contacts(config, connect))
        """The watch over brokers that no longer reach this controller."""
        self._unwatch: list[Callable[[], None]] = []
        self._stale = True
        self.elections = ElectionCounts()
        """Leaders elected since the process started."""
        self.epoch = NO_BROKER
        """Epoch of the present or last election of this broker."""
        self.image = ClusterImage()
        """The cluster as of the last decision."""
        self.is_active = False
        """Whether this broker is the controller, as far as it knows."""
        self._replaced: Callable[[], None] = lambda: None

    # --- reign ---

    async def reign(self, epoch: int, epoch_version: int, replaced: Callable[[], None] = lambda: None) -> None:
        """Take over as the controller of this epoch; the version is that of its node.

        Loads the cluster and finishes what the controller before left half done. `replaced` is called if this
        controller finds out by itself that another one has been elected. Raises KafkaError.
        """
        self.resign()
        # An event of an earlier reign would decide on the image that this one has not loaded yet: all topics gone.
        await self.wait_until_idle()
        self.epoch = epoch
        self._store.elected(epoch_version)
        self._replaced = replaced
        self.is_active = True
        self._stale = True
        self._has_published = False
        self.leases.elected(epoch)
        self.fencing.begin()
        self.image = ClusterImage(version=self.image.version)
        self._unwatch = self._brokers.watch()
        logger.info("broker %d is the controller, epoch %d", self._node_id, epoch)
        try:
            await self._in_turn(self._refreshed)
        except KafkaError:
            if self.epoch == epoch:
                self.resign()
            raise

    def resign(self) -> None:
        """Stop deciding and close the channels to the other brokers."""
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        self._events.cancel_timers()
        self._channels.close()
        self.leases.end()
        self.fencing.end()
        if self.is_active:
            self.is_active = False
            logger.info("broker %d is no longer the controller of epoch %d", self._node_id, self.epoch)

    async def wait_until_idle(self) -> None:
        """Wait for the events under way."""
        await self._events.wait_until_idle()

    # --- requests of clients ---

    async def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Sequence[CreatedTopic]:
        """Create topics; one reply for each. Raises KafkaError."""
        return await self._announced(
            lambda image: create_topics_in_steps(image, topics, self._config, self._random, validate_only=validate_only)
        )

    async def delete_topics(self, references: Sequence[TopicReference]) -> Sequence[DeletedTopic]:
        """Delete topics; one reply for each. Raises KafkaError."""
        at_once = MAX_PARTITIONS_DELETED_AT_ONCE
        limit = self._store.store.max_transaction_bytes
        if limit:
            at_once = min(at_once, max(1, limit // _BYTES_TO_DELETE_A_PARTITION))
        return await self._announced(lambda image: delete_topics(image, references, self._config, at_once=at_once))

    async def create_partitions(
        self, topics: Sequence[MorePartitions], *, validate_only: bool = False
    ) -> Sequence[GrownTopic]:
        """Add partitions to topics; one reply for each topic. Raises KafkaError."""
        return await self._announced(
            lambda image: create_partitions_in_steps(image, topics, self._random, validate_only=validate_only)
        )

    async def alter_configs(
        self, resources: Sequence[ResourceChanges], *, validate_only: bool = False
    ) -> Sequence[AlteredResource]:
        """Change configurations; one reply for each resource. Raises KafkaError."""

        async def event() -> Sequence[AlteredResource]:
            before = self.image
            altered = alter_configs(before, resources, self._config, validate_only=validate_only)
            replies = await self.carry_out(with_effects(before, altered, self._config))
            if topics_with_changed(UNCLEAN_ELECTION, before, self.image):
                await self.carry_out(leaders_sought(self.image, self._config))
            return replies

        return await self._in_turn(event)

    async def change(self, decide: Callable[[ClusterImage], Decided[T]]) -> Sequence[T]:
        """Let a pure decision on the newest image take effect; its replies. Raises KafkaError."""

        async def event() -> Sequence[T]:
            decided = decide(self.image)
            # No other event changes the image while the decision takes turns with other work.
            decision = decided if isinstance(decided, Decision) else await self._work.complete(decided)
            return await self.carry_out(decision)

        return await self._in_turn(event)

    async def unregister_broker(self, broker_id: int) -> None:
        """Reject: the registration of a live broker ends with its session. Raises KafkaError."""
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

    async def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> Sequence[TopicPartition]:
        """Partitions that the broker still leads: no other replica can. Raises KafkaError STALE_BROKER_EPOCH, ..."""
        self.fencing.leaves(broker_id, broker_epoch)
        remaining = await self._announced(lambda image: shutting_down(image, broker_id, broker_epoch, self._config))
        logger.info("broker %d shuts down; it still leads %d partitions", broker_id, len(remaining))
        return remaining

    async def next_producer_id_block(self, broker_id: int | None = None, broker_epoch: int | None = None) -> range:
        """Producer ids that no other call returns. Raises KafkaError STALE_BROKER_EPOCH, ..."""

        async def event() -> range:
            if broker_id is not None and broker_epoch is not None:
                registered(self.image, broker_id, broker_epoch)
            return await self._next_producer_id_block(broker_id)

        return await self._in_turn(event)

    async def lease(self, broker_id: int, broker_epoch: int) -> Grant:
        """A lease of leadership. Raises KafkaError STALE_BROKER_EPOCH, NOT_CONTROLLER."""
        self._require_active()
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        self.fencing.note_request(broker_id, broker_epoch)
        try:
            return await self.leases.lease(broker_id, broker_epoch, self.fencing.session_end(broker_id))
        except SessionExpired as error:
            raise NotTheController(ErrorCode.NOT_CONTROLLER) from error

    def share_turns(self, work: LongWork) -> None:
        """Slice long decisions by the turns that the broker's long requests have."""
        self._work = work

    async def broker_failed(self, broker: Broker) -> None:
        """The process of this registration is known to be dead: end it before its session does. Raises KafkaError."""

        await self._in_turn(lambda: self._brokers.bury(broker))

    # --- one event at a time ---

    def _require_active(self) -> None:
        if not self.is_active:
            raise NotTheController(ErrorCode.NOT_CONTROLLER)

    async def _in_turn(self, event: Callable[[], Awaitable[T]]) -> T:
        """Run an event after all earlier ones. It runs to its end even if its caller is cancelled."""
        self._require_active()
        epoch = self.epoch

        async def turn() -> T:
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
                self.later("look", RETRY_SECONDS, self._brokers.look_at_all_soon)
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store cannot be read: {error}") from error
            except KafkaError:
                if self._stale:
                    # The rest of a half-done change is lost, too, and its caller need not ask again.
                    self.later("look", RETRY_SECONDS, self._brokers.look_at_all_soon)
                raise

        return await self._events.run(turn)

    def soon(self, event: Callable[[], Awaitable[object]], failed: Callable[[], None] = lambda: None) -> None:
        """Run an event without a caller; after a failure, the store is read again later.

        `failed` is for what no look at the store brings to light.
        """

        async def run() -> None:
            try:
                await self._in_turn(event)
            except NotTheController:
                pass
            except KafkaError as error:
                logger.warning("an event of the controller failed: %s; reading the metadata store again", error)
                self.later("look", RETRY_SECONDS, self._brokers.look_at_all_soon)
                failed()

        if self.is_active:
            task = asyncio.get_running_loop().create_task(run())
            task.add_done_callback(_log_failure)

    def later(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        """Call later, once for each name, unless this is no longer the controller by then."""
        if self.is_active:
            self._events.later(name, seconds, then)

    async def _announced(self, decide: Callable[[ClusterImage], Decided[T]]) -> Sequence[T]:
        """Answer only when the other brokers know, too, or are slow to answer."""
        before = self.image
        replies = await self.change(decide)
        image = self.image
        if image is not before:
            await self._channels.wait_until_acknowledged(image.version, TELL_SECONDS)
        return replies

    async def carry_out(self, decision: Decision[T], before: ClusterImage | None = None) -> Sequence[T]:
        """Write the decision, publish its image, return its replies; only within an event. Raises KafkaError.

        `before` is what the brokers may act on until they know the decision's image; None for the present image.
        """
        before = self.image if before is None else before
        deposed = deposed_brokers(before, decision.image)
        if decision.operations:
            operations, cuts = decision.operations, decision.cuts
            mark = self._mark.operations(deposed, self.image) if deposed else []
            if mark:
                operations, cuts = [*mark, *operations], [cut + 1 for cut in cuts]
            await self._apply(self._store.transactions(operations, cuts))
            if mark:
                self._store.deposed_marked()
        if decision.image is not self.image:
            # Where a deposed broker is looked for, though its registration has ended.
            known = {**self._view.image.brokers, **before.brokers}
            self.leases.depose(deposed, decision.image, known)
            if deposed:
                self._mark.clear_later()
            await self._publish(decision.image)
        return decision.replies

    async def _apply(self, transactions: Iterable[Sequence[Operation]]) -> None:
        try:
            for operations in transactions:
                await self.leases.apply(operations)
        except SessionExpired:
            raise
        except StoreError as error:
            # It may have taken effect, and the image may be wrong: read the store before the next decision.
            logger.warning("cannot write to the metadata store: %s; reading the cluster again", error)
            await self.ensure_elected()
            if not self._stale:
                self._stale = True
                await self._refreshed()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The metadata store refused the change: {error}") from error

    async def ensure_elected(self) -> None:
        """Raises NotTheController if another controller has been elected, StoreError if the store does not answer."""
        if not await self._store.is_elected():
            self._end_reign()
            raise NotTheController(ErrorCode.NOT_CONTROLLER)

    def _end_reign(self) -> None:
        self.resign()
        self._replaced()

    async def _publish(self, image: ClusterImage) -> None:
        if not self.is_active:
            return
        if not self._stale:
            _report(self.image, image)
            self.elections.add(self.image, image)
        self.image = image
        self._has_published = True
        try:
            waiting = self._view.take(image)
            if waiting is not None:
                await waiting
            own = image.brokers.get(self._node_id)
            if own is not None:
                self.leases.acknowledge(own, image.version)
        finally:
            # The others must not wait for what this broker fails to do.
            if self.is_active:
                self._channels.offer(image, self._brokers)
                self.fencing.follow(image)
                if self._channels:
                    self._balance.begin()

    # --- events ---

    async def _refreshed(self) -> None:
        """Load the cluster and complete the operations that are half done. Raises StoreError, KafkaError."""
        store = self._store.store
        if not self._has_published:
            await self.leases.begin()
        elif await self._store.read_deposed():
            # A write of the mark may have taken effect although its answer was lost.
            self._mark.clear_later()
        found = await read_registrations(store)
        image = (await load_image(store, self.image.version + 1)).with_controller(self._node_id, self.epoch)
        image = image.with_brokers(with_states_of(self.image.brokers, found.brokers))
        image = _with_offline(image, self.image)
        image = await self._finish_deletions(image)
        decision = self._brokers.cleared(recovered_partitions(image, self._config), found)
        _report(image, decision.image)
        await self.carry_out(decision, self.image if self._has_published else image)
        await self._brokers.look_at_own_directories()
        self._stale = False

    async def _finish_deletions(self, image: ClusterImage) -> ClusterImage:
        names = sorted(image.topics_in_deletion)
        for name in names:
            await self._apply(await self._store.deletion_of(name))
        return image.without_topics(names) if names else image

    async def _next_producer_id_block(self, broker_id: int | None) -> range:
        block, reserve = await self._store.next_producer_id_block(self._node_id if broker_id is None else broker_id)
        await self._apply([[reserve]])
        return block


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
            kept = (b for b in state.offline_replicas if b in states[index].replicas)
            offline = tuple(b for b in kept if _same_registration(b, before, image))
            if offline:
                states[index] = states[index]._replace(offline_replicas=offline)
        if any(new is not old for new, old in zip(states, topic.partitions, strict=True)):
            topics.append(topic._replace(partitions=tuple(states)))
    return image.with_topics(topics) if topics else image


def _same_registration(broker_id: int, before: ClusterImage, after: ClusterImage) -> bool:
    old, new = before.brokers.get(broker_id), after.brokers.get(broker_id)
    return old is not None and new is not None and old.epoch == new.epoch
