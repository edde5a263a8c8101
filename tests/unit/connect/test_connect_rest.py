"""The REST interface of a worker without brokers: connectors that are stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.connect.connector import Connector
from odradek.connect.errors import ConnectError
from odradek.connect.model import Kind, State, Target
from odradek.connect.rest import build
from odradek.connect.worker import Worker, WorkerSettings


@pytest.fixture
def worker() -> Worker:
    """A worker without connectors."""
    return Worker(WorkerSettings({"bootstrap_servers": "127.0.0.1:1"}))


@pytest.fixture
def rest(worker: Worker) -> Iterator[TestClient]:
    """A client of the worker."""
    with TestClient(build(worker, frozenset()), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def config(tmp_path: Path) -> dict[str, str]:
    """The configuration of a connector."""
    return {"connector.class": "FileStreamSource", "topic": "lines", "file": f"{tmp_path}/in.txt"}


def test_location_of_a_new_connector_has_its_name_in_ascii(rest: TestClient, config: dict[str, str]) -> None:
    made = rest.post("/connectors", json={"name": "データ 1", "config": config, "initial_state": "STOPPED"})
    assert made.status_code == 201
    assert made.headers["location"] == "/connectors/%E3%83%87%E3%83%BC%E3%82%BF%201"
    assert rest.get(made.headers["location"]).json()["name"] == "データ 1"


@pytest.mark.parametrize(("state", "status"), [("stopped", 201), ("Paused", 201), ("gone", 400), (5, 400)])
def test_initial_state_is_read_as_by_kafka_connect(
    rest: TestClient, config: dict[str, str], state: Any, status: int
) -> None:
    """The case does not matter."""
    made = rest.post("/connectors", json={"name": "lines", "config": config, "initial_state": state})
    assert made.status_code == status
    if status == 201:
        assert rest.get("/connectors/lines/status").json()["connector"]["state"] == state.upper()


def test_status_shows_a_failure_with_text_that_is_no_unicode(worker: Worker, rest: TestClient) -> None:
    async def fail(_task: int, _count: int, _stopping: asyncio.Event) -> None:
        raise ConnectError("field \ud800")

    async def start() -> None:
        connector = Connector("lines", Kind.SOURCE, {}, Target.STARTED, "127.0.0.1:8083")
        worker.connectors["lines"] = connector
        connector.start(1, fail)
        while connector.tasks[0].state is State.RUNNING:
            await asyncio.sleep(0)

    asyncio.run(start())
    (task,) = rest.get("/connectors/lines/status").json()["tasks"]
    assert task["state"] == "FAILED"
    assert "field \ud800" in task["trace"]
