"""Several sessions on one SQLite file: which are notified, which are treated as dead."""

import asyncio
import errno
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from odradek.metadata.stores import sqlite_neighbours
from odradek.metadata.stores.sqlite_neighbours import Neighbours
from odradek.metadata.stores.sqlite_store import SqliteStore
from odradek.metadata.stores.sqlite_tree import NEWS_KEPT, SqliteTree, lease_path
from odradek.ports import liveness
from odradek.ports.disk import SystemDisk
from odradek.ports.liveness import Lease, Peer, is_abandoned, renewed_at
from odradek.ports.store import Create, Node, Put, SessionExpired, StoreUnavailable
from tests.integration.store_worlds import eventually

Test = Callable[[str, SystemDisk], Awaitable[None]]


def run(directory: Path, test: Test) -> None:
    async def main() -> None:
        disk = SystemDisk()
        await test(str(directory / "metadata.db"), disk)
        disk.close()

    asyncio.run(main())


def test_session_that_missed_too_much_learns_that_all_may_have_changed(tmp_path: Path) -> None:
    async def test(path: str, disk: SystemDisk) -> None:
        first, second = await SqliteStore.open(path, disk), await SqliteStore.open(path, disk)
        seen: list[str] = []
        second.watch("/never/written", seen.append)
        # In one go, so that the second has no turn in between.
        tree = SqliteTree.open(path)
        for i in range(NEWS_KEPT // 200 + 2):
            tree.write(first.session, [Create(f"/n/{i}-{j}", b"") for j in range(200)])
        tree.close()
        await first.apply([Put("/n", b"")])
        await eventually(lambda: seen)
        assert set(seen) == {"/never/written"}
        assert sqlite3.connect(path).execute("SELECT count(*) FROM changes").fetchone()[0] <= NEWS_KEPT
        await first.close()
        await second.close()

    run(tmp_path, test)


def test_a_session_that_a_full_disk_did_not_let_begin_can_begin_later(tmp_path: Path) -> None:
    class FullDisk:
        def __init__(self, inner: sqlite3.Connection) -> None:
            self.inner = inner
            self.full = True

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def execute(self, query: str, *parameters: tuple[object, ...]) -> sqlite3.Cursor:
            if query == "COMMIT" and self.full:
                self.full = False
                raise sqlite3.OperationalError("database or disk is full")
            return self.inner.execute(query, *parameters)

    path = str(tmp_path / "metadata.db")
    tree = SqliteTree.open(path)
    tree._writer = FullDisk(tree._writer)  # type: ignore[assignment]
    with pytest.raises(sqlite3.OperationalError):
        tree.begin_session(0.0)
    assert not list(tmp_path.glob("*.session.*"))
    opened = tree.begin_session(0.0)
    assert (opened.session, opened.outcome.others) == (1, [])
    opened.lease.end()
    tree.close()


def test_a_lone_session_writes_no_news(tmp_path: Path) -> None:
    async def test(path: str, disk: SystemDisk) -> None:
        store = await SqliteStore.open(path, disk)
        await store.apply([Create("/a", b"")])
        assert sqlite3.connect(path).execute("SELECT count(*) FROM changes").fetchone()[0] == 0
        await store.close()

    run(tmp_path, test)


def test_a_store_of_the_format_before_is_taken_over(tmp_path: Path) -> None:
    async def test(path: str, disk: SystemDisk) -> None:
        old = sqlite3.connect(path)
        old.executescript("""
            CREATE TABLE nodes (path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL,
                version INTEGER NOT NULL, session INTEGER NOT NULL) WITHOUT ROWID;
            CREATE TABLE sessions (id INTEGER PRIMARY KEY AUTOINCREMENT);
            INSERT INTO sessions VALUES (7);
            INSERT INTO nodes VALUES ('/kept', '/', 'x', 3, 0), ('/ids', '/', '', 0, 0), ('/ids/1', '/ids', '', 0, 7);
            PRAGMA user_version = 1;
        """)
        old.close()
        store = await SqliteStore.open(path, disk)
        assert store.session == 8
        assert await store.children("/ids") == []
        assert (await store.get("/kept") or Node(b"", 0)).version == 3
        await store.close()

    run(tmp_path, test)


def test_a_store_of_a_later_format_is_left_alone(tmp_path: Path) -> None:
    async def test(path: str, disk: SystemDisk) -> None:
        later = sqlite3.connect(path)
        later.execute("PRAGMA user_version = 99")
        later.close()
        with pytest.raises(StoreUnavailable, match="newer version"):
            await SqliteStore.open(path, disk)

    run(tmp_path, test)


def test_a_write_finds_out_that_the_session_is_over(tmp_path: Path) -> None:
    """Even if this process was not notified yet."""

    async def test(path: str, disk: SystemDisk) -> None:
        store = await SqliteStore.open(path, disk)
        lost: list[bool] = []
        store.watch_session(lambda: lost.append(True))
        tree = SqliteTree.open(path)
        tree.end_session(store.session)
        with pytest.raises(SessionExpired):
            await store.apply([Create("/late", b"")])
        assert lost == [True]
        tree.close()
        await store.reopen()
        assert await store.get("/late") is None
        await store.close()

    run(tmp_path, test)


def test_change_is_reported_even_if_no_caller_waits_for_it(tmp_path: Path) -> None:
    async def test(path: str, disk: SystemDisk) -> None:
        first, second = await SqliteStore.open(path, disk), await SqliteStore.open(path, disk)
        seen: list[str] = []
        second.watch("/a", seen.append)
        written = False
        while not written:
            # It takes effect if the thread has begun with it.
            writing = asyncio.get_running_loop().create_task(first.apply([Create("/a", b"")]))
            await asyncio.sleep(0)
            writing.cancel()
            await disk.run("metadata", lambda: None)
            written = await first.get("/a") is not None
        await eventually(lambda: seen == ["/a"])
        await first.close()
        await second.close()

    run(tmp_path, test)


def test_session_news_are_kept_when_descriptors_are_exhausted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(path: str, disk: SystemDisk) -> None:
        first = await SqliteStore.open(path, disk, session_timeout_ms=300)
        seen: list[str] = []
        first.watch("/ids", seen.append)

        def refuse(_path: str, _now: float) -> Peer:
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patch:
            second = await SqliteStore.open(path, disk)
            tree = SqliteTree.open(path)
            tree.write(second.session, [Create("/ids/2", b"", ephemeral=True)])
            patch.setattr(sqlite_neighbours, "Peer", refuse)
            first._news()
            assert set(seen) == {"/ids", "/ids/2"}
            await first.apply([Put("/ids", b"")])
            await eventually(lambda: "/ids" in seen[2:])
        # It is not woken, yet it looks after the other one as soon as it can.
        await eventually(lambda: second.session in first._neighbours._peers)
        tree.close()
        await second.close()
        await first.close()

    run(tmp_path, test)


def test_who_had_no_descriptor_to_wake_another_one_with_does_so_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(path: str, disk: SystemDisk) -> None:
        first = await SqliteStore.open(path, disk)
        seen: list[str] = []
        first.watch("/ids", seen.append)

        def refuse(_path: str, _now: float) -> Peer:
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(sqlite_neighbours, "Peer", refuse)
            second = await SqliteStore.open(path, disk, session_timeout_ms=300)
            await second.apply([Create("/ids/2", b"", ephemeral=True)])
        await eventually(lambda: "/ids/2" in seen)
        await second.close()
        await first.close()

    run(tmp_path, test)


def test_processes_that_create_the_file_at_once(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys; from odradek.metadata.stores.sqlite_store import SqliteStore;"
        "from odradek.ports.disk import SystemDisk; from odradek.ports.store import Create\n"
        "async def main():\n"
        "    print('here', flush=True); sys.stdin.readline()\n"
        "    store = await SqliteStore.open(sys.argv[1], SystemDisk())\n"
        "    await store.apply([Create('/ids/' + sys.argv[2], b'', ephemeral=True)])\n"
        "    print('open', flush=True); sys.stdin.readline(); await store.close()\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "metadata.db")]
    processes = [
        subprocess.Popen([*command, str(i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) for i in range(3)
    ]
    try:
        for expected in (b"here\n", b"open\n", b""):
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == expected
            for process in processes:
                assert process.stdin is not None
                if expected:
                    process.stdin.write(b"\n")
        assert [process.wait() for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            with process:
                process.kill()
    # Of connections that are closed at one moment none may be the last one, which removes SQLite's own files.
    last = sqlite3.connect(tmp_path / "metadata.db")
    assert last.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
    last.close()
    assert [path.name for path in tmp_path.iterdir()] == ["metadata.db"]


def test_lease_shows_whether_its_process_lives(tmp_path: Path) -> None:
    async def test(path: str, _: SystemDisk) -> None:
        loop = asyncio.get_running_loop()
        lease = Lease(path, 1.5)
        assert not is_abandoned(path)
        assert renewed_at(path) == 1.5
        with pytest.raises(BlockingIOError):
            Lease(path, 2.0)
        events: list[str] = []
        lease.listen(loop, lambda: events.append("woken"))
        peer = Peer(path, 10.0)
        peer.watch(loop, lambda: events.append("died"))
        peer.wake()
        await eventually(lambda: events == ["woken"])
        lease.renew(2.5)
        peer.look(11.0)
        assert (peer.stamp, peer.since) == (2.5, 11.0)
        peer.look(12.0)
        assert peer.since == 11.0
        lease.abandon()
        await eventually(lambda: events == ["woken", "died"])
        assert is_abandoned(path)
        peer.wake()
        peer.close()
        with pytest.raises(ProcessLookupError):
            Peer(path, 13.0)

    run(tmp_path, test)


class FakeLoop:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timer: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, due: float, callback: Callable[[], None]) -> "FakeLoop":
        self.timer = (due, callback)
        return self

    def cancel(self) -> None:
        self.timer = None

    def add_reader(self, *_: object) -> None:
        return

    def remove_reader(self, *_: object) -> None:
        return

    def run_to(self, now: float) -> None:
        while self.timer is not None and self.timer[0] <= now:
            due, callback = self.timer
            self.timer, self.now = None, max(self.now, due)
            callback()
        self.now = now

    def jump_to(self, now: float) -> None:
        """As a process that was stopped until then."""
        self.now = now
        self.run_to(now)


@pytest.fixture
def neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FakeLoop, Neighbours, Lease, list[int]]:
    """Session 1, which observes, with a timeout of 9 s, and the lease of session 2."""
    loop, silent = FakeLoop(), list[int]()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    path = str(tmp_path / "metadata.db")
    observer = Neighbours(path, 9.0, lambda: None, lambda _: None, lambda session, _: silent.append(session))
    observer.begin(1, Lease(lease_path(path, 1), loop.now))
    other = Lease(lease_path(path, 2), loop.now)
    observer.update([1, 2])
    return loop, observer, other, silent


def test_who_is_silent_for_the_timeout_is_found(neighbours: tuple[FakeLoop, Neighbours, Lease, list[int]]) -> None:
    loop, observer, other, silent = neighbours
    for at in (103.0, 106.0):
        loop.run_to(at)
        other.renew(at)
    loop.run_to(114.9)
    assert silent == []
    loop.run_to(115.1)
    assert silent == [2]
    observer.end()
    other.end()


def test_renewed_session_is_not_ended_before_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same clock in both processes, however late the observer looks."""
    loop, silent = FakeLoop(), list[float]()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    path = str(tmp_path / "metadata.db")
    first = Neighbours(path, 9.0, lambda: None, lambda _: None, lambda *_: None)
    first.begin(1, Lease(lease_path(path, 1), loop.now))
    second = Neighbours(path, 9.0, lambda: None, lambda _: None, lambda *_: silent.append(loop.now))
    second.begin(2, Lease(lease_path(path, 2), loop.now))
    second.update([1, 2])
    loop.run_to(104.5)
    until = first.renew()
    assert until == 113.5
    loop.run_to(until - 0.01)
    assert silent == []
    loop.run_to(until)
    assert silent == [until]
    first.end()
    second.end()


def test_session_that_cannot_be_renewed_lasts_from_its_last_renewal(
    neighbours: tuple[FakeLoop, Neighbours, Lease, list[int]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_lease: Lease, _now: float) -> None:
        raise OSError(errno.EIO, "broken")

    loop, observer, other, _ = neighbours
    loop.run_to(101.0)
    assert observer.renew() == 110.0
    monkeypatch.setattr(Lease, "renew", fail)
    loop.now = 102.0
    assert observer.renew() == 110.0
    assert "cannot renew the lease" in caplog.text
    observer.end()
    other.end()


def test_lease_is_renewed_again_after_a_failed_renewal(
    neighbours: tuple[FakeLoop, Neighbours, Lease, list[int]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_lease: Lease, _now: float) -> None:
        raise OSError(errno.EIO, "broken")

    loop, observer, other, silent = neighbours
    with monkeypatch.context() as patch:
        patch.setattr(Lease, "renew", fail)
        loop.run_to(104.0)
    loop.run_to(120.0)
    assert (renewed_at(lease_path(str(tmp_path / "metadata.db"), 1)) or 0.0) >= 117.0
    assert set(silent) == {2}, "the other one is looked after as well"
    observer.end()
    other.end()


def test_stopped_process_does_not_mistake_others_for_silent(
    neighbours: tuple[FakeLoop, Neighbours, Lease, list[int]],
) -> None:
    loop, observer, other, silent = neighbours
    loop.run_to(104.0)
    loop.jump_to(1000.0)
    assert silent == []
    # The other one was stopped, too, and has had no time yet to renew.
    loop.run_to(1003.0)
    other.renew(1003.0)
    loop.run_to(1011.0)
    assert silent == []
    loop.run_to(1012.5)
    assert silent == [2]
    observer.end()
    other.end()


def test_session_continues_without_a_descriptor_to_look_with(
    neighbours: tuple[FakeLoop, Neighbours, Lease, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, observer, other, silent = neighbours

    def refuse(_path: str) -> float:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(liveness, "renewed_at", refuse)
        loop.run_to(120.0)
        assert silent == [], "no session was seen to be silent"
    assert loop.timer is not None, "and this one's lease is renewed on"
    loop.run_to(135.0)
    assert set(silent) == {2}
    observer.end()
    other.end()


def test_a_session_without_neighbours_has_no_timer(
    neighbours: tuple[FakeLoop, Neighbours, Lease, list[int]],
) -> None:
    loop, observer, other, _ = neighbours
    assert loop.timer is not None
    observer.update([1])
    assert loop.timer is None
    observer.end()
    other.end()
