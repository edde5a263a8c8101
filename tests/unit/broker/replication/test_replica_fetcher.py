"""A follower's fetcher against the leader's endpoint: real requests, answers and logs, without sockets."""

from __future__ import annotations

import asyncio
import errno
import functools
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_01_fetch
from odradek.api.data import replica_fetch
from odradek.api.requests.long_work import LongWork
from odradek.broker.replication import replica_fetcher
from odradek.broker.replication.replica_fetcher import Connect, FetchSettings, ReplicaFetcher
from odradek.client.errors import ClientError, Disconnected, RequestTimedOut, UnsupportedByBroker
from odradek.log.config import LogConfig
from odradek.log.environment import StandaloneOwner
from odradek.log.partition_log import PartitionLog
from odradek.log.writing.write_queue import DirectWrites, QueuedWrite, Writer, execute
from odradek.metadata.image import ClusterImage, PartitionState
from odradek.ports.clock import Clock
from odradek.ports.disk import FileRange, SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.records.builder import BatchFields, encode_batch
from odradek.replication import replica_sessions
from odradek.replication.follower import FollowedLog
from odradek.replication.partition import Partition
from odradek.replication.replica_sessions import ReplicaSessions
from odradek.transactions.connections import NewestConnections
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.fetch import FetchRequest, decode_request
from odradek.wire.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from odradek.wire.replica_fetch import ReplicaFetchResponse
from tests.unit.log.support import NOW, StandingClock, log_environment

TOPIC_ID = b"a topic to follow"[:16]
VERSION = 17


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class HeldWriter(DirectWrites):
    """The writer of a disk that does not keep up: queued writes wait for `release`."""

    def __init__(self) -> None:
        super().__init__(SystemDisk())
        self.slow = True
        self.held: list[QueuedWrite] = []

    def put(self, write: QueuedWrite) -> None:
        self.held.append(write)

    def release(self) -> None:
        held, self.held = self.held, []
        for write in held:
            execute(self._disk, (write,))
            write.log.written(write)

    def fail(self) -> None:
        held, self.held = self.held, []
        for write in held:
            write.log.write_failed(OSError(errno.EIO, "the disk is broken"))

    def finish(self) -> None:
        self.release()


