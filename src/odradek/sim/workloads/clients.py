"""Programs of the real client that note their requests and responses in the history."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from odradek.client.admin import Admin
from odradek.client.admin.requests import raise_first
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientError, CommitFailed, ProducerFenced
from odradek.client.model import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, ConsumerRecord
from odradek.client.network.cluster import GROUP_COORDINATOR
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import State, TransactionalProducer
from odradek.records.errors import CorruptRecords
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.history import (
    ABORTED,
    COMMITTED,
    OK,
    UNKNOWN,
    Committed,
    Looked,
    Owned,
    Reader,
    Seen,
    Send,
    Transaction,
    Violation,
)
from odradek.sim.world.hosts import ClientHost
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

FAILURES = (KafkaError, ClientError, CorruptRecords)
"""Failures that a program must expect while there are faults; it restarts then."""

PRODUCER_OPTIONS: dict[str, Any] = {"delivery_timeout_ms": 12_000, "max_block_ms": 8_000}
CONSUMER_OPTIONS: dict[str, Any] = {
    "auto_offset_reset": "earliest", "fetch_max_wait_ms": 1_000, "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 1_500, "max_poll_interval_ms": 15_000, "allow_auto_create_topics": False,
}  # fmt: skip

ReadMore = Callable[[], Awaitable[list[Seen]]]

CODECS = ("none", "none", "gzip", "snappy", "lz4", "zstd")


def app_random(host: ClientHost) -> random.Random:
    """The random numbers of the program on this host, apart from its client's."""
    return random.Random(f"{host.world.seed}:app:{host.name}.{host.restarts}")


def note_failure(host: ClientHost, what: str, error: BaseException) -> None:
    """Record a failure of a client in the trace."""
    text = f"{type(error).__name__} {error}"
    host.world.note(f"{host.name}: {what}: {text[:160]}")
    if isinstance(error, KafkaError):
        host.world.mark(f"error {error.code.name}")
        if error.code is ErrorCode.UNKNOWN_SERVER_ERROR:
            raise Violation("no unknown server errors", f"{host.name}: {what}: {text}")
    elif isinstance(error, ClientError):
        host.world.mark(f"client {type(error).__name__}")


class Numbered:
    """Makes the values of one producer instance: unique, telling who, where and in which order."""

    __slots__ = ("_count", "host", "name", "rng")

    def __init__(self, host: ClientHost, rng: random.Random) -> None:
        self.host = host
        self.rng = rng
        self._count = 0
        self.renew()

    def renew(self) -> None:
        """A new producer instance: order is promised within one only."""
        number = self.host.world.marks["producers made"]
        self.host.world.mark("producers made")
        self.name = f"{self.host.name}.{self.host.restarts}/{number}"

    def next(self, topic: str, partition: int, transaction: Transaction | None = None) -> Send:
        """A new send with the next number of its producer."""
        self._count += 1
        padding = "x" * self.rng.choice((0, 0, 10, 100, 700, 1500))
        value = f"{self.name}:{self._count}:{padding}".encode()
        world = self.host.world
        send = Send(value, self.name, (topic, partition), self._count, world.now(), transaction)
        return world.history.send(send)


async def note_outcomes(host: ClientHost, pending: Iterable[tuple[Send, Any]]) -> None:
    """Wait for deliveries and note what became of them, and when."""
    deliveries: list[asyncio.Future[Any]] = []
    for send, delivery in pending:
        future = asyncio.ensure_future(delivery)
        future.add_done_callback(partial(_note_outcome, host, send))
        deliveries.append(future)
    if deliveries:
        await asyncio.wait(deliveries)
    for future in deliveries:
        error = None if future.cancelled() else future.exception()
        if error is not None and not isinstance(error, FAILURES):
            raise error


def _note_outcome(host: ClientHost, send: Send, delivery: asyncio.Future[Any]) -> None:
    if delivery.cancelled():
        return
    error = delivery.exception()
    if error is not None:
        send.state = UNKNOWN
        send.error = repr(error)
        host.world.note(f"not acked: {send.value[:40].decode()}: {error}"[:160])
    else:
        send.state = OK
        send.offset = delivery.result().offset
        send.acked_at = host.world.now()
    send.outcome_at = host.world.now()


