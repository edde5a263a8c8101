"""What faults are done to: real processes behind a proxy, on SQLite, a ZooKeeper ensemble or a KRaft quorum."""

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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from bench.peers.broker import BrokerError, BrokerProcess
from bench.peers.zookeeper import ZooKeeper, free_ports
from odradek.wire.headers import encode_request_header, parse_response_header
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.faults.links import Links
from tests.faults.namespaces import STORE, Namespaces
from tests.faults.peer import CONTROLLER_LISTENER, KafkaProcess, new_cluster_id
from tests.unit.broker.quorum.controllers_in_process import format_directory

SESSION_SECONDS: Final = 3.0
WHOLE_SECONDS: Final = 90.0
VOLUME_BYTES: Final = 384 << 20
_METADATA_VERSION: Final = 12
_FAULTY: Final = re.compile(r"Traceback|exception was never retrieved|Exception in callback")
_ABSENT_FEATURES: Final = ("share.version=0", "streams.version=0")
"""Levels of what Odradek does not have yet."""
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
    namespaces: bool = False
    """Each broker has a network namespace of its own; there is no proxy. This process must have entered one."""
    quorum: bool = False
    """Every process is a broker and a controller of one KRaft quorum."""
    peer: bool = False
    """Apache Kafka in place of Odradek; `quorum` holds for it, too."""
    apache: int = 0
    """So many of the nodes, the first ones, are Apache Kafka beside Odradek; `quorum` holds for all."""

    @property
    def name(self) -> str:
        if self.peer:
            return f"{self.brokers} brokers of Apache Kafka"
        if self.apache:
            return f"{self.brokers} brokers in a quorum, {self.apache} of Apache Kafka"
        if self.quorum:
            return f"{self.brokers} brokers in a quorum"
        if self.namespaces:
            return f"{self.brokers} brokers in namespaces on ZooKeeper"
        brokers = "one broker" if self.brokers == 1 else f"{self.brokers} brokers"
        return f"{brokers} on {f'ZooKeeper ({self.zookeepers} servers)' if self.zookeepers else 'SQLite'}"


Answer = TypeVar("Answer", MetadataResponse, DescribeQuorumResponse)


def ask(address: tuple[str, int], request: Any, answer: type[Answer], version: int, timeout_seconds: float) -> Answer:
    """A broker's answer, asked past the proxy. Raises OSError."""
    with socket.create_connection(address, timeout_seconds) as connection:
        connection.settimeout(timeout_seconds)
        out = bytearray(4)
        encode_request_header(out, request.API_KEY, version, 1, "faults")
        request.encode(out, version)
        out[0:4] = (len(out) - 4).to_bytes(4, "big")
        connection.sendall(out)
        with connection.makefile("rb") as stream:
            size = stream.read(4)
            if len(size) < 4:
                raise ConnectionError("closed without an answer")
            frame = memoryview(stream.read(int.from_bytes(size, "big")))
    _, position = parse_response_header(frame, request.API_KEY, version)
    response, _ = answer.decode(frame, position, version)
    return response