class SlowOwner(StandaloneOwner):
    """Lets all logs append through one writer."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(SystemDisk())
        self._writer = writer

    def writer_of(self, _directory: str) -> Writer:
        return self._writer


def partition_in(directory: Path, index: int, local_id: int, writer: Writer | None = None) -> Partition:
    path = directory / f"{local_id}-{index}"
    path.mkdir()
    environment = log_environment(SystemDisk())
    if writer is not None:
        environment.owner = SlowOwner(writer)
    log = PartitionLog.open("t", index, str(path), LogConfig(), environment, clean=True)
    return Partition("t", TOPIC_ID, index, local_id, log)


class Leader:
    """Broker 1, which leads all partitions; every request that it was sent is in `requests`."""

    node_id = 2
    clock: Clock = StandingClock()

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.peers: Connect = self
        self.partitions: dict[int, Partition] = {}
        self.sessions = ReplicaSessions(SeededRandom(1), now_ms=lambda: 0)
        self.requests: list[FetchRequest] = []
        self.connections: list[FakeConnection] = []
        self.refuse = 0
        self.too_old = 0
        self.throttled = False
        self.bounded = 1 << 20
        self.coroutines = 0
        """Fetches that were answered in several steps."""
        self.stalls = False
        """Connections that are made are stalled."""
        self.unreachable = False
        self.services: Any = SimpleNamespace(
            authorization=None,
            long_work=LongWork(lambda: 0.0, 0),
            audit=None,
            replica_sessions=self.sessions,
            fetchers=NewestConnections(),
            partitions=SimpleNamespace(require=self.require),
            config=SimpleNamespace(number=lambda _name: 1 << 25, text=lambda _name: ""),
            image=ClusterImage,
            unreachable=frozenset(),
        )

    def require(self, topic: bytes, index: int) -> Partition:
        if topic != TOPIC_ID or index not in self.partitions:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.partitions[index]

    def lead(self, index: int, epoch: int = 0) -> Partition:
        if index not in self.partitions:
            self.partitions[index] = partition_in(self.directory, index, 1)
        self.partitions[index].apply_state(PartitionState(1, epoch, (1, 2), (1, 2)))
        return self.partitions[index]

    # The fetcher's host.

    async def connect(self, broker_id: int, client_id: str) -> Any:
        assert broker_id == 1
        assert client_id == "broker-2-fetcher-0"
        if self.refuse:
            self.refuse -= 1
            raise Disconnected("refused") from ConnectionRefusedError()
        self.connections.append(FakeConnection(self, client_id))
        return self.connections[-1]

    def broker_epoch(self) -> int:
        return 7

    def settings(self) -> FetchSettings:
        return FetchSettings(wait_max_ms=10_000, backoff_ms=50, response_max_bytes=self.bounded)

    def is_throttled(self, _followed: FollowedLog) -> bool:
        return self.throttled

    def suspect(self, leader_id: int, *, gone: bool) -> None:
        assert leader_id == 1
        self.unreachable = gone

    def appended(self, _partition: Partition, _size: int) -> None:
        return None


class FakeConnection:
    """What a fetcher sends goes to the leader's endpoint; an answer comes in a later turn of the loop."""

    listener_name = "PLAINTEXT"

    def __init__(self, leader: Leader, client_id: str) -> None:
        self._leader = leader
        self._client_id = client_id
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Callable[[Any], None]] = []
        self.identifier = len(leader.connections)
        self.closed = False
        self.closed_by_leader = ""
        self.stalled = leader.stalls
        """What is sent does not come."""
        self.under_way: list[tuple[FetchRequest, Callable[[Any], None]]] = []

    def version_of(self, _request: Any) -> int:
        if self._leader.too_old:
            self._leader.too_old -= 1
            raise UnsupportedByBroker("the broker does not offer Fetch")
        return VERSION

    def send(
        self, request: Any, response_type: Any, version: int, _timeout_ms: float, done: Callable[[Any], None]
    ) -> None:
        if self.closed:
            raise Disconnected("closed")
        out = bytearray()
        request.encode(out, version)
        decoded, _ = decode_request(memoryview(out), 0, version)
        self._leader.requests.append(decoded)
        self._waiting.append(done)

        def answer(parts: Any) -> None:
            frame = bytearray().join(
                part.file.read(part.position, part.size) if isinstance(part, FileRange) else part for part in parts
            )
            response, _ = response_type.decode(memoryview(frame), 9, version)
            self._loop.call_soon(self._deliver, done, response)

        if self.stalled:
            self.under_way.append((decoded, answer))
        else:
            self._arrive(decoded, answer)

    def _arrive(self, request: FetchRequest, answer: Callable[[Any], None]) -> None:
        context: Any = SimpleNamespace(
            denied=None,
            note_error=lambda _code: None,
            services=self._leader.services,
            version=VERSION,
            correlation_id=1,
            client_id=self._client_id,
            session=SimpleNamespace(is_broker=True),
            may_act_as_broker=True,
            connection=SimpleNamespace(
                identifier=self.identifier, later=lambda: SimpleNamespace(answer=answer), close=self._close_at_leader
            ),
        )
        found: Any = api_01_fetch.handle(request, context)
        if isinstance(found, list):
            answer(found)
        elif asyncio.iscoroutine(found):
            self._leader.coroutines += 1
            self._loop.create_task(found).add_done_callback(lambda task: answer(task.result()))

    def _close_at_leader(self, reason: str) -> None:
        self.closed_by_leader = reason

    def arrive_late(self) -> None:
        """What was under way comes, whether or not somebody waits for it still."""
        for request, answer in self.under_way:
            self._arrive(request, answer)

    def _deliver(self, done: Callable[[Any], None], response: Any) -> None:
        if done in self._waiting:
            self._waiting.remove(done)
            done(response)

    async def request(self, request: ListOffsetsRequest, _type: Any, _version: int, _timeout_ms: float) -> Any:
        assert request.replica_id == 2
        topic = request.topics[0]
        wanted = topic.partitions[0]
        log = self._leader.partitions[wanted.partition_index].log
        offset = log.log_start_offset if wanted.timestamp == -2 else log.end_offset
        partition = ListOffsetsResponsePartition(wanted.partition_index, 0, -1, offset, 0)
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(topic.name, [partition])])

    def lose(self, error: ClientError) -> None:
        self.close()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done(error)

    def close(self) -> None:
        self.closed = True


