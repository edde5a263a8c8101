"""Spark's exactly-once sink against the real coordinator: the product's protocol steps under a scheduler that does all
that Spark may do.

Drivers die, are given up while they still live, and come back. A micro-batch whose end was not recorded is run again,
its rows in other tasks and another order. Tasks fail and are run again, are started twice, and continue after they were
given up. Executors die with all their tasks. The number of the last batch expires as a committed offset does. Only
Spark's own files stay: the logs of offsets and of commits, each entry written by one driver only.

At the end, each batch up to the last noted one is in the topic once, whole, and in order.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import pairwise
from typing import Any, Final

from odradek.client.admin import Admin, NewTopic
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import IllegalState
from odradek.client.producer.transactions import TransactionalProducer
from odradek.client.reports.spark_queries import marker_group
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.topic_partition import TopicPartition
from odradek.sim.checkers.history import READ_COMMITTED, Violation
from odradek.sim.workloads.clients import CONSUMER_OPTIONS, FAILURES, PRODUCER_OPTIONS, app_random, note_failure
from odradek.sim.world.hosts import ClientHost, World
from odradek.spark import protocol
from odradek.spark.leases import Address, Batch, Following, LeaseError
from odradek.spark.markers import MarkerError, Markers, Recorded
from odradek.spark.protocol import Begun, Encoded, TaskReport, TransactionError
from odradek.wire.errors import ErrorCode, KafkaError

TOPIC: Final = "lake"
PARTITIONS: Final = 3
MARKER_TOPIC: Final = "batches"
TRANSACTIONAL_ID: Final = "query"
QUERY_ID: Final = "the-query"
DRIVERS: Final = ("driver-1", "driver-2")
EXECUTORS: Final = ("executor-1", "executor-2")
MAX_FAILURES: Final = 4
"""spark.task.maxFailures."""
TASK_SECONDS: Final = 20.0
"""After which the scheduler takes a task's executor for lost, whether it is or not."""
TRANSACTION_MS: Final = 25_000
PROTOCOL_FAILURES: Final = (
    *FAILURES, LeaseError, TransactionError, MarkerError, IllegalState, OSError, TimeoutError, ExceptionGroup,
)  # fmt: skip


class RowFailed(Exception):
    """A row cannot be converted."""


class JobFailed(Exception):
    """Spark gives a micro-batch up, and with it the query; it is started again."""


class Query:
    """What outlives drivers: Spark's checkpoint, and what the scheduler knows of executors. One per world."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        """The log of offsets: rows of each batch."""
        self.noted = 0
        """The log of commits: batches before this one are noted as done."""
        self.owner: ClientHost | None = None
        self.executors: dict[str, Executor] = {}
        self.ended: set[str] = set()
        self.topics_made = False

    def rows(self, batch: int) -> list[str]:
        """The rows of a micro-batch."""
        return [f"{batch}:{row}" for row in range(self.batches[batch])]


class Executor:
    """One life of an executor. In each of its Python workers is a producer, which one task after the other uses; here
    the workers share a process.
    """

    __slots__ = ("host", "idle", "process")

    def __init__(self, host: ClientHost) -> None:
        self.host = host
        self.process = host.process
        self.idle: list[TransactionalProducer] = []


class Conversation:
    """A task's side of the leases, as `LeaseClient` over a network that is only slow."""

    __slots__ = ("_batch", "_rng", "_task")

    def __init__(self, batch: Batch, task: int, rng: random.Random, executor: Executor) -> None:
        self._batch = batch
        self._task = task
        self._rng = rng
        # The kernel closes what a dead process had open.
        executor.process.doomed.append(self.close)

    async def acquire(self, wanted: list[str]) -> list[tuple[str, int]]:
        """As `Leases.acquire`."""
        await asyncio.sleep(self._rng.expovariate(500))
        granted = self._batch.acquire(self, self._task, wanted)
        if granted:
            return granted
        turn: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        self._batch.wait(self, self._task, wanted, turn)
        return [await turn]

    def release(self, name: str, records: int) -> None:
        """As `Leases.release`."""
        self._batch.release(self, name, records)

    async def leave(self) -> None:
        """As `Leases.leave`."""
        await asyncio.sleep(self._rng.expovariate(500))
        self._batch.check()

    def close(self) -> None:
        """As `Leases.close`."""
        self._batch.leave(self)


