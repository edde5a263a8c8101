"""The transactional producer: records and consumed offsets become visible together, or not at all (KIP-98).

The coordinator's `transaction.version` selects the protocol: partitions are added explicitly (TV1), or by the broker,
with a new epoch after each transaction (TV2, KIP-890). A process may write in a transaction that another one began:
`adopt` its producer id and epoch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from functools import wraps
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar, Unpack, cast

from odradek.client.arguments import keywords
from odradek.client.config import ProducerOptions
from odradek.client.consumer.columns import Columns, to_table
from odradek.client.errors import ClientError, ConfigError, IllegalState, ProducerFenced, TransactionAborted
from odradek.client.interceptors import ProducerInterceptor
from odradek.client.metrics.metric import Metric, Metrics
from odradek.client.model import OffsetAndMetadata, RecordMetadata
from odradek.client.network.cluster import BRIEF_FAILURES, GROUP_COORDINATOR, TRANSACTION_COORDINATOR, Cluster
from odradek.client.network.metadata import PartitionInfo
from odradek.client.offsets import Member, by_topic
from odradek.client.producer.accumulator import Delivery, OnDelivery
from odradek.client.producer.partitioners import Partitioner
from odradek.client.producer.producer import Producer, RecordHeaders
from odradek.client.producer.sequence_numbers import NO_IDENTITY, ProducerIdentity
from odradek.client.serializers import Serializer
from odradek.client.type_parameters import Key_contra, Value_contra
from odradek.ports.clock import Clock
from odradek.ports.network import Network
from odradek.ports.randomness import Random
from odradek.records.topic_partition import PartitionKey, TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnRequestTopic,
    AddPartitionsToTxnResponse,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

logger = logging.getLogger(__name__)

_TV1_ADD_PARTITIONS: Final = 3
_TV1_OFFSET_COMMIT: Final = 4
_TV1_END: Final = 4
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_AGAIN: Final = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""Retriable in a transaction only: the previous one is still being completed; a topic is being created."""


class State(Enum):
    """Where a transactional producer is between two transactions."""

    UNINITIALIZED = "uninitialized"
    READY = "ready"
    IN_TRANSACTION = "in a transaction"
    ABORTABLE = "in a transaction that can only be aborted"
    ENDING = "ending a transaction"
    FATAL = "fenced or broken"


Method = TypeVar("Method", bound=Callable[..., Any])


def _timed(number: str) -> Callable[[Method], Method]:
    """Add the time of each call of a method to a number of `Sends`."""

    def decorate(method: Method) -> Method:
        @wraps(method)
        async def timed(self: TransactionalProducer[Any, Any], *args: Any, **kwargs: Any) -> Any:
            with self.producer.sender.measures.timing(number, self.producer.cluster.loop.time):
                return await method(self, *args, **kwargs)

        return cast(Method, timed)

    return decorate


