"""What faults are done to: real broker processes behind a proxy, on SQLite or on a ZooKeeper ensemble."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from bench.peers.broker import BrokerError, BrokerProcess
from bench.peers.zookeeper import ZooKeeper, free_ports
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.faults.links import Links

SESSION_SECONDS: Final = 3.0
WHOLE_SECONDS: Final = 90.0
VOLUME_BYTES: Final = 384 << 20
_METADATA_VERSION: Final = 12
_FAULTY: Final = re.compile(r"Traceback|exception was never retrieved|Exception in callback")
_TOPICS: Final = {"steady": 3, "plain": 2, "ledger": 2, "accounts": 1, "in": 2, "out": 2}


class NotWhole(Exception):
    """The cluster did not come back to full strength; says what is missing."""


class Shape(NamedTuple):
    """What is started: brokers, and the servers of the ensemble that is their store (none: SQLite)."""

    brokers: int = 1
    zookeepers: int = 0
    volume: bool = True
    """The last broker's data lies on a small file system of its own that can be filled, where that may be mounted."""
    proxied: bool = True

    @property
    def name(self) -> str:
        brokers = "one broker" if self.brokers == 1 else f"{self.brokers} brokers"
        return f"{brokers} on {f'ZooKeeper ({self.zookeepers} servers)' if self.zookeepers else 'SQLite'}"


def ask_metadata(port: int, timeout_seconds: float = 2.0) -> MetadataResponse:
    """What the broker itself says, asked past the proxy. Raises OSError."""
    with socket.create_connection(("127.0.0.1", port), timeout_seconds) as connection:
        connection.settimeout(timeout_seconds)
        out = bytearray(4)
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        encode_request_header(out, request.API_KEY, _METADATA_VERSION, 1, "faults")
        request.encode(out, _METADATA_VERSION)
        out[0:4] = (len(out) - 4).to_bytes(4, "big")
        connection.sendall(out)
        with connection.makefile("rb") as stream:
            size = stream.read(4)
            if len(size) < 4:
                raise ConnectionError("closed without an answer")
            frame = memoryview(stream.read(int.from_bytes(size, "big")))
    _, position = parse_response_header(frame, request.API_KEY, _METADATA_VERSION)
    response, _ = MetadataResponse.decode(frame, position, _METADATA_VERSION)
    return response


class Node:
    """One broker: its process, its ports and its clock."""

    def __init__(self, broker_id: int, home: Path, ports: tuple[int, int]) -> None:
        self.broker_id = broker_id
        self.home = home / f"broker-{broker_id}"
        self.client_port, self.broker_port = ports
        self.clock_path = home / f"clock-{broker_id}"
        self.clock_path.write_bytes(bytes(8))
        self.is_volume = False
        self.process = BrokerProcess(self.home / "data")

    def configure(self, settings: dict[str, object], links: Links | None) -> None:
        client, broker = self.client_port, self.broker_port
        if links is not None:
            client, broker = links.ports[f"clients-{self.broker_id}"], links.ports[f"brokers-{self.broker_id}"]
        own = {
            "node.id": self.broker_id,
            "broker.id": self.broker_id,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.client_port},BROKERS://127.0.0.1:{self.broker_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client},BROKERS://127.0.0.1:{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
        }
        # root could write into what is read-only
        held_to_modes = os.geteuid() == 0 and shutil.which("setpriv")
        prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if held_to_modes else ()
        clock = {
            "ODRADEK_FAULTS_CLOCK": str(self.clock_path),
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(Path(__file__).with_name("clock")), os.environ.get("PYTHONPATH", "")])
            ),
        }
        self.process = BrokerProcess(self.home / "data", settings | own, prefix=prefix, environment=clock)
        self.process.log_path = self.home.with_suffix(".log")  # not on the disk that is filled

    def running(self) -> bool:
        return self.process.running()

    def start(self) -> None:
        if not self.running():
            self.process.kill()  # reaps one that ended by itself
            self.process.start()

    def kill(self) -> None:
        self.process.kill()

    def signal(self, number: signal.Signals) -> None:
        if self.running():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def set_clock(self, seconds_off: float) -> None:
        with self.clock_path.open("r+b") as file:
            file.write(struct.pack("<q", int(seconds_off * 1e9)))

    def metadata(self, timeout_seconds: float = 2.0) -> MetadataResponse:
        return ask_metadata(self.client_port, timeout_seconds)

    def exceptions(self) -> list[str]:
        """Lines of its log with an unexpected exception, each with the lines that follow it."""
        if not self.process.log_path.exists():
            return []
        lines = self.process.log_path.read_text(errors="replace").splitlines()
        return ["\n".join(lines[max(0, i - 2) : i + 40]) for i, line in enumerate(lines) if _FAULTY.search(line)]


