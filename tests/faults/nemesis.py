"""The faults: each is done to a deployment, held for a while, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from odradek.client.admin import Admin
from odradek.client.errors import ClientError
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError
from tests.faults.deployment import SESSION_SECONDS, Deployment, Node, start_together
from tests.faults.network_faults import NETWORK

_MOVE_SECONDS: Final = 60.0


class Torment(NamedTuple):
    """What a fault has to work with."""

    deployment: Deployment
    chance: random.Random
    pace: float = 1.0
    """How long faults are held, as a part of what they usually are."""

    def hold(self, least: float, most: float) -> None:
        time.sleep(self.pace * self.chance.uniform(least, most))

    def some(self) -> Node:
        return self.chance.choice(self.deployment.nodes)

    def leader(self) -> Node:
        return self.deployment.leader("steady", self.chance.randrange(3)) or self.some()

    def controller(self) -> Node:
        return self.deployment.controller() or self.some()


def _killed(torment: Torment, *nodes: Node) -> None:
    for index, node in enumerate(nodes):
        if index:
            torment.hold(0.0, 0.5)
        node.kill()
    torment.hold(0.0, 2.0)
    for node in torment.chance.sample(nodes, len(nodes)):
        node.start()


def kill_leader(torment: Torment) -> None:
    _killed(torment, torment.leader())


def kill_controller(torment: Torment) -> None:
    _killed(torment, torment.controller())


def kill_two(torment: Torment) -> None:
    """One after the other, before the first is back."""
    _killed(torment, *torment.chance.sample(torment.deployment.nodes, 2))


def kill_all(torment: Torment) -> None:
    nodes = torment.deployment.nodes
    for node in nodes:
        node.kill()
    start_together(torment.chance.sample(nodes, len(nodes)))


def kill_starting(torment: Torment) -> None:
    """Killed, and killed again while it recovers and joins."""
    node = torment.leader()
    for _ in range(3):
        node.kill()
        node.start()
        torment.hold(0.0, 0.3)


def kill(torment: Torment) -> None:
    node = torment.deployment.nodes[0]
    node.kill()
    node.start()


def terminate(torment: Torment) -> None:
    node = torment.leader()
    node.terminate()
    torment.hold(0.0, 1.5)
    node.start()


def _stopped(torment: Torment, node: Node, least: float, most: float) -> None:
    node.signal(signal.SIGSTOP)
    try:
        torment.hold(least, most)
    finally:
        node.signal(signal.SIGCONT)


def pause_leader(torment: Torment) -> None:
    """SIGSTOP, shorter than a session."""
    _stopped(torment, torment.leader(), 0.2, SESSION_SECONDS - 1)


def stop_leader(torment: Torment) -> None:
    """SIGSTOP, longer than a session: it wakes up deposed."""
    node = torment.leader()
    node.signal(signal.SIGSTOP)
    try:
        time.sleep(SESSION_SECONDS + torment.chance.uniform(1.0, 3.0))
    finally:
        node.signal(signal.SIGCONT)


def stop_controller(torment: Torment) -> None:
    node = torment.controller()
    node.signal(signal.SIGSTOP)
    try:
        time.sleep(SESSION_SECONDS + torment.chance.uniform(1.0, 3.0))
    finally:
        node.signal(signal.SIGCONT)


def _linked(torment: Torment, side: str, node: Node, action: str, hold: tuple[float, float] = (0.0, 0.3)) -> None:
    deployment = torment.deployment
    deployment.obey(side, node, action)
    try:
        torment.hold(*hold)
    finally:
        if action not in ("cut", "lose"):
            deployment.obey(side, node, "flow")


def cut_clients(torment: Torment) -> None:
    """All clients' connections of a leader are reset, several times."""
    node = torment.leader()
    for _ in range(3):
        _linked(torment, "clients", node, "cut")


def lose_answers(torment: Torment) -> None:
    """What clients asked has been done, the answer is lost with the connection."""
    node = torment.leader()
    for _ in range(3):
        _linked(torment, "clients", node, "lose")


def stall_clients(torment: Torment) -> None:
    """Nothing passes between clients and a leader, in one direction or both; what was under way comes late."""
    action = torment.chance.choice(("stall", "deaf", "mute"))
    _linked(torment, "clients", torment.leader(), action, (0.5, 7.0))


def cut_brokers(torment: Torment) -> None:
    """All connections to a broker from the other brokers are reset, several times."""
    node = torment.some()
    for _ in range(3):
        _linked(torment, "brokers", node, "cut")


