"""The source files that one warm request enters in the broker, in order: `./dev run python -m bench.request_ways`.

Two brokers in this process share a metadata store in memory; a client runs in a thread. A profile function notes each
function whose code runs in the context of the request: from its dispatch to its answer, tasks and callbacks that it
starts included, on whichever of the two brokers. Python function calls are counted too, so that two versions can be
compared while the machine is busy. Generated codecs count as one file.

Two numbers are shown. *Entered* are all files whose code runs. *To read* are those that a reader opens who follows the
request. These are without

- implementations of ports (a clock that is read, a file that is written, the metadata store in memory) and the
  primitive types of the protocol: their names say what they do;
- files in which the request enters only plain functions that lead to no other file: a getter, a default, the
  constructor of a record.

Work that belongs to something else is counted apart: a Produce that a follower's fetch completes counts for Produce.
What a new cluster image has for effects (on partitions, groups, fetchers, other brokers) is a way of its own, which
begins at `Controller._publish`, and where a broker learns from the store that a configuration has changed: it is the
same whatever has changed.
"""

from __future__ import annotations

import ast
import asyncio
import contextvars
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import odradek
from odradek.broker.cluster.controller import Controller
from odradek.broker.cluster.stored_configs import StoredConfigs
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.network.connection import Pending
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.ports import Ports
from odradek.client.consumer.consumer import Consumer
from odradek.client.network.connection import open_connection
from odradek.client.producer.producer import Producer
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.network import TcpNetwork
from odradek.replication.delayed_produce import DelayedProduce
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
    "image": "Effects of the new cluster image at the controller",
}
MEETS = {"replica fetch": "replication/followers.py", "FETCH": "log/reader.py"}
"""A file that a request of the kind must have entered: without it a fetch had nothing to report or to read."""
OUTSIDE = ("ports/", "metadata/stores/", "wire/primitives.py")
"""What a reader takes for granted: implementations of ports, and primitive types."""
PLAIN_STATEMENTS = 3
"""Statements of a function that need not be read, since its name says what it does."""
WARM = 5
"""Requests of a kind that are left out: they load modules and open logs."""

_request: contextvars.ContextVar[_Way | None] = contextvars.ContextVar("request", default=None)


