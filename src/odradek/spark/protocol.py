"""One transaction per write: its rows, the micro-batch's number and the source's offsets become visible together.

1. The driver gets the producer id of the transactional id, which fences every earlier attempt and aborts what it left
   open; only then it reads the number of the last batch that was committed (the other order would race with a commit
   that is still under way): see `markers`. It knows both where it has just committed the batch before, and that commit
   gave the id a new epoch (KIP-890): see `finish`.
2. Micro-batches up to that number are skipped.
3. Tasks write under the driver's producer id; `leases` keeps their sequences in order.
4. The driver closes the leases and compares what they let through with what Spark took for written; then it commits the
   batch's number, maybe the source's offsets, and the transaction.
5. Any failure: a fresh producer id, which aborts, and the write is run again from its start.

Nothing here knows Spark, threads or processes: the caller brings producers, leases and an event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping
from typing import NamedTuple, Protocol

from odradek.client.producer.sequence_numbers import ProducerIdentity
from odradek.client.producer.transactions import State, TransactionalProducer
from odradek.records.topic_partition import PartitionKey, TopicPartition
from odradek.spark.leases import Address, Following
from odradek.spark.markers import Markers, Recorded

Counts = dict[PartitionKey, int]
"""Records by topic and partition."""


class TransactionError(RuntimeError):
    """The write was not committed. Run again from its start, it can be."""


class Encoded(NamedTuple):
    """Record batches of one partition, in order, and how many records they hold."""

    topic: str
    partition: int
    records: int
    batches: list[bytearray]


class Begun(NamedTuple):
    """What the driver hands to the tasks of one transaction."""

    producer_id: int
    epoch: int
    recorded: Recorded | None
    leases: Address

    @property
    def identity(self) -> ProducerIdentity:
        """Producer id and epoch of the transaction."""
        return ProducerIdentity(self.producer_id, self.epoch)


class TaskReport(NamedTuple):
    """What a task did: records by topic and partition; None if the batch was committed before."""

    begun: Begun
    batch_id: int
    query_id: str
    counts: Counts | None


class Leases(Protocol):
    """A task's turns to write to partitions: see `lease_connections.LeaseClient`."""

    async def acquire(self, wanted: list[str]) -> list[tuple[str, int]]:
        """Those of the wanted leases that are free, or the first that becomes free, and their next sequences.

        Raises LeaseError.
        """
        ...

    def release(self, name: str, records: int) -> None:
        """End a lease after this number of records."""
        ...

    async def leave(self) -> None:
        """Return when every ended lease is known to the server. Raises LeaseError."""
        ...

    def close(self) -> None:
        """Close the connection to the driver."""
        ...


# --- driver ---


async def begin(
    producer: TransactionalProducer, markers: Markers | None, following: Following | None = None
) -> tuple[ProducerIdentity, Recorded | None]:
    """Step 1. Without markers there is nothing to recognise: a single write.

    No broker is asked where it is known what the commit before has left. Raises KafkaError, ClientError, MarkerError.
    """
    if following is not None:
        return ProducerIdentity(following.producer_id, following.epoch), Recorded(
            following.batch_id, following.query_id
        )
    identity = await producer.initialize()
    return identity, None if markers is None else await markers.find(producer)


def is_done(begun: Begun, batch_id: int, query_id: str) -> bool:
    """Step 2: whether the batch was committed before. Raises TransactionError when that was another query's batch."""
    if begun.recorded is None:
        return False
    if begun.recorded.query_id != query_id:
        raise TransactionError(
            f"batch {begun.recorded.batch_id} was committed under this transactional id by another query "
            f"({begun.recorded.query_id}; this one is {query_id}): the checkpoint was deleted, or two queries share an "
            "id. Rows could be lost or written twice; give the query a new transactionalId"
        )
    return begun.recorded.batch_id >= batch_id


def checked(reports: Iterable[TaskReport | None], batch_id: int) -> list[TaskReport]:
    """The reports of one attempt's tasks; none if the batch had been committed before. Raises TransactionError."""
    found = list(reports)
    done = [each for each in found if each is not None]
    if len(done) < len(found):
        raise TransactionError("a task did not report what it has written, as none does with trigger(continuous=...)")
    written = [each for each in done if each.counts is not None]
    if not written:
        return []
    if len(written) < len(done) or len({each.begun for each in done}) > 1 or {e.batch_id for e in done} != {batch_id}:
        raise TransactionError(f"the tasks' reports do not belong to one attempt of batch {batch_id}")
    return written


def total(reports: Iterable[TaskReport]) -> Counts:
    """Records of all tasks by topic and partition."""
    counts: Counter[PartitionKey] = Counter()
    for each in reports:
        counts.update(each.counts or {})
    return dict(counts)


def avoidable_leases(reports: Iterable[TaskReport], counts: Counts) -> int:
    """The leases, at least, that would not be needed if each partition's rows were in one task."""
    return sum(len(each.counts or {}) for each in reports) - len(counts)


