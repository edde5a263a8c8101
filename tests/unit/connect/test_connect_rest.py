"""The REST interface of a worker without brokers: connectors that are stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.connect.rest import build
from odradek.connect.worker import Worker, WorkerSettings


@pytest.fixture
def rest() -> Iterator[TestClient]:
    """A client of a worker without connectors."""
    worker = Worker(WorkerSettings({"bootstrap_servers": "127.0.0.1:1"}))
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