class Deployment:
    """`with Deployment(home, shape) as deployment`: all brokers serve, and the topics are there."""

    def __init__(self, home: Path, shape: Shape) -> None:
        self.home = home
        self.shape = shape
        self.nodes: list[Node] = []
        self.links: Links | None = None
        self.zookeeper: ZooKeeper | None = None
        self.can_fill = False
        self.replicas = min(3, shape.brokers)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        count = self.shape.brokers
        ports = free_ports(2 * count)
        self.nodes = [Node(i + 1, self.home, (ports[2 * i], ports[2 * i + 1])) for i in range(count)]
        if self.shape.proxied:
            targets = {f"clients-{n.broker_id}": n.client_port for n in self.nodes}
            self.links = Links(targets | {f"brokers-{n.broker_id}": n.broker_port for n in self.nodes}).start()
        if self.shape.zookeepers:
            self.zookeeper = ZooKeeper(self.home / "zookeeper", self.shape.zookeepers)
            self.zookeeper.start()
        if self.shape.volume:
            self._mount(self.nodes[-1])
        for node in self.nodes:
            node.configure(self._settings(), self.links)
        for node in self.nodes:
            node.start()
        self._make_topics()
        self.wait_whole()

    def _settings(self) -> dict[str, object]:
        in_sync = min(2, self.replicas)
        settings: dict[str, object] = {
            "default.replication.factor": self.replicas,
            "min.insync.replicas": in_sync,
            "broker.session.timeout.ms": int(SESSION_SECONDS * 1000),
            "replica.lag.time.max.ms": 4000,
            "group.initial.rebalance.delay.ms": 0,
            "group.consumer.min.session.timeout.ms": 6000,
            "group.consumer.session.timeout.ms": 6000,
            "group.consumer.min.heartbeat.interval.ms": 1000,
            "group.consumer.heartbeat.interval.ms": 1000,
            "transaction.max.timeout.ms": 60000,
            "leader.imbalance.check.interval.seconds": 5,
            "auto.create.topics.enable": "false",
        }
        for kind in ("offsets", "transaction.state"):
            settings |= {
                f"{kind}.topic.replication.factor"
                if kind == "offsets"
                else f"{kind}.log.replication.factor": self.replicas,
                f"{kind}.topic.num.partitions" if kind == "offsets" else f"{kind}.log.num.partitions": 4,
            }
        settings["transaction.state.log.min.isr"] = in_sync
        if self.zookeeper is not None:
            settings |= {
                "zookeeper.connect": self.zookeeper.connect,
                "zookeeper.session.timeout.ms": int(SESSION_SECONDS * 1000),
            }
        elif self.shape.brokers > 1:
            settings["odradek.metadata.store"] = str(self.home / "metadata.sqlite")
        return settings

    def _mount(self, node: Node) -> None:
        if os.geteuid() != 0:
            return
        node.home.mkdir(parents=True, exist_ok=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={VOLUME_BYTES}", "odradek-faults", str(node.home)],
            capture_output=True,
        )
        self.can_fill = node.is_volume = mounted.returncode == 0

    def _make_topics(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        # segments that roll often: files are made all the time, in every fault
        config = {"segment.ms": "5000"}
        wanted = [NewTopic(n, c, self.replicas, config=config if n == "steady" else {}) for n, c in _TOPICS.items()]
        for made in admin.create_topics(wanted, request_timeout=30).values():
            made.result(60)

    @property
    def bootstrap(self) -> str:
        """Where clients connect: through the proxy, if there is one."""
        if self.links is None:
            return ",".join(f"127.0.0.1:{n.client_port}" for n in self.nodes)
        return ",".join(f"127.0.0.1:{self.links.ports[f'clients-{n.broker_id}']}" for n in self.nodes)

    def _views(self) -> Iterator[tuple[Node, MetadataResponse]]:
        for node in self.nodes:
            if node.running():
                with contextlib.suppress(OSError):
                    yield node, node.metadata(0.5)

    def controller(self) -> Node | None:
        """The one that most brokers take for it."""
        said = [view.controller_id for _, view in self._views()]
        return self._node(max(set(said), key=said.count)) if said else None

    def leader(self, topic: str, partition: int) -> Node | None:
        for _, view in self._views():
            for each in view.topics:
                for state in each.partitions if each.name == topic else ():
                    if state.partition_index == partition and state.leader_id > 0:
                        return self._node(state.leader_id)
        return None

    def _node(self, broker_id: int) -> Node | None:
        return next((node for node in self.nodes if node.broker_id == broker_id), None)

    def wait_whole(self, seconds: float = WHOLE_SECONDS) -> float:
        """Start what has ended; wait until all brokers agree that every replica is in sync. Returns how long it took.

        Raises NotWhole."""
        begun = time.monotonic()
        while why := self._lacking():
            if time.monotonic() > begun + seconds:
                raise NotWhole(f"after {seconds:g} s: {why}")
            time.sleep(0.05)
        return time.monotonic() - begun

    def _lacking(self) -> str:
        leaders: dict[tuple[Any, int], int] = {}
        for node in self.nodes:
            if not node.running():
                try:
                    node.start()
                except BrokerError as error:
                    return f"broker {node.broker_id} does not start: {str(error)[-1500:]}"
            try:
                view = node.metadata()
            except OSError as error:
                return f"broker {node.broker_id} does not answer: {error!r}"
            alive = {broker.node_id for broker in view.brokers}
            if len(alive) < len(self.nodes):
                return f"broker {node.broker_id} sees only {sorted(alive)}"
            if view.controller_id not in alive:
                return f"broker {node.broker_id} sees no controller"
            for topic in view.topics:
                for state in topic.partitions:
                    place = f"{topic.name}-{state.partition_index}, says broker {node.broker_id}"
                    if state.leader_id not in alive:
                        return f"no leader of {place}"
                    if len(state.isr_nodes) < len(state.replica_nodes):
                        return f"only {state.isr_nodes} of {state.replica_nodes} in sync in {place}"
                    known = leaders.setdefault((topic.name, state.partition_index), state.leader_id)
                    if known != state.leader_id:
                        return f"two leaders of {place}: {known}, {state.leader_id}"
        return ""

    def replica_logs(self, topic: str, partition: int) -> dict[int, bytes]:
        """The bytes of each replica's log, segment after segment. Only of stopped brokers."""
        found = {}
        for node in self.nodes:
            directory = node.home / "data" / f"{topic}-{partition}"
            if directory.exists():
                found[node.broker_id] = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        return found

    def topics(self) -> dict[str, int]:
        return dict(_TOPICS)

    def stop_brokers(self) -> None:
        """In good order, one after the other. Raises BrokerError."""
        for node in self.nodes:
            node.process.stop()

    def stop(self) -> None:
        for node in self.nodes:
            node.signal(signal.SIGCONT)
            node.kill()
        if self.links is not None:
            self.links.stop()
        if self.zookeeper is not None:
            self.zookeeper.stop()
        for node in self.nodes:
            if node.is_volume:
                node.is_volume = False
                subprocess.run(["umount", "-l", str(node.home)], capture_output=True, check=False)
