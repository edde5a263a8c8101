"""A broker that cannot start, or not leave, does not stand in the way of the next attempt."""

import asyncio
import logging
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.broker.cluster import stored_configs
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.opening import StoreMetadata
from odradek.broker.ports import Ports
from odradek.broker.start_error import StartError
from odradek.log.directories.checkpoint_formats import CLEAN_SHUTDOWN
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.ports.store import Node, StoreUnavailable
from tests.unit.broker.cluster.cluster_members import DyingStore

_ANY_PORT = {"listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "1"}


def _broker(directory: Path, port: int, **settings: str) -> Broker:
    return Broker(
        BrokerConfig(
            {"log.dirs": str(directory), "listeners": f"PLAINTEXT://127.0.0.1:{port}", "node.id": "1"} | settings
        )
    )


def _left(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if ".session." in path.name]


def test_a_port_in_use_leaves_the_directory_free(tmp_path: Path) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            with pytest.raises(StartError, match="in use"):
                await _broker(tmp_path, taken.getsockname()[1]).start()
        assert _left(tmp_path) == []
        # In the same process, whose locks would still be held.
        broker = _broker(tmp_path, 0)
        await broker.start()
        await broker.stop()
        assert _left(tmp_path) == []

    asyncio.run(test())


def test_a_node_id_of_another_leaves_the_directory_free(tmp_path: Path) -> None:
    async def test() -> None:
        broker = _broker(tmp_path, 0)
        await broker.start()
        await broker.stop()
        with pytest.raises(StartError, match="node"):
            await _broker(tmp_path, 0, **{"node.id": "2"}).start()
        assert _left(tmp_path) == []
        again = _broker(tmp_path, 0)
        await again.start()
        await again.stop()

    asyncio.run(test())


def test_a_zookeeper_that_is_not_there_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{unused.getsockname()[1]}"
            with pytest.raises(StartError, match=address) as raised:
                await _broker(
                    tmp_path,
                    0,
                    **{
                        "zookeeper.connect": address,
                        "zookeeper.connection.timeout.ms": "200",
                        "odradek.zookeeper.wait.ms": "0",
                    },
                ).start()
        assert not raised.value.misconfigured
        broker = _broker(tmp_path, 0)
        await broker.start()
        await broker.stop()

    asyncio.run(test())


def test_a_broker_that_did_not_start_reads_no_configurations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it was reading them when the start failed, and could not to the end."""
    monkeypatch.setattr(stored_configs, "_AGAIN_SECONDS", 0.0)

    async def test() -> None:
        tree = MemoryTree()
        first = Broker(BrokerConfig({"log.dirs": str(tmp_path / "a"), **_ANY_PORT}), Ports(store=MemoryStore(tree)))
        await first.start()
        store = DyingStore(MemoryStore(tree))
        read, reads, failed = store.subtree, list[str](), asyncio.Event()

        async def subtree(path: str) -> Mapping[str, Node]:
            reads.append(path)
            if reads.count(path) > 1:
                await failed.wait()
            return await read(path)

        store.subtree = subtree  # type: ignore[assignment]
        second = Broker(BrokerConfig({"log.dirs": str(tmp_path / "b"), **_ANY_PORT}), Ports(store=store))
        with pytest.raises(StartError, match="registered by another") as raised:
            await second.start()
        assert raised.value.misconfigured
        count = len(reads)
        failed.set()
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(reads) == count
        await first.stop()

    asyncio.run(test())


def test_a_store_that_does_not_answer_when_a_broker_leaves_is_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        store = DyingStore(MemoryStore(MemoryTree()))
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), **_ANY_PORT}), Ports(store=store))
        await broker.start()
        store.failure = StoreUnavailable("no response")
        await broker.stop()
        again = _broker(tmp_path, 0)
        await again.start()
        await again.stop()

    asyncio.run(test())
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert ["stops: no response" in record.getMessage() for record in warnings] == [True]
    assert warnings[0].exc_info is None


@pytest.mark.parametrize("reads", [0, 1, 2])
def test_session_that_ends_before_the_registration_is_reopened(tmp_path: Path, reads: int) -> None:
    """A machine that is suspended, or a store that thinks so: the first registration does not need that session."""

    async def test() -> None:
        store = DyingStore(MemoryStore(MemoryTree()))
        read, left = store.get, reads

        async def get(path: str) -> Node | None:
            nonlocal left
            if not left:
                store.inner.expire()
            left -= 1
            return await read(path)

        store.get = get  # type: ignore[assignment]
        broker = Broker(BrokerConfig({"log.dirs": str(tmp_path), **_ANY_PORT}), Ports(store=store))
        await broker.start()
        await broker.stop()

    asyncio.run(test())


def test_logs_are_closed_although_the_metadata_log_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_metadata: StoreMetadata) -> None:
        raise OSError(5, "Input/output error")

    async def test() -> None:
        broker = _broker(tmp_path, 0)
        await broker.start()
        monkeypatch.setattr(StoreMetadata, "close", fail)
        await broker.stop()

    asyncio.run(test())
    assert (tmp_path / CLEAN_SHUTDOWN).exists()
    assert "cannot close the metadata log: [Errno 5] Input/output error" in caplog.text