def query_of(world: World) -> Query:
    """The query of the run."""
    found = _queries.get(id(world))
    if found is None or found[0] is not world:
        _queries.clear()
        found = _queries[id(world)] = (world, Query())
    return found[1]


_queries: dict[int, tuple[World, Query]] = {}


# --- executors ---


async def executor(host: ClientHost) -> None:
    """Lends its process to tasks until the drivers have ended."""
    query = query_of(host.world)
    query.executors[host.name] = Executor(host)
    while len(query.ended) < len(DRIVERS):
        await asyncio.sleep(0.5)


async def _write_rows(
    where: Executor, begun: Begun, batch: Batch, task: int, rows: list[str], rng: random.Random
) -> protocol.Counts:
    """As `transactions.write_rows`."""
    if where.idle:
        producer = where.idle.pop()
    else:
        options = where.host.options(
            **PRODUCER_OPTIONS, transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=TRANSACTION_MS
        )
        producer = TransactionalProducer(clock=where.host.clock, **options)
        await producer.start()
    protocol.adopt(producer, begun)

    await asyncio.sleep(rng.expovariate(500))
    conversation = Conversation(batch, task, rng, where)
    sending = protocol.Sending(producer, task, conversation)
    counts: protocol.Counts = {}
    try:
        batch.join(conversation, task)
        _maybe_fail(rng, 0.1)
        while rows:
            size = rng.choice((1, 3, 10))
            round_, rows = rows[:size], rows[size:]
            for partition in range(PARTITIONS):
                part = [row for row in round_ if _partition_of(row) == partition]
                if part:
                    sending.take([_encoded(partition, part)])
                    counts[TOPIC, partition] = counts.get((TOPIC, partition), 0) + len(part)
            await sending.send()
            _maybe_fail(rng, 0.02)
            await asyncio.sleep(rng.expovariate(20))
        await sending.finish()
    except BaseExceptionGroup as group:
        if group.subgroup(GeneratorExit) is not None:
            return {}  # a task of a dead process is thrown away
        await producer.producer.close(flush=False)
        raise
    except (Exception, asyncio.CancelledError):
        await producer.producer.close(flush=False)
        raise
    finally:
        sending.close()
    where.idle.append(producer)
    return counts


def _maybe_fail(rng: random.Random, chance: float) -> None:
    if rng.random() < chance:
        raise RowFailed("planted")


def _partition_of(row: str) -> int:
    return sum(row.encode()) % PARTITIONS


def _encoded(partition: int, rows: list[str]) -> Encoded:
    records = [(1_000, None, row.encode(), ()) for row in rows]
    return Encoded(TOPIC, partition, len(rows), [encode_batch(records, fields=BatchFields(is_transactional=True))])


# --- drivers ---


async def driver(host: ClientHost) -> None:
    """Runs the query while the other does not, and now and then although it does; at the end one of them checks."""
    world, rng, query, left = host.world, app_random(host), query_of(host.world), LeftByCommit()
    while not (world.is_stopping() and query.batches and query.noted == len(query.batches)):
        owner = query.owner
        free = owner is None or not owner.process.alive or owner is host
        if not free and rng.random() > 0.05:
            await asyncio.sleep(rng.uniform(0.2, 2))
            continue
        if not free:
            world.mark("two drivers of one query")
        query.owner = host
        try:
            await _run_query(host, rng, query, left)
        except (*PROTOCOL_FAILURES, JobFailed) as error:
            note_failure(host, "query", error)
        if query.owner is host:
            query.owner = None
        await asyncio.sleep(rng.expovariate(1))
    query.ended.add(host.name)
    if len(query.ended) == len(DRIVERS):
        await _check(host, query)


class LeftByCommit:
    """What a driver's server of leases knows, also in the next run of the query."""

    __slots__ = ("following",)

    def __init__(self) -> None:
        self.following: Following | None = None


