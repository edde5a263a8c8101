"""A follower's connection to one leader: a fetch session over many partitions, long polls, appends out of the buffer.

Everything happens in the turn of the loop in which an answer arrives: its batches are appended from the receive buffer,
one write per partition, and the next fetch, which reports it to the leader, goes out. Where the disk does not keep up,
the batches are queued instead, and the session leaves their partitions out until they are written.
Source: Kafka's ReplicaFetcherThread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, cast

from odradek.broker.replication.queued_batches import QueuedBatches
from odradek.broker.task_failures import logs_failure
from odradek.client.errors import ClientError, Disconnected, UnsupportedByBroker
from odradek.client.network.connection import Connection
from odradek.controller.change_report import some_of
from odradek.ports.clock import Clock
from odradek.records.topic_partition import TopicIdPartition
from odradek.replication.fetch_sessions import MAX_EPOCH, NO_SESSION
from odradek.replication.follower import FollowedLog, Next
from odradek.replication.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.fetch import FetchPartition
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
    ListOffsetsResponse,
)
from odradek.wire.replica_fetch import ReplicaFetchRequest, ReplicaFetchResponse

logger = logging.getLogger("odradek.replication")
_log_failure = logs_failure(logger, "fetching from a leader failed")


_EARLIEST: Final = -2
_LATEST: Final = -1
_FIRST_PAUSE_SECONDS: Final = 0.005
_MOST_IN_FLIGHT: Final = 2
MOST_NAMED: Final = 500
"""Partitions that one fetch names; the next one names more. A leader notes in one step what a fetch names."""
_SESSION_LOST: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)


class FetchSettings(NamedTuple):
    """`replica.*` of the configuration; sizes in bytes."""

    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10 * 1024 * 1024
    partition_max_bytes: int = 1024 * 1024
    backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000


class Connect(Protocol):
    """Opens connections to a leader."""

    async def connect(self, broker_id: int, client_id: str, /) -> Connection:
        """A connection to the broker's listener for brokers, under this name. Raises TransportError."""
        ...


class FetcherHost(Protocol):
    """What a fetcher knows of its broker."""

    node_id: int
    peers: Connect
    clock: Clock

    def broker_epoch(self) -> int:
        """Of this broker's registration."""
        ...

    def settings(self) -> FetchSettings:
        """The settings for the next fetch."""
        ...

    def is_throttled(self, followed: FollowedLog) -> bool:
        """Whether fetching the partition has to pause (`follower.replication.throttled.rate`)."""
        ...

    def appended(self, partition: Partition, size: int) -> None:
        """Record bytes that were fetched from the leader."""
        ...

    def suspect(self, leader_id: int, *, gone: bool) -> None:
        """Report that the leader's process seems to be gone (connection closed or rejected), or is back."""
        ...