def stall_brokers(torment: Torment) -> None:
    """The other brokers cannot reach one of them, or do not receive its responses; it reaches them."""
    action = torment.chance.choice(("stall", "deaf", "mute"))
    _linked(torment, "brokers", torment.leader(), action, (0.5, 7.0))


def refuse_brokers(torment: Torment) -> None:
    """Connections to a leader are reset and refused: the others take it for dead, and it is not."""
    _linked(torment, "brokers", torment.leader(), "refuse", (0.2, 4.0))


def isolate(torment: Torment) -> None:
    """Neither clients nor brokers reach it."""
    node, deployment = torment.leader(), torment.deployment
    for side in ("clients", "brokers"):
        deployment.obey(side, node, "stall")
    try:
        torment.hold(1.0, 6.0)
    finally:
        for side in ("clients", "brokers"):
            deployment.obey(side, node, "flow")


def reassign(torment: Torment) -> None:
    """A partition's leader gives its replica away; then it gets it again and leads as the preferred one."""
    deployment, partition = torment.deployment, torment.chance.randrange(3)
    leader = deployment.leader("steady", partition)
    if leader is None:
        return
    others = [node.broker_id for node in deployment.nodes if node is not leader]
    asyncio.run(_moved(deployment.bootstrap, TopicPartition("steady", partition), others))
    torment.hold(0.5, 1.5)
    asyncio.run(_moved(deployment.bootstrap, TopicPartition("steady", partition), [leader.broker_id, *others]))


async def _moved(bootstrap: str, partition: TopicPartition, replicas: list[int]) -> None:
    """Reassign, wait for the end, elect the preferred leader. An attempt is made until one succeeds."""
    async with Admin(bootstrap_servers=bootstrap, client_id="faults") as admin, asyncio.timeout(_MOVE_SECONDS):
        while True:
            with contextlib.suppress(ClientError, KafkaError):
                failure = (await admin.replicas.reassign({partition: replicas}))[partition]
                if failure is None:
                    break
            await asyncio.sleep(0.1)
        while await admin.replicas.reassignments([partition]):
            await asyncio.sleep(0.05)
        with contextlib.suppress(ClientError, KafkaError):
            await admin.replicas.elect([partition])


def fill_disk(torment: Torment) -> None:
    """The last broker's disk is full for some seconds; then there is room and it is started again."""
    node = torment.deployment.nodes[-1]
    ballast = node.home / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:
            block = bytes(1 << 20)
            with contextlib.suppress(OSError):
                while True:
                    file.write(block)
        torment.hold(1.0, 4.0)
    finally:
        ballast.unlink(missing_ok=True)
    _restarted(node)


def _restarted(node: Node) -> None:
    """What an operator does with a broker whose disk failed."""
    if node.running():
        node.terminate()
    node.start()


@contextlib.contextmanager
def _read_only(directory: Path) -> Iterator[None]:
    changed = [Path(path) for path, _, _ in os.walk(directory)]
    for path in changed:
        path.chmod(0o555)
    try:
        yield
    finally:
        for path in changed:
            with contextlib.suppress(FileNotFoundError):
                path.chmod(0o755)


def read_only(torment: Torment) -> None:
    """No file can be made in a broker's log directory; segments that roll, logs and checkpoints need some."""
    node = torment.leader()
    with _read_only(node.home / "data"):
        torment.hold(3.0, 7.0)
    _restarted(node)


def few_files(torment: Torment) -> None:
    """`ulimit -n` just above what is open, and every client connects again."""
    node = torment.leader()
    if not node.running():
        return
    before = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    opened = len(os.listdir(f"/proc/{node.process.pid}/fd"))
    links = torment.deployment.links
    try:
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (opened + 2, before[1]))
        for _ in range(3):
            if links is not None:
                links.obey(f"clients-{node.broker_id}", "cut")
            torment.hold(0.5, 2.0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            if node.running():
                resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, before)


def jump_clock(torment: Torment) -> None:
    """A broker's wall clock is off by up to an hour, either way, and comes back."""
    node = torment.chance.choice([each for each in torment.deployment.nodes if not each.is_apache])
    node.set_clock(torment.chance.choice((-1, 1)) * torment.chance.uniform(30, 3600))
    try:
        torment.hold(1.0, 5.0)
    finally:
        node.set_clock(0)