def batch(value: bytes = b"value", count: int = 1) -> memoryview:
    return memoryview(encode_batch([(NOW, b"k", value, ())] * count, BatchFields()))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


class Following:
    """Broker 2 and its fetcher."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.leader = Leader(directory)
        self.fetcher = ReplicaFetcher(1, self.leader, asyncio.get_running_loop())
        self.partitions: dict[int, Partition] = {}

    def follow(self, index: int, epoch: int = 0, writer: Writer | None = None) -> Partition:
        if index not in self.partitions:
            self.partitions[index] = partition_in(self.directory, index, 2, writer)
        partition = self.partitions[index]
        partition.apply_state(PartitionState(1, epoch, (1, 2), (1, 2)))
        self.fetcher.follow((TOPIC_ID, index), FollowedLog(partition))
        return partition

    async def in_step(self, *indexes: int) -> None:
        """Followers have what the leader has, and the leader knows it."""
        for index in indexes:
            log = self.leader.partitions[index].log
            await until(lambda log=log, index=index: self.partitions[index].log.end_offset == log.end_offset)  # type: ignore[misc]
            await until(lambda log=log, index=index: self.leader.partitions[index].high_watermark == log.end_offset)  # type: ignore[misc]


def asked(request: FetchRequest) -> list[tuple[int, int]]:
    return [(row[0], row[2]) for _, rows in request.topics for row in rows]


@in_a_loop
async def test_appended_records_are_fetched_and_reported_to_the_leader(tmp_path: Path) -> None:
    following = Following(tmp_path)
    leader = following.leader
    for index in (0, 1):
        leader.lead(index).append(batch(), now_ms=NOW)
        following.follow(index)
    await following.in_step(0, 1)
    leader.partitions[1].append(batch(count=3), now_ms=NOW)
    leader.partitions[1].append(batch(count=2), now_ms=NOW)
    await following.in_step(0, 1)
    assert [r.session_epoch for r in leader.requests] == list(range(len(leader.requests)))
    assert len({r.session_id for r in leader.requests[1:]}) == 1
    assert asked(leader.requests[-1]) == [(1, 6)], "both batches came with one answer, and only what changed is named"
    assert leader.requests[-1].replica_epoch == 7
    following.fetcher.close()


@in_a_loop
async def test_fetching_resumes_after_a_lost_connection(tmp_path: Path) -> None:
    following = Following(tmp_path)
    leader = following.leader
    leader.lead(0).append(batch(), now_ms=NOW)
    following.follow(0)
    await following.in_step(0)
    leader.refuse = 2
    leader.connections[0].lose(Disconnected("gone"))
    leader.partitions[0].append(batch(), now_ms=NOW)
    await until(lambda: leader.unreachable)
    await following.in_step(0)
    assert not leader.unreachable
    assert len(leader.connections) == 2
    following.fetcher.close()


@pytest.mark.parametrize("begins", [False, True], ids=["of a session", "that begins a session"])
@in_a_loop
async def test_a_fetch_of_a_connection_that_was_given_up_says_nothing(tmp_path: Path, begins: bool) -> None:
    """Found by the simulator (late-21): the leader took its follower for behind and kept it out of the ISR for good."""
    following = Following(tmp_path)
    leader = following.leader
    leader.lead(0).append(batch(), now_ms=NOW)
    following.follow(0)
    await following.in_step(0)
    given_up = leader.connections[0]
    if begins:
        leader.stalls = True
        given_up.lose(Disconnected("gone"))
        await until(lambda: len(leader.connections) == 2)
        given_up = leader.connections[1]
        leader.stalls = False
    given_up.stalled = True
    leader.partitions[0].append(batch(), now_ms=NOW)
    await until(lambda: bool(given_up.under_way))
    given_up.lose(RequestTimedOut("no answer"))
    await following.in_step(0)
    leader.partitions[0].append(batch(), now_ms=NOW)
    await following.in_step(0)
    before = len(leader.requests)
    given_up.arrive_late()
    assert leader.partitions[0].followers.progress[2].end_offset == 3
    assert given_up.closed_by_leader
    await asyncio.sleep(0)
    assert len(leader.requests) == before
    following.fetcher.close()


@in_a_loop
async def test_connection_to_a_leader_that_cannot_serve_is_reopened(tmp_path: Path) -> None:
    world = Following(tmp_path)
    world.leader.lead(0).append(batch(), now_ms=NOW)
    world.leader.too_old = 2
    world.follow(0)
    await world.in_step(0)
    assert [connection.closed for connection in world.leader.connections] == [True, True, False]
    world.fetcher.close()


@in_a_loop
async def test_a_partition_that_comes_later_does_not_wait_for_the_long_poll(tmp_path: Path) -> None:
    following = Following(tmp_path)
    leader = following.leader
    leader.lead(0)
    following.follow(0)
    await until(lambda: len(leader.requests) == 2)
    leader.lead(1).append(batch(), now_ms=NOW)
    following.follow(1)
    await following.in_step(1)
    leader.partitions[0].append(batch(), now_ms=NOW)
    await following.in_step(0)
    following.fetcher.unfollow((TOPIC_ID, 0))
    await until(lambda: leader.requests[-1].forgotten == [(TOPIC_ID, [0])])
    leader.partitions[1].append(batch(), now_ms=NOW)
    await following.in_step(1)
    assert asked(leader.requests[-1]) == [(1, 2)]
    following.fetcher.close()


@in_a_loop
async def test_fetches_name_some_partitions_at_a_time_and_all_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a fetch names is noted in one step: 5,000 partitions held the leader's event loop."""
    monkeypatch.setattr(replica_fetcher, "MOST_NAMED", 2)
    following = Following(tmp_path)
    leader = following.leader
    for index in range(5):
        leader.lead(index).append(batch(), now_ms=NOW)
        following.follow(index)
    await following.in_step(*range(5))
    assert max(len(asked(request)) for request in leader.requests) == 2
    assert [request.max_wait_ms for request in leader.requests[:2]] == [0, 0], "the next one follows at once"
    assert len({request.session_id for request in leader.requests[1:]}) == 1
    await until(lambda: leader.requests[-1].max_wait_ms > 0)
    following.fetcher.close()