class ReplicaFetcher:
    """Fetches from one leader what `follow` names, until `unfollow` or `close`.

    Its name, as in Kafka `broker-1-fetcher-0`, shows the leader whose connections replace each other.
    """

    __slots__ = (
        "_began",
        "_changed",
        "_client_id",
        "_connecting",
        "_connection",
        "_delayed",
        "_failures",
        "_host",
        "_in_flight",
        "_known",
        "_logs",
        "_loop",
        "_poked",
        "_problems",
        "_queued",
        "_sent",
        "_sequence",
        "_session_epoch",
        "_session_id",
        "_tasks",
        "_timer",
        "_timer_due",
        "_version",
        "closed",
        "leader_id",
    )

    def __init__(self, leader_id: int, host: FetcherHost, loop: asyncio.AbstractEventLoop, slot: int = 0) -> None:
        self.leader_id = leader_id
        self._client_id = f"broker-{host.node_id}-fetcher-{slot}"
        self.closed = False
        self._host = host
        self._loop = loop
        self._logs: dict[TopicIdPartition, FollowedLog] = {}
        # Those whose next fetch differs from what the session knows of them.
        self._changed: dict[TopicIdPartition, None] = {}
        # What the session knows: the rows sent last.
        self._known: dict[TopicIdPartition, FetchPartition] = {}
        # The number of the request that named the partition last.
        self._sent: dict[TopicIdPartition, int] = {}
        self._sequence = 0
        # The number of the last request that began a session.
        self._began = 0
        self._delayed: dict[TopicIdPartition, float] = {}
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._failures = 0
        self._in_flight = 0
        self._poked = False
        self._problems = _Problems()
        self._queued = QueuedBatches(self._poke)
        self._session_id = NO_SESSION
        self._session_epoch = 0
        self._version = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._tasks: set[asyncio.Task[None]] = set()

    # --- followed partitions ---

    @property
    def partitions(self) -> Iterable[Partition]:
        """The partitions that are followed."""
        return [followed.partition for followed in self._logs.values()]

    @property
    def is_idle(self) -> bool:
        """Whether no partition is followed."""
        return not self._logs

    def follow(self, place: TopicIdPartition, followed: FollowedLog) -> None:
        """Fetch the partition from now on."""
        self._logs[place] = followed
        self._delayed.pop(place, None)
        self._changed[place] = None
        self._poke()

    def unfollow(self, place: TopicIdPartition) -> None:
        """Fetch a partition no longer."""
        if self._logs.pop(place, None) is None:
            return
        self._delayed.pop(place, None)
        self._sent.pop(place, None)
        self._changed[place] = None
        if not self._logs:
            self._drop_connection()
        else:
            self._poke()

    def start_persisted(self, place: TopicIdPartition) -> None:
        """The leader may know where the log begins."""
        if place in self._logs:
            self._changed[place] = None
            self._poke()

    def problems(self) -> dict[TopicIdPartition, str]:
        """What keeps partitions from being fetched."""
        return {place: self._logs[place].problem for place in self._delayed if place in self._logs}

    def close(self) -> None:
        """Close the connection and end the task."""
        self.closed = True
        self._logs.clear()
        self._drop_connection()
        if self._connecting is not None:
            self._connecting.cancel()
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- the connection ---

    def _poke(self) -> None:
        """Look for something to ask, once this turn of the loop is over: more may change in it."""
        if not self._poked and not self.closed:
            self._poked = True
            self._loop.call_soon(self._poked_now)

    def _poked_now(self) -> None:
        self._poked = False
        if self.closed or not self._logs:
            return
        if self._connection is None:
            self._connect(0.0)
        elif not self._in_flight or (self._changed and self._in_flight < _MOST_IN_FLIGHT and self._session_id):
            self._fetch()

    def _connect(self, pause: float) -> None:
        if self._connecting is None and not self.closed:
            self._connecting = self._loop.create_task(self._connected(pause))
            self._connecting.add_done_callback(_log_failure)

    async def _connected(self, pause: float) -> None:
        try:
            await asyncio.sleep(pause)
            if not self._logs:
                self._connecting = None
                return
            connection = await self._host.peers.connect(self.leader_id, self._client_id)
            try:
                self._version = connection.version_of(cast(Any, ReplicaFetchRequest))
            except UnsupportedByBroker:
                connection.close()
                raise
        except ClientError as error:
            self._connecting = None
            if isinstance(error.__cause__, ConnectionRefusedError):
                self._host.suspect(self.leader_id, gone=True)
            self._failed(f"cannot reach broker {self.leader_id}: {error}")
            return
        self._connecting = None
        self._connection = connection
        self._reset_session()
        self._fetch()

    def _failed(self, reason: str) -> None:
        """Nothing can be fetched: try again after a pause, which grows from failure to failure."""
        if self.closed or not self._logs:
            return
        self._failures += 1
        if self._failures == 1:
            logger.info("%s", reason)
        # The first retry is immediate: it shows whether the leader was restarted, or rejects connections.
        self._connect(self._pause(self._failures - 1) if self._failures > 1 else 0.0)

    def _pause(self, failures: int) -> float:
        longest = self._host.settings().backoff_ms / 1000
        return min(longest, _FIRST_PAUSE_SECONDS * (1 << min(failures - 1, 16)))

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        self._in_flight = 0
        if connection is not None:
            connection.close()

    def _reset_session(self) -> None:
        self._session_id = NO_SESSION
        self._session_epoch = 0
        self._known.clear()

    # --- out ---

    def _fetch(self) -> None:
        connection = self._connection
        if connection is None or self.closed:
            return
        self._release_delayed()
        host = self._host
        settings = host.settings()
        if self._queued.size > settings.response_max_bytes:
            # The disk is far behind: the next fetch goes when a part of it is written.
            return
        request = ReplicaFetchRequest(
            host.node_id, host.broker_epoch(), settings.wait_max_ms, settings.min_bytes, settings.response_max_bytes
        )
        self._sequence += 1
        full = not self._session_id
        if full:
            self._began = self._sequence
            self._changed = dict.fromkeys(self._logs)
        changed, named = self._changed, 0
        topics: dict[bytes, list[FetchPartition]] = {}
        forgotten: dict[bytes, list[int]] = {}
        for place in tuple(changed):
            if named == MOST_NAMED:
                break
            del changed[place]
            followed = self._logs.get(place)
            if followed is None or place in self._delayed or not followed.is_current or self._pauses(followed, place):
                if not full and self._known.pop(place, None) is not None:
                    forgotten.setdefault(place[0], []).append(place[1])
                continue
            row = self._known[place] = followed.row(settings.partition_max_bytes)
            self._sent[place] = self._sequence
            topics.setdefault(place[0], []).append(row)
            named += 1
        if not self._known and not forgotten:
            return
        if changed:
            # The next fetch, which names more, is to follow at once.
            request.max_wait_ms = 0
        request.topics = list(topics.items())
        request.forgotten = list(forgotten.items())
        request.session_id = self._session_id
        request.session_epoch = self._session_epoch
        self._session_epoch = 1 if self._session_epoch == MAX_EPOCH else self._session_epoch + 1
        self._in_flight += 1
        try:
            connection.send(
                cast(Any, request),
                ReplicaFetchResponse,
                self._version,
                settings.socket_timeout_ms,
                _Answer(self, connection, self._sequence),
            )
        except ClientError as error:
            self._lost(error)

    def _pauses(self, followed: FollowedLog, place: TopicIdPartition) -> bool:
        if self._host.is_throttled(followed):
            self._delay(place, self._host.settings().backoff_ms / 1000)
            return True
        if self._queued.waits(followed.partition.log, partial(self._written, place, followed)):
            self._delayed[place] = float("inf")
            return True
        return False

    def _written(self, place: TopicIdPartition, followed: FollowedLog) -> None:
        """The log has no queued batches, or its disk has failed."""
        if self._logs.get(place) is not followed:
            return
        try:
            followed.written()
        except KafkaError as error:
            followed.problem = error.message
        if followed.partition.log.is_offline:
            followed.problem = "its log is offline"
            self._problems.note("stopped following", followed)
            self._problems.report(self.leader_id)
            return
        self._delayed.pop(place, None)
        self._changed[place] = None
        self._poke()

    # --- in ---

    def answered(self, connection: Connection, sequence: int, result: Any) -> None:
        """The answer to the fetch of that number, or what came instead of it."""
        if connection is not self._connection:
            return
        self._in_flight -= 1
        if isinstance(result, ReplicaFetchResponse):
            self._received(result, sequence)
        else:
            self._lost(result)

    def _lost(self, error: ClientError) -> None:
        self._drop_connection()
        if isinstance(error, Disconnected):
            self._host.suspect(self.leader_id, gone=True)
        self._failed(f"fetching from broker {self.leader_id}: {error}")

    def _received(self, response: ReplicaFetchResponse, sequence: int) -> None:
        if sequence < self._began:
            # It belongs to an abandoned session. If its errors began another session, too, one of the two would
            # continue, perhaps without partitions that were added after the other began.
            if not self._in_flight:
                self._fetch()
            return
        if response.error_code:
            self._reset_session()
            if response.error_code in _SESSION_LOST:
                self._fetch()
            else:
                self._drop_connection()
                self._failed(f"broker {self.leader_id} answers fetches with {error_code(response.error_code).name}")
            return
        self._failures = 0
        if not self._session_id:
            # A connection alone says nothing: the kernel takes one for a process that is about to be no more.
            self._host.suspect(self.leader_id, gone=False)
            self._session_id = response.session_id
            self._session_epoch = 1
        now_ms = self._host.clock.now_ms()
        logs, changed = self._logs, self._changed
        for answer in response.partitions:
            place = answer[0], answer[1]
            followed = logs.get(place)
            if followed is None:
                continue
            row, sent = self._known.get(place), self._sent.get(place)
            if row is None or sent is None or sent > sequence:
                # Requested again since, or followed again and about to be requested.
                continue
            log = followed.partition.log
            if row[1] != followed.leader_epoch or row[2] != log.next_offset:
                # An answer from before the controller or a disk had other ideas: its records may not follow these.
                changed[place] = None
                continue
            size = len(answer[5])
            following = followed.received(answer, now_ms)
            if following is Next.FETCH:
                if size or answer[6] is not None or followed.partition.replicated.reported_start != row[4]:
                    changed[place] = None
                    self._host.appended(followed.partition, size)
                    self._queued.received(log, size)
            else:
                self._otherwise(place, followed, following)
        self._problems.report(self.leader_id)
        if not self._in_flight or (changed and self._in_flight < _MOST_IN_FLIGHT):
            self._fetch()

    def _otherwise(self, place: TopicIdPartition, followed: FollowedLog, following: Next) -> None:
        self._changed[place] = None
        if following is Next.OFFSETS:
            self._delayed[place] = float("inf")
            self._start(self._find_offsets(place, followed))
        elif following is Next.STOP:
            self._delayed[place] = float("inf")
            if followed.is_current:
                # This broker will be notified of a leader of a newer epoch, too; after a failed disk it will not.
                self._problems.note("stopped following", followed)
        else:
            if followed.failures == 1:
                self._problems.note("pauses fetching of", followed)
            self._delay(place, self._pause(followed.failures))

    # --- later ---

    def _delay(self, place: TopicIdPartition, seconds: float) -> None:
        due = self._loop.time() + seconds
        self._delayed[place] = due
        self._arm(due)

    def _arm(self, due: float) -> None:
        # uvloop's handle of a timer that is due already does not return its time.
        if self._timer is None or due < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = due
            self._timer = self._loop.call_at(due, self._due)

    def _due(self) -> None:
        self._timer = None
        self._release_delayed()
        self._poked_now()

    def _release_delayed(self) -> None:
        if not self._delayed:
            return
        now = self._loop.time()
        for place in [place for place, due in self._delayed.items() if due <= now]:
            del self._delayed[place]
            self._changed[place] = None
        nearest = min(self._delayed.values(), default=float("inf"))
        if nearest != float("inf"):
            self._arm(nearest)

    def _start(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)

    async def _find_offsets(self, place: TopicIdPartition, followed: FollowedLog) -> None:
        """Where the leader's log begins and ends, when a fetch was out of its range."""
        connection = self._connection
        following = Next.DELAY
        try:
            if connection is not None:
                earliest = await self._list_offset(connection, followed, _EARLIEST)
                latest = await self._list_offset(connection, followed, _LATEST)
                following = followed.offsets_known(earliest, latest)
        except (ClientError, KafkaError) as error:
            followed.problem = str(error)
        if self._logs.get(place) is not followed or self.closed:
            return
        if following is Next.STOP:
            return
        followed.failures += 1
        # Even when it may continue: a leader that contradicts itself is not asked in a rush.
        self._delay(
            place, 0.0 if following is Next.FETCH and followed.failures == 1 else self._pause(followed.failures)
        )

    async def _list_offset(self, connection: Connection, followed: FollowedLog, timestamp: int) -> int:
        partition = followed.partition
        wanted = ListOffsetsRequestPartition(partition.index, followed.leader_epoch, timestamp)
        request = ListOffsetsRequest(
            replica_id=self._host.node_id, topics=[ListOffsetsRequestTopic(partition.topic, [wanted])]
        )
        response = await connection.request(
            request,
            ListOffsetsResponse,
            connection.version_of(ListOffsetsRequest),
            self._host.settings().socket_timeout_ms,
        )
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))
        return answer.offset


class _Problems:
    """Reasons why partitions are not fetched, logged once for all that a response names: after a failover many."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: dict[tuple[str, str], list[str]] = {}

    def note(self, outcome: str, followed: FollowedLog) -> None:
        place = f"{followed.partition.topic}-{followed.partition.index}"
        self._noted.setdefault((outcome, followed.problem), []).append(place)

    def report(self, leader_id: int) -> None:
        if not self._noted:
            return
        for (outcome, problem), places in self._noted.items():
            logger.info(
                "broker %d: %s %d partitions: %s (%s)", leader_id, outcome, len(places), problem, some_of(places)
            )
        self._noted.clear()


class _Answer:
    """Receives one fetch's response; the fetcher ignores those of a connection that it has given up."""

    __slots__ = ("_connection", "_fetcher", "_sequence")

    def __init__(self, fetcher: ReplicaFetcher, connection: Connection, sequence: int) -> None:
        self._fetcher = fetcher
        self._connection = connection
        self._sequence = sequence

    def __call__(self, result: Any) -> None:
        self._fetcher.answered(self._connection, self._sequence, result)