class _Way:
    """What one request enters."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, set[CodeType]] = {}
        """The functions entered, by file."""
        self.leading: set[str] = set()
        """Files with a function that has called another file."""
        self.calls = 0
        self.is_answered = False

    def files_to_read(self) -> list[str]:
        """The files that a reader opens, in order."""
        return [
            name
            for name, functions in self.files.items()
            if not name.startswith(OUTSIDE)
            and (name in self.leading or not all(_is_plain(function) for function in functions))
        ]


_ways: dict[str, list[_Way]] = {}


def _file_of(code: CodeType) -> str | None:
    """The module relative to the package; None outside of it."""
    if not code.co_filename.startswith(str(ROOT)):
        return None
    name = Path(code.co_filename).relative_to(ROOT).as_posix()
    return "wire/messages/*" if name.startswith("wire/messages/") else name


def _note(frame: FrameType, event: str, _argument: object) -> None:
    if event != "call":
        return
    way = _request.get()
    if way is None or way.is_answered:
        return
    name = _file_of(frame.f_code)
    if name is None:
        return
    way.calls += 1
    way.files.setdefault(name, set()).add(frame.f_code)
    caller = None if frame.f_back is None else _file_of(frame.f_back.f_code)
    if caller is not None and caller != name and not name.startswith(OUTSIDE):
        way.leading.add(caller)


@cache
def _functions(path: str) -> dict[tuple[str, int], ast.AST]:
    """The functions of a file by name and first line."""
    found: dict[tuple[str, int], ast.AST] = {}
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = [node.lineno, *(decorator.lineno for decorator in node.decorator_list)]
            found[node.name, min(lines)] = node
        elif isinstance(node, ast.Lambda):
            found["<lambda>", node.lineno] = node
    return found


def _is_plain(code: CodeType) -> bool:
    """Whether a function only assigns attributes, or has a few statements without branches and loops."""
    node = _functions(code.co_filename).get((code.co_name, code.co_firstlineno))
    if isinstance(node, ast.Lambda):
        return True
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False  # a comprehension, or the body of a module
    body = [each for each in node.body if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))]
    if node.name == "__init__":
        return all(isinstance(each, ast.Assign | ast.AnnAssign) for each in body)
    branches = (ast.If, ast.For, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match, ast.FunctionDef, ast.IfExp)
    return len(body) <= PLAIN_STATEMENTS and not any(
        isinstance(each, branches) for each in ast.walk(node) if each is not node
    )


def _watch_dispatch() -> None:
    serve: Callable[..., Any] = Dispatcher.__call__

    def watched(self: Any, frame: memoryview, connection: Any) -> Any:
        key, _, _, client_id, _ = parse_request_header(frame)
        name = "replica fetch" if key == ApiKey.FETCH and "-fetcher-" in (client_id or "") else ApiKey(key).name
        if key == ApiKey.ENVELOPE and _ways.get("CREATE_TOPICS"):
            way, is_own = _ways["CREATE_TOPICS"][-1], False
        elif (outer := _request.get()) is not None and not outer.is_answered and name == outer.name:
            way, is_own = outer, False
        else:
            way, is_own = _Way(name), True
            _ways.setdefault(name, []).append(way)
        token = _request.set(way)
        try:
            answer = serve(self, frame, connection)
        finally:
            _request.reset(token)
        if is_own and isinstance(answer, Pending) and not answer.ready:
            _answered_by[id(answer)] = way
        elif is_own:
            way.is_answered = True
        return answer

    Dispatcher.__call__ = watched  # type: ignore[method-assign]
    answer_later: Callable[..., None] = Pending.answer

    def answered(self: Any, parts: Any) -> None:
        answer_later(self, parts)
        way = _answered_by.pop(id(self), None)
        if way is not None:
            way.is_answered = True

    Pending.answer = answered  # type: ignore[method-assign]


_answered_by: dict[int, _Way] = {}
"""Requests that are answered later, by the id of the place of their answer."""


def _watch_others() -> None:
    """Let completed Produces and effects of an image count for their own ways."""
    begin: Callable[..., None] = DelayedProduce.__init__
    release: Callable[..., None] = DelayedProduce._released
    owners: dict[int, _Way | None] = {}

    def begun(self: Any, *arguments: Any) -> None:
        owners[id(self)] = _request.get()
        begin(self, *arguments)

    def released(self: Any, *arguments: Any) -> None:
        token = _request.set(owners.get(id(self)))
        try:
            release(self, *arguments)
        finally:
            _request.reset(token)

    DelayedProduce.__init__ = begun  # type: ignore[method-assign, assignment]
    DelayedProduce._released = released  # type: ignore[method-assign, assignment]
    publish: Callable[..., Any] = Controller._publish
    read_configs: Callable[..., None] = StoredConfigs._config_changed
    images: dict[_Way, _Way] = {}

    def image_way() -> _Way | None:
        way = _request.get()
        if way is None or way.name != "CREATE_TOPICS":
            return way
        if way not in images:
            images[way] = _Way("image")
            _ways.setdefault("image", []).append(images[way])
        return images[way]

    async def published(self: Any, *arguments: Any) -> None:
        token = _request.set(image_way())
        try:
            await publish(self, *arguments)
        finally:
            _request.reset(token)

    def configs_changed(self: Any, path: str = "") -> None:
        token = _request.set(image_way())
        try:
            read_configs(self, path)
        finally:
            _request.reset(token)

    Controller._publish = published  # type: ignore[method-assign, assignment]
    StoredConfigs._config_changed = configs_changed  # type: ignore[method-assign, assignment]


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
        ways = [way for way in _ways.get(name, []) if way.files and (way.is_answered or name == "image")][WARM:]
        ways = [way for way in ways if MEETS.get(name, next(iter(way.files))) in way.files]
        if not ways:
            print(f"{title}: no warm request was seen")
            continue
        # Of the warm ones the shortest: others were joined by a retry, a timer or a slow disk.
        way = min(ways, key=lambda each: (len(each.files_to_read()), len(each.files), each.calls))
        read = way.files_to_read()
        print(f"{title}: {len(read)} files to read of {len(way.files)} entered, {way.calls} calls")
        print("  " + " → ".join(read))
        print("  entered besides: " + ", ".join(name for name in way.files if name not in read))


if __name__ == "__main__":
    _watch_dispatch()
    _watch_others()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(folder))
    _report()
