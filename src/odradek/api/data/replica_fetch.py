"""Fetch as followers send it: progress noted, then everything up to the log's end, at once or when there is some.

Source: Kafka's `ReplicaManager.fetchMessages` and `DelayedFetch`. An answer waits for the turn of the loop after the
append that woke it, so that one answer takes along all that was appended in that turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Sequence
from typing import Final, Protocol

from odradek.api.requests.capabilities import (
    HasConfig,
    HasDisk,
    HasFetchers,
    HasImage,
    HasLongWork,
    HasPartitions,
    HasReplicaSessions,
)
from odradek.api.requests.context import LateAnswer, RequestContext
from odradek.log.segments import cold_reads
from odradek.ports.disk import FileRange
from odradek.ports.network import Part
from odradek.replication.fetch_sessions import INITIAL_EPOCH
from odradek.replication.replica_sessions import FollowedPartition, Follower, Found, ReplicaSession
from odradek.wire.errors import ErrorCode
from odradek.wire.fetch import FetchedPartition, FetchRequest, encode_response
from odradek.wire.primitives import EncodeError
from odradek.wire.produce import TopicKey

_FETCHER = "-fetcher-"
"""In the client ids of those that have one connection at a time."""
_MOST_AT_ONCE: Final = 500
"""Partitions that a fetch may name to be noted in one step: brokers of Odradek name no more, others of Kafka may."""
_NAMES_EPOCH_FROM: Final = 15
"""The version that has the epoch of the follower's registration (KIP-903). Brokers of Apache Kafka send lower ones up
to metadata.version 3.5-IV0."""
_COPIED_BYTES = 8192
"""So little is read and sent with the rest of the answer: sendfile would take two system calls more."""


class Uses(HasConfig, HasDisk, HasFetchers, HasImage, HasLongWork, HasPartitions, HasReplicaSessions, Protocol):
    """What these handlers take of the broker."""


def serve(
    request: FetchRequest, context: RequestContext[Uses]
) -> list[Part] | Awaitable[list[Part]] | LateAnswer | None:
    """Answer a follower. Raises KafkaError of its session."""
    services = context.services
    if context.version < _NAMES_EPOCH_FROM:
        request.replica_epoch = _registered_epoch(services, request.replica_id)
    if _is_left(request, context):
        context.connection.close(f"{context.client_id!r} has continued on a newer connection")
        return None
    sessions = services.replica_sessions
    follower = Follower(request.replica_id, request.replica_epoch)
    session = sessions.continued(request.session_id, request.session_epoch, follower)
    session.interrupt()
    wanted = [((topic, entry[0]), entry) for topic, partitions in request.topics for entry in partitions]
    forgotten = [(topic, index) for topic, indexes in request.forgotten for index in indexes]
    reader = _Reader(session, request, context)
    if len(wanted) > _MOST_AT_ONCE:
        return reader.note(session.noting(wanted, forgotten, services.partitions.require, sessions.now_ms()))
    session.fetched(wanted, forgotten, services.partitions.require, sessions.now_ms())
    # The first answer of a session goes at once: its follower can name more partitions only when it knows the session.
    found, lacking = reader.collect(request.max_wait_ms <= 0 or request.session_epoch == INITIAL_EPOCH)
    if lacking:
        return reader.wait(lacking)
    cold = _cold(found)
    return reader.warmed(found, cold) if cold else reader.answer(found)


def _registered_epoch(services: Uses, broker_id: int) -> int:
    """The epoch of the broker's registration as this broker knows it; -1 for one that is not registered."""
    broker = services.image().brokers.get(broker_id)
    return -1 if broker is None else broker.epoch


def _cold(found: list[Found]) -> list[FileRange]:
    return [part for _, read in found if read is not None for part in cold_reads.cold_ranges(read.ranges)]


def _is_left(request: FetchRequest, context: RequestContext[Uses]) -> bool:
    """Whether the follower has given the connection up, and this fetch comes late: it would have us believe that the
    follower has less than it has, until it says so again, which it need not where nothing is written.
    """
    name = context.client_id
    if name is None or _FETCHER not in name:
        return False
    fetchers, connection = context.services.fetchers, context.connection.identifier
    return not fetchers.admit(name, request.replica_id, request.replica_epoch, connection)


