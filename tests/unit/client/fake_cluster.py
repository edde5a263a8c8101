"""A scripted cluster in memory behind the Network port: real frames and codecs, no sockets.

It keeps logs and checks producers' sequences as a broker does. A test scripts the next answers of an API:
`cluster.script(ApiKey.PRODUCE, fail_produce(6), drop, pass_on)`; what is not scripted is answered properly.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from odradek.ports.network import SYSTEM_BUFFERS, WOULD_BLOCK, BufferSizes, Stream
from odradek.records.batch import parse_header
from odradek.records.record import Record, decode_records
from odradek.wire.apis import APIS, ApiKey, request_class
from odradek.wire.frames import FrameReader
from odradek.wire.headers import encode_response_header, parse_request_header
from odradek.wire.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from odradek.wire.messages.fetch import (
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorResponse, FindCoordinatorResponseCoordinator
from odradek.wire.messages.heartbeat import HeartbeatResponse
from odradek.wire.messages.init_producer_id import InitProducerIdResponse
from odradek.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.wire.messages.leave_group import LeaveGroupResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseGroupPartition,
    OffsetFetchResponseGroupTopic,
)
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponseEpochEndOffset,
    OffsetForLeaderEpochResponseTopic,
)
from odradek.wire.messages.produce import ProduceResponse, ProduceResponsePartition, ProduceResponseTopic
from odradek.wire.messages.sync_group import SyncGroupResponse

Handler = Callable[["FakeBroker", Any, int, Callable[[], Any]], Any]
"""(broker, request, version, what the proper answer is) -> response, None for none at all, or DROP."""

DROP = object()
OPTIONS: dict[str, Any] = {
    "bootstrap_servers": "fake:1",
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 2,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 2,
}


def pass_on(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
    """The proper answer."""
    return proper()


def drop(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
    """The connection breaks before anything is done."""
    return DROP


def lose_answer(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
    """The request is carried out, the connection breaks before the answer."""
    proper()
    return DROP


def silent(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
    """No answer, ever."""
    return None


def fail_produce(code: int, log_start_offset: int = -1) -> Handler:
    def handler(broker: FakeBroker, request: Any, version: int, proper: Callable[[], Any]) -> Any:
        return ProduceResponse(
            responses=[
                ProduceResponseTopic(
                    t.name,
                    t.topic_id,
                    [
                        ProduceResponsePartition(p.index, code, -1, log_start_offset=log_start_offset)
                        for p in t.partition_data
                    ],
                )
                for t in request.topic_data
            ]
        )

    return handler


class MemoryStream:
    """The client's end of a connection."""

    def __init__(self, broker: FakeBroker) -> None:
        self.peer_host, self.peer_port = "fake", broker.node_id
        self.broker = broker
        self.incoming = bytearray()
        self.ended = self.closed = False
        self.reader = FrameReader(1 << 28)
        self._callback: Callable[[], None] | None = None
        self._scheduled = False

    def receive_into(self, buffer: memoryview) -> int:
        size = min(len(buffer), len(self.incoming))
        if not size:
            return 0 if self.ended else WOULD_BLOCK
        buffer[:size] = self.incoming[:size]
        del self.incoming[:size]
        return size

    def send(self, part: Any, more: bool) -> int:
        if self.ended or self.closed:
            raise BrokenPipeError("gone")
        data = memoryview(bytes(part))
        while data:
            space = self.reader.space()
            size = min(len(space), len(data))
            space[:size] = data[:size]
            data = data[size:]
            for frame in self.reader.received(size):
                asyncio.get_running_loop().call_soon(self.broker.serve, self, bytes(frame))
        return len(part)

    def send_file(self, part: Any) -> int:
        raise NotImplementedError

    def watch_reads(self, callback: Callable[[], None] | None) -> None:
        self._callback = callback
        self.wake()

    def expect(self, size: int) -> None:
        pass

    def gathered_bytes(self) -> int:
        return len(self.incoming)

    def watch_writes(self, callback: Callable[[], None] | None) -> None:
        return

    def close(self) -> None:
        self.closed = True
        self._callback = None
        self.broker.streams.discard(self)

    # --- the broker's side ---

    def answer(self, data: bytes) -> None:
        self.incoming += len(data).to_bytes(4, "big") + data
        self.wake()

    def end(self) -> None:
        self.ended = True
        self.wake()

    def wake(self) -> None:
        if (self.incoming or self.ended) and self._callback is not None and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        if self._callback is not None:
            self._callback()
        if self.ended and self._callback is not None:
            # The client learns of the end in the turn of the last answer: if the loop stalls between two turns, a
            # retry would be due before the client knows that the connection is gone.
            self._callback()
        self.wake()


