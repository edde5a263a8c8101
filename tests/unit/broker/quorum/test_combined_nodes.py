"""Brokers that are controllers, too (`process.roles=broker,controller`): three nodes make a cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.broker.lifecycle import Broker
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.client import Producer
from odradek.client.admin import Admin, NewTopic
from odradek.log.directories.checkpoint_formats import LOCK
from odradek.ports.disk import SystemDisk
from tests.unit.broker.quorum.controllers_in_process import format_directory, free_ports

NODES = (1, 2, 3)


def settings(directory: Path, node: int, ports: list[int]) -> dict[str, str]:
    voters = ",".join(f"{each}@127.0.0.1:{port}" for each, port in zip(NODES, ports[3:], strict=True))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[node - 1]},CONTROLLER://127.0.0.1:{ports[node + 2]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "controller.quorum.election.timeout.ms": "150",
        "controller.quorum.fetch.timeout.ms": "600",
        "controller.quorum.append.linger.ms": "0",
        "broker.session.timeout.ms": "1500",
        "broker.heartbeat.interval.ms": "100",
        "odradek.self.fence.margin.ms": "500",
        "log.dirs": str(directory / f"node-{node}"),
    }


async def start(directory: Path, ports: list[int], *nodes: int) -> dict[int, Broker]:
    brokers = {node: Broker(BrokerConfig(settings(directory, node, ports))) for node in nodes}
    await asyncio.gather(*(each.start() for each in brokers.values()))
    return brokers


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(bounded())


def test_three_nodes_are_a_cluster_that_outlives_each_of_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        ports = free_ports(6)
        for node in NODES:
            format_directory(tmp_path / f"node-{node}", node)
        brokers = await start(tmp_path, ports, *NODES)
        bootstrap = ",".join(each.bootstrap for each in brokers.values())
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 3, 3)])
        async with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
            sent = 0
            for node in NODES:
                await brokers.pop(node).stop()
                for _ in range(5):
                    await producer.send_and_wait("t", value=b"%d" % sent)
                    sent += 1
                brokers |= await start(tmp_path, ports, node)
        async with Admin(bootstrap_servers=",".join(each.bootstrap for each in brokers.values())) as admin:
            described = await admin.describe_quorum()
            assert {voter.replica_id for voter in described.voters} == set(NODES)
        for broker in brokers.values():
            await broker.stop()

    run(scenario)


def test_node_that_was_left_alone_leads_again(tmp_path: Path) -> None:
    """Its lease has ended: it asks the active controller, which is another node or itself, for what it has missed."""

    async def scenario() -> None:
        ports = free_ports(6)
        for node in NODES:
            format_directory(tmp_path / f"node-{node}", node)
        brokers = await start(tmp_path, ports, *NODES)
        found = brokers[1].inspect()
        assert found is not None
        assert found.leadership is not None
        await asyncio.gather(*(brokers.pop(node).stop() for node in (2, 3)))
        while found.leadership.lease_until > time.monotonic():
            await asyncio.sleep(0.01)
        brokers |= await start(tmp_path, ports, 2, 3)
        while found.leadership.lease_until <= time.monotonic():
            await asyncio.sleep(0.01)
        for broker in brokers.values():
            await broker.stop()

    run(scenario)


def test_directory_stays_locked_until_the_controller_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process would read the vote and the log while this one still writes them, and could vote again."""
    end = ControllerNode.stop
    locked: list[bool] = []

    async def stop(node: ControllerNode) -> None:
        await end(node)
        directory = Path(node.parts.storage.log.directory).parent
        try:
            SystemDisk().lock(f"{directory}/{LOCK}").release()
        except BlockingIOError:
            locked.append(True)
        else:
            locked.append(False)

    async def scenario() -> None:
        ports = free_ports(6)
        for node in NODES:
            format_directory(tmp_path / f"node-{node}", node)
        brokers = await start(tmp_path, ports, *NODES)
        for broker in brokers.values():
            await broker.stop()

    monkeypatch.setattr(ControllerNode, "stop", stop)
    run(scenario)
    assert locked == [True] * len(NODES)


def test_node_of_both_roles_needs_a_listener_for_controllers(tmp_path: Path) -> None:
    given = settings(tmp_path, 1, [1, 2, 3, 4, 5, 6]) | {"listeners": "PLAINTEXT://127.0.0.1:0"}
    with pytest.raises(ConfigError, match=r"none of controller\.listener\.names"):
        BrokerConfig(given)
