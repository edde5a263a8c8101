"""What every metadata store promises, asked of each of them."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.metadata.memory_store import MemoryStore, MemoryTree
from odradek.metadata.sqlite_store import SqliteStore
from odradek.ports.disk import SystemDisk
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

Open = Callable[[], Awaitable[Any]]


@pytest.fixture(params=["memory", "sqlite"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Runs a coroutine function with a function that opens sessions on one and the same content."""
    tree = MemoryTree()

    def run(test: Callable[[Open], Awaitable[None]]) -> None:
        async def main() -> None:
            disk = SystemDisk()
            sessions: list[Any] = []

            async def open_session() -> Any:
                if request.param == "memory":
                    session: Any = MemoryStore(tree)
                else:
                    session = await SqliteStore.open(str(tmp_path / "metadata.db"), disk)
                sessions.append(session)
                return session

            try:
                await test(open_session)
            finally:
                for session in sessions:
                    await session.close()
                disk.close()

        asyncio.run(main())

    return run


def test_creates_parents_and_reads(opened: Any) -> None:
    async def test(open_session: Open) -> None:
        store = await open_session()
        await store.apply([Create("/a/b/c", b"x")])
        assert await store.get("/a/b/c") == Node(b"x", 0)
        assert await store.get("/a") == Node(b"", 0)
        assert await store.get("/a/z") is None
        assert await store.children("/a") == ["b"]
        assert await store.children("/") == ["a"]
        assert await store.children("/nothing") == []

    opened(test)


def test_children_are_sorted_and_only_of_the_next_level(opened: Any) -> None:
    async def test(open_session: Open) -> None:
        store = await open_session()
        await store.apply([Create(p, b"") for p in ("/t/b", "/t/a/deep", "/t-x", "/t/c", "/t0")])
        assert await store.children("/t") == ["a", "b", "c"]
        assert sorted(await store.subtree("/t")) == ["/t", "/t/a", "/t/a/deep", "/t/b", "/t/c"]
        assert await store.subtree("/nothing") == {}
        assert set(await store.subtree("/")) == {"/t", "/t/a", "/t/a/deep", "/t/b", "/t/c", "/t-x", "/t0"}

    opened(test)


def test_versions_grow_and_guard(opened: Any) -> None:
    async def test(open_session: Open) -> None:
        store = await open_session()
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

    opened(test)


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
def test_a_refused_operation_undoes_the_whole_transaction(
    opened: Any, operation: Operation, error: type[Exception]
) -> None:
    async def test(open_session: Open) -> None:
        store = await open_session()
        await store.apply([Create("/a/b", b"b"), Create("/c", b"c")])
        before = await store.subtree("/")
        with pytest.raises(error):
            await store.apply(
                [Put("/a", b"new"), Create("/x/y", b""), Delete("/a/b"), Create("/a/b", b""), Delete("/c"), operation]
            )
        assert await store.subtree("/") == before

    opened(test)


def test_ephemeral_nodes_go_with_their_session(opened: Any) -> None:
    async def test(open_session: Open) -> None:
        first, second = await open_session(), await open_session()
        await first.apply([Create("/ids/1", b"1", ephemeral=True)])
        await second.apply([Create("/ids/2", b"2", ephemeral=True)])
        assert await second.children("/ids") == ["1", "2"]
        with pytest.raises(StoreError):
            await second.apply([Create("/ids/2/below", b"")])
        await first.close()
        assert await second.children("/ids") == ["2"]
        third = await open_session()
        assert await third.children("/ids") == ["2"]

    opened(test)


def test_sessions_see_each_other(opened: Any) -> None:
    async def test(open_session: Open) -> None:
        first, second = await open_session(), await open_session()
        await first.apply([Create("/n", b"1")])
        await second.apply([Put("/n", b"2", 0)])
        assert await first.get("/n") == Node(b"2", 1)

    opened(test)


def test_watches_tell_of_the_node_and_what_is_below(opened: Any) -> None:
    async def test(open_session: Open) -> None:
        store = await open_session()
        seen: list[str] = []
        stop = store.watch("/a", seen.append)
        await store.apply([Create("/a/b", b""), Create("/ab", b"")])
        await store.apply([Put("/a/b", b"1")])
        assert set(seen) == {"/a", "/a/b"}
        seen.clear()
        with pytest.raises(NoNode):
            await store.apply([Put("/a/b", b"2"), Delete("/nothing")])
        assert seen == []
        stop()
        await store.apply([Delete("/a/b")])
        assert seen == []

    opened(test)


def test_a_closed_store_is_unavailable(opened: Any) -> None:
    async def test(open_session: Open) -> None:
        store = await open_session()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await store.get("/a")
        with pytest.raises(StoreUnavailable):
            await store.apply([Create("/a", b"")])

    opened(test)