async def produce(
    host: ClientHost, topic: str, partitions: int, pace_seconds: float = 0.4, keys: int | None = None
) -> None:
    """An idempotent producer that sends bursts until the end, then waits for all of it. With few keys, if wanted."""
    world, rng = host.world, app_random(host)
    numbered = Numbered(host, rng)
    while not world.is_stopping():
        options = host.options(
            **{**PRODUCER_OPTIONS, "delivery_timeout_ms": rng.choice((5_000, 12_000))},
            linger_ms=rng.choice((0, 5, 50)),
            compression_type=rng.choice(CODECS),
            max_in_flight_requests_per_connection=rng.choice((1, 5)),
        )
        numbered.renew()
        waiting: list[asyncio.Task[None]] = []
        try:
            async with Producer(clock=host.clock, **options) as producer:
                until = world.now() + rng.uniform(4, 40)
                while not world.is_stopping() and world.now() < until:
                    burst = []
                    for _ in range(rng.choice((1, 2, 3, 8))):
                        send = numbered.next(topic, rng.randrange(partitions))
                        send.key = None if keys is None else b"key %d" % rng.randrange(keys)
                        burst.append(
                            (send, await producer.send(topic, send.value, send.key, partition=send.partition[1]))
                        )
                    waiting.append(asyncio.create_task(note_outcomes(host, burst)))
                    await asyncio.sleep(rng.expovariate(1 / pace_seconds))
                await asyncio.gather(*waiting)
        except FAILURES as error:
            note_failure(host, "produce", error)
            await asyncio.gather(*waiting)
            await asyncio.sleep(0.2)


async def consume(host: ClientHost, topic: str, partitions: int, isolation: str) -> None:
    """A consumer without a group, restarted now and then, at the end caught up with the log."""
    world, rng = host.world, app_random(host)
    keys = [TopicPartition(topic, index) for index in range(partitions)]
    caught_up = False
    while not caught_up:
        reader = Reader(f"{host.name}.{host.restarts}", isolation)
        world.history.readers.append(reader)
        rack = {"client_rack": rng.choice(world.racks)} if world.racks else {}
        try:
            async with Consumer(**host.options(**CONSUMER_OPTIONS, isolation_level=isolation, **rack)) as consumer:
                consumer.assign(keys)
                until = world.now() + rng.uniform(5, 40)
                while world.now() < until and not caught_up:
                    note_seen(host, reader, await consumer.poll(rng.choice((100, 1000)), rng.choice((1, 50, 500))))
                    if world.is_stopping():
                        caught_up = await is_caught_up(consumer, keys)
                    if rng.random() < 0.2:
                        await asyncio.sleep(rng.uniform(0, 1.5))
        except FAILURES as error:
            note_failure(host, "consume", error)
            await asyncio.sleep(0.2)


def note_seen(host: ClientHost, reader: Reader, records: Sequence[ConsumerRecord]) -> None:
    """Record consumed records in the history."""
    now = host.world.now()
    reader.seen.extend((now, seen_of(record)) for record in records)


def seen_of(record: ConsumerRecord) -> Seen:
    """A consumed record as the checkers compare it."""
    assert isinstance(record.value, bytes)
    return Seen((record.topic, record.partition), record.offset, record.value)


async def is_caught_up(consumer: Consumer, keys: Sequence[TopicPartition]) -> bool:
    """Whether the consumer has reached the end of all these partitions."""
    ends = await consumer.end_offsets(keys)
    for key in keys:
        if await consumer.position(key) < ends[key]:
            return False
    return True