async def _run_query(host: ClientHost, rng: random.Random, query: Query, left: LeftByCommit) -> None:
    """One run of the query, until it fails or has done some batches."""
    if not query.topics_made:
        await _make_topics(host)
        query.topics_made = True
    if query.noted and rng.random() < 0.3:
        await _expire_marker(host)
    options = host.options(**PRODUCER_OPTIONS, transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=TRANSACTION_MS)
    producer = TransactionalProducer(clock=host.clock, **options)
    markers = Markers(host.options(), MARKER_TOPIC, 60_000)
    await producer.start()
    try:
        for _ in range(rng.choice((1, 3, 8))):
            number = query.noted
            if number == len(query.batches):
                if host.world.is_stopping():
                    return
                query.batches.append(rng.choice((0, 3, 20, 60)))
            await asyncio.sleep(rng.expovariate(100))
            await _run_batch(host, rng, query, producer, markers, number, left)
            await asyncio.sleep(rng.choice((0.0, 0.0, 0.5)))
            if rng.random() < 0.05:
                # The sink has committed, so that Spark does not abort; this driver begins the batch again.
                host.world.mark("micro-batch committed, but not noted")
                raise JobFailed("the log of commits cannot be written")
            if query.noted > number:
                raise JobFailed("another driver has noted this batch: concurrent updates to the log of commits")
            query.noted = number + 1
            host.world.mark("micro-batch noted")
    finally:
        await producer.producer.close(flush=False)


async def _make_topics(host: ClientHost) -> None:
    async with Admin(**host.options()) as admin:
        failure = (await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, {"retention.ms": "-1"})]))[TOPIC]
    if isinstance(failure, KafkaError) and failure.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise failure


async def _expire_marker(host: ClientHost) -> None:
    """What offsets.retention.minutes does to a query that is away for long."""
    async with Admin(**host.options()) as admin:
        failure = (await admin.groups.delete([marker_group(TRANSACTIONAL_ID)]))[marker_group(TRANSACTIONAL_ID)]
        if failure is None:
            host.world.mark("marker expired")


async def _run_batch(
    host: ClientHost,
    rng: random.Random,
    query: Query,
    producer: TransactionalProducer,
    markers: Markers,
    number: int,
    left: LeftByCommit,
) -> None:
    """As Spark runs a write: the writer is pickled, tasks, then commit, and abort if anything failed."""
    batch = Batch()
    following, left.following = left.following, None
    if following is not None:
        host.world.mark("micro-batch that asks no broker to begin")
    identity, recorded = await protocol.begin(producer, markers, following)
    begun = Begun(*identity, recorded, Address("", 0, str(rng.random())))
    try:
        if protocol.is_done(begun, number, QUERY_ID):
            host.world.mark("micro-batch skipped")
            reports: list[TaskReport | None] = [TaskReport(begun, number, QUERY_ID, None)]
        else:
            reports = await _Job(host, rng, query, begun, batch, number).run()
        written = protocol.checked(reports, number)
        if written:
            counts = protocol.total(written)
            here = Recorded(number, QUERY_ID)

            async def complete() -> dict[str, int]:
                await asyncio.sleep(rng.expovariate(500))
                return batch.complete()

            left.following = await protocol.finish(producer, begun, counts, complete(), markers, here, None, TOPIC)
            host.world.mark("micro-batch committed")
        if rng.random() < 0.03:
            raise JobFailed("the answer to the commit is lost within Spark")
    except (*PROTOCOL_FAILURES, JobFailed) as error:
        host.world.note(f"{host.name}: batch {number} fails: {error}"[:160])
        host.world.mark("micro-batch failed")
        batch.fail("the batch is over")
        if rng.random() < 0.9:  # a driver that dies here aborts nothing
            await producer.initialize()
        raise


