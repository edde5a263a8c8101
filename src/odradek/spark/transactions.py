"""The steps of `protocol` as the driver's and the executors' Python processes take them: with their own clients, event
loops and lease server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator
from typing import Any, Final

from odradek.client.config import parse_servers
from odradek.client.producer.transactions import TransactionalProducer
from odradek.client.reports.spark_queries import marker_group
from odradek.spark import clients, protocol
from odradek.spark.checkpoint_files import open_files
from odradek.spark.checkpoints import query_id, source_ends
from odradek.spark.leases import LeaseError, LeaseServer, ListeningPlace
from odradek.spark.markers import Markers, Recorded
from odradek.spark.offset_log import SourceEnd, offsets_on
from odradek.spark.offsets import Offsets
from odradek.spark.options import SinkOptions, admin_options
from odradek.spark.protocol import Begun, Encoded, TaskReport, TransactionError, is_done
from odradek.spark.target_topics import partition_count
from odradek.spark.workers import freeze_modules, keep_memory
from odradek.spark.writing import PRODUCER_DEFAULTS, RowWriter

__all__ = [
    "NO_BATCH", "Begun", "TaskReport", "TransactionError", "abort", "begin", "commit", "give_up", "is_done",
    "marker_group", "transactional_id", "with_identity", "with_output_identity", "write_rows",
]  # fmt: skip

logger = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS: Final = 900_000
"""As long as brokers allow by default: a write that takes longer is aborted and fails."""
SENDING_S: Final = 0.001
"""For so long a task lets what it has encoded go out before it encodes the next partition: the turn to write comes from
another process."""
TOGETHER_BYTES: Final = 128 * 1024
"""What a task has encoded is sent once it is as large as this, or at the end of its round: with few rows for each of
many partitions, a turn and a request for each would take longer than to encode them all."""
MANY_LEASES: Final = 5_000
"""Leases beyond one for each partition that are worth a warning: some 0.2 s of the driver."""
NO_BATCH: Final = -1
"""The number of a write that is no micro-batch: it has no marker, and is not recognised when it is run again."""


def transactional_id(options: SinkOptions) -> str:
    """The user's, or one made from the checkpoint location, which is what makes a query the same after a restart."""
    if options.transactional_id:
        return options.transactional_id
    assert options.checkpoint_location is not None
    location = re.sub(r"^file:/*", "/", options.checkpoint_location).rstrip("/")
    return f"odradek-{hashlib.sha256(location.encode()).hexdigest()[:32]}"


def with_identity(options: SinkOptions) -> SinkOptions:
    """The options of a single write: with a transactional id of its own, unless the user gave one."""
    if options.transactional_id:
        return options
    return options._replace(transactional_id=f"{clients.SINGLE_WRITE}{uuid.uuid4().hex}")


def with_output_identity(options: SinkOptions) -> SinkOptions:
    """The options of one of a batch's outputs: each topic has a transactional id, and so a number of its own."""
    if options.transactional_id or options.topic is None:
        return options
    topic = hashlib.sha256(options.topic.encode()).hexdigest()[:8]
    return options._replace(transactional_id=f"{transactional_id(options)}-{topic}")