class Assignments:
    """Records the partitions that a group member is given and loses."""

    __slots__ = ("_consumer", "_group", "_host", "_reader")

    def __init__(self, host: ClientHost, reader: Reader, consumer: Consumer, group: str) -> None:
        self._host = host
        self._reader = reader
        self._consumer = consumer
        self._group = group

    def _changed(self) -> None:
        self._reader.jumped.append(len(self._reader.seen))

    def on_partitions_assigned(self, partitions: set[TopicPartition]) -> None:
        """Note the change of the assignment."""
        self._changed()
        member = self._consumer.group_metadata()
        held = frozenset((key.topic, key.partition) for key in self._consumer.assignment() | partitions)
        self._host.world.history.owned.append(
            Owned(self._host.world.now(), self._group, member.generation, member.member_id, held)
        )

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Note the change of the assignment."""
        self._changed()

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        """Note the change of the assignment, and mark the loss."""
        self._host.world.mark("partitions lost")
        self._changed()


async def group_member(host: ClientHost, group: str, topic: str, partitions: int) -> None:
    """A member of a group that commits what it has read, leaves and comes back."""
    world, rng = host.world, app_random(host)
    keys = [TopicPartition(topic, index) for index in range(partitions)]
    finished = False
    past: Committed | None = None
    strategy = random.Random(f"{world.seed}:strategy").choice(
        ("range", "roundrobin", "sticky", "cooperative-sticky", "range,cooperative-sticky")
    )
    while not finished:
        reader = Reader(f"{host.name}.{host.restarts}", "read_uncommitted")
        world.history.readers.append(reader)
        options = host.options(
            **CONSUMER_OPTIONS, group_id=group, enable_auto_commit=False,
            partition_assignment_strategy=tuple(strategy.split(",")),
        )  # fmt: skip
        try:
            async with Consumer(**options) as consumer:
                consumer.subscribe([topic], listener=Assignments(host, reader, consumer, group))
                until = world.now() + rng.uniform(6, 40)
                while not finished and (world.now() < until or world.is_stopping()):
                    records = await consumer.poll(rng.choice((200, 1000)), rng.choice((5, 500)))
                    note_seen(host, reader, records)
                    if records and rng.random() < 0.8:
                        await commit(host, consumer, group)
                        if past is not None and rng.random() < 0.3:
                            await commit_late(host, past)
                            past = None
                    if world.is_stopping():
                        finished = await is_consumed(host, consumer, group, keys)
                past = first_commit(host, group, consumer.group_metadata().member_id)
        except FAILURES as error:
            note_failure(host, f"member of {group}", error)
            await asyncio.sleep(0.2)


async def commit(host: ClientHost, consumer: Consumer, group: str) -> None:
    """Commit the positions of what is assigned; note what was acknowledged."""
    world = host.world
    offsets = {key: await consumer.position(key, timeout_ms=5000) for key in sorted(consumer.assignment())}
    member = consumer.group_metadata()
    asked, state = world.now(), OK
    try:
        await consumer.commit(offsets)
    except CommitFailed:
        world.mark("commit refused")
        return
    except FAILURES as error:
        note_failure(host, "commit", error)
        state = UNKNOWN
    for key, offset in offsets.items():
        world.history.commits.append(
            Committed(
                asked,
                world.now(),
                group,
                (key.topic, key.partition),
                offset,
                member.member_id,
                member.generation,
                state,
            )
        )


def first_commit(host: ClientHost, group: str, member_id: str) -> Committed | None:
    """The first one of a member."""
    commits = host.world.history.commits
    return next((each for each in commits if each.group == group and each.member == member_id), None)


async def commit_late(host: ClientHost, past: Committed) -> None:
    """A commit of a member that has left, as a zombie sends it or a connection that hung brings it: to be refused."""
    world = host.world
    offset = OffsetCommitRequestPartition(past.partition[1], past.offset)
    topic = OffsetCommitRequestTopic(past.partition[0], partitions=[offset])
    request = OffsetCommitRequest(past.group, past.generation, past.member, topics=[topic])
    asked = world.now()
    async with Admin(**host.options()) as admin:
        answer = await admin.cluster.request_coordinator(
            GROUP_COORDINATOR, past.group, request, OffsetCommitResponse, at_most=9
        )
    code = ErrorCode(answer.topics[0].partitions[0].error_code)
    world.mark(f"late commit of a member that has left: {code.name}")
    if code is ErrorCode.NONE:
        world.history.commits.append(past._replace(asked_at=asked, done_at=world.now(), state=OK))


async def is_consumed(host: ClientHost, consumer: Consumer, group: str, keys: Sequence[TopicPartition]) -> bool:
    """Whether the group has committed the end of every partition."""
    committed = await look_committed(host, consumer, group, keys)
    ends = await consumer.end_offsets(keys)
    for key in keys:
        if committed.get(key, 0) < ends[key]:
            if key in consumer.assignment() and await consumer.position(key, timeout_ms=5000) >= ends[key]:
                await commit(host, consumer, group)
            return False
    return True


async def look_committed(
    host: ClientHost, consumer: Consumer, group: str, keys: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """The group's committed offsets, recorded in the history."""
    asked = host.world.now()
    found = await consumer.committed(keys)
    done = host.world.now()
    for key in keys:
        offset = found[key].offset if key in found else -1
        host.world.history.looks.append(Looked(asked, done, f"committed:{group}", (key.topic, key.partition), offset))
    return {key: each.offset for key, each in found.items()}