def kill_zookeeper_leader(torment: Torment) -> None:
    zookeeper = torment.deployment.zookeeper
    assert zookeeper is not None
    index = zookeeper.leader()
    if index is not None:
        zookeeper.kill(index)
        torment.hold(0.5, 3.0)
        zookeeper.start_server(index)
        zookeeper.wait_until_serving()


def kill_zookeeper_follower(torment: Torment) -> None:
    zookeeper = torment.deployment.zookeeper
    assert zookeeper is not None
    leader = zookeeper.leader()
    index = torment.chance.choice([i for i in range(len(zookeeper.ports)) if i != leader])
    zookeeper.kill(index)
    torment.hold(0.5, 3.0)
    zookeeper.start_server(index)
    zookeeper.wait_until_serving()


def stop_zookeeper_leader(torment: Torment) -> None:
    """SIGSTOP for longer than a session."""
    zookeeper = torment.deployment.zookeeper
    assert zookeeper is not None
    index = zookeeper.leader()
    if index is not None:
        zookeeper.signal(index, signal.SIGSTOP)
        try:
            time.sleep(SESSION_SECONDS + torment.chance.uniform(1.0, 3.0))
        finally:
            zookeeper.signal(index, signal.SIGCONT)
        zookeeper.wait_until_serving()


def kill_zookeeper(torment: Torment) -> None:
    """All servers at once: no store for some seconds."""
    zookeeper = torment.deployment.zookeeper
    assert zookeeper is not None
    for index in range(len(zookeeper.ports)):
        zookeeper.kill(index)
    torment.hold(0.5, 4.0)
    for index in range(len(zookeeper.ports)):
        zookeeper.start_server(index)
    zookeeper.wait_until_serving()


Fault = Callable[[Torment], None]
ALONE: Final[dict[str, Fault]] = {
    "kill": kill,
    "kill while starting": kill_starting,
    "SIGTERM": terminate,
    "SIGSTOP, short": pause_leader,
    "SIGSTOP, long": stop_leader,
    "cut clients": cut_clients,
    "lose answers": lose_answers,
    "stall clients": stall_clients,
    "disk full": fill_disk,
    "read-only directory": read_only,
    "few files": few_files,
    "clock jump": jump_clock,
}
CLUSTER: Final[dict[str, Fault]] = {
    "kill a leader": kill_leader,
    "kill the controller": kill_controller,
    "kill two": kill_two,
    "kill all": kill_all,
    "kill while starting": kill_starting,
    "SIGTERM": terminate,
    "SIGSTOP, short": pause_leader,
    "SIGSTOP, long": stop_leader,
    "SIGSTOP the controller": stop_controller,
    "cut clients": cut_clients,
    "lose answers": lose_answers,
    "stall clients": stall_clients,
    "cut brokers": cut_brokers,
    "stall brokers": stall_brokers,
    "refuse brokers": refuse_brokers,
    "isolate a leader": isolate,
    "reassignment": reassign,
    "disk full": fill_disk,
    "read-only directory": read_only,
    "few files": few_files,
    "clock jump": jump_clock,
}
ZOOKEEPER: Final[dict[str, Fault]] = {
    "kill ZooKeeper's leader": kill_zookeeper_leader,
    "kill a ZooKeeper follower": kill_zookeeper_follower,
    "SIGSTOP ZooKeeper's leader": stop_zookeeper_leader,
    "kill all of ZooKeeper": kill_zookeeper,
}


def faults_of(deployment: Deployment) -> tuple[dict[str, Fault], list[str]]:
    """What can be done to it, and what cannot be done here, each with the reason."""
    faults = dict(ALONE if deployment.shape.brokers == 1 else CLUSTER)
    if deployment.zookeeper is not None:
        faults |= ZOOKEEPER
    missing = []
    if deployment.network is not None:
        faults |= NETWORK
        if not deployment.network.slow_links:
            del faults["slow leader"]
            missing.append("slow leader: the kernel has neither netem nor tbf")
        for name in ZOOKEEPER:
            del faults[name]
    if deployment.shape.peer:
        del faults["clock jump"]
        missing.append("clock jump: a JVM's clock cannot be moved here")
    if not deployment.can_fill:
        del faults["disk full"]
        missing.append("disk full: no file system may be mounted here (that takes root)")
    if deployment.links is None:
        for name in ("cut clients", "lose answers", "stall clients", "cut brokers", "stall brokers", "refuse brokers"):
            faults.pop(name, None)
        faults.pop("isolate a leader", None)
    return faults, missing
