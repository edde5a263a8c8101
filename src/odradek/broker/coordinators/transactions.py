"""The transaction coordinator of this broker (Kafka's TransactionCoordinator): requests on their way to a partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.broker.cluster.peers import Peers
from odradek.broker.coordinators.context import CoordinatorContext, CoordinatorEnvironment
from odradek.broker.coordinators.marker_channels import MarkerChannels
from odradek.broker.coordinators.markers import LEADER_HERE, MarkerWriter, RoutedMarkers, TransactionListener
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.coordinators.remote_verification import ask_coordinator
from odradek.broker.coordinators.runtime import CoordinatorRuntime
from odradek.broker.coordinators.shard import CoordinatorState, RecordCodec
from odradek.broker.coordinators.timers import CoordinatorClock
from odradek.broker.coordinators.transaction_shard import Decide, TransactionShard
from odradek.groups.placement import partition_for_group
from odradek.log.producers.state import ProducerStates
from odradek.metadata.features import TRANSACTION_VERSION, level_in_force
from odradek.metadata.image import GROUP_METADATA_TOPIC, NO_LEADER, TRANSACTION_STATE_TOPIC, ClusterImage
from odradek.replication.partition import Partition
from odradek.transactions.connections import NewestConnections, StaleConnection
from odradek.transactions.coordinator import TransactionCoordinator, states_of
from odradek.transactions.events import (
    AddPartitions,
    EndTransaction,
    InitProducerId,
    NoProducerIds,
    ProducerResult,
    TransactionDecision,
    TransactionDescription,
)
from odradek.transactions.id_patterns import id_matcher
from odradek.transactions.records import TV_0, TV_2, TransactionRecord, decode_record, encode_record
from odradek.transactions.service import (
    ListFilter,
    Listings,
    PartitionMarker,
    Rejections,
    TransactionService,
    Verification,
)
from odradek.transactions.settings import TransactionSettings
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.api.requests.context import Configuration, PartitionLookup
    from odradek.api.services.controller_service import ControllerService

logger = logging.getLogger("odradek.transactions")

_REMEMBERED_COMMITTERS = 10_000
_REMEMBERED_SENDERS = 1_000
_ANY_PRODUCER = 0
_ADDING_PRODUCE_VERSION = 12
_ABORTABLE_PRODUCE_VERSION = 11
_ADDING_COMMIT_VERSION = 5
_ABORTABLE_COMMIT_VERSION = 4
_CONCURRENT_RETRY_SECONDS = 0.02
_COORDINATION_FAILURES = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def transaction_settings(config: Configuration, transaction_version: Callable[[], int]) -> TransactionSettings:
    """The coordinator's settings as the broker is configured; `transaction_version` is the level in force."""
    number = config.number
    return TransactionSettings(
        max_timeout_ms=number("transaction.max.timeout.ms"),
        id_expiration_ms=number("transactional.id.expiration.ms"),
        remove_expired_interval_ms=number("transaction.remove.expired.transaction.cleanup.interval.ms"),
        abort_timed_out_interval_ms=number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        append_timeout_ms=number("request.timeout.ms"),
        transaction_version=transaction_version,
    )


class KnownCluster(Protocol):
    """The cluster as far as this broker knows it."""

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        ...

    @property
    def is_whole(self) -> bool:
        """Whether a topic outside the image does not exist; else the image may be incomplete."""
        ...


