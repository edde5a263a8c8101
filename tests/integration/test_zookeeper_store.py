"""The ZooKeeper store when servers come and go, and what only it has: a chroot, a limit of bytes, an ensemble."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.handlers.threading import SequentialThreadingHandler

from bench.peers.broker import BrokerError
from bench.peers.zookeeper import ZooKeeper
from odradek.metadata.stores.zookeeper_client import Handler
from odradek.metadata.stores.zookeeper_store import ZooKeeperStore, with_parents
from odradek.ports.disk import SystemDisk
from odradek.ports.store import (
    Check,
    ConnectionLost,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    StoreUnavailable,
    TransactionTooLarge,
)
from tests.integration.store_worlds import eventually
from tests.integration.waiting import until

pytestmark = pytest.mark.xdist_group("stores")


@asynccontextmanager
async def opened(connect: str, *, session_timeout_ms: int = 10_000) -> AsyncIterator[Any]:
    disk = SystemDisk()
    store = await ZooKeeperStore.open(connect, disk, session_timeout_ms=session_timeout_ms)
    try:
        yield store
    finally:
        await store.close()
        disk.close()


def test_what_creates_missing_parents() -> None:
    operations: list[Operation] = [Create("/a/b/c", b"1"), Delete("/a/b/c"), Create("/a/b/d", b""), Create("/x/y", b"")]
    plan = with_parents(operations, {"/"}, set())
    assert plan.unsure == {"/a/b", "/x"}
    plan = with_parents(operations, {"/", "/x"}, {"/a/b"})
    assert plan.unsure == {"/a"}
    plan = with_parents(operations, {"/", "/x"}, {"/a/b", "/a"})
    assert plan == ([Create("/a", b""), Create("/a/b", b""), *operations], [0, 1], set())
    # What is deleted before is missing, what lies below a new node cannot exist.
    again: list[Operation] = [Delete("/a"), Create("/a/b/c", b"")]
    assert with_parents(again, {"/", "/a", "/a/b"}, set()).operations == [Delete("/a"), Create("/a/b/c", b"")]
    assert with_parents(again, {"/", "/a"}, {"/a/b"}).operations == [
        Delete("/a"),
        Create("/a", b""),
        Create("/a/b", b""),
        Create("/a/b/c", b""),
    ]
    below_new = [Create("/n", b""), Create("/n/m/o", b"")]
    assert with_parents(below_new, {"/"}, set()) == ([below_new[0], Create("/n/m", b""), below_new[1]], [1], set())


def test_a_server_that_comes_back(tmp_path: Path) -> None:
    async def test(zookeeper: ZooKeeper) -> None:
        async with opened(f"{zookeeper.connect}/a/chroot") as store, opened(zookeeper.connect) as outside:
            session = store.session
            await store.apply([Create("/ids/1", b"", ephemeral=True), Create("/controller_epoch", b"1")])
            assert await outside.children("/a/chroot") == ["controller_epoch", "ids"]
            assert await outside.children("/") == ["a"]
            with pytest.raises(TransactionTooLarge):
                await store.apply([Put("/controller_epoch", bytes(store.max_transaction_bytes))])
            seen: list[str] = []
            lost: list[bool] = []
            store.watch("/", seen.append)
            store.watch_session(lambda: lost.append(True))
            # A request under way when the server dies has an unknown outcome.
            zookeeper.signal(0, signal.SIGSTOP)
            writing = asyncio.create_task(store.apply([Check("/controller_epoch", 0), Put("/controller_epoch", b"2")]))
            await asyncio.sleep(0.05)
            zookeeper.kill(0)
            with pytest.raises(ConnectionLost):
                await writing
            waiting = asyncio.create_task(store.apply([Create("/later", b"")]))
            zookeeper.start_server(0)
            # What is asked for meanwhile waits; the session and its nodes are still there, and all look again.
            await waiting
            await eventually(lambda: "/" in seen)
            assert (store.session, lost) == (session, [])
            assert await store.get("/ids/1") == Node(b"", 0, session)
            seen.clear()
            await outside.apply([Put("/a/chroot/later", b"x")])
            await eventually(lambda: "/later" in seen)

    with ZooKeeper(tmp_path, tick_ms=500) as zookeeper:
        asyncio.run(test(zookeeper))


def test_a_server_that_is_not_there() -> None:
    async def test() -> None:
        disk = SystemDisk()
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
            await ZooKeeperStore.open("127.0.0.1:1", disk, session_timeout_ms=1000, connection_timeout_ms=200)
        disk.close()

    asyncio.run(test())


@pytest.mark.parametrize(("session_seconds", "longest"), [(18, 6), (1, 1), (5, 2)])
def test_a_machine_that_is_dark_costs_a_part_of_the_session(
    monkeypatch: pytest.MonkeyPatch, session_seconds: float, longest: float
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(
        SequentialThreadingHandler, "create_connection", lambda _self, *_, timeout, **__: asked.append(timeout)
    )
    Handler(session_seconds, None).create_connection(address=("127.0.0.1", 1), timeout=session_seconds)
    assert asked == [longest]


def test_session_survives_a_server_that_accepts_and_never_answers(tmp_path: Path) -> None:
    """As one does that is about to start."""

    async def test(zookeeper: ZooKeeper) -> None:
        taken: list[asyncio.StreamWriter] = []
        forwarding: list[asyncio.Task[None]] = []

        async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65536):
                writer.write(data)
            writer.close()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken.append(writer)
            if len(taken) > 1:
                there = await asyncio.open_connection("127.0.0.1", zookeeper.ports[0])
                taken.append(there[1])
                forwarding.append(asyncio.create_task(forward(reader, there[1])))
                forwarding.append(asyncio.create_task(forward(there[0], writer)))

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        async with opened(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as store:
            await store.apply([Create("/a", b"1")])
            assert await store.get("/a") == Node(b"1", 0)
        await asyncio.gather(*forwarding)
        for writer in taken:
            writer.close()
        server.close()

    with ZooKeeper(tmp_path, tick_ms=500) as zookeeper:
        asyncio.run(test(zookeeper))


@pytest.mark.long
def test_the_leader_of_an_ensemble_dies(tmp_path: Path) -> None:
    async def test(zookeeper: ZooKeeper) -> None:
        async with opened(zookeeper.connect) as store, opened(zookeeper.connect) as other:
            await store.apply([Create("/n", b"0"), Create("/ids/1", b"", ephemeral=True)])
            seen: list[str] = []
            other.watch("/n", seen.append)
            written = unknown = 0
            for _ in range(3):
                leader = zookeeper.leader()
                assert leader is not None
                zookeeper.kill(leader)
                for _ in range(20):
                    node = await store.get("/n")
                    try:
                        await store.apply([Put("/n", str(written + 1).encode(), node.version)])
                    except ConnectionLost:
                        unknown += 1
                        written = int((await store.get("/n")).data)
                    else:
                        written += 1
                zookeeper.start_server(leader)
                zookeeper.wait_until_serving()
                seen.clear()
                await store.apply([Put("/n", str(written := written + 1).encode())])
                await eventually(lambda: seen)
            assert written >= 3 * 21 - unknown
            node = await store.get("/n")
            assert node.version == written == int(node.data)
            assert (await store.get("/ids/1")).session == store.session

    with ZooKeeper(tmp_path, 3, tick_ms=500) as zookeeper:
        asyncio.run(test(zookeeper))


def test_broker_waits_for_zookeeper_and_ends_on_a_signal(make_broker: Callable[..., Any], tmp_path: Path) -> None:
    with ZooKeeper(tmp_path / "zookeeper", tick_ms=500) as zookeeper:
        zookeeper.kill(0)
        settings = {"zookeeper.connect": zookeeper.connect, "zookeeper.connection.timeout.ms": 1000}
        broker = make_broker(settings)

        def notices() -> int:
            return int(broker.log_path.read_text().count("no session with ZooKeeper"))

        with ThreadPoolExecutor(1) as pool:
            starting = pool.submit(broker.start)
            until(broker.log_path.exists, "the broker starts")
            until(lambda: notices() == 1, "the wait is logged")
            os.kill(broker.pid, signal.SIGTERM)
            with pytest.raises(BrokerError):
                starting.result()
            starting = pool.submit(broker.start)
            until(
                lambda: broker.log_path.read_text().count("no session with ZooKeeper") > 1, "the wait is logged again"
            )
            zookeeper.start_server(0)
            starting.result()
        assert broker.stop() == 0