class _Job:
    """The tasks of a micro-batch, as Spark's scheduler runs them."""

    def __init__(
        self, host: ClientHost, rng: random.Random, query: Query, begun: Begun, batch: Batch, number: int
    ) -> None:
        self._host = host
        self._rng = rng
        self._query = query
        self._begun = begun
        self._batch = batch
        self._number = number

    async def run(self) -> list[TaskReport | None]:
        rows = self._query.rows(self._number)
        self._rng.shuffle(rows)
        count = self._rng.choice((1, 2, 4))
        return list(await asyncio.gather(*(self._task(task, rows[task::count]) for task in range(count))))

    async def _task(self, task: int, rows: list[str]) -> TaskReport:
        """Attempts until one succeeds, some of them side by side. Raises JobFailed."""
        for attempt in range(MAX_FAILURES):
            running = [self._launch(task, rows)]
            if self._rng.random() < 0.05:
                self._host.world.mark("task started twice")
                await asyncio.sleep(self._rng.expovariate(10))
                running.append(self._launch(task, rows))
            done, pending = await asyncio.wait(running, timeout=TASK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            while pending and all(each.exception() for each in done):
                more, pending = await asyncio.wait(pending, timeout=TASK_SECONDS)
                done |= more
                if not more:
                    break
            for each in done:
                if each.exception() is None:
                    return TaskReport(self._begun, self._number, QUERY_ID, each.result())
            if not done:
                self._host.world.mark("task given up that may still run")
            self._host.world.mark(f"task attempt {attempt} failed")
        raise JobFailed(f"task {task} failed {MAX_FAILURES} times")

    def _launch(self, task: int, rows: list[str]) -> asyncio.Future[protocol.Counts]:
        """A task in an executor's process; the driver is notified of its end, or of the executor's."""
        world = self._host.world
        result: asyncio.Future[protocol.Counts] = world.loop.create_future()
        alive = [each for each in self._query.executors.values() if each.process.alive]
        if not alive:
            world.loop.call_later(1.0, _fail, result, "no executor")
            return result
        where = self._rng.choice(alive)
        rng = random.Random(self._rng.random())
        work = _attempt(partial(_write_rows, where, self._begun, self._batch, task, list(rows), rng))
        running = world.loop.create_task(work, name=f"task {task}", context=where.process.context)
        running.add_done_callback(partial(_complete, result))
        where.process.doomed.append(partial(_fail, result, "the executor is lost"))
        return result


async def _attempt(work: Callable[[], Coroutine[Any, Any, protocol.Counts]]) -> protocol.Counts | Exception:
    """A failure is a task's result like any other: the driver that would receive it may be dead by then."""
    try:
        return await work()
    except (*PROTOCOL_FAILURES, RowFailed) as error:
        return error


def _complete(result: asyncio.Future[protocol.Counts], task: asyncio.Task[protocol.Counts | Exception]) -> None:
    outcome = None if task.cancelled() else task.result()
    if isinstance(outcome, Exception):
        _fail(result, repr(outcome))
    elif outcome is not None and not result.done():
        result.set_result(outcome)


def _fail(result: asyncio.Future[protocol.Counts], why: str) -> None:
    if not result.done():
        result.set_exception(JobFailed(why))
        result.exception()  # its exception is not reported when no caller awaits it


# --- the verdict ---


async def _check(host: ClientHost, query: Query) -> None:
    """Raises Violation unless every noted batch is there once, whole, and in order."""
    keys = [TopicPartition(TOPIC, index) for index in range(PARTITIONS)]
    options = host.options(**{**CONSUMER_OPTIONS, "isolation_level": READ_COMMITTED})
    found: dict[int, list[str]] = {index: [] for index in range(PARTITIONS)}
    uncommitted = host.options(**CONSUMER_OPTIONS)
    async with Consumer(**uncommitted) as consumer:
        ends = await consumer.end_offsets(keys)
    async with Consumer(**options) as consumer:
        consumer.assign(keys)
        waiting = set(keys)
        while waiting:
            for record in await consumer.poll(1000):
                assert isinstance(record.value, bytes)
                found[record.partition].append(record.value.decode())
            waiting = {key for key in waiting if await consumer.position(key) < ends[key]}
    expected = sorted(row for number in range(query.noted) for row in query.rows(number))
    seen = sorted(row for rows in found.values() for row in rows)
    if seen != expected:
        twice = [a for a, b in pairwise(seen) if a == b]
        missing = sorted(set(expected) - set(seen))
        raise Violation("a micro-batch is written once", f"twice: {twice[:5]}, missing: {missing[:5]}")
    for partition, rows in found.items():
        numbers = [int(row.partition(":")[0]) for row in rows]
        if numbers != sorted(numbers):
            raise Violation("micro-batches are in order", f"{TOPIC}-{partition}: {numbers}")
    host.world.mark("query checked")


Program = Callable[[ClientHost], Coroutine[Any, Any, None]]
PROGRAMS: Final[tuple[tuple[str, Program], ...]] = (
    *((name, driver) for name in DRIVERS),
    *((name, executor) for name in EXECUTORS),
)
"""For the simulator's profile `spark`."""
