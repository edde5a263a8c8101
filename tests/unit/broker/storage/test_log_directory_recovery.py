"""The checks of logs after an unclean stop, in the background: order, retries, and who learns of each."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.storage import log_directory_runtime
from odradek.broker.storage.log_directory_runtime import LogDirectoryRuntime
from odradek.metadata.image import ClusterImage, PartitionState, Topic


class Recovery:
    """Logs that were not closed; a check may fail for now, as without descriptors."""

    def __init__(self, *pending: tuple[str, int]) -> None:
        self.pending = list(pending)
        self.fails = 0
        self.tried: list[tuple[str, int]] = []
        self.persisted = asyncio.Event()

    def unrecovered(self) -> list[tuple[str, int]]:
        return list(self.pending)

    async def recover(self, topic: str, partition: int, settings: object, lane: int) -> bool:
        self.tried.append((topic, partition))
        if self.fails:
            self.fails -= 1
            return False
        self.pending.remove((topic, partition))
        return True

    async def persist(self, _: object) -> None:
        self.persisted.set()


def recover(recovery: Recovery, known: Collection[str]) -> list[tuple[str, int]]:
    """Run the checks to their end; `known` are topics. The partitions that `on_recovered` was called with."""

    async def scenario() -> list[tuple[str, int]]:
        image = ClusterImage()
        led = PartitionState(1, 0, (1,), (1,))
        for name in ("a", "__consumer_offsets"):
            image = image.with_topic(Topic(name, name.encode()[:16].ljust(16, b"-"), (led, led)))
        directories = SimpleNamespace(
            placement=SimpleNamespace(cordoned=None),
            recovery=recovery,
            checkpoints=recovery,
            moves=SimpleNamespace(under_way={}),
        )
        partitions = SimpleNamespace(settings_of=lambda topic: {} if topic in known else None)
        config = BrokerConfig({"node.id": "1", "num.recovery.threads.per.data.dir": "1"})
        recovered: list[tuple[str, int]] = []
        runtime = LogDirectoryRuntime(
            config,
            cast("Any", partitions),
            cast("Any", directories),
            cast("Any", None),
            lambda: image,
            lambda topic, partition: recovered.append((topic, partition)),
        )
        runtime.start()
        async with asyncio.timeout(60):
            await recovery.persisted.wait()
        await runtime.stop()
        return recovered

    return asyncio.run(scenario())


def test_every_recovered_partition_is_reported() -> None:
    """Coordinators load their partition then: without the report, its groups would stay without one."""
    recovery = Recovery(("a", 0), ("a", 1))
    assert recover(recovery, ["a"]) == [("a", 0), ("a", 1)]


def test_logs_of_coordinators_are_recovered_first() -> None:
    recovery = Recovery(("a", 0), ("__consumer_offsets", 1))
    assert recover(recovery, ["a", "__consumer_offsets"]) == [("__consumer_offsets", 1), ("a", 0)]


def test_log_that_cannot_be_checked_yet_is_checked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_directory_runtime, "RETRY_SECONDS", 0.001)
    recovery = Recovery(("a", 0), ("a", 1))
    recovery.fails = 3
    assert sorted(recover(recovery, ["a"])) == [("a", 0), ("a", 1)]
    assert len(recovery.tried) == 5


def test_log_of_an_unknown_topic_is_not_checked() -> None:
    recovery = Recovery(("gone", 0), ("a", 0))
    assert recover(recovery, ["a"]) == [("a", 0)]
    assert recovery.tried == [("a", 0)]


def test_log_whose_topic_is_deleted_meanwhile_is_not_checked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery would not end, and a crash later have all logs checked again."""
    monkeypatch.setattr(log_directory_runtime, "RETRY_SECONDS", 0.001)
    known = ["gone", "a"]

    class Deleting(Recovery):
        async def recover(self, topic: str, partition: int, settings: object, lane: int) -> bool:
            if topic == "gone":
                known.remove("gone")
                self.fails = 1
            return await super().recover(topic, partition, settings, lane)

    recovery = Deleting(("gone", 0), ("a", 0))
    recovery.pending.reverse()
    assert recover(recovery, known) == [("a", 0)]
    assert recovery.pending == [("gone", 0)]
    assert recovery.tried == [("a", 0), ("gone", 0)]