@in_a_loop
async def test_answers_have_records_of_some_partitions_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_sessions, "MOST_AT_ONCE", 2)
    following = Following(tmp_path)
    leader = following.leader
    for index in range(5):
        leader.lead(index)
        following.follow(index)
    await until(lambda: len(leader.requests) == 2)
    for index in range(5):
        leader.partitions[index].append(batch(), now_ms=NOW)
    await following.in_step(*range(5))
    assert [len(asked(request)) for request in leader.requests[2:5]] == [2, 2, 1]
    following.fetcher.close()


@in_a_loop
async def test_nothing_is_kept_of_partitions_that_are_no_longer_followed(tmp_path: Path) -> None:
    """Each recreated topic has an id of its own."""
    following = Following(tmp_path)
    leader, fetcher = following.leader, following.fetcher
    for index in (0, 1):
        leader.lead(index)
        following.follow(index)
    await until(lambda: len(leader.requests) == 2)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    connection: Any = leader.connections[0]
    deliver = connection._deliver
    late: list[Any] = []

    def deliver_late(done: Callable[[Any], None], response: Any) -> None:
        if not late:
            # As if the answer had been on its way meanwhile.
            late.append(response)
            fetcher.unfollow((TOPIC_ID, 0))
            following.follow(0)
        deliver(done, response)

    connection._deliver = deliver_late
    leader.partitions[0].append(batch(), now_ms=NOW)
    await following.in_step(0)
    assert late
    assert not complaints
    fetcher.unfollow((TOPIC_ID, 0))
    leader.partitions[1].append(batch(), now_ms=NOW)
    await following.in_step(1)
    assert fetcher._sent.keys() == fetcher._known.keys() == {(TOPIC_ID, 1)}
    fetcher.close()


@in_a_loop
async def test_one_partition_that_cannot_be_fetched_holds_up_no_other(tmp_path: Path) -> None:
    following = Following(tmp_path)
    leader = following.leader
    leader.lead(0).append(batch(), now_ms=NOW)
    following.follow(0)
    following.follow(1)
    await following.in_step(0)
    await until(lambda: (TOPIC_ID, 1) in following.fetcher.problems())
    leader.lead(1).append(batch(), now_ms=NOW)
    await following.in_step(1)
    assert following.fetcher.problems() == {}
    following.fetcher.close()