class _Reader:
    """One fetch of a follower."""

    __slots__ = ("_context", "_late", "_loop", "_max_bytes", "_request", "_session", "_timer")

    def __init__(self, session: ReplicaSession, request: FetchRequest, context: RequestContext[Uses]) -> None:
        self._session = session
        self._request = request
        self._context = context
        self._max_bytes = min(request.max_bytes, context.services.config.number("fetch.max.bytes"))
        self._late: LateAnswer | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def collect(self, time_is_up: bool) -> tuple[list[Found], int]:
        """The answer so far, and the bytes that it lacks; 0 when it is complete."""
        found, size, must = self._session.collect(self._max_bytes, self._context.services.replica_sessions.throttle)
        lacking = min(self._request.min_bytes, self._max_bytes) - size
        return found, 0 if must or time_is_up or lacking <= 0 else lacking

    def wait(self, lacking: int) -> LateAnswer:
        late = self._late = self._context.connection.later()
        self._session.wait(lacking, self._wake, self._interrupted)
        self._timer = self._loop.call_later(self._request.max_wait_ms / 1000, self._finish, True)
        return late

    def _wake(self) -> None:
        self._loop.call_soon(self._finish, False)

    def _interrupted(self) -> None:
        self._finish(True)

    def _finish(self, time_is_up: bool) -> None:
        late, timer = self._late, self._timer
        if late is None or timer is None:
            return
        found, lacking = self.collect(time_is_up)
        if lacking:
            self._session.wait(lacking, self._wake, self._interrupted)
            return
        self._late = self._timer = None
        timer.cancel()
        self._session.stop_waiting()
        try:
            late.answer(self.answer(found))
        except (OSError, EncodeError) as error:
            self._context.connection.close(f"a follower's fetch cannot be answered: {error}")

    async def note(self, steps: Generator[None, None, None]) -> list[Part]:
        """The answer to a fetch that names many partitions: at once, when all have been noted in slices."""
        await self._context.services.long_work.complete(steps)
        found, _ = self.collect(True)
        return await self.warmed(found, _cold(found))

    async def warmed(self, found: list[Found], cold: list[FileRange]) -> list[Part]:
        """The answer, once what it sends is in memory."""
        if cold:
            await self._context.services.disk.run(cold_reads.LANE, cold_reads.read_ahead, cold)
        return self.answer(found)

    def answer(self, found: list[Found]) -> list[Part]:
        session, context = self._session, self._context
        others = session.answered(found, context.services.replica_sessions.throttle)
        topics: dict[TopicKey, list[FetchedPartition]] = {}
        for member, read in found:
            topic, index = member.place
            if read is None:
                context.note_error(member.error)
                row = _failed(member, index)
            else:
                if member.partition is not None:
                    member.partition.traffic.replication_bytes_out += read.size
                high_watermark, start = member.reported
                records: Sequence[Part] = read.ranges
                if read.size <= _COPIED_BYTES:
                    records = [part.file.read(part.position, part.size) for part in read.ranges]
                row = FetchedPartition(index, ErrorCode.NONE, high_watermark, high_watermark, start, records, read.size)
            topics.setdefault(topic, []).append(row)
        for member in others:
            topic, index = member.place
            high_watermark, start = member.reported
            row = FetchedPartition(index, ErrorCode.NONE, high_watermark, high_watermark, start)
            topics.setdefault(topic, []).append(row)
        if session.identifier == 0:
            session.close()
        return encode_response(
            context.version, context.correlation_id, list(topics.items()), session_id=session.identifier
        )


def _failed(member: FollowedPartition, index: int) -> FetchedPartition:
    if member.diverging is not None and not member.error:
        high_watermark, start = member.reported
        return FetchedPartition(
            index, ErrorCode.NONE, high_watermark, high_watermark, start, diverging_epoch=member.diverging
        )
    partition = member.partition
    leader = None if partition is None or partition.leader < 0 else (partition.leader, partition.leader_epoch)
    return FetchedPartition(index, member.error, current_leader=leader)
