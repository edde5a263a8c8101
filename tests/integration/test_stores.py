"""What every metadata store promises, asked of each: memory, SQLite (one and several processes), a real ZooKeeper."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.peers.zookeeper import ZooKeeper
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.ports.store import (
    BadVersion,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Put,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)
from tests.integration.store_worlds import SHORT_MS, World, eventually

Test = Callable[[World], Any]

# One ZooKeeper for all of these.
pytestmark = pytest.mark.xdist_group("stores")


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_ms=500, sync=False) as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    connect = request.getfixturevalue("zookeeper").connect if request.param == "zookeeper" else ""
    return World(request.param, tmp_path, connect)


# --- nodes ---


def test_creates_parents_and_reads(world: World) -> None:
    async def test(world: World) -> None:
        store = await world.open()
        await store.apply([Create("/a/b/c", b"x")])
        assert await store.get("/a/b/c") == Node(b"x", 0)
        assert await store.get("/a") == Node(b"", 0)
        assert await store.get("/a/z") is None
        assert await store.children("/a") == ["b"]
        assert await store.children("/") == ["a"]
        assert await store.children("/nothing") == []

    world.run(test)


def test_children_are_sorted_and_only_of_the_next_level(world: World) -> None:
    async def test(world: World) -> None:
        store = await world.open()
        await store.apply([Create(p, b"") for p in ("/t/b", "/t/a/deep", "/t-x", "/t/c", "/t0")])
        assert await store.children("/t") == ["a", "b", "c"]
        assert sorted(await store.subtree("/t")) == ["/t", "/t/a", "/t/a/deep", "/t/b", "/t/c"]
        assert await store.subtree("/nothing") == {}
        assert set(await store.subtree("/")) == {"/t", "/t/a", "/t/a/deep", "/t/b", "/t/c", "/t-x", "/t0"}

    world.run(test)


def test_many_children(world: World) -> None:
    async def test(world: World) -> None:
        store = await world.open()
        names = [f"{i:04}" for i in range(3000)]
        for at in range(0, len(names), 1000):
            await store.apply([Create(f"/topics/t/partitions/{n}/state", b"s" * 100) for n in names[at : at + 1000]])
        assert await store.children("/topics/t/partitions") == names
        found = await store.subtree("/topics")
        assert len(found) == 3 + 2 * len(names)
        assert found["/topics/t/partitions/2999/state"] == Node(b"s" * 100, 0)

    world.run(test)


def test_versions_grow_and_guard(world: World) -> None:
    async def test(world: World) -> None:
        store = await world.open()
        await store.apply([Create("/n", b"0")])
        await store.apply([Put("/n", b"1", 0)])
        await store.apply([Put("/n", b"2")])
        assert await store.get("/n") == Node(b"2", 2)
        with pytest.raises(BadVersion):
            await store.apply([Put("/n", b"3", 1)])
        with pytest.raises(BadVersion):
            await store.apply([Delete("/n", 0)])
        with pytest.raises(BadVersion):
            await store.apply([Check("/n", 1), Create("/never", b"")])
        await store.apply([Check("/n", 2), Create("/now", b"")])
        await store.apply([Delete("/n", 2)])
        assert await store.get("/n") is None
        await store.apply([Create("/n", b"again")])
        assert await store.get("/n") == Node(b"again", 0)

    world.run(test)


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (Create("/a", b""), NodeExists),
        (Create("/", b""), NodeExists),
        (Put("/missing", b""), NoNode),
        (Delete("/missing"), NoNode),
        (Check("/missing", 0), NoNode),
        (Delete("/a"), NotEmpty),
        (Create("no-slash", b""), StoreError),
        (Create("/a//b", b""), StoreError),
        (Create("/a/", b""), StoreError),
    ],
)
def test_a_rejected_operation_undoes_the_whole_transaction(
    world: World, operation: Operation, error: type[Exception]
) -> None:
    async def test(world: World) -> None:
        store = await world.open()
        await store.apply([Create("/a/b", b"b"), Create("/c", b"c")])
        before = await store.subtree("/")
        with pytest.raises(error):
            await store.apply(
                [Put("/a", b"new"), Create("/x/y", b""), Delete("/a/b"), Create("/a/b", b""), Delete("/c"), operation]
            )
        assert await store.subtree("/") == before

    world.run(test)


def test_one_of_several_who_want_the_same_gets_it(world: World) -> None:
    """As brokers do who want to be the controller: the node and the next epoch in one transaction."""

    async def test(world: World) -> None:
        stores = [await world.open() for _ in range(4)]
        await stores[0].apply([Create("/controller_epoch", b"0")])

        async def elect(store: Any) -> bool:
            try:
                await store.apply([Create("/controller", b"", ephemeral=True), Put("/controller_epoch", b"1", 0)])
            except (NodeExists, BadVersion):
                return False
            return True

        won = await asyncio.gather(*[elect(store) for store in stores])
        assert sorted(won) == [False, False, False, True]
        winner = stores[won.index(True)]
        assert (await stores[0].get("/controller")).session == winner.session
        assert await stores[0].get("/controller_epoch") == Node(b"1", 1)

    world.run(test)


def test_a_deposed_controller_writes_nothing(world: World) -> None:
    async def test(world: World) -> None:
        old, new = await world.open(), await world.open()
        await old.apply([Create("/controller_epoch", b"1"), Create("/topics/t", b"")])
        await old.apply([Check("/controller_epoch", 0), Put("/topics/t", b"by the old one")])
        await new.apply([Put("/controller_epoch", b"2", 0)])
        with pytest.raises(BadVersion):
            await old.apply([Check("/controller_epoch", 0), Put("/topics/t", b"too late")])
        assert (await new.get("/topics/t")).data == b"by the old one"

    world.run(test)


PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/d", "/d/e"])
VERSIONS = st.sampled_from([-1, 0, 1])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=2)),
    st.builds(Put, PATHS, st.binary(max_size=2), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
_roots = itertools.count()


@pytest.mark.parametrize("kind", ["sqlite", "zookeeper"])
@given(transactions=st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=10))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_all_stores_do_the_same(
    kind: str, zookeeper: ZooKeeper, tmp_path: Path, transactions: list[list[Operation]]
) -> None:
    directory = tmp_path / f"{tmp_path.name}-{next(_roots)}"
    directory.mkdir()

    async def test(world: World) -> None:
        memory, store = MemoryStore(), await world.open()
        assert memory.session == 1
        for operations in transactions:
            outcomes: list[type[StoreError] | None] = []
            for each in (memory, store):
                try:
                    await each.apply(operations)
                except StoreError as error:
                    outcomes.append(type(error))
                else:
                    outcomes.append(None)
            assert outcomes[0] == outcomes[1]
            found, expected = await store.subtree("/"), await memory.subtree("/")
            assert {p: n._replace(session=int(n.session == store.session)) for p, n in found.items()} == expected

    World(kind, directory, zookeeper.connect).run(test)


# --- sessions ---


def test_ephemeral_nodes_go_with_their_session(world: World) -> None:
    async def test(world: World) -> None:
        first, second = await world.open(), await world.open()
        await first.apply([Create("/ids/1", b"1", ephemeral=True)])
        await second.apply([Create("/ids/2", b"2", ephemeral=True)])
        assert await second.children("/ids") == ["1", "2"]
        assert await second.get("/ids/1") == Node(b"1", 0, first.session)
        assert (await first.subtree("/ids"))["/ids/2"] == Node(b"2", 0, second.session)
        with pytest.raises(StoreError):
            await second.apply([Create("/ids/2/below", b"")])
        await first.close()
        assert await second.children("/ids") == ["2"]
        third = await world.open()
        assert await third.children("/ids") == ["2"]
        assert third.session not in (first.session, second.session)

    world.run(test)


def test_persistent_nodes_survive(world: World) -> None:
    async def test(world: World) -> None:
        store = await world.open()
        await store.apply([Create("/a/b", b"\x00\xff"), Create("/e", b"", ephemeral=True)])
        await store.apply([Put("/a/b", b"\x00\xfe")])
        await store.close()
        again = await world.open()
        assert await again.get("/a/b") == Node(b"\x00\xfe", 1)
        assert await again.get("/e") is None

    world.run(test)


def test_a_closed_store_is_unavailable(world: World) -> None:
    async def test(world: World) -> None:
        store = await world.open()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.get("/a")
        with pytest.raises(StoreUnavailable):
            await store.apply([Create("/a", b"")])
        with pytest.raises(StoreUnavailable):
            await store.reopen()

    world.run(test)


def test_lost_session_is_reported_and_another_one_can_follow(world: World) -> None:
    async def test(world: World) -> None:
        store, other = await world.open(), await world.open()
        first = store.session
        lost: list[int] = []
        seen: list[str] = []
        store.watch_session(lambda: lost.append(store.session))
        store.watch("/ids", seen.append)
        await store.apply([Create("/ids/1", b"", ephemeral=True)])
        await world.take_session_from(store)
        await eventually(lambda: lost)
        assert lost == [first]
        for call in (store.get("/ids"), store.children("/"), store.subtree("/"), store.apply([Create("/late", b"")])):
            with pytest.raises(SessionExpired):
                await call
        assert await other.get("/ids/1") is None
        assert await other.get("/late") is None
        seen.clear()
        await store.reopen()
        assert store.session != first
        await eventually(lambda: "/ids" in seen)
        await store.apply([Create("/ids/1", b"again", ephemeral=True)])
        assert await other.get("/ids/1") == Node(b"again", 0, store.session)
        seen.clear()
        await other.apply([Create("/ids/2", b"", ephemeral=True)])
        await eventually(lambda: "/ids/2" in seen)
        assert lost == [first]

    world.run(test)


# --- watches ---


def test_watches_report_changes_of_the_node_and_below_it(world: World) -> None:
    async def test(world: World) -> None:
        store = await world.open()
        seen: list[str] = []
        stop = store.watch("/a", seen.append)
        await store.apply([Create("/a/b", b""), Create("/ab", b"")])
        await store.apply([Put("/a/b", b"1")])
        await eventually(lambda: set(seen) == {"/a", "/a/b"})
        seen.clear()
        with pytest.raises(NoNode):
            await store.apply([Put("/a/b", b"2"), Delete("/nothing")])
        stop()
        await store.apply([Delete("/a/b")])
        later: list[str] = []
        store.watch("/a", later.append)
        await store.apply([Put("/a", b"")])
        await eventually(lambda: "/a" in later)
        assert seen == []

    world.run(test)


def test_watches_report_changes_of_other_sessions(world: World) -> None:
    async def test(world: World) -> None:
        first, second = await world.open(), await world.open()
        seen: list[str] = []
        second.watch("/a", seen.append)
        # In the order of its own session: by its answer the watch is there, which another session's write may overtake.
        assert await second.get("/a") is None
        await first.apply([Create("/a/b", b"1")])
        await eventually(lambda: {"/a", "/a/b"} <= set(seen))
        seen.clear()
        # A change that a watch has reported is visible to its reader.
        data: list[Any] = []
        tasks: list[asyncio.Task[None]] = []

        async def read() -> None:
            data.append(await second.get("/a/b"))

        second.watch("/a/b", lambda _: tasks.append(asyncio.get_running_loop().create_task(read())))
        await first.apply([Put("/a/b", b"2")])
        await eventually(lambda: data)
        assert data[0] == Node(b"2", 1)
        await first.apply([Delete("/a/b")])
        await eventually(lambda: data[-1] is None)
        await asyncio.gather(*tasks)

    world.run(test)


def test_a_large_change_is_not_left_out(world: World) -> None:
    async def test(world: World) -> None:
        first, second = await world.open(), await world.open()
        seen: list[str] = []
        second.watch("/topics/t999", seen.append)
        assert await second.get("/topics/t999") is None
        await first.apply([Create(f"/topics/t{i}", b"") for i in range(1500)])
        await eventually(lambda: "/topics/t999" in seen)
        seen.clear()
        for i in range(500):
            await first.apply([Put("/topics/t1", str(i).encode())])
        await first.apply([Put("/topics/t999", b"x")])
        await eventually(lambda: "/topics/t999" in seen)

    world.run(test)


# --- processes ---


def test_a_killed_process_leaves_nothing_ephemeral(world: World) -> None:
    async def test(world: World) -> None:
        store, other = await world.open(), await world.open()
        seen: list[str] = []
        store.watch("/ids", seen.append)
        other.watch("/ids", seen.append)
        # By these answers the watches are there, which another session's write may overtake.
        assert await store.get("/ids") is await other.get("/ids") is None
        holder = await world.holder("/ids/1", world.timeouts_of_silence()[1])
        await eventually(lambda: seen.count("/ids/1") >= 2)
        assert await holder.write() == "ok"
        await eventually(lambda: seen.count("/ids/1") >= 4)
        assert (await store.get("/ids/1")).data == b"written"
        seen.clear()
        holder.kill()
        await eventually(lambda: seen.count("/ids/1") >= 2)
        assert await store.children("/ids") == []
        assert await other.children("/ids") == []

    world.run(test)


def test_a_stopped_process_loses_its_session_and_cannot_write(world: World) -> None:
    async def test(world: World) -> None:
        for_others, for_holder = world.timeouts_of_silence()
        store, other = await world.open(for_others), await world.open(for_others)
        seen: list[str] = []
        store.watch("/ids", seen.append)
        assert await store.get("/ids") is None
        holder = await world.holder("/ids/1", for_holder)
        await eventually(lambda: "/ids/1" in seen)
        seen.clear()
        assert await holder.write() == "ok"
        # Its own change is reported before it is stopped: the next event is its end.
        await eventually(lambda: "/ids/1" in seen)
        seen.clear()
        holder.stop()
        await eventually(lambda: seen)
        assert await store.children("/ids") == []
        # Somebody else takes its place meanwhile.
        await other.apply([Create("/ids/1", b"taken", ephemeral=True)])
        holder.resume()
        outcome = await holder.write()
        if outcome == "ConnectionLost":
            # The server has closed its connection, and it learns of the session only from the next one.
            outcome = await holder.write()
        assert outcome == "SessionExpired"
        assert await store.get("/ids/1") == Node(b"taken", 0, other.session)

    world.run(test)


def test_processes_that_live_keep_their_sessions(world: World) -> None:
    async def test(world: World) -> None:
        store = await world.open(SHORT_MS)
        holders = [await world.holder(f"/ids/{i}", SHORT_MS) for i in range(2)]
        lost: list[str] = []
        store.watch_session(lambda: lost.append("lost"))
        # Much longer than the session timeout, which is what this is about.
        await asyncio.sleep(2.5 * SHORT_MS / 1000 if world.kind != "memory" else 0.0)
        assert await store.children("/ids") == ["0", "1"]
        assert [await holder.write() for holder in holders] == ["ok", "ok"]
        assert lost == []

    world.run(test)
