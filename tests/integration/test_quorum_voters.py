"""Voters in the metadata log, in real processes: `serve --quorum`, replaced disks, controllers added and removed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.serving.quorum_forming import Listed
from odradek.client import Producer
from odradek.client.admin import Admin, NewTopic
from tests.integration.test_quorum import values_of
from tests.unit.broker.quorum.controllers_in_process import free_ports
from tests.unit.cli.test_quorum_forming import free_nodes, tls

pytestmark = pytest.mark.long
PATIENCE_SECONDS = 90
ODRADEK = (sys.executable, "-m", "odradek.cli.main")


class Machines:
    """Processes by the id of their node, each with a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def place(self, node: int) -> Path:
        return self.directory / f"data-{node}"

    def start(self, node: int, *words: str) -> None:
        with (self.directory / f"{node}.log").open("ab") as log:
            command = [*ODRADEK, "serve", *words]
            self._processes[node] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)

    def kill(self, node: int) -> None:
        process = self._processes.pop(node)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(30)

    def log(self, node: int) -> str:
        return (self.directory / f"{node}.log").read_text()

    def wait_until(self, node: int, text: str, times: int = 1) -> None:
        self.wait_for(lambda: self.log(node).count(text) >= times)

    def wait_for(self, is_true: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not is_true():
            assert time.monotonic() < end, "\n".join(self.log(node)[-2000:] for node in self._processes)
            time.sleep(0.05)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait(30)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    running = Machines(tmp_path)
    try:
        yield running
    finally:
        running.close()


def odradek(*words: str) -> str:
    done = subprocess.run([*ODRADEK, *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def status(*words: str) -> dict[str, Any]:
    """What `metadata-quorum describe --status` says; empty while the quorum has no leader."""
    command = [*ODRADEK, "metadata-quorum", "describe", "--status", "--output", "json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def voters(described: dict[str, Any]) -> dict[int, str]:
    """Directory id of each voter by node id."""
    return {each["id"]: each["directory_id"] for each in described.get("voters", ())}


def votes_with_another_directory(bootstrap: str, node: int, former: str) -> bool:
    return voters(status("--bootstrap-server", bootstrap)).get(node, former) != former


def observes(servers: str, node: int) -> bool:
    found = status("--bootstrap-controller", servers)
    return any(each["id"] == node for each in found.get("observers", ()))


async def send(bootstrap: str, first: int, end: int) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for number in range(first, end):
            await producer.send_and_wait("t", value=b"%d" % number)


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_one_command_forms_a_cluster_that_outlives_replaced_disks(machines: Machines, has_tls: bool) -> None:
    """With TLS between controllers, the nodes ask each other for a cluster within it, too."""
    nodes = free_nodes(3)
    quick = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    own = quick | (tls(machines.directory / "certificates") if has_tls else {})
    quorum = ",".join(map(str, nodes))
    bootstrap = quorum

    def serve(node: Listed) -> None:
        settings = [word for name, value in own.items() for word in ("--set", f"{name}={value}")]
        machines.start(
            node.node_id,
            "--quorum", quorum, "--listen", str(node), "--data-dir", str(machines.place(node.node_id)), *settings,
        )  # fmt: skip

    serve(nodes[0])
    machines.wait_until(1, "waiting for")
    machines.kill(1)  # during its first start
    for node in nodes:
        serve(node)
    machines.wait_for(lambda: set(voters(status("--bootstrap-server", bootstrap))) == {1, 2, 3})
    before = status("--bootstrap-server", bootstrap)

    async def fill() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 3, 3, {"min.insync.replicas": "2"})])
        await send(bootstrap, 0, 50)

    asyncio.run(fill())
    sent = 50
    for victim in (nodes[0], nodes[2]):
        machines.kill(victim.node_id)
        shutil.rmtree(machines.place(victim.node_id))
        asyncio.run(send(bootstrap, sent, sent + 25))
        sent += 25
        former = voters(before)[victim.node_id]
        serve(victim)
        machines.wait_for(partial(votes_with_another_directory, bootstrap, victim.node_id, former))
        asyncio.run(in_sync(bootstrap))
        after = status("--bootstrap-server", bootstrap)
        assert after["cluster_id"] == before["cluster_id"]
        assert set(voters(after)) == {1, 2, 3}
    assert asyncio.run(values_of(bootstrap, sent)) == {b"%d" % each for each in range(sent)}


async def in_sync(bootstrap: str) -> None:
    """Wait until each partition of the topic has all copies."""
    async with asyncio.timeout(PATIENCE_SECONDS), Admin(bootstrap_servers=bootstrap) as admin:
        while True:
            topic: Any = (await admin.describe_topics(["t"]))["t"]
            if all(len(each.isr) == 3 for each in topic.partitions):
                return
            await asyncio.sleep(0.1)


def test_controllers_are_added_and_removed_by_command(machines: Machines) -> None:
    ports, cluster_id = free_ports(4), "MkU3OEVBNTcwNTJENDM2Qg"
    servers = ",".join(f"127.0.0.1:{port}" for port in ports[:3])
    for node in (1, 2, 3):
        lines = {
            "process.roles": "controller",
            "node.id": node,
            "listeners": f"CONTROLLER://127.0.0.1:{ports[node - 1]}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": servers,
            "log.dirs": machines.place(node),
        }
        write(machines, node, lines)
        first = "--standalone" if node == 1 else "--no-initial-controllers"
        odradek("storage", "format", "-t", cluster_id, "-c", f"{machines.directory}/{node}.properties", first)
        machines.start(node, f"{node}.properties")
    lines = {
        "process.roles": "broker",
        "node.id": 4,
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[3]}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": servers,
        "log.dirs": machines.place(4),
    }
    write(machines, 4, lines)
    odradek("storage", "format", "-t", cluster_id, "-c", f"{machines.directory}/4.properties")
    machines.start(4, "4.properties")
    machines.wait_until(4, "odradek ready")
    by_controllers = ("--bootstrap-controller", servers)
    by_broker = ("--bootstrap-server", f"127.0.0.1:{ports[3]}")

    assert set(voters(status(*by_controllers))) == {1}
    for node, path in ((2, by_controllers), (3, by_broker)):  # a broker forwards the request
        machines.wait_for(partial(observes, servers, node))
        config = f"{machines.directory}/{node}.properties"
        odradek("metadata-quorum", "add-controller", "--controller-config", config, *path)
    found = voters(status(*by_broker))
    assert set(found) == {1, 2, 3}

    leader = status(*by_controllers)["leader_id"]
    machines.kill(leader)
    machines.wait_for(lambda: status(*by_controllers).get("leader_id") in {1, 2, 3} - {leader})
    identity = ("--controller-id", str(leader), "--controller-directory-id", found[leader])
    odradek("metadata-quorum", "remove-controller", *identity, *by_broker)
    machines.wait_for(lambda: set(voters(status(*by_controllers))) == {1, 2, 3} - {leader})
    machines.start(leader, f"{leader}.properties")
    machines.wait_for(partial(observes, servers, leader))
    assert set(voters(status(*by_controllers))) == {1, 2, 3} - {leader}


