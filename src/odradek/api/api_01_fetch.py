"""Fetch: record batches as they lie on disk, at once or when there are enough of them.

Version notes: 5 log start offset; 7 sessions (KIP-227); 9 leader epochs; 11 rack and preferred replica; 12 last fetched
epoch and divergence (KIP-595), flexible; 13 topic ids (KIP-516); 15 replica state; 16 endpoints of new leaders; 17
replica directory id; 18 high watermark of followers. A batch is answered whole when the offset lies inside it: the
client skips what comes before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from odradek.api.data.new_leaders import MOVED, current_leader, endpoints
from odradek.api.data.replica_fetch import serve as serve_follower
from odradek.api.requests.capabilities import (
    HasAuthorization,
    HasClock,
    HasConfig,
    HasDisk,
    HasFetchers,
    HasFetchSessions,
    HasImage,
    HasNodeId,
    HasPartitions,
    HasQuotas,
    HasReplicaSessions,
)
from odradek.api.requests.context import LateAnswer, RequestContext
from odradek.api.requests.registry import api
from odradek.api.requests.throttling import time_quota_ms
from odradek.log.segments import cold_reads
from odradek.ports.disk import FileRange
from odradek.ports.network import Part
from odradek.replication.delayed_read import DelayedRead
from odradek.replication.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession
from odradek.replication.partition import NO_EPOCH, Partition, PartitionRead
from odradek.replication.read_replicas import RACK_AWARE, nearest_replica
from odradek.wire.acls import AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.fetch import (
    TOPIC_ID_FROM,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    decode_request,
    encode_response,
)
from odradek.wire.produce import RequestedPartition, TopicKey

if TYPE_CHECKING:
    from odradek.authorization.authorizer import Access

_ERROR_OF_THE_WHOLE_FROM = 7
_FROM_ANY_REPLICA = 11
_NONE: Final = ErrorCode.NONE

Found = tuple[RequestedPartition, ErrorCode, PartitionRead | None, Partition | None]
"""A place, the error or what was read there, and the replica if there is one."""


class Uses(
    HasAuthorization,
    HasClock,
    HasConfig,
    HasDisk,
    HasFetchSessions,
    HasFetchers,
    HasImage,
    HasNodeId,
    HasPartitions,
    HasQuotas,
    HasReplicaSessions,
    Protocol,
):
    """What these handlers take of the broker."""


def _all_failed(request: FetchRequest, context: RequestContext[Uses], code: ErrorCode) -> list[Part]:
    """The answer that the fetch failed: as a whole, or for every partition where the version has no error for the
    whole.
    """
    topics: list[tuple[TopicKey, list[FetchedPartition]]] = []
    if context.version < _ERROR_OF_THE_WHOLE_FROM:
        topics = [(topic, [_failed(entry[0], code) for entry in partitions]) for topic, partitions in request.topics]
    return encode_response(context.version, context.correlation_id, topics, error_code=code)


def _not_a_follower(request: FetchRequest, context: RequestContext[Uses]) -> list[Part]:
    """The answer to a fetch in a follower's name by a peer that is no broker: it fails for every partition (Kafka)."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topics = [(topic, [_failed(entry[0], code) for entry in partitions]) for topic, partitions in request.topics]
    return encode_response(context.version, context.correlation_id, topics)


@api(ApiKey.FETCH, decode=decode_request, failed=_all_failed)
def handle(
    request: FetchRequest, context: RequestContext[Uses]
) -> list[Part] | Awaitable[list[Part]] | LateAnswer | None:
    """Read for a consumer or a follower, at once or when `min_bytes` are there or `max_wait_ms` are over.

    Errors are per partition, those of the fetch session for the whole request.
    """
    try:
        if request.replica_id >= 0:
            if not context.session.is_broker:
                return _not_a_follower(request, context)
            return serve_follower(request, context)
        reader = _Reader(request, context)
    except KafkaError as error:
        return _all_failed(request, context, error.code)
    lacking = reader.attempt(request.max_wait_ms <= 0)
    if not lacking:
        cold = reader.cold_ranges()
        return _warmed(reader, cold, context) if cold else reader.answer()
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[Part]] = loop.create_future()

    def attempt(time_is_up: bool) -> int:
        if future.done():
            return 0
        try:
            still = reader.attempt(time_is_up)
            if not still:
                future.set_result(reader.answer())
        except Exception as error:  # noqa: BLE001 - it is this fetch's, and not that of the producer that woke it
            future.set_exception(error)
            return 0
        return still

    waiting = DelayedRead(reader.partitions, lacking, attempt)
    waiting.start(loop, request.max_wait_ms / 1000)
    future.add_done_callback(lambda _: waiting.stop())
    return future