class FakeBroker:
    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.up = True
        self.rack: str | None = None
        self.streams: set[MemoryStream] = set()

    def serve(self, stream: MemoryStream, frame: bytes) -> None:
        if stream.closed or stream.ended:
            return
        key, version, correlation_id, _, position = parse_request_header(memoryview(frame))
        request, _ = request_class(key).decode(memoryview(frame), position, version)
        self.cluster.requests.append((self.node_id, ApiKey(key), version, request))
        scripted = self.cluster.scripts[key].popleft() if self.cluster.scripts[key] else pass_on

        def proper() -> Any:
            return getattr(self.cluster, f"on_{ApiKey(key).name.lower()}")(self, request, version)

        response = scripted(self, request, version, proper)
        if response is DROP:
            stream.end()
        elif response is not None:
            out = bytearray()
            encode_response_header(out, key, version, correlation_id)
            response.encode(out, version)
            stream.answer(bytes(out))


class FakeCluster:
    """Brokers 1..N on ports 1..N, and the Network that reaches them."""

    def __init__(self, brokers: int = 1, topics: dict[str, int] | None = None) -> None:
        self.brokers = {n: FakeBroker(self, n) for n in range(1, brokers + 1)}
        self.topics = dict(topics or {"t": 1})
        self.leaders: dict[tuple[str, int], int] = {
            (name, p): p % brokers + 1 for name, count in self.topics.items() for p in range(count)
        }
        self.epochs: dict[tuple[str, int], int] = defaultdict(int)
        self.logs: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.batches: dict[tuple[str, int], list[tuple[int, int, bytes]]] = defaultdict(list)
        self.log_start: dict[tuple[str, int], int] = defaultdict(int)
        self.producers: dict[tuple[str, int, int], tuple[int, int, deque[tuple[int, int, int]]]] = {}
        self.committed: dict[str, dict[tuple[str, int], int]] = defaultdict(dict)
        self.scripts: dict[int, deque[Handler]] = defaultdict(deque)
        self.requests: list[tuple[int, ApiKey, int, Any]] = []
        self.replicas = [1]
        self.max_versions: dict[int, int] = {}
        self.absent: set[int] = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
        self.max_batch_bytes = 1 << 30
        self.next_producer_id = 1000
        self.coordinator = 1
        self.generation = 0
        self.members: dict[str, Any] = {}

    def own_host(self) -> str:
        return "127.0.0.1"

    # --- the test's side ---

    def script(self, key: ApiKey, *handlers: Handler) -> None:
        self.scripts[key].extend(handlers)

    def values(self, topic: str = "t", partition: int = 0) -> list[bytes]:
        return [bytes(each.value or b"") for each in self.logs[topic, partition]]

    def count(self, key: ApiKey) -> int:
        return sum(1 for _, each, _, _ in self.requests if each == key)

    def topic_id(self, name: str) -> bytes:
        return name.encode().ljust(16, b"\1")

    def move_leader(self, topic: str, partition: int, node_id: int) -> None:
        self.leaders[topic, partition] = node_id
        self.epochs[topic, partition] += 1

    def stop(self, node_id: int) -> None:
        self.brokers[node_id].up = False
        for stream in list(self.brokers[node_id].streams):
            stream.end()

    # --- Network ---

    def listen(self, host: str, port: int, accept: Any) -> Any:
        raise NotImplementedError

    async def connect(
        self, host: str, port: int, timeout: float, silence: float = 0.0, buffers: BufferSizes = SYSTEM_BUFFERS
    ) -> Stream:
        broker = self.brokers[port]
        if not broker.up:
            raise ConnectionRefusedError(f"{host}:{port}: refused")
        stream = MemoryStream(broker)
        broker.streams.add(stream)
        return stream

    # --- proper answers ---

    def on_api_versions(self, broker: FakeBroker, request: Any, version: int) -> Any:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponseApiVersion(key, api.min_version, self.max_versions.get(key, api.max_version))
                for key, api in APIS.items()
                if key not in self.absent
            ]
        )

    def on_metadata(self, broker: FakeBroker, request: Any, version: int) -> Any:
        names = list(self.topics) if request.topics is None else [each.name for each in request.topics]
        topics = []
        for name in names:
            if name not in self.topics:
                topics.append(MetadataResponseTopic(3, name))
                continue
            partitions = [
                MetadataResponsePartition(0, p, self.leaders[name, p], self.epochs[name, p], self.replicas, [1], [])
                for p in range(self.topics[name])
            ]
            topics.append(MetadataResponseTopic(0, name, self.topic_id(name), False, partitions))
        brokers = [MetadataResponseBroker(n, "fake", n, each.rack) for n, each in self.brokers.items() if each.up]
        return MetadataResponse(brokers=brokers, cluster_id="fake", controller_id=1, topics=topics)

    def on_init_producer_id(self, broker: FakeBroker, request: Any, version: int) -> Any:
        self.next_producer_id += 1
        return InitProducerIdResponse(0, 0, self.next_producer_id, 0)

    def _name(self, topic: Any, field: str = "name") -> str:
        given: str = getattr(topic, field)
        return given or next(name for name in self.topics if self.topic_id(name) == topic.topic_id)

    def on_produce(self, broker: FakeBroker, request: Any, version: int) -> Any:
        topics = []
        for topic in request.topic_data:
            name = self._name(topic)
            answers = []
            for each in topic.partition_data:
                code, offset = self.append(broker, name, each.index, bytes(each.records))
                answers.append(ProduceResponsePartition(each.index, code, offset, -1, self.log_start[name, each.index]))
            topics.append(ProduceResponseTopic(topic.name, topic.topic_id, answers))
        return ProduceResponse(responses=topics) if request.acks else None

    def append(self, broker: FakeBroker, topic: str, partition: int, data: bytes) -> tuple[int, int]:
        key = (topic, partition)
        if self.leaders[key] != broker.node_id:
            return 6, -1
        if len(data) > self.max_batch_bytes:
            return 10, -1
        header = parse_header(data)
        log = self.logs[key]
        if header.producer_id >= 0:
            epoch, expected, recent = self.producers.get((topic, partition, header.producer_id), (-1, 0, deque()))
            if header.producer_epoch < epoch:
                return 47, -1
            if header.producer_epoch > epoch >= 0:
                epoch, expected, recent = header.producer_epoch, 0, deque()
            for sequence, count, offset in recent:
                if (sequence, count) == (header.base_sequence, header.records_count):
                    return 0, offset
            # As Kafka does, a producer that is not known may begin with any sequence.
            if header.base_sequence != expected and epoch != -1:
                return 45, -1
            recent.append((header.base_sequence, header.records_count, len(log)))
            if len(recent) > 5:
                recent.popleft()
            epoch = header.producer_epoch
            self.producers[topic, partition, header.producer_id] = (epoch, header.last_sequence + 1, recent)
        base = len(log)
        placed = bytearray(data)
        placed[:8] = base.to_bytes(8, "big")
        placed[12:16] = self.epochs[key].to_bytes(4, "big")
        self.batches[key].append((base, base + header.records_count - 1, bytes(placed)))
        log += decode_records(memoryview(placed), parse_header(placed), copy=True)
        return 0, base

    def on_list_offsets(self, broker: FakeBroker, request: Any, version: int) -> Any:
        topics = []
        for topic in request.topics:
            answers = []
            for each in topic.partitions:
                key = (topic.name, each.partition_index)
                if self.leaders[key] != broker.node_id:
                    answers.append(ListOffsetsResponsePartition(each.partition_index, 6))
                    continue
                found = [r for r in self.logs[key][self.log_start[key] :] if r.timestamp >= each.timestamp]
                offset = {-1: len(self.logs[key]), -2: self.log_start[key]}.get(
                    each.timestamp, found[0].offset if found else -1
                )
                epoch = self.epochs[key] if version >= 4 else -1
                answers.append(ListOffsetsResponsePartition(each.partition_index, 0, -1, offset, epoch))
            topics.append(ListOffsetsResponseTopic(topic.name, answers))
        return ListOffsetsResponse(topics=topics)

    def on_fetch(self, broker: FakeBroker, request: Any, version: int) -> Any:
        """One batch per partition; no sessions, no waiting."""
        topics = []
        for topic in request.topics:
            name = self._name(topic, "topic")
            answers = []
            for each in topic.partitions:
                key = (name, each.partition)
                end = len(self.logs[key])
                answer = FetchResponsePartition(each.partition, 0, end, end, self.log_start[key], records=b"")
                if self.leaders[key] != broker.node_id:
                    answer.error_code = 6
                elif not self.log_start[key] <= each.fetch_offset <= end:
                    answer.error_code = 1
                else:
                    answer.records = next((d for _, last, d in self.batches[key] if last >= each.fetch_offset), b"")
                answers.append(answer)
            topics.append(FetchResponseTopic(topic.topic, topic.topic_id, answers))
        return FetchResponse(responses=topics)

    def on_offset_for_leader_epoch(self, broker: FakeBroker, request: Any, version: int) -> Any:
        """All that is in the log now is of the epochs asked for."""
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderEpochResponseTopic(
                    t.topic,
                    [
                        OffsetForLeaderEpochResponseEpochEndOffset(
                            0, p.partition, p.leader_epoch, len(self.logs[t.topic, p.partition])
                        )
                        for p in t.partitions
                    ],
                )
                for t in request.topics
            ]
        )

    def on_find_coordinator(self, broker: FakeBroker, request: Any, version: int) -> Any:
        if version >= 4:
            node_id = self.coordinator
            found = [
                FindCoordinatorResponseCoordinator(key, node_id, "fake", node_id) for key in request.coordinator_keys
            ]
            return FindCoordinatorResponse(coordinators=found)
        return FindCoordinatorResponse(node_id=self.coordinator, host="fake", port=self.coordinator)

    def on_join_group(self, broker: FakeBroker, request: Any, version: int) -> Any:
        """A group of one."""
        member_id = request.member_id or f"member-{self.generation}"
        self.generation += 1
        protocol = request.protocols[0]
        members = [JoinGroupResponseMember(member_id, None, protocol.metadata)]
        return JoinGroupResponse(0, 0, self.generation, "consumer", protocol.name, member_id, False, member_id, members)

    def on_sync_group(self, broker: FakeBroker, request: Any, version: int) -> Any:
        self.members = {each.member_id: each.assignment for each in request.assignments}
        return SyncGroupResponse(0, 0, "consumer", request.protocol_name, self.members[request.member_id])

    def on_heartbeat(self, broker: FakeBroker, request: Any, version: int) -> Any:
        return HeartbeatResponse()

    def on_leave_group(self, broker: FakeBroker, request: Any, version: int) -> Any:
        return LeaveGroupResponse()

    def on_offset_commit(self, broker: FakeBroker, request: Any, version: int) -> Any:
        topics = []
        for topic in request.topics:
            for each in topic.partitions:
                self.committed[request.group_id][self._name(topic), each.partition_index] = each.committed_offset
            answers = [OffsetCommitResponsePartition(each.partition_index) for each in topic.partitions]
            topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, answers))
        return OffsetCommitResponse(topics=topics)

    def on_offset_fetch(self, broker: FakeBroker, request: Any, version: int) -> Any:
        group = request.groups[0]
        stored = self.committed[group.group_id]
        topics = [
            OffsetFetchResponseGroupTopic(
                topic.name,
                partitions=[
                    OffsetFetchResponseGroupPartition(p, stored.get((topic.name, p), -1), -1, "")
                    for p in topic.partition_indexes
                ],
            )
            for topic in group.topics
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group.group_id, topics)])
