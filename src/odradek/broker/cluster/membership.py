"""This broker's membership in the cluster: its session and registration, and the election of the controller.

It looks at the store and acts on what it finds, again and again until nothing is left to do: after a change of
`/controller` or of its own registration, after a lost session, after a lost connection. So it does not matter what
exactly happened in between. Source: Kafka's `KafkaController` (elect, Reelect) and `KafkaZkClient`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from odradek.broker.cluster.controller_store import election, yielding
from odradek.broker.cluster.registrations import AlreadyRegistered, announce_failed_directory, burial, register
from odradek.broker.task_failures import logs_failure
from odradek.metadata.image import NO_BROKER, Broker
from odradek.metadata.nodes import (
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    BrokerNode,
    ClusterIdNode,
    ControllerEpochNode,
    ControllerNode,
    id_text,
)
from odradek.ports.clock import Clock
from odradek.ports.randomness import Random
from odradek.ports.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    Operation,
    Put,
    SessionExpired,
    StoreError,
    WrongStore,
)
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)
_log_failure = logs_failure(logger, "looking at the metadata store failed")

RETRY_SECONDS: Final = 0.1
MAX_RETRY_SECONDS: Final = 2.0
AWAY_SECONDS: Final = 1.0
"""How long a controller that yielded stays unregistered: meanwhile the next one moves its leadership."""
FIRM_SECONDS: Final = 10.0
"""A registration that has held so long is no more one of a row that were ended at once."""


class Reign(Protocol):
    """The controller's part in this process."""

    is_active: bool
    epoch: int

    async def reign(self, epoch: int, epoch_version: int, replaced: Callable[[], None], /) -> None:
        """Take over as the controller of this epoch; `replaced` reports a later one. Raises KafkaError."""
        ...

    def resign(self) -> None:
        """Decide nothing more."""
        ...


async def cluster_id(
    store: MetadataStore, random: Random, expected: str | None, *, holds_data: Callable[[], bool] = bool
) -> str:
    """The cluster's id; a new cluster gets the expected one, or a fresh one.

    Raises StoreError; WrongStore when `expected` is not the id in this store, so that the data belongs to another
    cluster, and when the store has no cluster though the log directories hold partitions of the expected one.
    """
    while True:
        node = await store.get(CLUSTER_ID)
        if node is not None:
            found = ClusterIdNode.decode(node.data)
            if expected is not None and expected != found:
                raise WrongStore(f"the metadata is of cluster {found}, not of {expected}")
            return found
        if expected is not None and holds_data():
            raise WrongStore(
                f"the store is empty, but the log directories hold partitions of cluster {expected}, all of which "
                "would be set aside: restore the metadata, or set log.dirs to another folder"
            )
        try:
            await store.apply([Create(CLUSTER_ID, ClusterIdNode.encode(expected or id_text(random.uuid())))])
        except NodeExists:
            continue


class IdTaken(StoreError):
    """Another process has this broker's id or address: a mistake in the configuration, if it lasts."""


def _id_taken(broker_id: int, found: AlreadyRegistered) -> IdTaken:
    other = found.broker
    where = ", ".join(f"{e.host}:{e.port}" for e in other.endpoints.values())
    machine = f" on {found.machine}" if found.machine else ""
    if other.id == broker_id:
        return IdTaken(
            f"broker id {broker_id} is registered by another process, at {where}{machine}: set another broker.id "
            "(serve --brokers N: --first-id)"
        )
    return IdTaken(
        f"the address of broker {broker_id} is registered by broker {other.id}, at {where}{machine}: set listeners or "
        "advertised.listeners to addresses of its own"
    )


def _is_overtaken(error: StoreError | KafkaError) -> bool:
    """Whether what a new controller does first met another write: a broker that registered, another controller."""
    return isinstance(error, KafkaError) and (
        error.code is ErrorCode.NOT_CONTROLLER or isinstance(error.__cause__, BadVersion | NodeExists | NoNode)
    )


