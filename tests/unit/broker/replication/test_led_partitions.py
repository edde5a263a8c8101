"""Partitions that this broker leads for followers: the timer that looks at followers and their fetch sessions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.replication import led_partitions
from odradek.broker.replication.led_partitions import LedPartitions
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.ports.randomness import SeededRandom
from odradek.replication.replica_sessions import Follower, ReplicaSessions


def test_sessions_end_though_no_partition_is_led_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """They kept the partitions of deleted topics in memory."""
    monkeypatch.setattr(led_partitions, "_IDLE_SESSION_MS", 100)
    now_ms = 0

    async def scenario() -> None:
        nonlocal now_ms
        sessions = ReplicaSessions(SeededRandom("led"), now_ms=lambda: now_ms)
        partitions: Any = SimpleNamespace(opened=list)
        led = LedPartitions(1, partitions, sessions, lambda: now_ms, 2)
        before = ClusterImage()
        image = before.with_topic(Topic("t", b"t" * 16, (PartitionState(1, 0, (1, 2), (1, 2)),)))
        led.apply(before, image)
        sessions.continued(0, 0, Follower(2, 12))
        led.apply(image, image.without_topics(["t"]))
        assert len(sessions) == 1
        now_ms = 101
        async with asyncio.timeout(60):
            while len(sessions):
                await asyncio.sleep(0.001)
        assert led._tick is None, "nothing is left to look at"
        led.close()

    asyncio.run(scenario())
