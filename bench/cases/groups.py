"""Groups: how long until members that come at once all have their partitions, and offset commits per second.

Members are the smallest that speak the protocols, one connection each and all in one process, so that what is measured
is the brokers: 2, 50 and 500 of them join a new group of a topic with twice as many partitions. Classic members send a
heartbeat every 200 ms (clients: 3 s) and the leader assigns ranges; KIP-848 members report at the broker's interval
(Apache Kafka: 5 s), and at once when they have given up partitions. The time ends when every member has received its
share of the final assignment.

Commits: 50 connections, each for a group of its own, one partition per request, 20 requests on their way on each; then
one connection that waits for each answer, as a consumer that commits synchronously does.
"""

import asyncio
import contextlib
import functools
import time
import uuid
from typing import Any

from bench.cases import topics
from bench.servers import Running, cpu_seconds
from odradek.wire.apis import response_class
from odradek.wire.errors import ErrorCode
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from odradek.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

SIZES = (2, 50, 500)
LIMIT_SECONDS = 120
CLASSIC_HEARTBEAT_SECONDS = 0.2
COMMITS = 100_000
COMMIT_CONNECTIONS = 50
COMMITS_ON_THEIR_WAY = 20
COMMITS_ONE_BY_ONE = 20_000
BUSY = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def frame(request: Any, version: int, correlation_id: int) -> bytearray:
    out = bytearray(4)
    encode_request_header(out, request.API_KEY, version, correlation_id, "bench")
    request.encode(out, version)
    out[0:4] = (len(out) - 4).to_bytes(4, "big")
    return out


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, broker: Running) -> "Connection":
        return cls(*await asyncio.open_connection(*broker.address()))

    async def call(self, request: Any, version: int) -> Any:
        self.writer.write(frame(request, version, 1))
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        view = memoryview(await self.reader.readexactly(size))
        _, position = parse_response_header(view, request.API_KEY, version)
        return response_class(request.API_KEY).decode(view, position, version)[0]

    async def until_served(self, request: Any, version: int) -> Any:
        """The answer once the group's coordinator has been found and has loaded."""
        while True:
            answer = await self.call(request, version)
            if answer.error_code not in BUSY:
                return answer
            await self.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[request.group_id]), 4)
            await asyncio.sleep(0.1)


class Group:
    """What its members know together: who has what."""

    def __init__(self, topic: str, size: int) -> None:
        self.name = f"bench-{uuid.uuid4().hex[:12]}"
        self.topic = topic
        self.size = size
        self.shares: dict[str, int] = {}
        self.done = asyncio.Event()

    def has(self, member: str, partitions: int) -> None:
        """Done when all members have their equal part at once."""
        self.shares[member] = partitions
        if len(self.shares) == self.size and all(share == 2 for share in self.shares.values()):
            self.done.set()


# --- KIP-848 ---


async def consumer_member(connection: Connection, group: Group) -> None:
    member, epoch, owned = str(uuid.uuid4()), 0, None
    while not group.done.is_set():
        request = ConsumerGroupHeartbeatRequest(group.name, member, epoch)
        if epoch == 0:
            request.rebalance_timeout_ms = 60_000
            request.subscribed_topic_names = [group.topic]
            request.topic_partitions = []
        elif owned is not None:
            request.topic_partitions = owned
        answer = await connection.until_served(request, 1)
        assert answer.error_code == 0, answer
        epoch, owned = answer.member_epoch, None
        if answer.assignment is not None:
            found = answer.assignment.topic_partitions
            owned = [ConsumerGroupHeartbeatRequestTopicPartitions(t.topic_id, t.partitions) for t in found]
            group.has(member, sum(len(t.partitions) for t in found))
            continue  # the coordinator learns at once what the member has now
        await pause(group, answer.heartbeat_interval_ms / 1000)


# --- classic ---


def subscription(topic: str) -> bytes:
    out = bytearray(b"\0\0")
    ConsumerProtocolSubscription([topic]).encode(out, 0)
    return bytes(out)