class Node:
    """One broker: its process, its ports and its clock."""

    def __init__(self, broker_id: int, home: Path, ports: Sequence[int], host: str = "127.0.0.1") -> None:
        self.broker_id = broker_id
        self.host = host
        self.home = home / f"broker-{broker_id}"
        self.client_port, self.broker_port, self.controller_port = ports
        self.clock_path = home / f"clock-{broker_id}"
        self.clock_path.write_bytes(bytes(8))
        self.is_volume = False
        self.acts: list[tuple[float, str]] = []
        """What was done to it, by the monotonic clock."""
        self.ends: list[float] = []
        """When it had ended, by that clock."""
        self.process: BrokerProcess | KafkaProcess = BrokerProcess(self.home / "data")

    def _listeners(self, links: Links | None) -> dict[str, object]:
        host, client, broker = self.host, self.client_port, self.broker_port
        if links is not None:
            client, broker = links.ports[f"clients-{self.broker_id}"], links.ports[f"brokers-{self.broker_id}"]
        return {
            "node.id": self.broker_id,
            "listeners": f"PLAINTEXT://{host}:{self.client_port},BROKERS://{host}:{self.broker_port}",
            "advertised.listeners": f"PLAINTEXT://{host}:{client},BROKERS://{host}:{broker}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
        }

    @staticmethod
    def _bound_to_modes() -> tuple[str, ...]:
        # Root could write into a read-only directory.
        if os.geteuid() != 0 or not shutil.which("setpriv"):
            return ()
        return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")

    def in_quorum(self, links: Links, nodes: Sequence[Node]) -> dict[str, object]:
        """The settings of a broker that is a controller, too; it reaches its own controller past the proxy."""
        voters = []
        for node in nodes:
            port = node.controller_port if node is self else links.ports[f"controllers-{node.broker_id}"]
            voters.append(f"{node.broker_id}@{node.host}:{port}")
        own = self._listeners(links)
        protocols = own["listener.security.protocol.map"]
        return own | {
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": CONTROLLER_LISTENER,
            "listeners": f"{own['listeners']},{CONTROLLER_LISTENER}://{self.host}:{self.controller_port}",
            "listener.security.protocol.map": f"{protocols},{CONTROLLER_LISTENER}:PLAINTEXT",
        }

    def configure_apache(self, settings: dict[str, object], cluster_id: str, features: Sequence[str] = ()) -> None:
        """Make this node an Apache Kafka; `features` are levels to format with."""
        own = KafkaProcess(self.home / "data", settings, cluster_id, self.client_port, self._bound_to_modes(), features)
        self.process = own
        self.process.log_path = self.home.with_suffix(".log")

    def configure(self, settings: dict[str, object], links: Links | None, prefix: Sequence[str] = ()) -> None:
        """Make this node an Odradek; `prefix` runs it."""
        own = {} if "process.roles" in settings else self._listeners(links) | {"broker.id": self.broker_id}
        prefix = (*prefix, *self._bound_to_modes())
        clock = {
            "ODRADEK_FAULTS_CLOCK": str(self.clock_path),
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(Path(__file__).with_name("clock")), os.environ.get("PYTHONPATH", "")])
            ),
        }
        self.process = BrokerProcess(self.home / "data", settings | own, prefix=prefix, environment=clock)
        self.process.log_path = self.home.with_suffix(".log")  # not on the disk that is filled

    @property
    def is_apache(self) -> bool:
        """Whether this node is an Apache Kafka."""
        return isinstance(self.process, KafkaProcess)

    def running(self) -> bool:
        return self.process.running()

    def start(self) -> None:
        if not self.running():
            self.process.kill()  # reaps one that ended by itself
            self._act("start")
            self.process.start()

    def kill(self) -> None:
        self._act("kill -9")
        self.process.kill()
        self.ends.append(time.monotonic())

    def terminate(self) -> None:
        self._act("SIGTERM")
        self.process.stop(60)
        self.ends.append(time.monotonic())

    def _act(self, what: str) -> None:
        self.acts.append((time.monotonic(), what))

    def signal(self, number: signal.Signals) -> None:
        if self.running():
            self._act(number.name)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, number)

    def set_clock(self, seconds_off: float) -> None:
        with self.clock_path.open("r+b") as file:
            file.write(struct.pack("<q", int(seconds_off * 1e9)))

    def metadata(self, timeout_seconds: float = 2.0) -> MetadataResponse:
        """The broker's own view of all topics and brokers. Raises OSError."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        address = self.host, self.client_port
        return ask(address, request, MetadataResponse, _METADATA_VERSION, timeout_seconds)

    def quorum_leader(self, timeout_seconds: float = 2.0) -> int:
        """Which controller leads the quorum. Raises OSError."""
        topic = DescribeQuorumRequestTopic("__cluster_metadata", [DescribeQuorumRequestPartition(0)])
        request = DescribeQuorumRequest([topic])
        answer = ask((self.host, self.client_port), request, DescribeQuorumResponse, 0, timeout_seconds)
        return answer.topics[0].partitions[0].leader_id

    def exceptions(self) -> list[str]:
        """Lines of its log with an unexpected exception, each with the lines that follow it."""
        if not self.process.log_path.exists():
            return []
        lines = self.process.log_path.read_text(errors="replace").splitlines()
        return ["\n".join(lines[max(0, i - 2) : i + 40]) for i, line in enumerate(lines) if _FAULTY.search(line)]


def start_together(nodes: Sequence[Node]) -> None:
    """Start nodes at the same time: those of a quorum get ready only where a majority runs. Raises BrokerError."""
    with ThreadPoolExecutor(max_workers=max(1, len(nodes))) as pool:
        list(pool.map(Node.start, nodes))


class Deployment:
    """`with Deployment(home, shape) as deployment`: all brokers serve, and the topics are there."""

    def __init__(self, home: Path, shape: Shape) -> None:
        self.home = home
        self.shape = shape
        self.nodes: list[Node] = []
        self.links: Links | None = None
        self.network: Namespaces | None = None
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
        ports = free_ports(3 * count)
        if self.shape.namespaces:
            self.network = Namespaces(count)
            self.network.start()
        for i in range(count):
            host = "127.0.0.1" if self.network is None else self.network.address(i + 1)
            self.nodes.append(Node(i + 1, self.home, ports[3 * i : 3 * i + 3], host))
        if self.shape.proxied:
            self.links = Links(self._targets()).start()
        if self.shape.zookeepers:
            self.zookeeper = self._make_zookeeper()
            self.zookeeper.start()
        if self.shape.volume:
            self._mount(self.nodes[-1])
        self._configure()
        start_together(self.nodes)
        for node in self.nodes:
            if isinstance(node.process, KafkaProcess):
                node.process.wait_until_serving()
        self._make_topics()
        self.wait_whole()

    def _configure(self) -> None:
        cluster_id = new_cluster_id()
        for node in self.nodes:
            settings = self._settings()
            if self.shape.quorum:
                assert self.links is not None
                settings |= node.in_quorum(self.links, self.nodes)
            if self.shape.peer or node.broker_id <= self.shape.apache:
                node.configure_apache(settings, cluster_id, _ABSENT_FEATURES if self.shape.apache else ())
                continue
            if self.shape.quorum:
                format_directory(node.home / "data", node.broker_id, cluster_id)
            prefix = () if self.network is None else self.network.prefix(f"broker{node.broker_id}")
            node.configure(settings, self.links, prefix)

    def _targets(self) -> dict[str, int]:
        targets = {f"clients-{n.broker_id}": n.client_port for n in self.nodes}
        targets |= {f"brokers-{n.broker_id}": n.broker_port for n in self.nodes}
        if self.shape.quorum:
            targets |= {f"controllers-{n.broker_id}": n.controller_port for n in self.nodes}
        return targets

    def _make_zookeeper(self) -> ZooKeeper:
        home = self.home / "zookeeper"
        if self.network is None:
            return ZooKeeper(home, self.shape.zookeepers)
        return ZooKeeper(home, self.shape.zookeepers, host=STORE, prefix=self.network.prefix("store"))

    def obey(self, side: str, node: Node, action: str) -> None:
        """Have the proxy do it to the links of a broker's `clients` or `brokers`; its controller's belong to these."""
        assert self.links is not None
        node.acts.append((time.monotonic(), f"{action} {side}"))
        self.links.obey(f"{side}-{node.broker_id}", action)
        if side == "brokers" and self.shape.quorum:
            self.links.obey(f"controllers-{node.broker_id}", action)

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
        elif self.shape.quorum:
            settings |= {"broker.heartbeat.interval.ms": 500}
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
            return ",".join(f"{n.host}:{n.client_port}" for n in self.nodes)
        return ",".join(f"127.0.0.1:{self.links.ports[f'clients-{n.broker_id}']}" for n in self.nodes)

    def _views(self) -> Iterator[tuple[Node, MetadataResponse]]:
        for node in self.nodes:
            if node.running():
                with contextlib.suppress(OSError):
                    yield node, node.metadata(0.5)

    def controller(self) -> Node | None:
        """The one that most brokers take for it."""
        if self.shape.quorum:
            return self._quorum_leader()
        said = [view.controller_id for _, view in self._views()]
        return self._node(max(set(said), key=said.count)) if said else None

    def _quorum_leader(self) -> Node | None:
        for node in self.nodes:
            if node.running():
                with contextlib.suppress(OSError, IndexError):
                    return self._node(node.quorum_leader())
        return None

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
        ended = [node for node in self.nodes if not node.running()]
        try:
            start_together(ended)
        except BrokerError as error:
            return f"not all of {[node.broker_id for node in ended]} start: {str(error)[-1500:]}"
        for node in self.nodes:
            try:
                view = node.metadata()
            except OSError as error:
                return f"broker {node.broker_id} does not answer: {error!r}"
            alive = {broker.node_id for broker in view.brokers}
            if len(alive) < len(self.nodes):
                return f"broker {node.broker_id} sees only {sorted(alive)}"
            if view.controller_id not in alive:
                return f"broker {node.broker_id} sees no controller"
            counts = {topic.name: len(topic.partitions) for topic in view.topics}
            if short := {name: counts.get(name, 0) for name, count in _TOPICS.items() if counts.get(name) != count}:
                return f"broker {node.broker_id} sees {short} partitions"
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
        if self.network is not None:
            self.network.heal()
        if self.links is not None:
            self.links.stop()
        if self.zookeeper is not None:
            self.zookeeper.stop()
        for node in self.nodes:
            if node.is_volume:
                node.is_volume = False
                subprocess.run(["umount", "-l", str(node.home)], capture_output=True, check=False)
