"""The source files that one warm request enters in the broker, in order: `./dev run python -m bench.request_ways`.

Two brokers in this process share a metadata store in memory; a client runs in a thread. A profile function notes each
file whose code runs in the context of the request: from its dispatch to its answer, tasks and callbacks that it starts
included, on whichever of the two brokers. Python function calls are counted too, so that two versions can be compared
while the machine is busy. Generated codecs count as one file.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import odradek
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.ports import Ports
from odradek.client.connection import open_connection
from odradek.client.consumer import Consumer
from odradek.client.producer import Producer
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.network import TcpNetwork
from odradek.wire.apis import ApiKey
from odradek.wire.headers import parse_request_header
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic, CreateTopicsResponse

ROOT = Path(odradek.__file__).parent
SHOWN = {
    "PRODUCE": "Produce, acks=all",
    "FETCH": "Fetch of a consumer",
    "HEARTBEAT": "Heartbeat",
    "replica fetch": "Fetch of a follower",
    "CREATE_TOPICS": "CreateTopics at a broker that is not the controller, with the controller's part",
}
WARM = 5
"""Requests of a kind that are left out: they load modules and open logs."""

_request: contextvars.ContextVar[_Way | None] = contextvars.ContextVar("request", default=None)


class _Way:
    """What one request enters."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, None] = {}
        self.calls = 0


_ways: dict[str, list[_Way]] = {}


def _note(frame: FrameType, event: str, _argument: object) -> None:
    if event != "call":
        return
    way = _request.get()
    path = frame.f_code.co_filename
    if way is not None and path.startswith(str(ROOT)):
        way.calls += 1
        name = Path(path).relative_to(ROOT).as_posix()
        way.files["wire/messages/*" if name.startswith("wire/messages/") else name] = None


def _watch_dispatch() -> None:
    serve: Callable[..., Any] = Dispatcher.__call__

    def watched(self: Any, frame: memoryview, connection: Any) -> Any:
        key, _, _, client_id, _ = parse_request_header(frame)
        name = "replica fetch" if key == ApiKey.FETCH and "-fetcher-" in (client_id or "") else ApiKey(key).name
        outer = _request.get()
        way = outer if key == ApiKey.ENVELOPE and outer is not None else _Way(name)
        if key == ApiKey.ENVELOPE and _ways.get("CREATE_TOPICS"):
            way = _ways["CREATE_TOPICS"][-1]
        elif way is not outer:
            _ways.setdefault(name, []).append(way)
        token = _request.set(way)
        try:
            return serve(self, frame, connection)
        finally:
            _request.reset(token)

    Dispatcher.__call__ = watched  # type: ignore[method-assign]


async def _run(folder: str) -> None:
    tree = MemoryTree()
    brokers = []
    for node_id in (1, 2):
        settings = {
            "node.id": str(node_id),
            "log.dirs": f"{folder}/{node_id}",
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "default.replication.factor": "2",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        brokers.append(Broker(BrokerConfig(settings), Ports(store=MemoryStore(tree))))
        await brokers[-1].start()
    addresses = [broker.bound for broker in brokers]
    sys.setprofile(_note)
    try:
        await asyncio.to_thread(asyncio.run, _work(addresses))
    finally:
        sys.setprofile(None)
    for broker in reversed(brokers):
        await broker.stop()


async def _work(addresses: list[str]) -> None:
    """Send each kind of request a few times, CreateTopics to the broker that is not the controller."""
    host, port = addresses[1].rsplit(":", 1)
    connection = await open_connection(
        TcpNetwork(), host, int(port), client_id="ways", setup_timeout_ms=10_000, request_timeout_ms=10_000
    )
    for number in range(WARM + 2):
        wanted = CreateTopicsRequestTopic(f"made-{number}", 1, 2 if number == 1 else 1)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=10_000)
        await connection.request(request, CreateTopicsResponse, 7, 10_000)
    async with (
        Producer(bootstrap_servers=addresses, acks="all", linger_ms=0) as producer,
        Consumer("made-0", bootstrap_servers=addresses, group_id="ways", heartbeat_interval_ms=50,
                 auto_offset_reset="earliest") as consumer,
    ):  # fmt: skip
        for _ in range(WARM + 5):
            await producer.send_and_wait("made-0", b"value")
            await consumer.poll(timeout_ms=1000)
            await producer.send_and_wait("made-1", b"value")
            await asyncio.sleep(0.1)
        for _ in range(2 * WARM):
            # No fetch waits for this topic, which an append would answer.
            await producer.send_and_wait("made-2", b"value")
    connection.close()


def _report() -> None:
    for name, title in SHOWN.items():
        ways = [way for way in _ways.get(name, []) if way.files][WARM:]
        if not ways:
            print(f"{title}: no warm request was seen")
            continue
        # Of the warm ones the shortest: others were joined by a retry, a timer or a slow disk.
        way = min(ways, key=lambda each: (len(each.files), each.calls))
        print(f"{title}: {len(way.files)} files, {way.calls} calls")
        print("  " + " → ".join(way.files))


if __name__ == "__main__":
    _watch_dispatch()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(folder))
    _report()