def write(machines: Machines, node: int, lines: dict[str, Any]) -> None:
    text = "".join(f"{name}={value}\n" for name, value in lines.items())
    (machines.directory / f"{node}.properties").write_text(text)


@pytest.mark.parametrize("kind", ["server", "split"])
def test_stock_files_of_apache_kafka_serve_after_format(kind: str, machines: Machines) -> None:
    """The settings of Apache Kafka 4.3's files, but for ports and directories."""
    first, second = free_ports(2)
    common = {
        "controller.quorum.bootstrap.servers": f"localhost:{second}",
        "controller.listener.names": "CONTROLLER",
        "num.network.threads": 3,
        "num.io.threads": 8,
        "socket.send.buffer.bytes": 102400,
        "socket.receive.buffer.bytes": 102400,
        "socket.request.max.bytes": 104857600,
        "num.partitions": 1,
        "num.recovery.threads.per.data.dir": 2,
        "offsets.topic.replication.factor": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "log.retention.hours": 168,
        "log.segment.bytes": 1073741824,
        "log.retention.check.interval.ms": 300000,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    }
    of_broker = {"inter.broker.listener.name": "PLAINTEXT"}
    plain, controller = f"PLAINTEXT://localhost:{first}", f"CONTROLLER://localhost:{second}"
    if kind == "server":
        files = {
            1: {
                "process.roles": "broker,controller", "listeners": f"{plain},{controller}",
                "advertised.listeners": f"{plain},{controller}", **of_broker,
            },
        }  # fmt: skip
    else:
        files = {
            1: {"process.roles": "controller", "listeners": controller, "advertised.listeners": controller},
            2: {"process.roles": "broker", "listeners": plain, "advertised.listeners": plain, **of_broker},
        }
    for node, own in files.items():
        write(machines, node, {"node.id": node, **own, **common, "log.dirs": machines.place(node)})
        first_voters = ["--standalone"] if "controller" in own["process.roles"] else []
        path = f"{machines.directory}/{node}.properties"
        odradek("storage", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", path, *first_voters)
        machines.start(node, f"{node}.properties")
    for node in files:
        machines.wait_until(node, "odradek ready")

    async def scenario() -> None:
        async with Admin(bootstrap_servers=f"localhost:{first}") as admin:
            await admin.create_topics([NewTopic("t", 1, 1)])
        await send(f"localhost:{first}", 0, 5)
        assert await values_of(f"localhost:{first}", 5) == {b"%d" % each for each in range(5)}

    asyncio.run(scenario())
    assert set(voters(status("--bootstrap-server", f"localhost:{first}"))) == {1}
