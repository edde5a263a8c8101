"""The worker of connectors, without brokers."""

from __future__ import annotations

import asyncio

import pytest

from odradek.connect.connector import Connector
from odradek.connect.errors import ConfigInvalid
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
