"""Fetch: record batches as they lie on disk, at once or when there are enough of them.

Version notes: 5 log start offset; 7 sessions (KIP-227); 9 leader epochs; 11 rack and preferred replica; 12 last fetched
epoch and divergence (KIP-595), flexible; 13 topic ids (KIP-516); 15 replica state; 16 endpoints of new leaders; 17
replica directory id; 18 high watermark of followers. A batch is answered whole when the offset lies inside it: the
client skips what comes before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
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
    HasLongWork,
    HasNodeId,
    HasPartitions,
    HasQuotas,
    HasReplicaSessions,
)
from odradek.api.requests.context import LateAnswer, RequestContext
from odradek.api.requests.long_work import Slices
from odradek.api.requests.registry import api
from odradek.api.requests.throttling import time_quota_ms
from odradek.log.segments import cold_reads
from odradek.ports.disk import FileRange
from odradek.ports.network import Part
from odradek.replication.delayed_read import DelayedRead
from odradek.replication.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchSession
from odradek.replication.partition import NO_EPOCH, Partition, PartitionRead
from odradek.replication.read_replicas import RACK_AWARE, nearest_replica
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
_LOOK_AGAIN_SECONDS: Final = 0.01
"""After this a fetch of many partitions looks again if it may have missed an append: at once it would never rest."""

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
    HasLongWork,
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
            if not context.may_act_as_broker:
                return _not_a_follower(request, context)
            return serve_follower(request, context)
        reader = _Reader(request, context)
    except KafkaError as error:
        return _all_failed(request, context, error.code)
    wanted = len(reader.wanted)
    if wanted > 1 and context.services.long_work.is_long(wanted):
        slices = context.services.long_work.begin(context)
        steps = reader.steps(context.services.long_work.step)
        for _ in steps:
            if slices.is_over:
                return _read_in_slices(reader, steps, slices, request.max_wait_ms, context)
        lacking = reader.lacking(request.max_wait_ms <= 0)
    else:
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


async def _read_in_slices(
    reader: _Reader, steps: Iterator[None], slices: Slices, max_wait_ms: int, context: RequestContext[Uses]
) -> list[Part]:
    """The answer to a fetch of many partitions; `steps` are those that the first slice has left.

    What was found may be old by the time of the answer, as in a fetch that reads ahead from the disk.
    """
    monotonic = context.services.clock.monotonic
    deadline = monotonic() + max_wait_ms / 1000
    await slices.next()
    while True:
        for _ in steps:
            if slices.is_over:
                await slices.next()
        lacking = reader.lacking(monotonic() >= deadline)
        if not lacking:
            break
        slices.end()
        await _more_bytes(reader, lacking, deadline - monotonic())
        await slices.next()
        steps = reader.steps(context.services.long_work.step)
    if slices.is_over:
        await slices.next()
    cold = reader.cold_ranges()
    if slices.is_over and not cold:
        await slices.next()
    slices.end()
    return await _warmed(reader, cold, context) if cold else reader.answer()


async def _more_bytes(reader: _Reader, lacking: int, seconds: float) -> None:
    """Return when about that many bytes have been appended, a partition has another leader, or the time is over."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def attempt(_time_is_up: bool) -> int:
        if not future.done():
            future.set_result(None)
        return 0

    if reader.is_outdated():
        # A partition changed between its step and now, and called no reader.
        seconds = min(seconds, _LOOK_AGAIN_SECONDS)
    waiting = DelayedRead(reader.partitions, lacking, attempt)
    waiting.start(loop, seconds)
    try:
        await future
    finally:
        waiting.stop()


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
        "_must_answer",
        "_request",
        "_seen",
        "_session",
        "_size",
        "partitions",
        "wanted",
    )

    def __init__(self, request: FetchRequest, context: RequestContext[Uses]) -> None:
        self._request = request
        self._context = context
        self._access: Access | None = None
        if context.services.authorization is not None:
            # That of the session is up to date: the endpoint of a broker with an authorizer has just asked for it.
            self._access = context.connection.session.access or context.access
        self._session: FetchSession | None = None
        self._incremental = False
        self._max_bytes = self._most_bytes()
        self.wanted = self._resolve()
        """The partitions to be read."""
        self._found: list[Found] = []
        self._seen: list[tuple[int, int, int]] = []
        self._size = 0
        self._must_answer = False
        self.partitions: list[Partition] = []
        """Those that were read at the last attempt."""

    def _resolve(self) -> list[tuple[RequestedPartition, FetchPartition]]:
        """Everything this fetch reads, from the request and its session. Raises KafkaError of the session."""
        request, context = self._request, self._context
        asked: list[tuple[RequestedPartition, FetchPartition]] = []
        for topic, partitions in request.topics:
            for entry in partitions:
                asked.append(((topic, entry[0]), entry))  # noqa: PERF401 - a comprehension is a call in Python 3.11
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
        if asked or request.forgotten:
            session.update(asked, [(topic, index) for topic, indexes in request.forgotten for index in indexes])
        self._session = session
        self._incremental = True
        return list(session.wanted.items())

    def _most_bytes(self) -> int:
        services = self._context.services
        most = services.config.number("fetch.max.bytes")
        if self._request.max_bytes < most:
            most = self._request.max_bytes
        if services.quotas.fetch.active and self._request.replica_id < 0:
            allowed = services.quotas.fetch.most_at_once(*self._context.quota_entity)
            most = most if allowed is None else min(most, allowed)
        return most

    def attempt(self, time_is_up: bool) -> int:
        """Read everything; 0 when the answer can go, else how many bytes it lacks."""
        self._found, self.partitions = [], []
        self._size, self._must_answer = self._read_each(self.wanted, self._max_bytes, True)
        return 0 if time_is_up else self.lacking(False)

    def steps(self, count: int) -> Iterator[None]:
        """Read everything, that many partitions in each step; see `lacking` after the last one."""
        self._found, self.partitions, self._seen = [], [], []
        self._size, self._must_answer = 0, False
        wanted = self.wanted
        for first in range(0, len(wanted), count):
            size, must_answer = self._read_each(
                wanted[first : first + count], self._max_bytes - self._size, self._size == 0
            )
            self._size += size
            self._must_answer = self._must_answer or must_answer
            self._seen += [_state(partition) for partition in self.partitions[len(self._seen) :]]
            yield

    def is_outdated(self) -> bool:
        """Whether a partition has more records, or another leader, than when its step was taken."""
        return any(_state(partition) != seen for partition, seen in zip(self.partitions, self._seen, strict=True))

    def lacking(self, time_is_up: bool) -> int:
        """0 when the answer can go, else how many bytes it lacks."""
        lacking = min(self._request.min_bytes, self._max_bytes) - self._size
        return 0 if lacking <= 0 or time_is_up or self._must_answer or not self.partitions else lacking

    def _read_each(
        self, places: Sequence[tuple[RequestedPartition, FetchPartition]], left: int, is_first: bool
    ) -> tuple[int, bool]:
        """(bytes, whether the answer must go now) of what is read from these partitions."""
        found = self._found
        partitions = self.partitions
        size = 0
        must_answer = False
        # At every attempt: a fetch may wait for long, and ACLs may change meanwhile.
        access = self._access
        readable = None if access is None else access.readable_topics()
        for place, wanted in places:
            partition = None
            try:
                if readable is not None and readable.get(place[0], 0) <= 0:
                    self._check_readable(place[0])
                partition = self._partition(place, wanted[1])
                read = self._read(partition, wanted, left, is_first and size == 0)
            except KafkaError as error:
                found.append((place, error.code, None, partition))
                must_answer = True
                continue
            partitions.append(partition)
            found.append((place, _NONE, read, partition))
            size += read.size
            left -= read.size
            must_answer = must_answer or read.diverging_epoch is not None or read.preferred_read_replica >= 0
        return size, must_answer

    def _check_readable(self, topic: TopicKey) -> None:
        """Raise KafkaError unless the client may read the topic; an unknown id passes."""
        access = self._access
        assert access is not None, "the broker has no authorizer"
        name = topic if isinstance(topic, str) else self._context.services.image().topic_names.get(topic)
        if name is not None and not access.may_read(name, None if isinstance(topic, str) else topic):
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
        if not partition.followers.progress:
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
        elsewhere = self._elsewhere(partition, fetch_offset) if self._request.rack_id else None
        if elsewhere is not None:
            high_watermark, start = partition.high_watermark, partition.log.log_start_offset
            stable = partition.last_stable_offset
            return PartitionRead([], 0, high_watermark, stable, start, None, preferred_read_replica=elsewhere)
        # Calls of min() and max() would be a hundredth of a fetch.
        if left < max_bytes:
            max_bytes = left
        if max_bytes < 0:
            max_bytes = 0
        return partition.read(fetch_offset, max_bytes, isolation=self._request.isolation_level, min_one_batch=first)

    def cold_ranges(self) -> list[FileRange]:
        """Ranges that have to be read from the device first."""
        cold: list[FileRange] = []
        for _, _, read, partition in self._found:
            if partition is None or read is None or not read.ranges:
                continue
            if found := cold_reads.cold_ranges(read.ranges):
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


def _state(partition: Partition) -> tuple[int, int, int]:
    """What a waiting fetch is woken for when it changes."""
    return partition.high_watermark, partition.leader, partition.leader_epoch


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