async def transact(host: ClientHost, topics: dict[str, int], transactional_id: str) -> None:
    """Transactions over several partitions: committed, aborted, left open. Some read what others have written."""
    world, rng = host.world, app_random(host)
    numbered = Numbered(host, rng)
    while not world.is_stopping():
        numbered.renew()
        options = host.options(
            **PRODUCER_OPTIONS, transactional_id=transactional_id, linger_ms=rng.choice((0, 20)),
            transaction_timeout_ms=rng.choice((3_000, 8_000)), compression_type=rng.choice(CODECS),
        )  # fmt: skip
        producer = TransactionalProducer(clock=host.clock, **options)
        try:
            await producer.start()
            await producer.initialize()
            until = world.now() + rng.uniform(5, 40)
            async with AsyncExitStack() as stack:
                read = await stack.enter_async_context(reading(host, topics)) if rng.random() < 0.4 else None
                while not world.is_stopping() and world.now() < until:
                    await one_transaction(host, producer, numbered, topics, rng, read)
                    await asyncio.sleep(rng.expovariate(4.0))
            if world.is_stopping() and rng.random() < 0.4:
                await leave_open(host, producer, numbered, topics)
        except FAILURES as error:
            note_failure(host, transactional_id, error)
        finally:
            await close_quietly(host, producer, abandon=rng.random() < 0.3)
        await asyncio.sleep(0.2)


@asynccontextmanager
async def reading(host: ClientHost, topics: dict[str, int]) -> AsyncIterator[ReadMore]:
    """A consumer beside a transactional producer: what has been committed since it was asked last, or began."""
    reader = Reader(f"{host.name}.{host.restarts}", "read_committed")
    host.world.history.readers.append(reader)
    options = host.options(**{**CONSUMER_OPTIONS, "fetch_max_wait_ms": 100}, isolation_level="read_committed")
    async with Consumer(**options) as consumer:
        consumer.assign([TopicPartition(topic, index) for topic, count in topics.items() for index in range(count)])
        consumer.seek_to_end()

        async def read() -> list[Seen]:
            records = await consumer.poll(50)
            note_seen(host, reader, records)
            return [seen_of(record) for record in records]

        yield read


async def leave_open(
    host: ClientHost, producer: TransactionalProducer, numbered: Numbered, topics: dict[str, int]
) -> None:
    """The producer dies in its last transaction and has no successor: only the timeout can end it."""
    host.world.mark("transaction left to its timeout")
    transaction = begin(host, producer, numbered.name)
    send = numbered.next(min(topics), 0, transaction)
    await note_outcomes(host, [(send, await producer.send(send.partition[0], send.value, partition=0))])
    await producer.producer.close(flush=False)


async def close_quietly(host: ClientHost, producer: TransactionalProducer, *, abandon: bool) -> None:
    """Close the producer, or abandon its transaction as a crash would; failures are only noted."""
    try:
        if abandon:
            # As a crash would: the transaction stays open until it times out or is fenced.
            await producer.producer.close(flush=False)
        else:
            await producer.close()
    except FAILURES as error:
        note_failure(host, "close", error)