def test_persistent_nodes_survive(opened: Any) -> None:
    async def test(open_session: Open) -> None:
        store = await open_session()
        await store.apply([Create("/a/b", b"\x00\xff"), Create("/e", b"", ephemeral=True)])
        await store.apply([Put("/a/b", b"\x00\xfe")])
        await store.close()
        again = await open_session()
        assert await again.get("/a/b") == Node(b"\x00\xfe", 1)
        assert await again.get("/e") is None

    opened(test)


def test_a_memory_session_expires() -> None:
    async def test() -> None:
        tree = MemoryTree()
        first, second = MemoryStore(tree), MemoryStore(tree)
        seen: list[str] = []
        second.watch("/ids", seen.append)
        await first.apply([Create("/ids/1", b"", ephemeral=True)])
        seen.clear()
        first.expire()
        assert await second.children("/ids") == []
        assert seen == ["/ids/1"]
        with pytest.raises(SessionExpired):
            await first.get("/ids")

    asyncio.run(test())


def test_what_a_dead_process_left_is_buried_at_open(tmp_path: Path) -> None:
    async def test() -> None:
        disk = SystemDisk()
        path = str(tmp_path / "metadata.db")
        dead = await SqliteStore.open(path, disk)
        await dead.apply([Create("/ids/1", b"", ephemeral=True), Create("/kept", b"")])
        dead.abandon()  # the process ends without a word: connections and lock go, rows stay
        heir = await SqliteStore.open(path, disk)
        assert await heir.children("/ids") == []
        assert await heir.get("/kept") is not None
        assert [name for name in disk.list(str(tmp_path)) if "session" in name] == [
            f"metadata.db.session.2{suffix}" for suffix in ("", ".life", ".wake")
        ]
        await heir.close()
        assert [name for name in disk.list(str(tmp_path)) if "session" in name] == []
        disk.close()

    asyncio.run(test())


def test_a_killed_process_leaves_what_it_wrote_and_nothing_ephemeral(tmp_path: Path) -> None:
    path = str(tmp_path / "metadata.db")
    code = (
        "import asyncio, sys; from odradek.metadata.sqlite_store import SqliteStore;"
        "from odradek.ports.disk import SystemDisk; from odradek.ports.store import Create\n"
        "async def main():\n"
        "    store = await SqliteStore.open(sys.argv[1], SystemDisk())\n"
        "    await store.apply([Create('/kept', b'1'), Create('/ids/1', b'', ephemeral=True)])\n"
        "    print('written', flush=True); sys.stdin.read()\n"
        "asyncio.run(main())"
    )
    process = subprocess.Popen([sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None

    async def look() -> tuple[Node | None, list[str]]:
        disk = SystemDisk()
        store = await SqliteStore.open(path, disk)
        found = await store.get("/kept"), await store.children("/ids")
        await store.close()
        disk.close()
        return found

    with process:
        assert process.stdout.readline() == b"written\n"
        assert asyncio.run(look()) == (Node(b"1", 0), ["1"])
        process.kill()
        process.wait()
    assert asyncio.run(look()) == (Node(b"1", 0), [])


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        disk = SystemDisk()
        path = tmp_path / "metadata.db"
        path.write_bytes(b"not a database at all" * 100)
        with pytest.raises(StoreUnavailable, match=r"metadata\.db"):
            await SqliteStore.open(str(path), disk)
        with pytest.raises(StoreUnavailable, match="missing"):
            await SqliteStore.open(str(tmp_path / "missing" / "metadata.db"), disk)
        disk.close()

    asyncio.run(test())


PATHS = st.sampled_from(["/a", "/a/b", "/a/b/c", "/d", "/d/e"])
VERSIONS = st.sampled_from([-1, 0, 1])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=2)),
    st.builds(Put, PATHS, st.binary(max_size=2), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


@given(st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=12))
@settings(max_examples=25, deadline=None)
def test_both_stores_do_the_same(transactions: list[list[Operation]]) -> None:
    async def test(directory: Path) -> None:
        disk = SystemDisk()
        memory = MemoryStore()
        sqlite = await SqliteStore.open(str(directory / "metadata.db"), disk)
        for operations in transactions:
            outcomes = []
            for store in (memory, sqlite):
                try:
                    await store.apply(operations)
                except StoreError as error:
                    outcomes.append(type(error))
                else:
                    outcomes.append(None)
            assert outcomes[0] == outcomes[1]
            assert await memory.subtree("/") == await sqlite.subtree("/")
        await sqlite.close()
        disk.close()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(test(Path(directory)))
