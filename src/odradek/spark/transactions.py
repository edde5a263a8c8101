"""One transaction per micro-batch: rows, the batch's number and the source's offsets become visible together.

1. The driver gets the producer id of the query's transactional id, which fences every earlier attempt and aborts what
   it left open; only then it reads the number of the last batch that was committed (the other order would race with a
   commit that is still under way). It lies in the consumer group `__eos-<transactional id>`.
2. Batches up to that number are skipped.
3. Tasks write under the driver's producer id; `leases` keeps their sequences in order.
4. The driver commits the batch's number to that group, maybe the source's offsets to another, and the transaction.
5. Any failure: a fresh producer id, which aborts, and the batch is run again from its start.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.client.config import parse_servers
from odradek.client.model import OffsetAndMetadata, TopicPartition
from odradek.client.offsets import fetch_committed
from odradek.client.sequences import ProducerIdentity
from odradek.client.transactions import State, TransactionalProducer
from odradek.spark import clients
from odradek.spark.leases import Address, LeaseClient, LeaseServer
from odradek.spark.options import SinkOptions
from odradek.spark.writing import PRODUCER_DEFAULTS, Encoded, RowWriter

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""As long as brokers allow by default: a micro-batch that takes longer is aborted and fails."""


class TransactionError(RuntimeError):
    """The micro-batch was not committed. Run again from its start, it can be."""


class Recorded(NamedTuple):
    """The last committed batch and the query that it belongs to."""

    batch_id: int
    query_id: str


class Begun(NamedTuple):
    """What the driver hands to the tasks of one batch."""

    producer_id: int
    epoch: int
    recorded: Recorded | None
    leases: Address

    @property
    def identity(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.epoch)


class TaskReport(NamedTuple):
    """What a task did: records by topic and partition; None if the batch was committed before."""

    begun: Begun
    batch_id: int
    query_id: str
    counts: dict[tuple[str, int], int] | None


def transactional_id(options: SinkOptions) -> str:
    """The user's, or one made from the checkpoint location, which is what makes a query the same after a restart."""
    if options.transactional_id:
        return options.transactional_id
    assert options.checkpoint_location is not None
    location = re.sub(r"^file:/*", "/", options.checkpoint_location).rstrip("/")
    return f"odradek-{hashlib.sha256(location.encode()).hexdigest()[:32]}"


def marker_group(transactional: str) -> str:
    return f"__eos-{transactional}"


def client_options(options: SinkOptions) -> clients.Options:
    given = {**PRODUCER_DEFAULTS, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, **dict(options.client)}
    return tuple(sorted({**given, "transactional_id": transactional_id(options)}.items()))


# --- driver ---

_servers: dict[str, LeaseServer] = {}


def _lease_server(options: SinkOptions, watched_pid: int) -> LeaseServer:
    """The server of this process for a transactional id."""
    name = transactional_id(options)
    found = _servers.get(name)
    if found is None or found.pid != os.getpid() or not found.alive:
        found = _servers[name] = LeaseServer(_own_address(options), watched_pid)
    return found


def _own_address(options: SinkOptions) -> str:
    """The address of this machine that leads to the brokers: executors reach it if they reach those."""
    failure: OSError | None = None
    for server in parse_servers(dict(options.client)["bootstrap_servers"]):
        try:
            with socket.create_connection(server, 10) as connection:
                host: str = connection.getsockname()[0]
                return host
        except OSError as error:
            failure = error
    raise TransactionError(f"no broker can be reached: {failure}") from failure


def begin(options: SinkOptions, watched_pid: int) -> Begun:
    """Steps 1 of the protocol. The lease server ends with the watched process. Raises KafkaError, ClientError."""
    producer = clients.transactional(client_options(options))
    identity = clients.run(producer.initialize())
    group = marker_group(producer.transactional_id)
    committed = clients.run(fetch_committed(producer.producer.cluster, group, None, require_stable=True))
    recorded = None
    for at in committed.values():
        if recorded is None or at.offset > recorded.batch_id:
            recorded = Recorded(at.offset, json.loads(at.metadata or "{}").get("query", ""))
    address = _lease_server(options, watched_pid).open_batch()
    return Begun(identity.producer_id, identity.epoch, recorded, address)


def is_done(begun: Begun, batch_id: int, query_id: str) -> bool:
    """Whether the batch was committed before. Raises TransactionError when that was another query's batch."""
    if begun.recorded is None:
        return False
    if begun.recorded.query_id != query_id:
        raise TransactionError(
            f"batch {begun.recorded.batch_id} was committed under this transactional id by another query "
            f"({begun.recorded.query_id}; this one is {query_id}): the checkpoint was deleted, or two queries share an "
            "id. Rows could be lost or written twice; give the query a new transactionalId"
        )
    return begun.recorded.batch_id >= batch_id


