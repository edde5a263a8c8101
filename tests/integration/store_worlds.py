"""Metadata stores to test with: sessions in this process, and processes that hold a session until they are killed.

As a script it is such a process: `python store_worlds.py KIND TARGET NODE SESSION_TIMEOUT_MS`. It registers NODE as
ephemeral, then writes to it for every line it reads, and prints what came of it.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.metadata.stores.sqlite_store import SqliteStore
from odradek.ports.disk import SystemDisk
from odradek.ports.store import Create, MetadataStore, Put, StoreError

LONG_MS = 10_000
"""The timeout of sessions that are not to end by it, however long this process waits for its turn."""
SHORT_MS = 2000
_CONNECTION_TIMEOUT_MS = 10_000


async def eventually(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait until the condition (a function or coroutine function) holds."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)


async def open_store(kind: str, target: str, disk: SystemDisk, session_timeout_ms: int) -> MetadataStore:
    if kind == "sqlite":
        return await SqliteStore.open(target, disk, session_timeout_ms=session_timeout_ms)
    from odradek.metadata.stores.zookeeper_store import ZooKeeperStore

    return await ZooKeeperStore.open(
        target, disk, session_timeout_ms=session_timeout_ms, connection_timeout_ms=_CONNECTION_TIMEOUT_MS
    )


class MemoryHolder:
    """What is a process with other stores."""

    def __init__(self, tree: MemoryTree, node: str) -> None:
        self._store = MemoryStore(tree)
        self._node = node

    async def start(self) -> None:
        await self._store.apply([Create(self._node, b"", ephemeral=True)])

    async def write(self) -> str:
        try:
            await self._store.apply([Put(self._node, b"written")])
        except StoreError as error:
            return type(error).__name__
        return "ok"

    def kill(self) -> None:
        self._store.expire()

    def stop(self) -> None:
        self._store.expire()

    def resume(self) -> None:
        return


class ProcessHolder:
    """A process with a session and an ephemeral node."""

    def __init__(self, kind: str, target: str, node: str, session_timeout_ms: int) -> None:
        self._command = [sys.executable, __file__, kind, target, node, str(session_timeout_ms)]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        self._process = self._spawn()
        assert await self._line() == "registered"

    def _spawn(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    async def _line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        return (await asyncio.get_running_loop().run_in_executor(None, self._process.stdout.readline)).decode().strip()

    async def write(self) -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(b"write\n")
        self._process.stdin.flush()
        return await self._line()

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.kill()

    def stop(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)


class World:
    """One store and those who use it in a test."""

    def __init__(self, kind: str, directory: Path, zookeeper: str) -> None:
        self.kind = kind
        self._tree = MemoryTree()
        self._target = f"{zookeeper}/{directory.name}" if kind == "zookeeper" else str(directory / "metadata.db")
        self._disk = SystemDisk()
        self._sessions: list[MetadataStore] = []
        self._holders: list[MemoryHolder | ProcessHolder] = []

    async def open(self, session_timeout_ms: int = LONG_MS) -> Any:
        session = MemoryStore(self._tree) if self.kind == "memory" else await self._open(session_timeout_ms)
        self._sessions.append(session)
        return session

    async def _open(self, session_timeout_ms: int) -> MetadataStore:
        return await open_store(self.kind, self._target, self._disk, session_timeout_ms)

    def timeouts_of_silence(self) -> tuple[int, int]:
        """The session timeouts of those who are to notice soon that a holder is silent, and of that holder.

        ZooKeeper goes by the holder's own; processes with SQLite judge each other, each by its own.
        """
        return (SHORT_MS, LONG_MS) if self.kind == "sqlite" else (LONG_MS, SHORT_MS)

    async def holder(self, node: str, session_timeout_ms: int = LONG_MS) -> MemoryHolder | ProcessHolder:
        holder: MemoryHolder | ProcessHolder
        if self.kind == "memory":
            holder = MemoryHolder(self._tree, node)
        else:
            holder = ProcessHolder(self.kind, self._target, node, session_timeout_ms)
        self._holders.append(holder)
        await holder.start()
        return holder

    async def take_session_from(self, session: Any) -> None:
        """Another client ends it, as happens to one that is silent."""
        if self.kind == "memory":
            session.expire()
        elif self.kind == "sqlite":
            from odradek.metadata.stores.sqlite_tree import SqliteTree

            tree = SqliteTree.open(self._target)
            tree.end_session(session.session)
            tree.close()
        else:
            from kazoo.client import KazooClient

            # Whoever shows the password of a session may end it, unless its owner is back before him.
            wanted = session._client.client_id
            found = wanted[0]
            while found == wanted[0]:
                thief = KazooClient(self._target.partition("/")[0], client_id=wanted)
                await self._disk.run("thief", thief.start)
                found = thief.client_id[0]
                await self._disk.run("thief", thief.stop)
                await self._disk.run("thief", thief.close)

    def run(self, test: Callable[[World], Any]) -> None:
        async def main() -> None:
            try:
                await test(self)
            finally:
                for holder in self._holders:
                    holder.kill()
                for session in self._sessions:
                    await session.close()
                self._disk.close()

        asyncio.run(main())


async def hold(kind: str, target: str, node: str, session_timeout_ms: str) -> None:
    store = await open_store(kind, target, SystemDisk(), int(session_timeout_ms))
    await store.apply([Create(node, b"", ephemeral=True)])
    print("registered", flush=True)
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        try:
            await store.apply([Put(node, b"written")])
        except StoreError as error:
            print(type(error).__name__, flush=True)
        else:
            print("ok", flush=True)


if __name__ == "__main__":
    asyncio.run(hold(*sys.argv[1:5]))