async def one_transaction(
    host: ClientHost,
    producer: TransactionalProducer,
    numbered: Numbered,
    topics: dict[str, int],
    rng: random.Random,
    read: ReadMore | None,
) -> None:
    """Run one transaction and record its outcome."""
    world = host.world
    transaction = begin(host, producer, numbered.name)
    pending = []
    for _ in range(rng.choice((1, 1, 2, 5))):
        topic = rng.choice(sorted(topics))
        send = numbered.next(topic, rng.randrange(topics[topic]), transaction)
        pending.append((send, await producer.send(topic, send.value, partition=send.partition[1])))
        if rng.random() < 0.1:
            await asyncio.sleep(rng.expovariate(2.0))
    waiting = asyncio.create_task(note_outcomes(host, pending))
    try:
        if read is not None and rng.random() < 0.6:
            transaction.read += await read()
        if rng.random() < 0.02:
            world.mark("transaction left open for long")
            await asyncio.sleep(12)
        await end(host, producer, transaction, committed=rng.random() < 0.65)
    finally:
        if producer.state is not State.ENDING:
            await waiting


def begin(host: ClientHost, producer: TransactionalProducer, name: str) -> Transaction:
    """Begin a transaction and record it."""
    producer.begin()
    history = host.world.history
    transaction = Transaction(name, len(history.transactions), host.world.now())
    history.transactions.append(transaction)
    return transaction


async def end(host: ClientHost, producer: TransactionalProducer, transaction: Transaction, *, committed: bool) -> None:
    """Commit or abort, again while the outcome is open; a refused commit is aborted."""
    world = host.world
    if committed:
        transaction.commit_asked_at = world.now()
        try:
            await ask_again(host, producer.commit)
        except FAILURES as error:
            note_failure(host, "commit of a transaction", error)
            if producer.state not in (State.ABORTABLE, State.IN_TRANSACTION):
                transaction.state = UNKNOWN
                raise
        else:
            transaction.state, transaction.ended_at = COMMITTED, world.now()
            return
        # Refused before EndTxn went out: it was never asked to commit.
        transaction.commit_asked_at = None
    await ask_again(host, producer.abort)
    transaction.state, transaction.ended_at = ABORTED, world.now()


async def ask_again(host: ClientHost, call: Any) -> None:
    """Await the call; retry it after a timeout, five times at most."""
    for attempt in range(6):
        try:
            await call()
        except ClientError as error:
            if attempt == 5 or not isinstance(error, TimeoutError):
                raise
            host.world.mark("end of a transaction asked again")
        else:
            return


async def read_process_write(host: ClientHost, group: str, source: str, target: str, partitions: int) -> None:
    """Exactly once: what is read from one topic is written to another, offsets in the same transaction."""
    world, rng = host.world, app_random(host)
    keys = [TopicPartition(source, index) for index in range(partitions)]
    numbered = Numbered(host, rng)
    finished = False
    while not finished:
        numbered.renew()
        reader = Reader(f"{host.name}.{host.restarts}", "read_committed")
        world.history.readers.append(reader)
        consumer = Consumer(
            **host.options(
                **CONSUMER_OPTIONS, group_id=group, enable_auto_commit=False, isolation_level="read_committed"
            )
        )
        producer = TransactionalProducer(
            clock=host.clock,
            **host.options(**PRODUCER_OPTIONS, transactional_id=host.name, transaction_timeout_ms=30_000),
        )
        try:
            await consumer.start()
            await producer.start()
            await producer.initialize()
            consumer.subscribe([source], listener=Assignments(host, reader, consumer, group))
            until = world.now() + rng.uniform(8, 40)
            while not finished and (world.now() < until or world.is_stopping()):
                records = await consumer.poll(500, rng.choice((3, 50)))
                note_seen(host, reader, records)
                if records:
                    if not await process(host, consumer, producer, records, (group, target, partitions), numbered):
                        reader.jumped.append(len(reader.seen))
                elif world.is_stopping():
                    committed = await look_committed(host, consumer, group, keys)
                    ends = await consumer.end_offsets(keys)
                    finished = all(committed.get(key, 0) >= last_record(host, key) for key in keys)
                    for key in keys:
                        finished = finished and await at_end(consumer, key, ends[key])
        except FAILURES as error:
            note_failure(host, group, error)
        finally:
            await close_quietly(host, producer, abandon=rng.random() < 0.3)
            try:
                await consumer.close()
            except FAILURES as error:
                note_failure(host, "close", error)
        await asyncio.sleep(0.2)