def commit(options: SinkOptions, reports: Iterable[TaskReport | None], batch_id: int) -> None:
    """Step 4: make the batch visible, if it was not before. Raises TransactionError, KafkaError, ClientError."""
    found = list(reports)
    done = [each for each in found if each is not None]
    if len(done) < len(found):
        raise TransactionError("a task did not report what it has written")
    written = [each for each in done if each.counts is not None]
    if not written:
        return
    if len(written) < len(done) or len({each.begun for each in done}) > 1 or {e.batch_id for e in done} != {batch_id}:
        raise TransactionError(f"the tasks' reports do not belong to one attempt of batch {batch_id}")
    counted = sorted({topic for each in written for topic, _ in each.counts or ()})
    topic = options.topic or next(iter(counted), None)
    if topic is None:
        return  # no row and no topic: nothing that could be committed
    producer = clients.transactional(client_options(options))
    producer.adopt(written[0].begun.identity)
    note = json.dumps({"query": written[0].query_id, "records": sum(sum((e.counts or {}).values()) for e in written)})
    markers = {TopicPartition(topic, 0): OffsetAndMetadata(batch_id, note)}

    async def finish() -> None:
        await producer.send_offsets(marker_group(producer.transactional_id), markers)
        if options.source_group is not None:
            await producer.send_offsets(options.source_group, source_offsets(options, batch_id))
        await producer.commit()

    clients.run(finish())


def abort(options: SinkOptions) -> None:
    """Step 5: fence whoever still writes and undo it; harmless after a commit."""
    producer = clients.transactional(client_options(options))
    clients.run(producer.initialize())


def source_offsets(options: SinkOptions, batch_id: int) -> dict[TopicPartition, OffsetAndMetadata | int]:
    """Where the batch's Kafka sources end, from Spark's own note of it. Raises TransactionError."""
    location = re.sub(r"^file:/*", "/", options.checkpoint_location or "")
    note = Path(location) / "offsets" / str(batch_id)
    try:
        lines = note.read_text().splitlines()
    except OSError as error:
        raise TransactionError(f"sourceGroup needs a checkpointLocation that the driver can read: {error}") from error
    found: dict[TopicPartition, OffsetAndMetadata | int] = {}
    for line in lines[2:]:
        try:
            content = json.loads(line)
        except ValueError:
            continue
        for topic, partitions in content.items() if isinstance(content, dict) else ():
            if isinstance(partitions, dict):
                found.update({TopicPartition(topic, int(p)): offset for p, offset in partitions.items()})
    return found


# --- tasks ---


def write_rows(options: SinkOptions, begun: Begun, task: int, rows: Iterator[Any]) -> dict[tuple[str, int], int]:
    """Write a task's rows into the open transaction; the records by topic and partition.

    Raises LeaseError, KafkaError, ClientError, RowError.
    """
    key = client_options(options)
    producer = clients.transactional(key)
    if producer.identity != begun.identity or producer.state is not State.IN_TRANSACTION:
        producer.adopt(begun.identity)
    sending = _Sending(producer, begun.leases, task)
    writer = RowWriter(producer.producer, options.topic, sending.take, transactional=True)
    try:
        for batch in rows:
            writer.add(batch)
        writer.flush()
        clients.run(sending.send())
    except BaseException:
        clients.drop_transactional(key)
        raise
    finally:
        sending.close()
    return writer.counts


class _Sending:
    """Sends encoded batches, partition by partition as leases come free."""

    __slots__ = ("_address", "_client", "_pending", "_producer", "_task")

    def __init__(self, producer: TransactionalProducer, address: Address, task: int) -> None:
        self._producer = producer
        self._address = address
        self._task = task
        self._client: LeaseClient | None = None
        self._pending: dict[tuple[str, int], list[Encoded]] = {}

    def take(self, batches: list[Encoded]) -> None:
        """A round of rows: all that is known of each partition is sent under one lease."""
        for each in batches:
            self._pending.setdefault((each.topic, each.partition), []).append(each)
        clients.run(self.send())

    async def send(self) -> None:
        if not self._pending:
            return
        if self._client is None:
            self._client = await LeaseClient.join(self._address, self._task)
        names = {f"{topic}-{partition}": (topic, partition) for topic, partition in self._pending}
        order = sorted(names)
        turn = self._task % len(order)
        order = order[turn:] + order[:turn]
        async with asyncio.TaskGroup() as group:
            while order:
                lease, following = await self._client.acquire(order)
                order.remove(lease)
                group.create_task(self._send_partition(names[lease], lease, following))

    async def _send_partition(self, key: tuple[str, int], lease: str, following: int) -> None:
        batches = self._pending.pop(key)
        sender = self._producer.producer.sender
        assert sender.sequences is not None
        assert self._client is not None
        sender.sequences.resume(key, following)
        deliveries = []
        for each in batches:
            deliveries += await self._producer.producer.send_batch(*key, each.batches)
            following += each.records
        for delivery in deliveries:
            await delivery
        self._client.release(lease, following & 0x7FFFFFFF)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            # The closing goes out now: the loop may not run again before another task needs the lease.
            clients.turn()