async def _warmed(reader: _Reader, cold: list[FileRange], context: RequestContext[Uses]) -> list[Part]:
    """The answer, once what it sends is in memory."""
    await context.services.disk.run(cold_reads.LANE, cold_reads.read_ahead, cold)
    return reader.answer()


class _Reader:
    """One fetch: what it wants, and what was found at the last attempt."""

    __slots__ = (
        "_access",
        "_context",
        "_found",
        "_incremental",
        "_max_bytes",
        "_request",
        "_session",
        "_size",
        "_wanted",
        "partitions",
    )

    def __init__(self, request: FetchRequest, context: RequestContext[Uses]) -> None:
        self._request = request
        self._context = context
        self._access = None if context.services.authorization is None else context.access
        self._session: FetchSession | None = None
        self._incremental = False
        self._max_bytes = self._most_bytes()
        self._wanted: Iterable[tuple[RequestedPartition, FetchPartition]] = self._resolve()
        self._found: list[Found] = []
        self._size = 0
        self.partitions: list[Partition] = []

    def _resolve(self) -> Iterable[tuple[RequestedPartition, FetchPartition]]:
        """Everything this fetch reads, from the request and its session. Raises KafkaError of the session."""
        request, context = self._request, self._context
        asked = [((topic, entry[0]), entry) for topic, partitions in request.topics for entry in partitions]
        sessions = context.services.fetch_sessions
        epoch = request.session_epoch
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.end(request.session_id)
            if epoch == INITIAL_EPOCH:
                now_ms = context.services.clock.now_ms()
                self._session = sessions.begin(asked, context.version >= TOPIC_ID_FROM, now_ms)
            return asked
        session = sessions.find(
            request.session_id, epoch, context.version >= TOPIC_ID_FROM, context.services.clock.now_ms()
        )
        session.update(asked, ((topic, index) for topic, indexes in request.forgotten for index in indexes))
        self._session = session
        self._incremental = True
        return list(session.wanted.items())

    def _most_bytes(self) -> int:
        services = self._context.services
        most = min(self._request.max_bytes, services.config.number("fetch.max.bytes"))
        if services.quotas.fetch.active and self._request.replica_id < 0:
            allowed = services.quotas.fetch.most_at_once(*self._context.quota_entity)
            most = most if allowed is None else min(most, allowed)
        return most

    def attempt(self, time_is_up: bool) -> int:
        """Read everything; 0 when the answer can go, else how many bytes it lacks."""
        request = self._request
        left = self._max_bytes
        found: list[Found] = []
        partitions: list[Partition] = []
        size = 0
        must_answer = time_is_up
        access = self._access
        for place, wanted in self._wanted:
            partition = None
            try:
                if access is not None:
                    # At every attempt: a fetch may wait for long, and ACLs may change meanwhile.
                    self._check_readable(place[0], access)
                partition = self._partition(place, wanted[1])
                read = self._read(partition, wanted, left, size == 0)
            except KafkaError as error:
                found.append((place, error.code, None, partition))
                must_answer = True
                continue
            partitions.append(partition)
            found.append((place, _NONE, read, partition))
            size += read.size
            left -= read.size
            must_answer = must_answer or read.diverging_epoch is not None or read.preferred_read_replica >= 0
        self._found = found
        self._size = size
        self.partitions = partitions
        lacking = min(request.min_bytes, self._max_bytes) - size
        return 0 if lacking <= 0 or must_answer or not partitions else lacking

    def _check_readable(self, topic: TopicKey, access: Access) -> None:
        """Raise KafkaError unless the client may read the topic; an unknown id passes."""
        name = topic if isinstance(topic, str) else self._context.services.image().topic_names.get(topic)
        if name is not None and not access.allows(AclOperation.READ, ResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _partition(self, place: RequestedPartition, current_leader_epoch: int) -> Partition:
        partition = self._context.services.partitions.require(*place)
        if partition.leader == partition.local_id or self._context.version < _FROM_ANY_REPLICA:
            partition.check_leader(current_leader_epoch)
        else:
            partition.check_epoch(current_leader_epoch)
            if partition.leader < 0:
                # This broker does not know yet which leader to follow: its log may lack committed records.
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def _elsewhere(self, partition: Partition, fetch_offset: int) -> int | None:
        """The follower in the consumer's rack, if there is one and `replica.selector.class` looks for it."""
        if not self._request.rack_id or not partition.followers.progress:
            return None
        services = self._context.services
        if services.config.text("replica.selector.class") != RACK_AWARE:
            return None
        brokers = services.image().brokers

        def rack_of(broker_id: int) -> str | None:
            return brokers[broker_id].rack if broker_id in brokers else None

        return nearest_replica(partition, self._request.rack_id, fetch_offset, rack_of)

    def _read(self, partition: Partition, wanted: FetchPartition, left: int, first: bool) -> PartitionRead:
        _, _, fetch_offset, last_fetched_epoch, _, max_bytes = wanted
        if last_fetched_epoch != NO_EPOCH:
            diverging = partition.diverging_epoch(fetch_offset, last_fetched_epoch)
            if diverging is not None:
                high_watermark, start = partition.high_watermark, partition.log.log_start_offset
                return PartitionRead([], 0, high_watermark, partition.last_stable_offset, start, None, diverging)
        elsewhere = self._elsewhere(partition, fetch_offset)
        if elsewhere is not None:
            high_watermark, start = partition.high_watermark, partition.log.log_start_offset
            stable = partition.last_stable_offset
            return PartitionRead([], 0, high_watermark, stable, start, None, preferred_read_replica=elsewhere)
        return partition.read(
            fetch_offset,
            max(0, min(max_bytes, left)),
            isolation=self._request.isolation_level,
            min_one_batch=first,
        )

    def cold_ranges(self) -> list[FileRange]:
        """Ranges that have to be read from the device first."""
        cold: list[FileRange] = []
        for _, _, read, partition in self._found:
            if read is not None and partition is not None and (found := cold_reads.cold_ranges(read.ranges)):
                partition.traffic.cold_reads += 1
                cold += found
        return cold

    def answer(self) -> list[Part]:
        """The frame for what the last attempt found."""
        session, context = self._session, self._context
        quotas = context.services.quotas
        if (quotas.fetch.active or quotas.request.active) and self._request.replica_id < 0:
            throttle_ms = self._throttle()
            if throttle_ms:
                return self._throttled(throttle_ms)
        topics: dict[TopicKey, list[FetchedPartition]] = {}
        leaders: list[tuple[int, int] | None] = []
        for place, code, read, partition in self._found:
            if partition is not None:
                traffic = partition.traffic
                traffic.fetches += 1
                if read is None:
                    traffic.failed_fetches += 1
                else:
                    traffic.bytes_out += read.size
            if session is not None:
                size, high_watermark, start = (0, -1, -1) if read is None else (read.size, read.high_watermark, read[4])
                failed = read is None or read.diverging_epoch is not None or read.preferred_read_replica >= 0
                is_included = session.must_include(place, size, failed, high_watermark, start)
                if self._incremental and not is_included:
                    continue
                if size:
                    session.serve_last(place)
            topic, index = place
            if read is None:
                context.note_error(code)
                leader = current_leader(context, topic, index) if code in MOVED else None
                leaders.append(leader)
                row = FetchedPartition(index, code, current_leader=leader)
            else:
                row = _fetched(index, read)
            topics.setdefault(topic, []).append(row)
        return encode_response(
            context.version,
            context.correlation_id,
            list(topics.items()),
            session_id=NO_SESSION if session is None else session.identifier,
            node_endpoints=endpoints(context, leaders) if leaders else (),
        )

    def _throttle(self) -> int:
        """Count the answer against the client's quotas; milliseconds that it has to wait instead."""
        context = self._context
        services = context.services
        waits_ms = time_quota_ms(context) if services.quotas.request.active else 0
        if waits_ms or not services.quotas.fetch.active:
            return waits_ms
        now_ms = services.clock.monotonic() * 1000
        return services.quotas.fetch.admit(*context.quota_entity, self._size, now_ms)

    def _throttled(self, throttle_ms: int) -> list[Part]:
        """An empty answer, after which the connection pauses; what was read comes with a later fetch."""
        session, context = self._session, self._context
        session_id = NO_SESSION
        if session is not None and self._incremental:
            session_id = session.identifier
        elif session is not None:
            # A session begins with an answer that names every partition.
            context.services.fetch_sessions.end(session.identifier)
        context.throttle(throttle_ms)
        return encode_response(
            context.version, context.correlation_id, [], throttle_time_ms=throttle_ms, session_id=session_id
        )


def _failed(index: int, code: ErrorCode) -> FetchedPartition:
    return FetchedPartition(index, code)


def _fetched(index: int, read: PartitionRead) -> FetchedPartition:
    ranges, size, high_watermark, last_stable_offset, log_start_offset, aborted, diverging_epoch, elsewhere = read
    # As in `Partition.read`: without the constructor of a NamedTuple.
    fields = (
        index, _NONE, high_watermark, last_stable_offset, log_start_offset, ranges, size, aborted, elsewhere,
        diverging_epoch, None, None,
    )  # fmt: skip
    return tuple.__new__(FetchedPartition, fields)