def client_options(options: SinkOptions) -> clients.Options:
    """Options of the clients that transactions use."""
    given = {**PRODUCER_DEFAULTS, "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS, **dict(options.client)}
    return tuple(sorted({**given, "transactional_id": transactional_id(options)}.items()))


# --- driver ---

_servers: dict[tuple[Any, ...], LeaseServer] = {}
_markers: dict[tuple[Any, ...], Markers] = {}
_readable: set[str] = set()
"""Checkpoints that this process has read."""
_lock = threading.Lock()


def _lease_server(options: SinkOptions, watched_pid: int) -> LeaseServer:
    """The server of this process for these brokers."""
    key = (dict(options.client)["bootstrap_servers"], options.lease_host, options.lease_port, options.lease_certificate)
    with _lock:
        found = _servers.get(key)
        if found is None or found.pid != os.getpid() or not found.alive:
            host = options.lease_host or _own_address(options)
            place = ListeningPlace(host, options.lease_port, options.lease_certificate)
            found = _servers[key] = LeaseServer(place, watched_pid)
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


def _markers_of(options: SinkOptions) -> Markers:
    """Kept, because what it found out about the marker topic holds for all batches."""
    key = (options.client, options.marker_topic)
    found = _markers.get(key)
    if found is None:
        timeout_ms = int(dict(options.client).get("transaction_timeout_ms", TRANSACTION_TIMEOUT_MS))
        found = _markers[key] = Markers(admin_options(options.client), options.marker_topic, timeout_ms)
    return found


def check_checkpoint(options: SinkOptions, session: Any = None) -> None:
    """See that `sourceGroup` can work, before a row is written. Raises CheckpointError."""
    location = options.checkpoint_location
    if options.source_group is not None and location is not None and location not in _readable:
        query_id(open_files(location, session))
        _readable.add(location)


def _cluster_id(producer: TransactionalProducer) -> str | None:
    cluster = producer.producer.cluster
    if cluster.metadata.cluster_id is None:
        clients.run(cluster.refresh_metadata())
    return cluster.metadata.cluster_id


def group_offsets(cluster: str | None, ends: Iterable[SourceEnd]) -> Offsets:
    """The offsets for the group on the cluster that is written to. Raises TransactionError if no source reads it."""
    found = list(ends)
    offsets = offsets_on(cluster, found)
    if not offsets and any(each.offsets for each in found):
        raise TransactionError(
            "sourceGroup: no source of the query reads from the cluster that the sink writes to, so its group can have "
            "no offsets there; use commitOffsets and kafka.group.id on the source"
        )
    return offsets


def begin(options: SinkOptions, watched_pid: int, *, batches: bool = True, session: Any = None) -> Begun:
    """Step 1 of the protocol. The lease server ends with the watched process.

    `batches`: the transaction is one of many and leaves its number. Raises KafkaError, ClientError, MarkerError,
    TransactionError, LeaseError, CheckpointError, TargetMissing.
    """
    if batches:
        check_checkpoint(options, session)
    server = _lease_server(options, watched_pid)  # the first time, it starts while the brokers are asked
    producer = clients.transactional(client_options(options))
    if options.topic is not None:
        # the batch's number is an offset of this topic, so that a batch without rows needs it, too
        clients.run(partition_count(producer.producer.cluster, options.topic))
    address, following = server.open_batch(producer.transactional_id, options.lease_authority, follows=batches)
    markers = _markers_of(options) if batches else None
    identity, recorded = clients.run(protocol.begin(producer, markers, following))
    freeze_modules(at_leisure=False)
    return Begun(identity.producer_id, identity.epoch, recorded, address)


def commit(
    options: SinkOptions, reports: Iterable[TaskReport | None], batch_id: int = NO_BATCH, session: Any = None
) -> None:
    """Step 4: make the write visible, if it was not before.

    Raises TransactionError, LeaseError, CheckpointError, KafkaError, ClientError, OSError.
    """
    written = protocol.checked(reports, batch_id)
    if not written:
        return
    begun, counts = written[0].begun, protocol.total(written)
    _warn_of_many_leases(written, counts, batch_id)
    topic = options.topic or min((topic for topic, _ in counts), default=None)
    if topic is None or (batch_id == NO_BATCH and not counts):
        protocol.compare(counts, clients.run(clients.leases().complete(begun.leases)))
        return  # nothing that could be committed
    markers, source = None, None
    producer = clients.transactional(client_options(options))
    if batch_id != NO_BATCH:
        markers = _markers_of(options)
        if options.source_group is not None and options.checkpoint_location is not None:
            ends = source_ends(open_files(options.checkpoint_location, session), batch_id)
            source = (options.source_group, group_offsets(_cluster_id(producer), ends))
    recorded = Recorded(batch_id, written[0].query_id)
    let_through = clients.leases().complete(begun.leases)
    try:
        following = clients.run(protocol.finish(producer, begun, counts, let_through, markers, recorded, source, topic))
    except BaseException:
        # The batch's number may be under way: its answer is not to meet a later transaction of this process.
        clients.drop_transactional(client_options(options))
        raise
    if following is not None:
        clients.leases().committed(begun.leases, following)
    freeze_modules(at_leisure=False)


def _warn_of_many_leases(written: list[TaskReport], counts: protocol.Counts, batch_id: int) -> None:
    avoidable = protocol.avoidable_leases(written, counts)
    if avoidable <= MANY_LEASES:
        return
    logger.warning(
        "%s: %d tasks wrote to %d partitions and took at least %d leases, one for each task and partition, which "
        'the driver gives one after another; with the partition as a column, frame.repartition(N, "partition") before '
        "the write needs %d",
        "a single write" if batch_id == NO_BATCH else f"batch {batch_id}",
        len(written),
        len(counts),
        avoidable + len(counts),
        len(counts),
    )


def abort(options: SinkOptions, begun: Begun | None) -> None:
    """Step 5: fence a task that still writes, and undo its records; harmless after a commit.

    `begun` is the transaction, where it is known: after a commit it is. Raises KafkaError, ClientError.
    """
    if begun is not None:
        # What a commit has left is void from here on. Where the server of leases is gone, so is that.
        with contextlib.suppress(LeaseError, OSError):
            clients.run(clients.leases().drop(begun.leases))
    producer = clients.transactional(client_options(options))
    clients.run(producer.initialize())


def give_up(options: SinkOptions, begun: Begun | None) -> None:
    """Undo a single write, whose transactional id will not be used again. Raises as `abort`."""
    try:
        abort(options, begun)
    finally:
        clients.drop_transactional(client_options(options))


# --- tasks ---


def write_rows(options: SinkOptions, begun: Begun, task: int, rows: Iterator[Any]) -> protocol.Counts:
    """Step 3: write a task's rows into the open transaction; the records by topic and partition.

    Raises LeaseError, KafkaError, ClientError, RowError, OSError.
    """
    keep_memory()
    key = client_options(options)
    producer = clients.transactional(key)
    protocol.adopt(producer, begun)
    # Java collects the first rows meanwhile.
    sending = protocol.Sending(producer, task, clients.run(clients.leases().join(begun.leases, task)))
    under_way: list[asyncio.Task[None]] = []
    taken_bytes = 0

    def emit(encoded: Encoded) -> None:
        nonlocal taken_bytes
        sending.take([encoded])
        taken_bytes += sum(map(len, encoded.batches))
        if taken_bytes >= TOGETHER_BYTES:
            taken_bytes = 0
            under_way.append(clients.start(sending.send()))
            clients.run_for(under_way, SENDING_S)

    def end_round() -> None:
        nonlocal taken_bytes
        if taken_bytes:
            taken_bytes = 0
            under_way.append(clients.start(sending.send()))
        while under_way:
            clients.finish(under_way[0])
            del under_way[0]

    writer = RowWriter(producer.producer, options.topic, emit, end_round, task=task, transactional=True)
    try:
        for batch in rows:
            writer.add(batch)
        writer.flush()
        clients.run(sending.finish())
    except BaseException:
        for each in under_way:
            clients.cancel(each)
        clients.drop_transactional(key)
        raise
    finally:
        sending.close()
        # The closing goes out now: the loop may not run again before another task needs the lease.
        clients.turn()
    freeze_modules(at_leisure=True)
    return writer.counts
