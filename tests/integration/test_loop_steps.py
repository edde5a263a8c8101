"""What one step of a broker's event loop does for a request for many elements, counted in Python calls.

Calls do not depend on how fast the machine is. With `odradek.loop.slice.ms=0` each slice is the least that can be done,
so that the largest step is what no setting makes smaller: the request is decoded as a whole, and its answer encoded.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.ports import Ports
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.records.builder import encode_batch
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages import (
    create_topics,
    describe_groups,
    describe_producers,
    fetch,
    find_coordinator,
    list_offsets,
    produce,
)

COUNT = 200
TOPIC = "t"
SETTINGS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "odradek.loop.slice.ms": "0",
    "offsets.topic.num.partitions": "1",
}


class Steps:
    """Python calls in the steps of the event loop."""

    def __init__(self) -> None:
        self.largest = 0
        self.total = 0

    def add(self, calls: int) -> None:
        self.largest = max(self.largest, calls)
        self.total += calls


@contextmanager
def counted_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Steps]:
    steps, run = Steps(), asyncio.Handle._run

    def counting(handle: asyncio.Handle) -> None:
        calls = 0

        def count(_frame: Any, event: str, _argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            run(handle)
        finally:
            sys.setprofile(before)
            steps.add(calls)

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.Handle, "_run", counting)
        yield steps


class Client:
    """A connection without a task of its own: its calls are few."""

    def __init__(self, broker: Broker) -> None:
        host, _, port = broker.bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._socket.setblocking(False)

    def close(self) -> None:
        self._socket.close()

    async def ask(self, request: Any, response: Any, version: int) -> Any:
        return self.decoded(await self.exchange(self.frame(request, version)), response, version)

    def frame(self, request: Any, version: int) -> bytearray:
        out = bytearray(4)
        encode_request_header(out, request.API_KEY, version, 7, "test")
        request.encode(out, version)
        out[:4] = (len(out) - 4).to_bytes(4, "big")
        return out

    async def exchange(self, frame: bytearray) -> bytes:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, frame)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
            part = await loop.sock_recv(self._socket, 1 << 20)
            assert part, "the broker closed the connection"
            answer += part
        return answer[4:]

    def decoded(self, answer: bytes, response: Any, version: int) -> Any:
        _, position = parse_response_header(memoryview(answer), response.API_KEY, version)
        return response.decode(memoryview(answer), position, version)[0]


def produce_request() -> tuple[Any, Any, int]:
    rows = [produce.ProduceRequestPartition(index, encode_batch([(1, b"k", b"v", ())])) for index in range(COUNT)]
    topics = [produce.ProduceRequestTopic(TOPIC, partition_data=rows)]
    return produce.ProduceRequest(None, -1, 30_000, topics), produce.ProduceResponse, 9


def fetch_request() -> tuple[Any, Any, int]:
    rows = [fetch.FetchRequestPartition(index, fetch_offset=0, partition_max_bytes=1000) for index in range(COUNT)]
    topics = [fetch.FetchRequestTopic(TOPIC, partitions=rows)]
    return fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics), fetch.FetchResponse, 12


def list_offsets_request() -> tuple[Any, Any, int]:
    rows = [list_offsets.ListOffsetsRequestPartition(index, -1, 1) for index in range(COUNT)]
    topics = [list_offsets.ListOffsetsRequestTopic(TOPIC, rows)]
    return list_offsets.ListOffsetsRequest(-1, 0, topics), list_offsets.ListOffsetsResponse, 7


def describe_producers_request() -> tuple[Any, Any, int]:
    topics = [describe_producers.DescribeProducersRequestTopic(TOPIC, list(range(COUNT)))]
    return describe_producers.DescribeProducersRequest(topics), describe_producers.DescribeProducersResponse, 0


def describe_groups_request() -> tuple[Any, Any, int]:
    names = [f"group-{number}" for number in range(COUNT)]
    return describe_groups.DescribeGroupsRequest(names), describe_groups.DescribeGroupsResponse, 5


REQUESTS = {
    "Produce": produce_request,
    "Fetch": fetch_request,
    "ListOffsets": list_offsets_request,
    "DescribeProducers": describe_producers_request,
    "DescribeGroups": describe_groups_request,
}
MOST_CALLS = 8
"""Of the largest step, for each element: decoding and encoding take 2 to 6."""
LEAST_CALLS = 20
"""Of all steps together, for each element: 30 to 70."""


async def serve(directory: Path) -> tuple[Broker, Client]:
    config = BrokerConfig(SETTINGS | {"log.dirs": str(directory)}, is_single=True)
    broker = Broker(config, Ports(store=MemoryStore(MemoryTree())))
    await broker.start()
    return broker, Client(broker)


async def prepare(client: Client) -> None:
    """A topic with a record in each partition, and a coordinator."""
    created = create_topics.CreateTopicsRequest([create_topics.CreateTopicsRequestTopic(TOPIC, COUNT, 1)], 30_000)
    await client.ask(created, create_topics.CreateTopicsResponse, 5)
    request, response, version = produce_request()
    while True:
        answer = await client.ask(request, response, version)
        if not any(row.error_code for row in answer.responses[0].partition_responses):
            break
    wanted = find_coordinator.FindCoordinatorRequest("group-0")
    while (await client.ask(wanted, find_coordinator.FindCoordinatorResponse, 2)).error_code:
        await asyncio.sleep(0.01)


async def steps_of_requests(directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Steps]:
    broker, client = await serve(directory)
    found = {}
    try:
        await prepare(client)
        for name, make in REQUESTS.items():
            request, response, version = make()
            await client.ask(request, response, version)
            frame = client.frame(request, version)
            runs = []
            for _ in range(3):
                with counted_steps(monkeypatch) as steps:
                    await client.exchange(frame)
                runs.append(steps)
            # A job of the broker may have had a step in one of them.
            found[name] = min(runs, key=lambda steps: steps.largest)
    finally:
        client.close()
        await broker.stop()
    return found


def test_step_of_a_request_for_many_elements_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asyncio.run(steps_of_requests(tmp_path, monkeypatch))
    assert {name: steps.largest for name, steps in found.items() if steps.largest > MOST_CALLS * COUNT} == {}
    assert {name: steps.total for name, steps in found.items() if steps.total < LEAST_CALLS * COUNT} == {}
