"""Processes of a KRaft cluster that Odradek runs alone: kill -9 of the active controller, of brokers, of all."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from odradek.client import Consumer, Producer
from odradek.client.admin import Admin, NewTopic
from tests.unit.broker.quorum.controllers_in_process import format_directory, free_ports

pytestmark = pytest.mark.long
NODES = (1, 2, 3)
_ACTIVE = re.compile(r"controller (\d) is active in epoch (\d+)")


class Nodes:
    """Three processes of both roles, by id."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str] | None = None,
        form: Callable[[Nodes, int], None] | None = None,
    ) -> None:
        """`form` formats the directory of a node."""
        self.directory = directory
        self.ports = dict(zip(NODES, free_ports(3), strict=True))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._copying: list[subprocess.Popen[bytes]] = []
        controllers = free_ports(3)
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip(NODES, controllers, strict=True))
        for node in NODES:
            lines = {
                "process.roles": "broker,controller",
                "node.id": node,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[node]},CONTROLLER://127.0.0.1:{controllers[node - 1]}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "broker.session.timeout.ms": 3000,
                "broker.heartbeat.interval.ms": 500,
                "offsets.topic.num.partitions": 3,
                "log.dirs": directory / f"data-{node}",
                **(settings or {}),
            }
            text = "".join(f"{name}={value}\n" for name, value in lines.items())
            (directory / f"{node}.properties").write_text(text)
            if form is None:
                format_directory(directory / f"data-{node}", node)
            else:
                form(self, node)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def start(self, *nodes: int) -> None:
        for node in nodes:
            command = [sys.executable, "-m", "odradek.cli.main", "serve", str(self.directory / f"{node}.properties")]
            # Through a pipe, so that a limit of a node's files does not apply to its log lines.
            with (self.directory / f"{node}.log").open("ab") as log:
                copying = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log)
            assert copying.stdin is not None
            self._copying.append(copying)
            with copying.stdin as lines:
                self._processes[node] = subprocess.Popen(command, stdout=lines, stderr=lines)

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            os.kill(self._processes[node].pid, signal.SIGKILL)
        for node in nodes:
            self._processes.pop(node).wait(30)

    def limit_files(self, node: int, size: int) -> None:
        """Let each write that makes a file larger than `size` bytes fail, as that of a full disk."""
        resource.prlimit(self._processes[node].pid, resource.RLIMIT_FSIZE, (size, size))

    def end_of(self, node: int) -> int:
        """Wait until a node ends by itself; its exit status."""
        return self._processes.pop(node).wait(60)

    def stop(self) -> list[int]:
        """Ask all to end; their exit statuses."""
        for process in self._processes.values():
            process.terminate()
        return [process.wait(60) for process in self._processes.values()]

    def active(self) -> int:
        """The controller that was elected last; 0 before the first."""
        found = [m for node in NODES for m in _ACTIVE.findall(self.log(node))]
        return int(max(found, key=lambda each: int(each[1]), default=(0, 0))[0])

    def log(self, node: int) -> str:
        path = self.directory / f"{node}.log"
        return path.read_text() if path.exists() else ""

    def wait_until(self, text: str, *nodes: int, times: int = 1) -> None:
        end = time.monotonic() + 60
        while any(self.log(node).count(text) < times for node in nodes):
            assert time.monotonic() < end, "\n".join(self.log(node)[-2000:] for node in nodes)
            time.sleep(0.02)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in (*self._processes.values(), *self._copying):
            process.wait(30)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    running = Nodes(tmp_path)
    try:
        running.start(*NODES)
        running.wait_until("odradek ready", *NODES)
        yield running
    finally:
        running.close()


async def values_of(bootstrap: str, count: int) -> set[bytes]:
    found: set[bytes] = set()
    async with (
        asyncio.timeout(60),
        Consumer("t", bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        async for record in consumer:
            assert record.value is not None
            found.add(record.value)
            if len(found) >= count:
                break
    return found


def test_acknowledged_records_outlive_kills_of_each_node(nodes: Nodes) -> None:
    async def scenario() -> None:
        async with Admin(bootstrap_servers=nodes.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 3, 3, {"min.insync.replicas": "2"})])
        sent = 0
        async with Producer(bootstrap_servers=nodes.bootstrap, acks="all", enable_idempotence=True) as producer:
            for victim in (nodes.active(), *NODES):
                for _ in range(50):
                    await producer.send_and_wait("t", value=b"%d" % sent)
                    sent += 1
                starts = nodes.log(victim).count("odradek ready")
                nodes.kill(victim)
                for _ in range(50):
                    await producer.send_and_wait("t", value=b"%d" % sent)
                    sent += 1
                nodes.start(victim)
                await asyncio.to_thread(nodes.wait_until, "odradek ready", victim, times=starts + 1)
        assert await values_of(nodes.bootstrap, sent) == {b"%d" % each for each in range(sent)}

    asyncio.run(scenario())
    assert nodes.stop() == [0, 0, 0]


def test_cluster_continues_after_all_nodes_were_killed_at_once(nodes: Nodes) -> None:
    async def fill() -> None:
        async with Admin(bootstrap_servers=nodes.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 3, 3)])
        async with Producer(bootstrap_servers=nodes.bootstrap, acks="all") as producer:
            for number in range(100):
                await producer.send_and_wait("t", value=b"%d" % number)

    asyncio.run(fill())
    nodes.kill(*NODES)
    nodes.start(*NODES)
    nodes.wait_until("odradek ready", *NODES, times=2)
    found = asyncio.run(values_of(nodes.bootstrap, 100))
    assert found == {b"%d" % number for number in range(100)}


def test_node_that_cannot_write_the_metadata_log_ends_and_another_leads(nodes: Nodes) -> None:
    """As Kafka's, which halts: it has status 1, and the reason in its log. Nothing waits for a timeout."""
    victim = nodes.active()

    async def scenario() -> None:
        async with Admin(bootstrap_servers=nodes.bootstrap) as admin:
            await admin.create_topics([NewTopic("t", 3, 3, {"min.insync.replicas": "2"})])
            nodes.limit_files(victim, 1)
            await admin.create_topics([NewTopic("u", 3, 3)])
        async with Producer(bootstrap_servers=nodes.bootstrap, acks="all", enable_idempotence=True) as producer:
            for number in range(50):
                await producer.send_and_wait("t", value=b"%d" % number)

    asyncio.run(scenario())
    assert nodes.end_of(victim) == 1
    nodes.wait_until(f"controller {victim} cannot continue, and stops", victim)
    nodes.wait_until(f"broker {victim} cannot continue, and stops", victim)
    assert nodes.active() != victim
    assert "Traceback" not in nodes.log(victim)
    nodes.start(victim)
    nodes.wait_until("odradek ready", victim, times=2)
    found = asyncio.run(values_of(nodes.bootstrap, 50))
    assert found == {b"%d" % number for number in range(50)}
    assert nodes.stop() == [0, 0, 0]
