"""The worker of connectors, without brokers."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import AsyncMock

import pytest

from odradek.connect.connector import Connector
from odradek.connect.errors import ConfigInvalid, ConnectError
from odradek.connect.model import Kind, State, Target
from odradek.connect.worker import Worker, WorkerSettings


async def run_nothing(_task: int, _count: int, _stopping: asyncio.Event) -> None:
    return


def worker_with(target: Target) -> Worker:
    """A worker with one connector, whose configuration has become invalid."""
    worker = Worker(WorkerSettings({}))
    connector = Connector("orders", Kind.SINK, {"name": "orders", "connector.class": "Gone"}, target, "127.0.0.1:8083")
    worker.connectors["orders"] = connector
    connector.start(1, run_nothing)
    return worker


def test_restart_of_a_paused_task_does_not_read_the_configuration() -> None:
    async def body() -> State:
        worker = worker_with(Target.PAUSED)
        await worker.restart_task("orders", 0)
        return worker.find("orders").tasks[0].state

    assert asyncio.run(body()) is State.PAUSED


def test_restart_of_a_started_task_is_rejected_with_a_wrong_configuration() -> None:
    async def body() -> None:
        await worker_with(Target.STARTED).restart_task("orders", 0)

    with pytest.raises(ConfigInvalid, match="Gone"):
        asyncio.run(body())


def test_changes_of_one_connector_come_one_after_another() -> None:
    """A change that begins when an earlier one has ended waits for those that waited before."""

    async def body() -> tuple[int, int]:
        worker = Worker(WorkerSettings({}))
        at_work = most = 0

        async def change(turns_before: int) -> None:
            nonlocal at_work, most
            for _ in range(turns_before):
                await asyncio.sleep(0)
            async with worker._turn("orders"):
                at_work += 1
                most = max(most, at_work)
                for _ in range(3):
                    await asyncio.sleep(0)
                at_work -= 1

        await asyncio.gather(*(change(turns) for turns in range(12)))
        return most, len(worker._turns)

    assert asyncio.run(body()) == (1, 0)


def test_dead_letters_are_written_with_the_options_of_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []

    def producer(**options: Any) -> None:
        asked.append(options)
        raise ConnectError("enough")

    async def body() -> None:
        worker = Worker(WorkerSettings({"bootstrap_servers": "127.0.0.1:1"}))
        monkeypatch.setattr(worker, "_remove_members", AsyncMock())
        config = {
            "connector.class": "HttpSink",
            "topics": "orders",
            "http.url": "http://h/",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": "bad",
            "producer.override.compression.type": "zstd",
        }
        connector = await worker.create("orders", config)
        while connector.tasks[0].state is State.RUNNING:
            await asyncio.sleep(0)

    monkeypatch.setattr("odradek.connect.worker.Producer", producer)
    asyncio.run(body())
    assert asked == [{"bootstrap_servers": "127.0.0.1:1", "compression_type": "zstd"}]
