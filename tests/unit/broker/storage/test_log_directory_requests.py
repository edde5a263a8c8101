"""DescribeLogDirs and AlterReplicaLogDirs on real log directories: sizes, lags, moves, and what is rejected."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.api.services.log_directory_service import ReplicaUsage
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.storage import log_directory_runtime
from odradek.broker.storage.log_directory_runtime import LogDirectoryRuntime
from odradek.broker.storage.partitions import Partitions
from odradek.broker.storage.replica_directories import ReplicaDirectories
from odradek.log.config import LogConfig
from odradek.log.directories.log_directories import LogDirectories
from odradek.log.directories.placed_logs import DirectorySettings
from odradek.metadata.image import ClusterImage
from odradek.ports.clock import SystemClock
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from odradek.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.storage.test_partitions import a_topic, image_with
from tests.unit.log.support import batch, put


class FullDisk(SystemDisk):
    """May not report the size of its file system."""

    unknown = False

    def free_bytes(self, path: str) -> tuple[int, int]:
        if self.unknown:
            raise OSError(5, "failed", path)
        return 30, 100


class Broker:
    """Log directories `a` and `b` with topic `t`; partition 0 is in `a` and has records."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.disk = FullDisk()
        self.cordoned: list[str] = []
        self.names = [str(root / "a"), str(root / "b")]
        self.directories = LogDirectories(
            self.disk,
            SystemClock(),
            SeededRandom("describe"),
            self.names,
            settings=DirectorySettings(cordoned=lambda: self.cordoned),
        )
        self.directories.startup.load(cluster_id="c", node_id=1)
        self.partitions = Partitions(1, ReplicaDirectories(1, self.directories), lambda _: LogConfig())
        self.image: ClusterImage = image_with(a_topic("t", b"t" * 16, 2))
        config = BrokerConfig({"node.id": "1"})
        self.runtime = LogDirectoryRuntime(
            config, self.partitions, self.directories, self.disk, lambda: self.image, lambda *_: None
        )

    async def start(self) -> Broker:
        self.directories.placement.prefer("t", 0, self.directories.directories[0])
        self.directories.placement.prefer("t", 1, self.directories.directories[1])
        self.partitions.apply(self.image)
        await self.partitions.change_directories()
        for _ in range(3):
            put(self.partitions.require("t", 0).log, batch(2))
        return self

    async def described(self, wanted: Any = None) -> list[list[ReplicaUsage]]:
        return [each.replicas for each in await self.runtime.describe(wanted)]


def run(root: Path, test: Callable[[Broker], Awaitable[None]]) -> None:
    async def scenario() -> None:
        broker = await Broker(root).start()
        try:
            async with asyncio.timeout(60):
                await test(broker)
        finally:
            await broker.runtime.stop()
            await broker.directories.close()

    asyncio.run(scenario())


def segment_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in path.glob("*.log"))


