"""What only one of the embedded stores does; what all promise is asked of them in the integration tests."""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.metadata.stores.sqlite_store import SqliteStore
from odradek.ports.disk import SystemDisk
from odradek.ports.store import (
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    SessionExpired,
    StoreError,
    StoreUnavailable,
)


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
        "import asyncio, sys; from odradek.metadata.stores.sqlite_store import SqliteStore;"
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
            outcomes: list[type[StoreError] | None] = []
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