@in_a_loop
async def test_a_fenced_partition_waits_for_the_controller(tmp_path: Path) -> None:
    following = Following(tmp_path)
    leader = following.leader
    leader.lead(0)
    following.follow(0)
    leader.lead(1)
    following.follow(1)
    await until(lambda: len(leader.requests) == 2)
    leader.lead(0, epoch=1).append(batch(), now_ms=NOW)
    await until(lambda: (TOPIC_ID, 0) in following.fetcher.problems())
    leader.partitions[1].append(batch(), now_ms=NOW)
    await following.in_step(1)
    assert following.partitions[0].log.end_offset == 0
    following.follow(0, epoch=1)
    await following.in_step(0)
    following.fetcher.close()


@in_a_loop
async def test_a_session_that_the_leader_forgot_is_begun_again(tmp_path: Path) -> None:
    following = Following(tmp_path)
    leader = following.leader
    leader.lead(0)
    following.follow(0)
    await until(lambda: len(leader.requests) == 2)
    leader.sessions.end(leader.requests[1].session_id)
    leader.connections[0].lose(Disconnected("gone"))
    leader.partitions[0].append(batch(), now_ms=NOW)
    await following.in_step(0)
    leader.sessions.end(leader.requests[-1].session_id)
    following.follow(1)
    leader.lead(1).append(batch(), now_ms=NOW)
    await following.in_step(1)
    following.fetcher.close()


@pytest.mark.parametrize("leader_has", ["later offsets only", "less"])
@in_a_loop
async def test_out_of_range_is_resolved_by_the_ends_of_the_leaders_log(tmp_path: Path, leader_has: str) -> None:
    following = Following(tmp_path)
    leader = following.leader
    partition = leader.lead(0)
    for _ in range(4):
        partition.append(batch(), now_ms=NOW)
    follower = following.follow(0)
    if leader_has == "less":
        await following.in_step(0)
        leader.connections[0].lose(Disconnected("gone"))
        partition.replicated.truncate_to(1)
        partition.high_watermark = 1
    else:
        partition.high_watermark = 4
        partition.deletion.delete(3)
    await until(lambda: (follower.log.log_start_offset, follower.log.end_offset) in ((0, 1), (3, 4)))
    partition.append(batch(), now_ms=NOW)
    await until(lambda: follower.log.end_offset == partition.log.end_offset)
    following.fetcher.close()