class TransactionCoordinatorService:
    """Serves `transactions.service.TransactionService`.

    The broker calls `elected` and `resigned` as it gains and loses partitions of `__transaction_state`.
    """

    __slots__ = (
        "_clock",
        "_cluster",
        "_commits",
        "_config",
        "_ids",
        "_loop",
        "_markers",
        "_node_id",
        "_partitions",
        "_peers",
        "_runtime",
        "_senders",
        "_settings",
        "_writer",
    )

    def __init__(
        self,
        config: Configuration,
        clock: CoordinatorClock,
        cluster: KnownCluster,
        controller: ControllerService,
        partitions: PartitionLookup,
        groups: TransactionListener,
        peers: Peers,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._config = config
        self._node_id = peers.node_id
        self._peers = peers
        self._settings = transaction_settings(config, self._transaction_version)
        self._clock = clock
        self._loop = loop
        self._cluster = cluster
        self._ids = ProducerIds(controller.next_producer_id_block, loop)
        self._partitions = partitions
        self._writer = MarkerWriter(partitions, groups, clock, loop)
        channels = MarkerChannels(peers, loop, config.number("request.timeout.ms"))
        self._markers = RoutedMarkers(self._writer, self._leader_of, channels.send, loop)
        codec = RecordCodec(self._encode, decode_record)
        environment = CoordinatorEnvironment("transaction", logger, clock, loop)
        self._runtime: CoordinatorRuntime[TransactionShard, TransactionRecord] = CoordinatorRuntime(
            codec, self._open_shard, environment
        )
        self._commits = NewestConnections(_REMEMBERED_COMMITTERS)
        self._senders = NewestConnections(_REMEMBERED_SENDERS)

    def _encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode_record(record, self._settings.transaction_version())

    def _open_shard(self, context: CoordinatorContext[Any, TransactionRecord]) -> TransactionShard:
        coordinator = TransactionCoordinator(self._settings, self._ids)
        return TransactionShard(context, coordinator, self._settings, self._markers, self._clock, self._loop)

    def _transaction_version(self) -> int:
        return level_in_force(self._cluster.image, TRANSACTION_VERSION)

    def _leader_of(self, topic: str, index: int) -> int | None:
        state = self._cluster.image.partition(topic, index)
        if state is None:
            # A coordinator that was elected just now may load a transaction before it learns of the topic.
            return None if self._cluster.is_whole else NO_LEADER
        return LEADER_HERE if state.leader == self._node_id else state.leader

    # --- what the broker calls ---

    def elected(self, partition: Partition) -> None:
        """Load the partition's transactions and coordinate them; a partition that is loaded already stays."""
        self._runtime.elected(partition)

    def resigned(self, index: int) -> None:
        """Stop coordinating the transactions of a partition."""
        self._runtime.resigned(index)

    def close(self) -> None:
        """Resign from every partition, and ignore later elections."""
        self._runtime.close()

    def state_of(self, index: int) -> CoordinatorState | None:
        """The state of a partition, or None if this broker does not coordinate it."""
        return self._runtime.state_of(index)

    def _partition_count(self, topic: str) -> int:
        found = self._cluster.image.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def _shard(self, transactional_id: str) -> TransactionShard:
        count = self._partition_count(TRANSACTION_STATE_TOPIC)
        if not count:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return self._runtime.shard(partition_for_group(transactional_id, count))

    def _check_connection(
        self, shard: TransactionShard, transactional_id: str, producer_id: int, producer_epoch: int, connection: int
    ) -> None:
        """Raise StaleConnection if the id's present producer has replaced the connection, else note it as used."""
        found = shard.active_coordinator().transactions.get(transactional_id)
        if found is None or found.producer_id != producer_id or found.producer_epoch != producer_epoch:
            return  # the coordinator rejects it, or has executed it already
        if not shard.connections.admit(transactional_id, producer_id, producer_epoch, connection):
            raise StaleConnection(f"the producer of {transactional_id!r} has used a newer connection")

    # --- requests of producers ---

    async def new_producer_id(self) -> int:
        """See `TransactionService`."""
        return await self._ids.new()

    def init_producer_id(self, request: InitProducerId, connection: int) -> asyncio.Future[ProducerResult]:
        """See `TransactionService`."""
        transactional_id = request.transactional_id
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        shard = self._shard(transactional_id)
        self._check_connection(shard, transactional_id, request.producer_id, request.producer_epoch, connection)

        def note(answer: asyncio.Future[ProducerResult]) -> None:
            if not answer.cancelled() and answer.exception() is None:
                result = answer.result()
                if result.error is ErrorCode.NONE:
                    producer = (result.producer_id, result.producer_epoch)
                    shard.connections.observe(transactional_id, *producer, connection)

        def decide(coordinator: TransactionCoordinator, now_ms: int) -> TransactionDecision:
            return coordinator.init_producer_id(request, now_ms)

        answer = self._with_ids(shard, decide)
        if _must_retry(answer) and shard.is_idle(transactional_id):
            # The transaction that stood in the way is aborted already: spare the client its retry.
            answer = self._with_ids(shard, decide)
        if answer.done():
            note(answer)
        else:
            answer.add_done_callback(note)
        return answer

    def _with_ids(self, shard: TransactionShard, decide: Decide) -> asyncio.Future[ProducerResult]:
        """Run a decision that may take producer ids, as often as a new block has to be got for it."""
        try:
            return shard.run(decide)
        except NoProducerIds:
            return self._loop.create_task(self._after_refill(shard, decide))

    async def _after_refill(self, shard: TransactionShard, decide: Decide) -> ProducerResult:
        while True:
            await self._ids.refill()
            try:
                answer: asyncio.Future[ProducerResult] = shard.run(decide)
            except NoProducerIds:
                continue
            return await answer

    def add_partitions(self, request: AddPartitions, connection: int | None) -> asyncio.Future[ErrorCode]:
        """See `TransactionService`."""
        transactional_id = request.transactional_id
        shard = self._shard(transactional_id)
        if connection is not None:
            self._check_connection(shard, transactional_id, request.producer_id, request.producer_epoch, connection)
        return shard.run(lambda coordinator, now_ms: coordinator.add_partitions(request, now_ms))

    def add_offsets(
        self, transactional_id: str, producer: tuple[int, int], group_id: str, connection: int
    ) -> asyncio.Future[ErrorCode]:
        """See `TransactionService`."""
        partition = (GROUP_METADATA_TOPIC, self._offsets_partition(group_id))
        return self.add_partitions(AddPartitions(transactional_id, *producer, frozenset((partition,))), connection)

    def _offsets_partition(self, group_id: str) -> int:
        """Also of a topic that is made only when a client looks for the group's coordinator."""
        count = self._partition_count(GROUP_METADATA_TOPIC) or self._config.number("offsets.topic.num.partitions")
        return partition_for_group(group_id, count)

    def verify_partitions(self, request: AddPartitions) -> Rejections:
        """See `TransactionService`."""
        found = self._shard(request.transactional_id).active_coordinator().verify_partitions(request)
        return {partition: code for partition, code in found.items() if code is not ErrorCode.NONE}

    def end(self, request: EndTransaction, connection: int) -> asyncio.Future[ProducerResult]:
        """See `TransactionService`."""
        shard = self._shard(request.transactional_id)
        self._check_connection(shard, request.transactional_id, request.producer_id, request.producer_epoch, connection)
        return self._with_ids(shard, lambda coordinator, now_ms: coordinator.end(request, now_ms))

    # --- on the way of a write ---

    def verify_or_add(self, wanted: Verification, produce_version: int) -> Rejections | Awaitable[Rejections]:
        """See `TransactionService`."""
        adds = produce_version >= _ADDING_PRODUCE_VERSION
        return self._verify(wanted, adds=adds, abortable=produce_version >= _ABORTABLE_PRODUCE_VERSION)

    def _verify(self, wanted: Verification, *, adds: bool, abortable: bool) -> Rejections | Awaitable[Rejections]:
        if not adds and not self._config.flag("transaction.partition.verification.enable"):
            return {}
        request = AddPartitions(
            wanted.transactional_id,
            wanted.producer_id,
            wanted.producer_epoch,
            frozenset(wanted.partitions),
            TV_2 if adds else TV_0,
        )
        coordinator = self._coordinator_of(wanted.transactional_id)
        if coordinator not in (LEADER_HERE, NO_LEADER):
            return self._verify_elsewhere(coordinator, request, adds=adds, abortable=abortable)
        try:
            if not adds:
                return _for_producer(self.verify_partitions(request), adds=adds, abortable=abortable)
            answer = self.add_partitions(request, None)
            if answer.done() and answer.result() is ErrorCode.NONE:
                return {}
        except KafkaError as error:
            return _for_producer(dict.fromkeys(request.partitions, error.code), adds=adds, abortable=abortable)
        return self._when_added(request, answer)

    def _coordinator_of(self, transactional_id: str) -> int:
        count = self._partition_count(TRANSACTION_STATE_TOPIC)
        if not count:
            return NO_LEADER
        found = self._leader_of(TRANSACTION_STATE_TOPIC, partition_for_group(transactional_id, count))
        return NO_LEADER if found is None else found

    async def _verify_elsewhere(
        self, coordinator: int, request: AddPartitions, *, adds: bool, abortable: bool
    ) -> Rejections:
        timeout_ms = self._settings.append_timeout_ms

        async def ask() -> Rejections:
            return await ask_coordinator(self._peers, coordinator, request, verify_only=not adds, timeout_ms=timeout_ms)

        deadline = self._loop.time() + timeout_ms / 1000
        while True:
            rejected = await self._guarded(request, ask)
            waits = adds and ErrorCode.CONCURRENT_TRANSACTIONS in rejected.values()
            if not waits or self._loop.time() > deadline:
                return _for_producer(rejected, adds=adds, abortable=abortable)
            # Until the transaction before it is complete the client would only have to try again.
            await asyncio.sleep(_CONCURRENT_RETRY_SECONDS)

    async def _guarded(self, request: AddPartitions, ask: Callable[[], Awaitable[Rejections]]) -> Rejections:
        """Ask, and again if the transaction was ended in one of the partitions while the answer was on its way.

        The same goes for a partition that moved here meanwhile, was replaced, or moved to another log directory.
        """
        while True:
            asked = [(place, self._producers(*place)) for place in request.partitions]
            guards = [(known, known.guard(request.producer_id)) for _, known in asked if known is not None]
            rejected = await ask()
            same = all(self._producers(*place) is known for place, known in asked)
            held = all(known.guard_holds(request.producer_id, guard) for known, guard in guards)
            # Every partition that is not rejected is written to.
            if (same and held) or rejected.keys() >= request.partitions:
                return rejected

    def _producers(self, topic: str, index: int) -> ProducerStates | None:
        """What the partition's log knows of its producers; None where the partition is not here."""
        try:
            partition = self._partitions.find(topic, index)
        except KafkaError:
            return None  # the append finds the same, or this is asked again
        return None if partition is None else partition.log.history.producers

    async def _when_added(self, request: AddPartitions, answer: asyncio.Future[ErrorCode]) -> Rejections:
        """Until the transaction before it is complete the client would only have to try again."""
        first: list[asyncio.Future[ErrorCode]] = [answer]

        async def ask() -> Rejections:
            deadline = self._loop.time() + self._settings.append_timeout_ms / 1000
            try:
                code = await (first.pop() if first else self.add_partitions(request, None))
                while code is ErrorCode.CONCURRENT_TRANSACTIONS and self._loop.time() < deadline:
                    shard = self._shard(request.transactional_id)
                    left = deadline - self._loop.time()
                    await asyncio.wait([shard.completion(request.transactional_id)], timeout=left)
                    code = await self.add_partitions(request, None)
            except KafkaError as error:
                code = error.code
            return {} if code is ErrorCode.NONE else dict.fromkeys(request.partitions, code)

        return _for_producer(await self._guarded(request, ask), adds=True, abortable=True)

    def verify_or_add_offsets(
        self, wanted: Verification, group_id: str, version: int
    ) -> ErrorCode | Awaitable[ErrorCode]:
        """See `TransactionService`."""
        adds = version >= _ADDING_COMMIT_VERSION
        partition = (GROUP_METADATA_TOPIC, self._offsets_partition(group_id))
        wanted = wanted._replace(partitions=(partition,))
        found = self._verify(wanted, adds=adds, abortable=version >= _ABORTABLE_COMMIT_VERSION)
        return _one_code(found) if isinstance(found, dict) else _one_code_later(found)

    def is_stale_commit(self, group_id: str, producer: tuple[int, int], connection: int) -> bool:
        """See `TransactionService`."""
        return not self._commits.admit((group_id, producer[0]), *producer, connection)

    def is_stale_sender(self, client_id: str, connection: int) -> bool:
        """See `TransactionService`."""
        return not self._senders.admit(client_id, _ANY_PRODUCER, _ANY_PRODUCER, connection)

    def write_marker(self, marker: PartitionMarker) -> asyncio.Future[None]:
        """See `TransactionService`."""
        return self._writer.write_future(marker)

    # --- looking ---

    def describe(self, transactional_id: str) -> TransactionDescription:
        """See `TransactionService`."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        return self._shard(transactional_id).describe(transactional_id)

    def list_transactions(self, wanted: ListFilter) -> Listings:
        """See `TransactionService`."""
        states, unknown = states_of(wanted.states)
        pattern = wanted.transactional_id_pattern
        matches = id_matcher(pattern) if pattern else None
        now_ms = self._clock.now_ms()
        found = []
        for shard in self._runtime.listed_shards():
            found += shard.coordinator.listings(
                now_ms,
                states if wanted.states else None,
                frozenset(wanted.producer_ids) or None,
                wanted.duration_ms,
                matches,
            )
        return Listings(unknown, found)


def _must_retry(answer: asyncio.Future[ProducerResult]) -> bool:
    if not answer.done() or answer.cancelled() or answer.exception() is not None:
        return False
    return answer.result().error is ErrorCode.CONCURRENT_TRANSACTIONS


def _for_producer(rejections: Rejections, *, adds: bool, abortable: bool) -> Rejections:
    """The codes as a producer of this version understands them (Kafka: AddPartitionsToTxnManager, ReplicaManager)."""
    return {partition: _code_for_producer(code, adds, abortable) for partition, code in rejections.items()}


def _code_for_producer(code: ErrorCode, adds: bool, abortable: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        return ErrorCode.INVALID_TXN_STATE
    if code in _COORDINATION_FAILURES or (code is ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        # Retriable for producers of any age, and without a refresh of metadata that would not help.
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code


def _one_code(rejections: Rejections) -> ErrorCode:
    """The one partition's code as the group coordinator answers it."""
    code = next(iter(rejections.values()), ErrorCode.NONE)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if code is ErrorCode.NOT_ENOUGH_REPLICAS else code


async def _one_code_later(rejections: Awaitable[Rejections]) -> ErrorCode:
    return _one_code(await rejections)


def _serves(runtime: TransactionCoordinatorService) -> TransactionService:
    """That the runtime has the service's shape is for the type checker to say."""
    return runtime