class Membership:
    """`join` once the listeners are bound, `leave` at the end."""

    __slots__ = (
        "_broker",
        "_burials",
        "_clock",
        "_controller",
        "_directory_failed",
        "_joined",
        "_judged",
        "_leaving",
        "_look_again",
        "_machine",
        "_patience",
        "_patience_seconds",
        "_pause",
        "_registered",
        "_registered_at",
        "_registering",
        "_steps_down",
        "_store",
        "_task",
        "_unwatch",
        "broker_epoch",
        "controller_id",
    )

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        controller: Reign,
        *,
        patience_seconds: float = 0.0,
        registering: Callable[[], None] = lambda: None,
        registered: Callable[[Broker], None] = lambda _broker: None,
        judged: Callable[[], None] = lambda: None,
    ) -> None:
        """`patience_seconds`: how long a registration that was left behind under this id may keep this one out.

        `registering` is called before each registration, since grants to the previous one end then; `registered` with
        each new registration of this broker; `judged` when no replica depends any longer on
        the records that this broker may have lost.
        """
        self._store = store
        self._clock = clock
        self._controller = controller
        self._registering = registering
        self._registered = registered
        self._judged = judged
        self._broker: Broker | None = None
        self._machine = ""
        self._unwatch: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None
        self._patience_seconds = patience_seconds
        self._patience = 0.0
        self._look_again = False
        self._leaving = False
        self._directory_failed = False
        self._burials = 0
        self._registered_at = 0.0
        self._steps_down = False
        self._pause: asyncio.Future[None] | None = None
        self._joined: asyncio.Future[None] | None = None
        self.broker_epoch = NO_BROKER
        """Of the newest registration."""
        self.controller_id = NO_BROKER
        """Who is known to be the controller."""

    # --- life ---

    async def join(self, broker: Broker, machine: str = "") -> Broker:
        """Register, and ensure that the cluster has a controller: this broker if no other is elected.

        The broker with its epoch, when it is registered and a controller is known. `machine` is this one's name where
        its addresses do not say which one that is. Raises StoreError only for what does not go away by itself: IdTaken,
        a store that cannot be read.
        """
        self._broker = broker
        self._machine = machine
        self._patience = self._clock.monotonic() + self._patience_seconds
        self._joined = asyncio.get_running_loop().create_future()
        self._unwatch = [
            self._store.watch(CONTROLLER, lambda _path: self._another_controller()),
            self._store.watch(BrokerNode.path(broker.id), lambda _path: self._wake()),
            self._store.watch_session(self._session_lost),
        ]
        self._wake()
        try:
            await self._joined
        except BaseException:
            await self._stop()
            raise
        assert self._broker is not None
        return self._broker

    async def leave(self) -> None:
        """Resign and unregister; the session itself is the store's to end. Raises StoreError."""
        await self._stop()
        broker, epoch = self._broker, self._controller.epoch
        was_controller = self._controller.is_active
        self._controller.resign()
        if broker is None or self.broker_epoch == NO_BROKER:
            return
        try:
            if was_controller:
                await self._abdicate(epoch)
            operations = await burial(self._store, broker)
            if operations:
                await self._store.apply(operations)
        except (BadVersion, NoNode, SessionExpired):
            logger.info("the registration of broker %d had already ended", broker.id)

    async def _stop(self) -> None:
        self._leaving = True
        for unwatch in self._unwatch:
            unwatch()
        self._unwatch.clear()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _abdicate(self, epoch: int) -> None:
        """Let the next controller be elected now, not when the session ends."""
        node = await self._store.get(CONTROLLER_EPOCH)
        if node is not None and ControllerEpochNode.decode(node.data) == epoch:
            try:
                await self._store.apply([Check(CONTROLLER_EPOCH, node.version), Delete(CONTROLLER)])
            except (BadVersion, NoNode):
                logger.info("broker %d was no longer the controller", self.controller_id)

    async def controller_died(self, controller: Broker) -> None:
        """The process of this registration, the controller, is known to be dead: do not wait for its session.

        Raises StoreError.
        """
        while True:
            epoch = await self._store.get(CONTROLLER_EPOCH)
            node = await self._store.get(CONTROLLER)
            operations: list[Operation] = list(await burial(self._store, controller))
            if epoch is None or node is None or ControllerNode.decode(node.data) != controller.id or not operations:
                return
            try:
                await self._store.apply([Check(CONTROLLER_EPOCH, epoch.version), *operations, Delete(CONTROLLER)])
            except (BadVersion, NoNode):
                # Others have noticed, too, or some broker has just registered.
                continue
            logger.info("ended the election of the controller, broker %d: its process is dead", controller.id)
            return

    def directory_failed(self) -> None:
        """Have the controller ask which replicas of this broker are offline, as soon as the store can be reached."""
        if self._broker is not None:
            self._directory_failed = True
            self._wake()

    def step_down(self) -> None:
        """Yield as the controller, which too few brokers reach: leave the cluster for a while; others decide."""
        self._steps_down = True
        self._wake()

    async def _yield(self) -> None:
        """Raises StoreError: whether it took effect is open, and this broker needs another registration for a lease."""
        self._steps_down = False
        broker = self._broker
        if broker is None or not self._controller.is_active:
            return
        epoch = self._controller.epoch
        operations = await yielding(self._store, broker, epoch)
        if not operations:
            return
        # The next controller does not wait for the end of this lease.
        self._registering()
        self.broker_epoch = NO_BROKER
        try:
            await self._store.apply(operations)
        except (BadVersion, NoNode, NodeExists):
            # Another controller has been elected, or a registration has changed.
            return
        self._controller.resign()
        logger.warning("yielded as the controller of epoch %d; registering again after %g s", epoch, AWAY_SECONDS)
        await asyncio.sleep(AWAY_SECONDS)

    # --- looking at the store ---

    def _session_lost(self) -> None:
        logger.warning("the session with the metadata store expired; opening another one")
        self._controller.resign()
        self._wake()

    def _another_controller(self) -> None:
        """Who takes over reaches this broker, perhaps, or leaves its place to it."""
        self._burials = 0
        if self._pause is not None and not self._pause.done():
            self._pause.set_result(None)
        self._wake()

    def _wake(self) -> None:
        if self._leaving:
            return
        self._look_again = True
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._look())
            self._task.add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[None]) -> None:
        _log_failure(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._joined is not None and not self._joined.done():
            self._joined.set_exception(error)

    async def _look(self) -> None:
        backoff = RETRY_SECONDS
        while self._look_again and not self._leaving:
            self._look_again = False
            try:
                await self._act()
            except SessionExpired:
                self._controller.resign()
                self._look_again = True
                try:
                    await self._store.reopen()
                    logger.info("opened another session with the metadata store")
                    continue
                except StoreError as error:
                    logger.warning("metadata store: %s", error)
            except (StoreError, KafkaError) as error:
                waits = _is_overtaken(error) or (
                    isinstance(error, IdTaken) and self._clock.monotonic() < self._patience
                )
                if self._joined is not None and not self._joined.done() and not waits:
                    self._joined.set_exception(error if isinstance(error, StoreError) else StoreError(str(error)))
                    return
                logger.warning("metadata store: %s", error)
                self._look_again = True
            else:
                backoff = RETRY_SECONDS
                if self._joined is not None and not self._joined.done():
                    self._joined.set_result(None)
                continue
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_RETRY_SECONDS)

    async def _act(self) -> None:
        if self._steps_down:
            await self._yield()
        await self._ensure_registered()
        if self._directory_failed:
            await self._announce_directory()
        await self._ensure_controller()

    async def _announce_directory(self) -> None:
        assert self._broker is not None
        self._directory_failed = False
        try:
            await announce_failed_directory(self._store, self._broker.id)
        except StoreError:
            self._directory_failed = True
            raise

    async def _ensure_registered(self) -> None:
        broker = self._broker
        assert broker is not None
        path = BrokerNode.path(broker.id)
        node = await self._store.get(path)
        if node is not None and node.session == self._store.session:
            present = BrokerNode.decode(path, node.data)
            if present.epoch == self.broker_epoch:
                # The controller reports it once no partition relies on the records that may be missing here.
                self._broker = broker._replace(unclean=present.unclean)
                if broker.unclean and not present.unclean:
                    self._judged()
                return
        if self.broker_epoch != NO_BROKER:
            await self._taken_for_dead(broker.id)
        self._registering()
        registered = await register(self._store, broker, self._clock.now_ms(), self._machine)
        if isinstance(registered, AlreadyRegistered):
            raise _id_taken(broker.id, registered)
        self._broker = registered
        self.broker_epoch = registered.epoch
        self._registered_at = self._clock.monotonic()
        logger.info("broker %d is registered, epoch %d", registered.id, registered.epoch)
        self._registered(registered)

    async def _taken_for_dead(self, broker_id: int) -> None:
        """The first time register again at once. A controller that does not reach this broker ends that one as well."""
        if self._clock.monotonic() - self._registered_at >= FIRM_SECONDS:
            self._burials = 0
        seconds = min(RETRY_SECONDS * (1 << min(self._burials, 8)), MAX_RETRY_SECONDS) if self._burials else 0.0
        self._burials += 1
        logger.warning(
            "the registration of broker %d was ended although it runs; registering again after %g s", broker_id, seconds
        )
        if seconds:
            self._pause = asyncio.get_running_loop().create_future()
            await asyncio.wait({self._pause}, timeout=seconds)
            self._pause = None

    async def _ensure_controller(self) -> None:
        """Find the controller, and become it if no other is elected."""
        while True:
            node = await self._store.get(CONTROLLER)
            if node is None:
                if not await self._elect():
                    continue
                node = await self._store.get(CONTROLLER)
                if node is None:
                    continue
            if node.session == self._store.session:
                if not self._controller.is_active and not await self._reign():
                    continue
            else:
                if self._controller.is_active:
                    self._controller.resign()
                if ControllerNode.decode(node.data) == self._broker_id and await self._end_former_reign():
                    continue
            self.controller_id = ControllerNode.decode(node.data)
            return

    async def _end_former_reign(self) -> bool:
        """End the election of the process that had this broker's id before. False if that cannot be done.

        This broker is registered under the same addresses, so that process is dead, but its session may last. The other
        brokers notice its death only if they try to connect to it before this process listens. Raises StoreError.
        """
        epoch = await self._store.get(CONTROLLER_EPOCH)
        node = await self._store.get(CONTROLLER)
        if epoch is None:
            return False
        if node is None or node.session == self._store.session or ControllerNode.decode(node.data) != self._broker_id:
            return True
        try:
            await self._store.apply([Check(CONTROLLER_EPOCH, epoch.version), Delete(CONTROLLER)])
        except (BadVersion, NoNode):
            # Its session has ended, or another controller has been elected.
            return True
        logger.info("ended the election of broker %d as the controller: that process is dead", self._broker_id)
        return True

    @property
    def _broker_id(self) -> int:
        assert self._broker is not None
        return self._broker.id

    async def _elect(self) -> bool:
        """Whether this broker is the controller now; not when another one was quicker."""
        self._controller.resign()
        assert self._broker is not None
        found = await self._store.get(CONTROLLER_EPOCH)
        epoch = 1 if found is None else ControllerEpochNode.decode(found.data) + 1
        data = ControllerEpochNode.encode(epoch)
        try:
            await self._store.apply(
                [
                    Create(CONTROLLER, ControllerNode.encode(self._broker.id, self._clock.now_ms()), ephemeral=True),
                    Create(CONTROLLER_EPOCH, data) if found is None else Put(CONTROLLER_EPOCH, data, found.version),
                    *await election(self._store, epoch, self._broker_id),
                ]
            )
        except (NodeExists, BadVersion):
            return False
        return True

    async def _reign(self) -> bool:
        """Whether this broker is still the elected one: the epoch is that which was written together with our node."""
        node = await self._store.get(CONTROLLER_EPOCH)
        elected = await self._store.get(CONTROLLER)
        if elected is None or elected.session != self._store.session:
            # Taken for dead and replaced since: the epoch may be the other one's, whose writes it would pass for.
            return False
        if node is None:
            raise StoreError(f"{CONTROLLER_EPOCH} is missing")
        await self._controller.reign(ControllerEpochNode.decode(node.data), node.version, self._wake)
        return True
