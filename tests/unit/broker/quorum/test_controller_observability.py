"""Metrics, health and slow requests of a controller that is no broker."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from odradek.broker.observability.controller_health import quorum_problems
from odradek.broker.observability.health import Severity
from odradek.broker.observability.quorum_metrics import QuorumFigures
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.broker.start_error import StartError
from tests.unit.broker.quorum.controllers_in_process import Quorum, add_broker, quorum, until
from tests.unit.broker.quorum.test_quorum_controllers import create

HTTP = {
    "controllers:odradek.http.listener": "127.0.0.1:0",
    "controllers:odradek.slow.request.ms": "0",
    "controller.quorum.fetch.timeout.ms": "600",
}


async def get(node: ControllerNode, path: str) -> str:
    observability = node.parts.observability
    assert observability is not None

    def ask() -> str:
        try:
            with urlopen(f"http://{observability.listener.address}{path}", timeout=10) as answer:
                return str(answer.read().decode())
        except HTTPError as error:
            return error.read().decode()

    return await asyncio.to_thread(ask)


async def figures(node: ControllerNode) -> dict[str, float]:
    lines = [line for line in (await get(node, "/metrics")).splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def problems(node: ControllerNode) -> dict[str, dict[str, Any]]:
    document = json.loads(await get(node, "/health"))
    return {each["check"]: each for each in document["problems"]}


def test_controller_serves_metrics_of_its_quorum(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, 3, settings=HTTP) as running:
            leader = running.active
            await add_broker(leader)
            assert await create(leader, "orders") is None
            own = leader.parts.replica.leader.leader_id
            replica = leader.parts.replica
            await until(lambda: replica.known_high_watermark == replica.machine.quorum.log.end_offset)
            found = await figures(leader)
            raft = "kafka_server_raftmetrics_"
            assert found[f'{raft}current_state{{current_state="leader"}}'] == 1
            assert found[f"{raft}current_leader"] == own
            assert found[f"{raft}current_epoch"] == replica.leader.epoch
            assert found[f"{raft}high_watermark"] == found[f"{raft}log_end_offset"] > 1
            assert found[f"{raft}number_of_voters"] == 3
            assert found["odradek_quorum_uncommitted_records"] == 0
            assert found["odradek_quorum_elections_total"] >= 1
            assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 1
            assert found["kafka_controller_kafkacontroller_activebrokercount"] == 1
            assert found["kafka_controller_kafkacontroller_globaltopiccount"] == 1
            assert found["kafka_server_kafkaserver_brokerstate"] == 3
            others = [each for node, each in running.controllers.items() if node != own]
            found = await figures(others[0])
            assert found["kafka_controller_kafkacontroller_activecontrollercount"] == 0
            assert found[f"{raft}current_leader"] == own

    with caplog.at_level(logging.INFO, "odradek.requests.slow"):
        asyncio.run(scenario())
    assert "BeginQuorumEpoch" in caplog.text


def test_health_names_absent_controllers_and_a_missing_majority(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with quorum(tmp_path, 3, settings=HTTP) as running:
            leader = running.active
            own = leader.parts.replica.leader.leader_id
            state = leader.parts.state
            await until(lambda: not state.figures().absent)
            assert await problems(leader) == {}
            assert await get(leader, "/ready") == "ready\n"
            first, second = (node for node in running.ports if node != own)
            await running.stop(first)
            await until(lambda: state.figures().absent == (first,))
            found = await problems(leader)
            assert found["absent controllers"]["examples"] == [f"controller {first}"]
            assert found["absent controllers"]["severity"] == "warning"
            await running.stop(second)
            await until(lambda: state.figures().high_watermark < 0)
            assert (await problems(leader))["quorum"]["severity"] == "critical"

    asyncio.run(scenario())


def test_quorum_in_order_has_no_problem() -> None:
    found = QuorumFigures("leader", 1, 1, 3, 10, 10, 3, 10, 3, 0, (), 1, 5.0, 5.0)
    assert list(quorum_problems(found)) == []
    assert [each.severity for each in quorum_problems(found._replace(high_watermark=-1))] == [Severity.CRITICAL]
    assert [each.number for each in quorum_problems(found._replace(absent=(2, 3)))] == [2]


def test_controller_does_not_start_where_its_http_address_is_in_use(tmp_path: Path) -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        running = Quorum(tmp_path, 1, {"odradek.http.listener": f"127.0.0.1:{port}"})
        with pytest.raises(StartError, match="the address is in use"):
            await ControllerNode(running.config(100)).start()
        server.close()

    asyncio.run(scenario())