@in_a_loop
async def test_leader_that_contradicts_itself_is_not_asked_in_a_rush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It rejects an offset as out of its range though ListOffsets says otherwise: only the first retry is at once."""
    following = Following(tmp_path)
    leader = following.leader
    partition = leader.lead(0)
    for _ in range(4):
        partition.append(batch(), now_ms=NOW)
    partition.high_watermark = 4
    partition.deletion.delete(3)
    pauses: list[float] = []
    delay = ReplicaFetcher._delay

    def noted(fetcher: ReplicaFetcher, place: Any, seconds: float) -> None:
        pauses.append(seconds)
        delay(fetcher, place, seconds)

    async def earlier_start(_connection: Any, request: ListOffsetsRequest, *_: Any) -> ListOffsetsResponse:
        topic = request.topics[0]
        offset = 0 if topic.partitions[0].timestamp == -2 else 4
        partition = ListOffsetsResponsePartition(0, 0, -1, offset, 0)
        return ListOffsetsResponse(topics=[ListOffsetsResponseTopic(topic.name, [partition])])

    monkeypatch.setattr(ReplicaFetcher, "_delay", noted)
    monkeypatch.setattr(FakeConnection, "request", earlier_start)
    following.follow(0)
    await until(lambda: len(pauses) > 2)
    assert pauses[:3] == [0.0, 0.01, 0.02]
    following.fetcher.close()


@in_a_loop
async def test_throttled_partitions_are_left_out_until_they_may_continue(tmp_path: Path) -> None:
    following = Following(tmp_path)
    leader = following.leader
    leader.throttled = True
    leader.lead(0).append(batch(), now_ms=NOW)
    follower = following.follow(0)
    await until(lambda: bool(leader.connections))
    assert leader.requests == []
    leader.throttled = False
    await following.in_step(0)
    assert follower.log.end_offset == 1
    following.fetcher.close()


@in_a_loop
async def test_rejection_by_a_leader_is_logged_once_for_all_partitions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "odradek")
    following = Following(tmp_path)
    for index in range(8):
        # It leads in a newer epoch already, of which the follower has not heard.
        following.leader.lead(index, 3)
        following.follow(index)
    await until(lambda: bool(caplog.records))
    following.fetcher.close()
    assert len(caplog.records) == 1
    message = caplog.records[0].getMessage()
    assert message.startswith("broker 1: stopped following 8 partitions: the leader answers FENCED_LEADER_EPOCH (t-0, ")
    assert message.endswith("t-4 and 3 more)")


class SilentConnection:
    """Answers nothing by itself."""

    def __init__(self) -> None:
        self.sent: list[tuple[Any, Callable[[Any], None]]] = []

    def version_of(self, _request: Any) -> int:
        return VERSION

    def send(self, request: Any, _type: Any, _version: int, _timeout_ms: float, done: Callable[[Any], None]) -> None:
        self.sent.append((request, done))

    def close(self) -> None:
        return None


@in_a_loop
async def test_log_start_reported_beside_a_divergence_is_reported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without appends, nothing else brings it to a follower of a partition."""
    following = Following(tmp_path)
    monkeypatch.setattr(Leader, "settings", lambda _: FetchSettings(wait_max_ms=50, backoff_ms=50))
    leader = following.leader.lead(0)
    follower = following.follow(0)
    leader.append(batch(), now_ms=NOW)
    leader.append(batch(), now_ms=NOW)
    await following.in_step(0)
    following.fetcher.unfollow((TOPIC_ID, 0))
    # The follower has led in between and written nothing: it asks in an epoch that its leader does not know.
    follower.apply_state(PartitionState(2, 1, (1, 2), (1, 2), 1))
    leader.apply_state(PartitionState(1, 2, (1, 2), (1,), 2))
    leader.deletion.delete(1)
    follower.apply_state(PartitionState(1, 2, (1, 2), (1,), 2))
    following.fetcher.follow((TOPIC_ID, 0), FollowedLog(follower))
    await until(lambda: follower.log.log_start_offset == 1)
    following.fetcher.close()