def compare(counts: Counts, let_through: Mapping[str, int]) -> None:
    """Step 4: what tasks reported must be what the leases saw written. Raises TransactionError."""
    reported = {lease_name(*key): number for key, number in counts.items()}
    for name in sorted(reported.keys() | {name for name, number in let_through.items() if number}):
        if reported.get(name, 0) != let_through.get(name, 0):
            raise TransactionError(
                f"{let_through.get(name, 0)} records were written to {name}, but the tasks that Spark counts report "
                f"{reported.get(name, 0)}: a task ran twice"
            )


async def finish(
    producer: TransactionalProducer,
    begun: Begun,
    counts: Counts,
    let_through: Awaitable[Mapping[str, int]],
    markers: Markers | None,
    recorded: Recorded,
    source: tuple[str, Mapping[TopicPartition, int]] | None,
    topic: str,
) -> Following | None:
    """Step 4: commit. `topic` is one that the transaction writes to; `source` are a group and its new offsets.

    Returns with what the next transaction may begin: an epoch that fences what tasks of this one still send. Whoever
    begins a transaction under the same id meanwhile fences that epoch in turn. None where the epoch stays (TV1).

    `let_through` closes the leases; meanwhile the batch's number is on its way, which is visible with the commit only.
    Raises TransactionError and what `let_through` does, and nothing is committed; KafkaError, ClientError: the outcome
    is open then, and shows when the transactional id begins again.
    """
    producer.adopt(begun.identity)
    numbering: asyncio.Task[None] | None = None
    if markers is not None:
        numbering = asyncio.create_task(markers.add(producer, recorded, topic, sum(counts.values())))
    try:
        compare(counts, await let_through)
    except BaseException as error:
        if numbering is not None:
            numbering.cancel()
            if isinstance(error, Exception):
                await asyncio.gather(numbering, return_exceptions=True)
        raise
    if numbering is not None:
        await numbering
    if source is not None and source[1]:
        await producer.send_offsets(source[0], {**source[1]})
    await producer.commit()
    if markers is None or producer.identity == begun.identity:
        return None
    return Following(*producer.identity, *recorded)


# --- tasks ---


def lease_name(topic: str, partition: int) -> str:
    """The name of the lease of one partition."""
    return f"{topic}-{partition}"


class _Granted(NamedTuple):
    """What a task has for a partition, and its turn to write it."""

    key: PartitionKey
    lease: str
    following: int
    """The next sequence of the partition."""
    encoded: list[Encoded]


class Sending:
    """Sends a task's encoded batches, partition by partition as leases come free."""

    __slots__ = ("_leases", "_one_asks", "_pending", "_producer", "_task")

    def __init__(self, producer: TransactionalProducer, task: int, leases: Leases) -> None:
        self._producer = producer
        self._task = task
        self._leases = leases
        self._one_asks = asyncio.Lock()
        self._pending: dict[PartitionKey, list[Encoded]] = {}

    def take(self, batches: Iterable[Encoded]) -> None:
        """Batches for the next `send`: all that is known of a partition goes under one lease."""
        for each in batches:
            self._pending.setdefault((each.topic, each.partition), []).append(each)

    async def send(self) -> None:
        """Returns when everything taken is acknowledged. Another may begin meanwhile, with what was taken since.

        Raises LeaseError, KafkaError, ClientError, OSError.
        """
        try:
            async with asyncio.TaskGroup() as group:
                while granted := await self._take_turn():
                    group.create_task(self._send_granted(granted))
        except ExceptionGroup as failed:
            # The first one ended the others; the sender wants to know what it met, not how many were under way.
            raise failed.exceptions[0] from None

    async def _take_turn(self) -> list[_Granted]:
        """What is pending for the partitions whose turn comes first; nothing once nothing is pending."""
        async with self._one_asks:
            if not self._pending:
                return []
            names = {lease_name(*key): key for key in self._pending}
            order = sorted(names)
            turn = self._task % len(order)
            leases = await self._leases.acquire(order[turn:] + order[:turn])
            return [
                _Granted(names[lease], lease, following, self._pending.pop(names[lease])) for lease, following in leases
            ]

    async def _send_granted(self, granted: list[_Granted]) -> None:
        """Send what is known of these partitions, as far as it fits in one request, and end their leases."""
        producer = self._producer.producer
        assert producer.sender.sequences is not None
        deliveries = []
        for each in granted:
            producer.sender.sequences.resume(each.key, each.following)
            deliveries.append(
                [one for batches in each.encoded for one in await producer.send_batch(*each.key, batches.batches)]
            )
        for each, delivered in zip(granted, deliveries, strict=True):
            for delivery in delivered:
                await delivery
            self._leases.release(each.lease, sum(batches.records for batches in each.encoded))

    async def finish(self) -> None:
        """Send what is left; when this returns the leases' count is complete. Raises as `send`."""
        await self.send()
        await self._leases.leave()

    def close(self) -> None:
        """Close the conversation about leases. One that was not ended fails the write."""
        self._leases.close()


def adopt(producer: TransactionalProducer, begun: Begun) -> None:
    """Let a task's producer write in the transaction, if it does not yet."""
    if producer.identity != begun.identity or producer.state is not State.IN_TRANSACTION:
        producer.adopt(begun.identity)