def test_directories_have_sizes_and_replicas(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        size = segment_bytes(tmp_path / "a" / "t-0")
        assert size > 0
        broker.cordoned = [broker.names[1]]
        first, second = await broker.runtime.describe(None)
        assert (first.path, first.is_offline, first.total_bytes, first.usable_bytes) == (
            broker.names[0],
            False,
            100,
            30,
        )
        assert (first.is_cordoned, second.is_cordoned) == (False, True)
        assert first.replicas == [ReplicaUsage("t", 0, size, 0, False)]
        assert second.replicas == [ReplicaUsage("t", 1, 0, 0, False)]
        wanted = {"t": frozenset({1, 7}), "missing": frozenset({0})}
        assert await broker.described(wanted) == [[], [ReplicaUsage("t", 1, 0, 0, False)]]
        assert await broker.described({}) == [[], []]
        broker.disk.unknown = True
        assert [(each.total_bytes, each.usable_bytes) for each in await broker.runtime.describe(None)] == [(-1, -1)] * 2

    run(tmp_path, test)


def test_unopened_replica_has_the_size_of_its_segments(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        size = segment_bytes(tmp_path / "a" / "t-0")
        await broker.directories.close()
        again = Broker(tmp_path)
        assert await again.described() == [[ReplicaUsage("t", 0, size, 0, False)], [ReplicaUsage("t", 1, 0, 0, False)]]
        (tmp_path / "a" / "t-0").rename(tmp_path / "elsewhere")
        assert (await again.described())[0] == [ReplicaUsage("t", 0, 0, 0, False)]

    run(tmp_path, test)


def test_failed_directory_is_described_without_replicas(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        broker.directories.directories[0].offline = "broken"
        first, second = await broker.runtime.describe(None)
        assert (first.is_offline, first.total_bytes, first.usable_bytes, first.replicas) == (True, -1, -1, [])
        assert (second.is_offline, len(second.replicas)) == (False, 1)
        for path in broker.names:
            with pytest.raises(KafkaError) as caught:
                broker.runtime.move(path, "t", 0)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, test)


def test_moved_replica_is_described_in_both_directories_until_it_took_over(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        partition = broker.partitions.require("t", 0)
        size = partition.log.size_bytes
        broker.runtime.move(broker.names[1], "t", 0)
        assert broker.runtime.wanted.is_set()
        own, other = ReplicaUsage("t", 0, size, 0, False), ReplicaUsage("t", 1, 0, 0, False)
        assert await broker.described() == [[own], [other, ReplicaUsage("t", 0, 0, 6, True)]]
        assert await broker.described({"t": frozenset({1})}) == [[], [other]]
        broker.runtime.start()
        while broker.directories.moves.under_way:
            await asyncio.sleep(0.001)
        while partition.log.directory != f"{broker.names[1]}/t-0":
            await asyncio.sleep(0.001)
        described = await broker.described()
        assert described[0] == []
        assert sorted(described[1]) == [own, other]
        put(partition.log, batch(2))
        assert segment_bytes(tmp_path / "b" / "t-0") == partition.log.size_bytes > size

    run(tmp_path, test)


@pytest.mark.parametrize("path", ["c", "b"], ids=["unknown", "cordoned"])
def test_move_is_rejected_for_a_directory_that_takes_no_replica(tmp_path: Path, path: str) -> None:
    async def test(broker: Broker) -> None:
        broker.cordoned = [broker.names[1]]
        with pytest.raises(KafkaError) as caught:
            broker.runtime.move(str(tmp_path / path), "t", 0)
        expected = ErrorCode.LOG_DIR_NOT_FOUND if path == "c" else ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert caught.value.code is expected
        assert not broker.directories.moves.under_way

    run(tmp_path, test)


def test_move_decides_where_a_replica_is_created_later(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        with pytest.raises(KafkaError):
            broker.runtime.move(broker.names[0], "later", 0)
        broker.directories.create("later", 0, b"l" * 16)
        assert (tmp_path / "a" / "later-0").is_dir()

    run(tmp_path, test)


def test_move_of_a_deleted_partition_is_cancelled(tmp_path: Path) -> None:
    async def test(broker: Broker) -> None:
        broker.runtime.move(broker.names[1], "t", 0)
        broker.image = ClusterImage()
        broker.partitions.apply(broker.image)
        broker.runtime.start()
        while broker.directories.moves.under_way:
            await asyncio.sleep(0.001)
        await broker.partitions.change_directories()
        assert broker.directories.partitions() == []

    run(tmp_path, test)


def test_move_continues_after_a_copy_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_directory_runtime, "RETRY_SECONDS", 0.001)

    async def test(broker: Broker) -> None:
        copy, tries = type(broker.directories.moves).copy, 0

        async def failing(moves: Any, log: Any) -> int:
            nonlocal tries
            tries += 1
            if tries <= 2:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no descriptor")
            return await copy(moves, log)

        monkeypatch.setattr(type(broker.directories.moves), "copy", failing)
        broker.runtime.move(broker.names[1], "t", 0)
        broker.runtime.start()
        while broker.directories.moves.under_way:
            await asyncio.sleep(0.001)
        assert (tmp_path / "b" / "t-0").is_dir()

    run(tmp_path, test)