class TransactionalProducer(Generic[Key_contra, Value_contra]):
    """A producer whose records become visible together, `TransactionalProducer[KeyType, ValueType]`.

    One transaction at a time; many tasks of one event loop may send within it.

    Example:

        consumer = Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="copiers", enable_auto_commit=False)
        producer = TransactionalProducer(transactional_id="copier", bootstrap_servers="127.0.0.1:9092")
        async with consumer, producer:
            for record in await consumer.poll(timeout_ms=10_000):
                async with producer.transaction():  # an exception aborts it
                    await producer.send("copies", record.value, key=record.key)
                    await producer.send_offsets("copiers", {record.topic_partition: record.offset + 1})
    """

    __slots__ = (
        "_added", "_adding", "_begun", "_broken_sequences", "_committing", "_failure", "_groups", "_offsets",
        "_started", "_unanswered", "_waiting", "producer", "state", "transactional_id",
    )  # fmt: skip

    def __init__(
        self,
        *,
        key_serializer: Serializer[Key_contra] | None = None,
        value_serializer: Serializer[Value_contra] | None = None,
        partitioner: Partitioner | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        network: Network | None = None,
        random: Random | None = None,
        clock: Clock | None = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Arguments and options as of `Producer`; transactional_id is required. Raises ConfigError."""
        self.producer: Producer[Key_contra, Value_contra] = Producer(
            key_serializer=key_serializer,
            value_serializer=value_serializer,
            partitioner=partitioner,
            interceptors=interceptors,
            network=network,
            random=random,
            clock=clock,
            **options,
        )
        """The producer that sends the records."""
        transactional_id = self.producer.config["transactional_id"]
        if transactional_id is None:
            raise ConfigError("transactional_id is missing: a name that stays the same across restarts")
        self.transactional_id: str = transactional_id
        """The identity that fences earlier producers."""
        self.state = State.UNINITIALIZED
        """Where the producer is between two transactions."""
        self._added: set[PartitionKey] = set()
        self._waiting: set[PartitionKey] = set()
        self._groups: set[str] = set()
        # Held while offsets are in flight: otherwise they could arrive in the next transaction.
        self._offsets = asyncio.Lock()
        self._adding: asyncio.Task[None] | None = None
        self._begun = 0
        self._committing = False
        self._failure: Exception | None = None
        self._broken_sequences = False
        self._unanswered = False
        self._started = False

    @property
    def identity(self) -> ProducerIdentity:
        """(producer id, epoch), for other processes to `adopt`."""
        sequences = self.producer.sender.sequences
        return NO_IDENTITY if sequences is None else sequences.identity

    async def start(self) -> None:
        """Connect; call `initialize` or `adopt` next (`async with` does the former)."""
        await self.producer.start()
        self.producer.sender.send_in(self)

    async def __aenter__(self) -> Self:
        await self.start()
        await self.initialize()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **arguments: Any) -> Self:
        """From a mapping with Kafka's dotted names; `arguments` are the constructor's others. Raises ConfigError."""
        return cls(**keywords(config, arguments))

    async def close(self) -> None:
        """Abort an open transaction that this producer began, then close the connections."""
        try:
            if self._started and self.is_unfinished:
                await self.abort()
        finally:
            if self._adding is not None:
                self._adding.cancel()
                await asyncio.gather(self._adding, return_exceptions=True)
            await self.producer.close(flush=False)

    # --- transactions ---

    @_timed("initializing")
    async def initialize(self) -> ProducerIdentity:
        """Get the producer id. This fences older producers of the transactional id, and aborts their transaction.

        Raises KafkaError, CallTimedOut, ProducerFenced.
        """
        if self.state not in (State.UNINITIALIZED, State.FATAL):
            await self._abandon()
        await self._init_producer_id(NO_IDENTITY)
        self.state = State.READY
        return self.identity

    async def _abandon(self) -> None:
        """Drop the records of the current transaction, which the coordinator aborts by itself."""
        self.state = State.UNINITIALIZED
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.gather(self._adding, return_exceptions=True)
            self._waiting.clear()
        self.producer.sender.drop_all(TransactionAborted("initialize was called within the transaction"))

    def adopt(self, identity: ProducerIdentity, *, continue_transaction: bool = True) -> None:
        """Use the identity of another process, in its open transaction, with sequences from 0.

        Two processes must not write to the same partition under one epoch: the broker would see two sequences in one.
        So the process that hands out identities calls `initialize` before each transaction (with TV1 the epoch would
        stay the same).
        """
        sequences = self.producer.sender.sequences
        assert sequences is not None
        sequences.adopt(identity)
        self.state = State.READY
        if continue_transaction:
            self.begin()
            self._started = False

    @property
    def config(self) -> ProducerOptions:
        """All options as resolved."""
        return self.producer.config

    def metrics(self) -> Metrics:
        """As `Producer.metrics`."""
        return self.producer.metrics()

    def register_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `Producer.register_metrics`."""
        self.producer.register_metrics(source)

    def unregister_metrics(self, source: Callable[[], Iterable[Metric]]) -> None:
        """As `Producer.unregister_metrics`."""
        self.producer.unregister_metrics(source)

    async def client_instance_id(self, timeout_ms: float = 30_000) -> str:
        """As `Producer.client_instance_id`."""
        return await self.producer.client_instance_id(timeout_ms)

    @property
    def is_unfinished(self) -> bool:
        """Whether a transaction is open that `abort` must end if it is not committed."""
        return self.state in (State.IN_TRANSACTION, State.ABORTABLE)

    def begin(self) -> None:
        """Begin a transaction; the first record registers it at the coordinator. Raises IllegalState."""
        self._expect(State.READY)
        self._added.clear()
        self._groups.clear()
        self._unanswered = False
        self._failure = None
        self.producer.forget_failure()
        self._started = True
        self._begun += 1
        self.state = State.IN_TRANSACTION

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """Begin now, commit at the end of the block; abort and raise if the block or the commit fails."""
        self.begin()
        try:
            yield self
            await self.commit()
        except BaseException:
            if self.is_unfinished:
                await self.abort()
            raise

    async def send(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """As `Producer.send`, within the transaction. Raises IllegalState outside of one."""
        self._expect_open()
        return await self.producer.send(topic, value, key, headers, partition, timestamp_ms, on_delivery)

    async def send_and_wait(
        self,
        topic: str,
        value: Value_contra | None = None,
        key: Key_contra | None = None,
        headers: RecordHeaders = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> RecordMetadata:
        """As `Producer.send_and_wait`: in the log, and visible to read_committed after the commit."""
        self._expect_open()
        return await self.producer.send_and_wait(topic, value, key, headers, partition, timestamp_ms)

    async def send_table(
        self,
        data: Any,
        topic: str,
        *,
        value: str | Sequence[str] = "value",
        key: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partition: str | None = None,
    ) -> int:
        """As `Producer.send_table`, within the transaction. Raises IllegalState outside of one."""
        from odradek.client.producer.table_writer import write_table

        self._expect_open()
        columns = Columns(value, key, headers, timestamp, partition)
        return await write_table(self.producer, to_table(data), topic, columns, is_transactional=True)

    async def flush(self, *, on_progress: Callable[[int], object] | None = None) -> None:
        """As `Producer.flush`; `commit` does it, too."""
        await self.producer.flush(on_progress=on_progress)

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """As `Producer.partitions_for`."""
        return await self.producer.partitions_for(topic)

    @_timed("sending_offsets")
    async def send_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], member: Member | None = None
    ) -> None:
        """Commit consumed offsets with the transaction; with `member`, only while it belongs to the group (KIP-447).

        Raises KafkaError (ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID: abort then), ProducerFenced, CallTimedOut.
        """
        self._expect_open()
        given = {k: OffsetAndMetadata(v) if isinstance(v, int) else v for k, v in offsets.items()}
        if not given:
            return
        begun = self._begun
        async with self._offsets:
            self._expect(State.IN_TRANSACTION)
            if begun != self._begun:
                raise IllegalState("the transaction ended before the offsets were sent")
            try:
                if not await self._is_tv2() and group_id not in self._groups:
                    await self._add_offsets(group_id)
                self._groups.add(group_id)
                await self._commit_offsets(group_id, given, member or Member())
            except (KafkaError, ClientError) as error:
                raise self._abortable(error) from error

    @_timed("committing")
    async def commit(self) -> None:
        """Send queued records, then commit. After a failure other than CallTimedOut, call `abort`.

        Raises the error of a lost record, ProducerFenced, KafkaError, CallTimedOut (outcome unknown: call again).
        """
        if self.state is State.ABORTABLE:
            raise self._failure or IllegalState("the transaction can only be aborted")
        self._expect(State.IN_TRANSACTION, State.ENDING)
        before = self.state
        # Records sent from now on could arrive in the next transaction.
        self._committing = True
        try:
            await self.producer.flush()
            async with self._offsets:
                pass
        except (KafkaError, ClientError) as error:
            raise self._abortable(error) from error
        finally:
            self._committing = False
        if self.state is State.ENDING and before is not State.ENDING:
            raise IllegalState("the transaction was aborted during its commit")
        if self._failure is not None:
            raise self._failure
        self.state = State.ENDING
        await self._end(committed=True)

    @_timed("aborting")
    async def abort(self) -> None:
        """Drop queued records, wait for those in flight, then abort. Raises as `commit`."""
        self._expect(State.IN_TRANSACTION, State.ABORTABLE, State.ENDING)
        self.state = State.ENDING
        # If this fails, it can be retried, but not committed: the dropped records would be missing.
        self._failure = self._failure or TransactionAborted("the transaction is being aborted")
        sender = self.producer.sender
        sender.drop_queued(TransactionAborted("the transaction was aborted"))
        while sender.requests_in_flight:
            await sender.progress()
        if self._adding is not None:
            # Its answer would arrive in the next transaction, and count there.
            await asyncio.wait((self._adding,))
            self._expect(State.ENDING)
        async with self._offsets:
            self._expect(State.ENDING)
        await self._end(committed=False)

    # --- the sender's questions (see `sender.Transaction`) ---

    @property
    def is_open(self) -> bool:
        """Whether batches may be sent, or retried."""
        return self.state is State.IN_TRANSACTION

    @property
    def taking(self) -> int:
        """The number of the transaction that accepts records now, 0 for none."""
        return self._begun if self.state is State.IN_TRANSACTION and not self._committing else 0

    def may_send(self, key: PartitionKey) -> bool:
        """Whether the partition belongs to the transaction; if not, it is added in the background."""
        if self.state is not State.IN_TRANSACTION:
            return False
        if key in self._added:
            return True
        self._waiting.add(key)
        if self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add_partitions())
        return False

    def failed(self, error: Exception) -> None:
        """A batch was lost: the transaction can only be aborted."""
        self._broken_sequences = True
        if isinstance(error, ProducerFenced):
            self.state = State.FATAL
            self._failure = error
        elif self.state is State.IN_TRANSACTION:
            self.state = State.ABORTABLE
            self._failure = error
            self.producer.sender.drop_queued(error)

    # --- inside ---

    @property
    def _cluster(self) -> Cluster:
        return self.producer.cluster

    def _expect(self, *states: State) -> None:
        if self.state is State.FATAL or (self.state is State.ABORTABLE and State.ABORTABLE not in states):
            raise self._failure or IllegalState(f"the producer is {self.state.value}")
        if self.state not in states:
            raise IllegalState(f"the producer is {self.state.value}, not {states[0].value}")

    def _abortable(self, error: Exception) -> Exception:
        """Record a failure of the transaction; return the error to raise."""
        if isinstance(error, KafkaError) and error.code in _FENCED:
            error = ProducerFenced(str(error))
            self.failed(error)
            self.producer.sender.set_fatal(error)
        elif self.state is State.IN_TRANSACTION:
            self.state = State.ABORTABLE
            self._failure = error
            self.producer.sender.drop_queued(error)
        return error

    def _expect_open(self) -> None:
        self._expect(State.IN_TRANSACTION)
        if self._committing:
            raise IllegalState("the transaction is being committed")

    async def _is_tv2(self) -> bool:
        """Whether the coordinator's cluster has finalized transaction.version 2."""

        async def ask() -> bool:
            connection = await self._cluster.coordinator_connection(TRANSACTION_COORDINATOR, self.transactional_id)
            return connection.features.get("transaction.version", 0) >= 2

        return await self._cluster.retrying(ask, "transaction.version", self.producer.config["max_block_ms"])

    async def _retry(self, call: Any, what: str) -> Any:
        """As `Cluster.retrying`, and retry the codes that are transient within a transaction only."""
        failures = 0

        async def patient() -> Any:
            nonlocal failures
            while True:
                try:
                    return await call()
                except KafkaError as error:
                    # In a transaction Apache's broker also means by it that it was adding another partition.
                    is_brief = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and failures < BRIEF_FAILURES
                    if error.code not in _AGAIN and not is_brief:
                        raise
                failures += 1
                await asyncio.sleep(self._cluster.brief_backoff(failures))

        return await self._cluster.retrying(patient, what, self.producer.config["max_block_ms"])

    async def _begin_at_coordinator(self, call: Any, what: str) -> None:
        """As `_retry`, for what begins the transaction at the coordinator, perhaps also where no answer comes."""
        self._unanswered = True
        try:
            await self._retry(call, what)
        except KafkaError:
            self._unanswered = False
            raise
        self._unanswered = False

    async def _init_producer_id(self, current: ProducerIdentity) -> None:
        config = self.producer.config
        request = InitProducerIdRequest(
            self.transactional_id, config["transaction_timeout_ms"], current.producer_id, current.epoch
        )

        async def ask() -> ProducerIdentity:
            response = await self._cluster.request_coordinator(
                TRANSACTION_COORDINATOR, self.transactional_id, request, InitProducerIdResponse
            )
            self._check(response.error_code)
            return ProducerIdentity(response.producer_id, response.producer_epoch)

        try:
            identity = await self._retry(ask, "InitProducerId")
        except KafkaError as error:
            raise self._fatal(error) from error
        sequences = self.producer.sender.sequences
        assert sequences is not None
        sequences.adopt(identity)
        self._broken_sequences = False
        logger.info(
            "transactional producer %s has producer id %d, epoch %d",
            self.transactional_id, identity.producer_id, identity.epoch, extra=self._fields(),
        )  # fmt: skip

    def _fields(self) -> dict[str, Any]:
        return {"client_id": self.producer.config["client_id"], "transactional_id": self.transactional_id}

    def _check(self, code: int) -> None:
        self._cluster.check_coordinator(TRANSACTION_COORDINATOR, self.transactional_id, code)

    def _fatal(self, error: KafkaError) -> Exception:
        failure: Exception = ProducerFenced(str(error)) if error.code in _FENCED else error
        self.state = State.FATAL
        self._failure = failure
        self.producer.sender.set_fatal(failure)
        logger.error(
            "transactional producer %s can no longer be used: %s", self.transactional_id, failure, extra=self._fields()
        )
        return failure

    async def _add_partitions(self) -> None:
        """Add partitions to the transaction before their first record is sent (TV1)."""
        try:
            if not await self._is_tv2():
                while self._waiting - self._added:
                    await self._add(set(self._waiting))
            self._added |= self._waiting
            self._waiting.clear()
        except (KafkaError, ClientError) as error:
            self._waiting.clear()
            self._abortable(error)
        finally:
            self._adding = None
            self.producer.sender.wake()

    async def _add(self, keys: set[PartitionKey]) -> None:
        identity = self.identity
        topics = [
            AddPartitionsToTxnRequestTopic(topic, partitions)
            for topic, partitions in by_topic([TopicPartition(*each) for each in sorted(keys)]).items()
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=topics,
        )

        async def ask() -> None:
            response = await self._cluster.request_coordinator(
                TRANSACTION_COORDINATOR,
                self.transactional_id,
                request,
                AddPartitionsToTxnResponse,
                at_most=_TV1_ADD_PARTITIONS,
            )
            codes = [
                e.partition_error_code for t in response.results_by_topic_v3_and_below for e in t.results_by_partition
            ]
            for code in sorted(codes, key=lambda each: each == ErrorCode.OPERATION_NOT_ATTEMPTED):
                self._check(code)

        await self._begin_at_coordinator(ask, "AddPartitionsToTxn")
        self._added |= keys

    async def _add_offsets(self, group_id: str) -> None:
        identity = self.identity
        request = AddOffsetsToTxnRequest(self.transactional_id, identity.producer_id, identity.epoch, group_id)

        async def ask() -> None:
            response = await self._cluster.request_coordinator(
                TRANSACTION_COORDINATOR, self.transactional_id, request, AddOffsetsToTxnResponse
            )
            self._check(response.error_code)

        await self._begin_at_coordinator(ask, "AddOffsetsToTxn")

    async def _commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: Member
    ) -> None:
        identity = self.identity
        at_most = 0x7FFF if await self._is_tv2() else _TV1_OFFSET_COMMIT
        topics = [
            TxnOffsetCommitRequestTopic(
                topic,
                [
                    TxnOffsetCommitRequestPartition(each, at.offset, at.leader_epoch, at.metadata)
                    for each in partitions
                    for at in (offsets[TopicPartition(topic, each)],)
                ],
            )
            for topic, partitions in by_topic(list(offsets)).items()
        ]
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            group_id,
            identity.producer_id,
            identity.epoch,
            member.generation,
            member.member_id,
            member.group_instance_id,
            topics,
        )

        async def ask() -> None:
            response = await self._cluster.request_coordinator(
                GROUP_COORDINATOR, group_id, request, TxnOffsetCommitResponse, at_most=at_most
            )
            for topic in response.topics:
                for each in topic.partitions:
                    where = f"{topic.name}-{each.partition_index} of group {group_id}"
                    self._cluster.check_coordinator(GROUP_COORDINATOR, group_id, each.error_code, where)

        await self._retry(ask, "TxnOffsetCommit")

    async def _end(self, *, committed: bool) -> None:
        if self._added or self._groups or not self._started:
            await self._end_txn(committed)
        elif self._unanswered:
            # The coordinator may have an open transaction: it would time out in the midst of a later one, which has the
            # same epoch, and fence this producer. A new epoch ends it.
            self._broken_sequences = True
        if self._broken_sequences:
            # Lost batches leave gaps in the sequences: only a new epoch makes them valid again (KIP-360).
            await self._init_producer_id(self.identity)
        self._failure = None
        self.state = State.READY

    async def _end_txn(self, committed: bool) -> None:
        tv2 = await self._is_tv2()
        identity = self.identity
        request = EndTxnRequest(self.transactional_id, identity.producer_id, identity.epoch, committed)

        async def ask() -> EndTxnResponse:
            response = await self._cluster.request_coordinator(
                TRANSACTION_COORDINATOR,
                self.transactional_id,
                request,
                EndTxnResponse,
                at_most=0x7FFF if tv2 else _TV1_END,
            )
            self._check(response.error_code)
            return response

        try:
            response = await self._retry(ask, "EndTxn")
        except KafkaError as error:
            raise self._fatal(error) from error
        if response.producer_id >= 0:
            sequences = self.producer.sender.sequences
            assert sequences is not None
            sequences.adopt(ProducerIdentity(response.producer_id, response.producer_epoch))
            self._broken_sequences = False
