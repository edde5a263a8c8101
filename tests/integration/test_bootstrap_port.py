"""Brokers of one machine that share a port for the first connection of clients."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.cluster import ClusterProcess
from bench.servers import API_VERSIONS_V0
from tests.integration.clusters import QUICK, described, read_all
from tests.integration.waiting import until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcess]:
    with ClusterProcess(tmp_path / "data", 2, QUICK, ["--bootstrap-port", "0"]) as running:
        yield running


def connections_to(pid: int, port: int) -> int:
    """Connections of the process that were accepted from the port."""
    own = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            own.add(each.readlink().name)
    found = 0
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        is_established = fields[3] == "01"
        if is_established and int(fields[1].rpartition(":")[2], 16) == port and f"socket:[{fields[9]}]" in own:
            found += 1
    return found


def ask(port: int) -> socket.socket:
    """A connection to the shared port on which a broker has answered."""
    connection = socket.create_connection(("127.0.0.1", port), 60)
    connection.sendall(API_VERSIONS_V0)
    assert connection.recv(4)
    return connection


def test_clients_learn_the_brokers_addresses_from_the_shared_port(cluster: ClusterProcess) -> None:
    host, _, port = cluster.bootstrap.rpartition(":")
    assert (host, "," in cluster.bootstrap) == ("127.0.0.1", False)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    brokers = admin.list_topics(timeout=60).brokers
    assert sorted(brokers) == [1, 2]
    assert int(port) not in {broker.port for broker in brokers.values()}
    admin.create_topics([NewTopic("t", 4, 2)])["t"].result(30)
    until(lambda: {each.leader for each in described(admin, "t").partitions.values()} == {1, 2}, "both brokers lead")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(40):
        producer.produce("t", json.dumps(number), partition=number % 4)
    assert producer.flush(60) == 0
    assert sorted(json.loads(value) for value in read_all(cluster, "t", 40)) == list(range(40))


def test_shared_port_is_served_while_any_broker_lives(cluster: ClusterProcess) -> None:
    port = int(cluster.bootstrap.rpartition(":")[2])
    for stopped in (1, 2):
        pid, other = cluster.pids()[stopped], cluster.pids()[3 - stopped]
        cluster.signal_broker(stopped, signal.SIGSTOP)
        opened = [ask(port) for _ in range(5)]
        assert connections_to(other, port) == 5
        for each in opened:
            each.close()
        cluster.signal_broker(stopped, signal.SIGKILL)
        until(lambda: cluster.pids()[stopped] != pid, "it is started again")  # noqa: B023
    ask(port).close()


def test_broker_that_starts_again_serves_the_shared_port(cluster: ClusterProcess) -> None:
    port = int(cluster.bootstrap.rpartition(":")[2])
    pid = cluster.pids()[1]
    cluster.signal_broker(1, signal.SIGKILL)
    until(lambda: cluster.pids()[1] != pid, "it is started again")
    cluster.signal_broker(2, signal.SIGSTOP)
    try:
        ask(port).close()
    finally:
        cluster.signal_broker(2, signal.SIGCONT)