async def at_end(consumer: Consumer, key: TopicPartition, end_offset: int) -> bool:
    """Whether the consumer's position has reached the offset."""
    return key not in consumer.assignment() or await consumer.position(key, timeout_ms=5000) >= end_offset


def last_record(host: ClientHost, key: TopicPartition) -> int:
    """One past the last record that is known to lie in the partition."""
    sends = host.world.history.sends.values()
    return max((s.offset + 1 for s in sends if s.partition == (key.topic, key.partition) and s.state == OK), default=0)


async def process(
    host: ClientHost,
    consumer: Consumer,
    producer: TransactionalProducer,
    records: Sequence[ConsumerRecord],
    where: tuple[str, str, int],
    numbered: Numbered,
) -> bool:
    """One transaction for what was read; whether it was committed. If not, the consumer is set back."""
    group, target, partitions = where
    transaction = begin(host, producer, numbered.name)
    first: dict[TopicPartition, int] = {}
    last: dict[TopicPartition, int] = {}
    pending = []
    member = consumer.group_metadata()
    try:
        for record in records:
            key = record.topic_partition
            transaction.read.append(seen_of(record))
            first.setdefault(key, record.offset)
            last[key] = record.offset + 1
            send = numbered.next(target, record.partition % partitions, transaction)
            assert isinstance(record.value, bytes)
            send.source = record.value
            pending.append((send, await producer.send(target, send.value, partition=send.partition[1])))
        await producer.send_offsets(group, last, member)
        if numbered.rng.random() < 0.03 and not host.world.is_stopping():
            # Long enough for the group to continue without this member, not for the transaction to be aborted.
            host.world.mark("commit of a processor that has left its group")
            await asyncio.sleep(17)
        await end(host, producer, transaction, committed=numbered.rng.random() < 0.9)
    except FAILURES as error:
        note_failure(host, "process", error)
        if producer.state in (State.IN_TRANSACTION, State.ABORTABLE) and not isinstance(error, ProducerFenced):
            await end(host, producer, transaction, committed=False)
        else:
            raise
    finally:
        if producer.state is not State.ENDING:
            await note_outcomes(host, pending)
    if transaction.state != COMMITTED:
        for key, offset in first.items():
            if key in consumer.assignment():
                consumer.seek(key, offset)
    return transaction.state == COMMITTED


async def observe(host: ClientHost, topics: dict[str, int], group: str | None) -> None:
    """Looks at offsets again and again."""
    world, rng = host.world, app_random(host)
    keys = [TopicPartition(topic, index) for topic, count in topics.items() for index in range(count)]
    while not world.is_stopping():
        try:
            async with (
                Admin(**host.options()) as admin,
                Consumer(**host.options(group_id=group or "nobody")) as consumer,
            ):
                while not world.is_stopping():
                    for what, at, isolation in (
                        ("stable", LATEST, READ_COMMITTED),
                        ("latest", LATEST, READ_UNCOMMITTED),
                        ("earliest", EARLIEST, READ_UNCOMMITTED),
                    ):
                        asked = world.now()
                        epochs = {key: admin.cluster.metadata.leader_epoch(*key) for key in keys}
                        found = raise_first(
                            await admin.list_offsets(dict.fromkeys(keys, at), isolation_level=isolation)
                        )
                        for key, answer in found.items():
                            epoch = answer.leader_epoch
                            if what == "earliest":
                                # That was the first record's epoch. The leader is of the epoch that was asked for.
                                is_same = epochs[key] == admin.cluster.metadata.leader_epoch(*key)
                                epoch = epochs[key] if is_same else -1
                            where = (key.topic, key.partition)
                            world.history.looks.append(Looked(asked, world.now(), what, where, answer.offset, epoch))
                    if group is not None:
                        await look_committed(host, consumer, group, keys)
                    await asyncio.sleep(rng.expovariate(0.5))
        except FAILURES as error:
            note_failure(host, "observe", error)
            await asyncio.sleep(0.2)