def ranges(group: Group, members: list[str]) -> list[SyncGroupRequestAssignment]:
    total, found = 2 * group.size, []
    for n, member in enumerate(sorted(members)):
        part = range(n * total // len(members), (n + 1) * total // len(members))
        out = bytearray(b"\0\0")
        ConsumerProtocolAssignment([ConsumerProtocolAssignmentTopicPartition(group.topic, list(part))]).encode(out, 0)
        found.append(SyncGroupRequestAssignment(member, bytes(out)))
    return found


async def classic_member(connection: Connection, group: Group) -> None:
    member, protocols = "", [JoinGroupRequestProtocol("range", subscription(group.topic))]
    while not group.done.is_set():
        join = JoinGroupRequest(group.name, 30_000, 60_000, member, None, "consumer", protocols)
        joined = await connection.until_served(join, 9)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            member = joined.member_id
            continue
        assert joined.error_code in (0, ErrorCode.REBALANCE_IN_PROGRESS), joined
        member = joined.member_id
        leads = joined.leader == member
        assignments = ranges(group, [m.member_id for m in joined.members]) if leads else []
        sync = SyncGroupRequest(group.name, joined.generation_id, member, None, "consumer", "range", assignments)
        synced = await connection.call(sync, 5)
        if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            continue
        assert synced.error_code == 0, synced
        data = memoryview(synced.assignment)
        topics_of = ConsumerProtocolAssignment.decode(data, 2, 0)[0].assigned_partitions
        group.has(member, sum(len(t.partitions) for t in topics_of))
        error = 0
        while error == 0 and not group.done.is_set():
            await pause(group, CLASSIC_HEARTBEAT_SECONDS)
            beat = await connection.call(HeartbeatRequest(group.name, joined.generation_id, member), 4)
            error = beat.error_code
        assert error in (0, ErrorCode.REBALANCE_IN_PROGRESS), error


async def pause(group: Group, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(group.done.wait(), seconds)


async def rebalance(broker: Running, topic: str, size: int, protocol: str) -> float:
    """Seconds until all have joined and have their part."""
    group = Group(topic, size)
    connections = [await Connection.open(broker) for _ in range(size)]
    # The coordinator of a first group has a topic to create; that is not a rebalance.
    await connections[0].call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group.name]), 4)
    await asyncio.sleep(0.5)
    work = {"classic": classic_member, "consumer": consumer_member}[protocol]
    began = time.perf_counter()
    members = [asyncio.create_task(work(connection, group)) for connection in connections]
    done = asyncio.create_task(group.done.wait())
    await asyncio.wait([done, *members], timeout=LIMIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    took = time.perf_counter() - began
    if not group.done.is_set():
        raise RuntimeError(f"{size} {protocol} members: {len(group.shares)} are assigned after {took:.0f} s")
    await asyncio.gather(*members)
    for connection in connections:
        connection.writer.close()
    return took


# --- commits ---


class Committer(asyncio.Protocol):
    """Keeps a number of commits on their way until it has sent its share."""

    def __init__(self, request: bytes, count: int, window: int) -> None:
        self.request = request
        self.window = window
        self.left = count
        self.waiting = 0
        self.buffer = b""
        self.finished = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send(self.window)

    def send(self, most: int) -> None:
        count = min(most, self.left)
        self.left -= count
        self.waiting += count
        if count:
            self.transport.write(self.request * count)

    def data_received(self, data: bytes) -> None:
        data = self.buffer + data
        position = answered = 0
        while len(data) - position >= 4:
            end = position + 4 + int.from_bytes(data[position : position + 4], "big")
            if end > len(data):
                break
            if data[end - 2 : end] != b"\0\0" and not self.finished.done():
                self.finished.set_exception(RuntimeError(f"a commit failed: {data[position:end].hex()}"))
            answered += 1
            position = end
        self.buffer = data[position:]
        self.waiting -= answered
        self.send(answered)
        if not self.left and not self.waiting and not self.finished.done():
            self.finished.set_result(None)


async def commits(
    broker: Running, topic: str, count: int, connections: int = COMMIT_CONNECTIONS, window: int = COMMITS_ON_THEIR_WAY
) -> float:
    """Commits per second."""
    requests = []
    finder = await Connection.open(broker)
    for _ in range(connections):
        part = OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 1, -1, "")])
        request = OffsetCommitRequest(f"bench-{uuid.uuid4().hex[:12]}", topics=[part])
        await finder.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[request.group_id]), 4)
        # Version 7 ends with the partition's error code.
        requests.append(bytes(frame(request, 7, 1)))
        answer = await finder.call(request, 7)
        # A broker that has just created the topic may not know it yet.
        while answer.topics[0].partitions[0].error_code in (*BUSY, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            await asyncio.sleep(0.1)
            answer = await finder.call(request, 7)
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made = [
        await loop.create_connection(
            functools.partial(Committer, request, count // connections, window), *broker.address()
        )
        for request in requests
    ]
    await asyncio.gather(*(protocol.finished for _, protocol in made))
    took = time.perf_counter() - began
    for transport, _ in made:
        transport.close()
    finder.writer.close()
    return count // connections * connections / took


async def measure(broker: Running, scale: float) -> dict[str, float]:
    figures: dict[str, float] = {}
    for protocol in ("classic", "consumer"):
        for size in SIZES:
            with topics.fresh(broker.bootstrap, 2 * size) as topic:
                await asyncio.sleep(0.5)
                figures[f"rebalance {size} {protocol}"] = await rebalance(broker, topic, size, protocol)
    with topics.fresh(broker.bootstrap, 1) as topic:
        await commits(broker, topic, int(COMMITS * scale / 5) + COMMIT_CONNECTIONS)
        before = cpu_seconds(broker.pid)
        figures["offset commits"] = await commits(broker, topic, int(COMMITS * scale) + COMMIT_CONNECTIONS)
        done = (int(COMMITS * scale) + COMMIT_CONNECTIONS) // COMMIT_CONNECTIONS * COMMIT_CONNECTIONS
        figures["CPU per offset commit"] = (cpu_seconds(broker.pid) - before) * 1e6 / done
        count = int(COMMITS_ONE_BY_ONE * scale) + 1
        figures["offset commits one by one"] = await commits(broker, topic, count, 1, 1)
    return figures


def run(broker: Running, scale: float) -> dict[str, float]:
    return asyncio.run(measure(broker, scale))