@in_a_loop
async def test_of_two_requests_whose_session_is_lost_one_begins_another(tmp_path: Path) -> None:
    """Found by the simulator (unclean-310007): what was followed between the two was fetched in neither session."""
    following = Following(tmp_path)
    connection = SilentConnection()

    async def connect(_broker_id: int, _client_id: str) -> Any:
        return connection

    following.leader.peers = SimpleNamespace(connect=connect)
    sent = connection.sent
    following.follow(0)
    await until(lambda: len(sent) == 1)
    sent[0][1](ReplicaFetchResponse(0, 0, 5))
    following.follow(1)
    await until(lambda: len(sent) == 2)
    following.follow(2)
    await until(lambda: len(sent) == 3)
    # The leader has restarted: it knows the session of neither.
    lost = ReplicaFetchResponse(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    sent[1][1](lost)
    assert asked(sent[3][0]) == [(0, 0), (1, 0), (2, 0)]
    following.follow(3)
    sent[2][1](lost)
    sent[3][1](ReplicaFetchResponse(0, 0, 6))
    await until(lambda: len(sent) == 5)
    request = sent[4][0]
    assert (request.session_id, request.session_epoch, asked(request)) == (6, 1, [(3, 0)])
    following.fetcher.close()


@in_a_loop
async def test_partition_that_is_no_longer_followed_leaves_no_problem(tmp_path: Path) -> None:
    following = Following(tmp_path)
    leader = following.leader
    leader.lead(1).append(batch(), now_ms=NOW)
    following.follow(0)
    following.follow(1)
    await until(lambda: (TOPIC_ID, 0) in following.fetcher.problems())
    following.fetcher.unfollow((TOPIC_ID, 0))
    assert following.fetcher._delayed == {}
    following.fetcher.close()


@in_a_loop
async def test_leader_that_closes_the_connection_is_suspected_at_once(tmp_path: Path) -> None:
    following = Following(tmp_path)
    leader = following.leader
    leader.lead(0).append(batch(), now_ms=NOW)
    following.follow(0)
    await following.in_step(0)
    leader.connections[0].lose(Disconnected("gone"))
    # Before another connection is tried.
    assert leader.unreachable
    following.fetcher.close()


@in_a_loop
async def test_queued_partition_leaves_the_session_until_it_is_written(tmp_path: Path) -> None:
    """The follower's disk does not keep up: other partitions continue, and it reports only what is written."""
    following, writer = Following(tmp_path), HeldWriter()
    leader = following.leader
    for index in (0, 1):
        leader.lead(index).append(batch(), now_ms=NOW)
    slow = following.follow(0, writer=writer).log
    following.follow(1)
    await until(lambda: len(writer.held) == 1)
    await following.in_step(1)
    for _ in range(3):
        leader.partitions[0].append(batch(), now_ms=NOW)
        leader.partitions[1].append(batch(), now_ms=NOW)
        await following.in_step(1)
    assert (slow.next_offset, slow.end_offset, len(writer.held)) == (1, 0, 1)
    assert leader.partitions[0].high_watermark == 0, "the leader must not believe that the follower has it"
    assert [index for request in leader.requests for _, rows in request.forgotten for index in rows] == [0]
    while slow.end_offset < 4 or writer.held:
        writer.release()
        await asyncio.sleep(0.001)
    await following.in_step(0, 1)
    assert following.partitions[0].high_watermark in (1, 4)
    following.fetcher.close()


@in_a_loop
async def test_high_watermark_follows_once_queued_batches_are_written(tmp_path: Path) -> None:
    """The leader has said it with the batches, and does not repeat it."""
    following, writer = Following(tmp_path), HeldWriter()
    partition = following.leader.lead(0)
    partition.apply_state(PartitionState(1, 0, (1, 2), (1,), 1))
    partition.append(batch(), now_ms=NOW)
    follower = following.follow(0, writer=writer)
    await until(lambda: len(writer.held) == 1)
    assert (partition.high_watermark, follower.high_watermark) == (1, 0)
    writer.release()
    assert follower.high_watermark == 1
    following.fetcher.close()


@in_a_loop
async def test_fetches_pause_while_much_waits_for_the_disk(tmp_path: Path) -> None:
    following, writer = Following(tmp_path), HeldWriter()
    leader = following.leader
    leader.bounded = 1
    leader.lead(0).append(batch(), now_ms=NOW)
    follower = following.follow(0, writer=writer)
    await until(lambda: len(writer.held) == 1)
    before = len(leader.requests)
    leader.lead(1).append(batch(), now_ms=NOW)
    following.follow(1)
    for _ in range(10):
        await asyncio.sleep(0)
    assert len(leader.requests) == before
    writer.release()
    await following.in_step(1)
    assert follower.log.end_offset == 1
    following.fetcher.close()


@in_a_loop
async def test_partition_whose_queued_batches_fail_is_no_longer_followed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    following, writer = Following(tmp_path), HeldWriter()
    leader = following.leader
    for index in (0, 1):
        leader.lead(index).append(batch(), now_ms=NOW)
    following.follow(0, writer=writer)
    following.follow(1)
    await until(lambda: len(writer.held) == 1)
    with caplog.at_level(logging.INFO, "odradek.replication"):
        writer.fail()
    assert "stopped following 1 partitions: its log is offline (t-0)" in caplog.text
    leader.partitions[0].append(batch(), now_ms=NOW)
    leader.partitions[1].append(batch(), now_ms=NOW)
    await following.in_step(1)
    assert writer.held == []
    following.fetcher.close()


@in_a_loop
async def test_fetch_that_names_many_partitions_is_noted_in_steps(tmp_path: Path) -> None:
    """Followers of Apache Kafka name all their partitions at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_fetch, "_MOST_AT_ONCE", 3)
        patch.setattr(replica_sessions, "_NOTED_IN_A_STEP", 1)
        following = Following(tmp_path)
        leader = following.leader
        for index in range(5):
            leader.lead(index).append(batch(), now_ms=NOW)
            following.follow(index)
        await following.in_step(*range(5))
        assert leader.coroutines >= 1
        leader.partitions[4].append(batch(), now_ms=NOW)
        await following.in_step(4)
        following.fetcher.close()
