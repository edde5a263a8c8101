"""Three processes that are brokers and controllers of a KRaft quorum: what the end of the active controller costs.

The active controller leads the only partition of the topic, too. It is killed (-9), or stands still (SIGSTOP).
`next topic`: from the signal until a topic is created that another broker was asked for at once. `write gap`: the
longest time between two acknowledgements of the partition (`bench.cases.cluster`). Default timeouts on both sides:
sessions of 9 s, elections after 1 s, fetches 2 s.
"""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.cases.cluster import CLUSTERS, COPIES, RunningCluster, Writer, fresh
from bench.cases.groups import Connection
from bench.peers.quorum import QuorumProcess
from bench.servers import Running
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)

_CREATE_VERSION = 7
_PATIENCE_MS = 60_000
_SETTLED_SECONDS = 2.0


@contextmanager
def _odradek(home: Path, nodes: int) -> Iterator[RunningCluster]:
    with QuorumProcess(home, nodes, {"group.initial.rebalance.delay.ms": 0}) as running:
        yield RunningCluster(running.bootstrap, running.pids, running.ready_seconds)


def run_quorum(name: str, _scale: float) -> dict[str, float]:
    """Every figure, each of a fresh cluster."""
    figures: dict[str, float] = {}
    for label, how in (("kill -9", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP)):
        with fresh(name, clusters={**CLUSTERS, "odradek": _odradek}) as cluster:
            topic_ms, gap_ms = asyncio.run(_measure(cluster, how))
        figures |= {f"controller, {label}: next topic": topic_ms, f"controller, {label}: write gap": gap_ms}
    return figures


async def _measure(cluster: RunningCluster, how: signal.Signals) -> tuple[float, float]:
    addresses = dict(enumerate(cluster.bootstrap.split(","), 1))
    active = await _active(addresses[1])
    other = next(each for each in addresses if each != active)
    connection = await Connection.open(Running("", addresses[other], 0))
    topic = await asyncio.to_thread(_new_topic, cluster.bootstrap, active)
    with Writer(cluster.bootstrap, topic, how) as writer:
        await asyncio.sleep(_SETTLED_SECONDS)
        pid, began = cluster.pids()[active], time.perf_counter()
        os.kill(pid, how)
        await _create(connection)
        topic_ms = (time.perf_counter() - began) * 1000
        await asyncio.to_thread(writer.wait_for_another_leader, began)
        if how == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
            await asyncio.sleep(_SETTLED_SECONDS)
    return topic_ms, writer.longest_gap_ms(began)


async def _active(address: str) -> int:
    """The active controller of the quorum."""
    connection = await Connection.open(Running("", address, 0))
    topic = DescribeQuorumRequestTopic("__cluster_metadata", [DescribeQuorumRequestPartition(0)])
    answer = await connection.call(DescribeQuorumRequest([topic]), 0)
    connection.writer.close()
    leader: int = answer.topics[0].partitions[0].leader_id
    return leader


async def _create(connection: Connection) -> None:
    """Create a topic, by as many requests as it takes."""
    wanted = CreateTopicsRequestTopic(f"next-{time.monotonic_ns()}", 1, COPIES - 1)
    while True:
        answer = await connection.call(CreateTopicsRequest([wanted], timeout_ms=_PATIENCE_MS), _CREATE_VERSION)
        if answer.topics[0].error_code == 0:
            return
        await asyncio.sleep(0.01)


def _new_topic(bootstrap: str, leader: int) -> str:
    name = f"bench-{time.monotonic_ns()}"
    replicas = [leader, *(i for i in range(1, COPIES + 1) if i != leader)]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    topic = NewTopic(name, 1, replica_assignment=[replicas], config={"min.insync.replicas": "1"})
    admin.create_topics([topic])[name].result(30)
    return name
