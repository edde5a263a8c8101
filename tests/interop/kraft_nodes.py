"""A KRaft cluster on loopback: controllers and brokers, of which each is Apache Kafka or Odradek."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from bench.peers.kafka import QUICK
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponsePartition,
)
from tests.integration.conftest import RawClient
from tests.interop.conftest import KAFKA

CONTROLLER = 100
_LOGGING = """Configuration:
  Appenders: {Console: {name: STDOUT, PatternLayout: {pattern: '%d %p %c %m%n'}}}
  Loggers: {Root: {level: WARN, AppenderRef: {ref: STDOUT}}}
"""
_SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    # A broker that comes back waits for the end of its former registration.
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "num.partitions": 4,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
}


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nothing listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class KraftNodes:
    """`start` and `stop` processes by the id of their node; each keeps its directory, whoever runs on it."""

    def __init__(
        self,
        directory: Path,
        brokers: Iterable[int] = (1, 2, 3),
        features: Iterable[str] = (),
        settings: Mapping[str, str] = MappingProxyType({}),
        controllers: Iterable[int] = (CONTROLLER,),
        *,
        is_static: bool = False,
        is_protected: bool = False,
    ) -> None:
        """`features`: levels to format with; without any, those of groups that Odradek lacks are 0.

        `controllers` are static voters (kraft.version 0), or the first one is formatted with `--standalone` and the
        others wait to be added (kraft.version 1). Protected ones do not answer this class: brokers are asked in their
        place.
        """
        self._own = settings
        self.controllers = tuple(controllers)
        self._is_static = is_static
        self._is_protected = is_protected
        self.directory = directory
        self._classpath = subprocess.check_output([sys.executable, str(KAFKA), "classpath"], text=True).strip()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.had_apache_brokers = False
        """Whether Apache Kafka has been a broker of this cluster."""
        nodes = [*self.controllers, *brokers]
        self.ports = dict(zip(nodes, free_ports(len(nodes)), strict=True))
        (directory / "log4j2.yaml").write_text(_LOGGING)
        cluster_id = self._java("kafka.tools.StorageTool", "random-uuid").strip().lstrip("-").rjust(22, "A")
        levels = list(features) or ["share.version=0", "streams.version=0"]
        chosen = [part for level in levels for part in ("--feature", level)]
        for node in nodes:
            path = self._write_settings(node)
            self._java(
                "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(path), *self._voting(node), *chosen
            )

    def _voting(self, node: int) -> list[str]:
        """How a node is formatted: in a quorum that grows, the first controller votes alone at first."""
        if self._is_static or node not in self.controllers:
            return []
        return ["--standalone" if node == self.controllers[0] else "--no-initial-controllers"]

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers."""
        return ",".join(f"127.0.0.1:{port}" for node, port in self.ports.items() if node not in self.controllers)

    @property
    def bootstrap_controllers(self) -> str:
        """Addresses of all controllers."""
        return ",".join(f"127.0.0.1:{self.ports[node]}" for node in self.controllers)

    def metadata_log(self, node: int) -> Path:
        """The directory of a node's metadata log."""
        return self.directory / f"data-{node}" / "__cluster_metadata-0"

    def active_controller(self) -> int | None:
        """The controller that leads the quorum by its own account."""
        return self._described()[0]

    def quorum_ends(self, *, observers: bool = False) -> dict[int, int]:
        """By voter, or by voter and observer, the end of its log as the leader knows it; nothing without a leader."""
        part = self._described()[1]
        if part is None:
            return {}
        replicas = [*part.current_voters, *(part.observers if observers else ())]
        return {each.replica_id: each.log_end_offset for each in replicas}

    def _described(self) -> tuple[int | None, DescribeQuorumResponsePartition | None]:
        part = DescribeQuorumRequestPartition(0)
        request = DescribeQuorumRequest([DescribeQuorumRequestTopic("__cluster_metadata", [part])])
        for node in self.ports:
            if (node in self.controllers) is self._is_protected:
                continue
            try:
                client = RawClient(f"127.0.0.1:{self.ports[node]}", 5)
                try:
                    found = client.call(request, 0).topics
                finally:
                    client.close()
            except OSError:
                continue
            if found and not found[0].partitions[0].error_code:
                return found[0].partitions[0].leader_id, found[0].partitions[0]
        return None, None

    def quorum_voters(self) -> set[int]:
        """The ids of the voters by the leader's account; none without a leader."""
        return set(self.quorum_ends())

    def directory_id(self, node: int) -> str:
        """The id of a node's directory, as its format wrote it."""
        lines = (self.directory / f"data-{node}" / "meta.properties").read_text().splitlines()
        return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))

    def settings(self, node: int) -> Path:
        """The file of a node, which both kinds of brokers read."""
        return self.directory / f"server-{node}.properties"

    def add_settings(self, node: int, settings: Mapping[str, str]) -> None:
        """Add lines to the file of a node; the last one of a name counts."""
        with self.settings(node).open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())

    def output(self, node: int) -> str:
        """What the processes of a node have logged."""
        return (self.directory / f"output-{node}.txt").read_text()

    def start_apache(self, *nodes: int) -> None:
        """Start Apache Kafka on the directories of these nodes."""
        self.had_apache_brokers |= not set(nodes) <= set(self.controllers)
        for node in nodes:
            logging = f"-Dlog4j2.configurationFile={self.directory}/log4j2.yaml"
            command = [self._java_program(), "-Xmx256M", *QUICK, logging, "-cp", self._classpath, "kafka.Kafka"]
            self._start(node, [*command, str(self.settings(node))])

    def start_odradek(self, *nodes: int) -> None:
        """Start Odradek on the directories of these nodes."""
        for node in nodes:
            self._start(node, [sys.executable, "-m", "odradek.cli.main", "serve", str(self.settings(node))])

    def stop(self, *nodes: int, how: signal.Signals = signal.SIGTERM) -> None:
        """End these processes, and wait for their end."""
        for node in nodes:
            self._processes[node].send_signal(how)
        for node in nodes:
            self._processes.pop(node).wait(60)

    def signal(self, node: int, how: signal.Signals) -> None:
        """Send a signal to a process, and do not wait for its end."""
        self._processes[node].send_signal(how)

    def close(self) -> None:
        """End all processes."""
        self.stop(*self._processes, how=signal.SIGKILL)

    def wait_until_serving(self, *nodes: int, at_most_seconds: float = 60) -> None:
        """Wait until these nodes accept connections; fails where the process has ended."""
        end = time.monotonic() + at_most_seconds
        for node in nodes:
            while not self._accepts(node):
                process = self._processes[node]
                assert process.poll() is None, f"node {node} has ended:\n{self.output(node)[-4000:]}"
                assert time.monotonic() < end, f"node {node} does not serve:\n{self.output(node)[-4000:]}"
                time.sleep(0.05)

    def _accepts(self, node: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.ports[node]), 1) as connection:
                if self._is_protected and node in self.controllers:
                    return True
                connection.settimeout(2)
                connection.sendall(bytes.fromhex("0000000a0012000000000001ffff"))
                return bool(connection.recv(4))
        except OSError:
            return False

    def _start(self, node: int, command: list[str]) -> None:
        with (self.directory / f"output-{node}.txt").open("ab") as output:
            self._processes[node] = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def _write_settings(self, node: int) -> Path:
        is_controller = node in self.controllers
        own = {
            "process.roles": "controller" if is_controller else "broker",
            "node.id": node,
            "listeners": f"{'CONTROLLER' if is_controller else 'PLAINTEXT'}://127.0.0.1:{self.ports[node]}",
            "log.dirs": self.directory / f"data-{node}",
        }
        if self._is_static:
            voters = (f"{each}@127.0.0.1:{self.ports[each]}" for each in self.controllers)
            own["controller.quorum.voters"] = ",".join(voters)
        else:
            own["controller.quorum.bootstrap.servers"] = self.bootstrap_controllers
        path = self.settings(node)
        path.write_text("".join(f"{name}={value}\n" for name, value in {**_SETTINGS, **own, **self._own}.items()))
        return path

    def _java(self, *arguments: str) -> str:
        command = [self._java_program(), "-Xmx256M", *QUICK, "-cp", self._classpath, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    @staticmethod
    def _java_program() -> str:
        home = os.environ.get("JAVA_HOME")
        return f"{home}/bin/java" if home else "java"
