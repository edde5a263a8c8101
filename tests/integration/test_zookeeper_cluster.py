"""Three brokers that share a ZooKeeper: what they acknowledged outlives any of them, long before a session ends."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from bench.peers.cluster import ClusterProcess
from bench.peers.zookeeper import ZooKeeper
from tests.integration.clusters import QUICK, Writer, new_topic, read_all, sound_cluster, states, wait_until_balanced
from tests.integration.waiting import until

TICK_MS = 2000
SESSION_SECONDS = 20 * TICK_MS // 1000
"""The longest that ZooKeeper allows with its tick: nothing in these tests may wait for it."""

LEASE_SECONDS = 1


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS, sync=False) as running:
        yield running


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    settings = {
        **QUICK,
        "zookeeper.connect": f"{zookeeper.connect}/clusters/one",
        "zookeeper.session.timeout.ms": SESSION_SECONDS * 1000,
        "broker.session.timeout.ms": 3000,
        "odradek.leadership.lease.ms": LEASE_SECONDS * 1000,
        "odradek.self.fence.margin.ms": 100,
    }
    with sound_cluster(tmp_path_factory.mktemp("cluster"), settings) as running:
        yield running


@pytest.fixture
def admin(cluster: ClusterProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def test_there_is_no_other_store(cluster: ClusterProcess, admin: AdminClient) -> None:
    assert sorted(admin.list_topics(timeout=60).brokers) == [1, 2, 3]
    assert not list(Path(cluster.data_dir).rglob("*.sqlite"))


@pytest.mark.parametrize("victim", ["leader", "controller"])
def test_death_of_any_broker_loses_nothing_and_needs_no_session_timeout(
    cluster: ClusterProcess, admin: AdminClient, victim: str
) -> None:
    topic = new_topic(admin)
    wait_until_balanced(admin, topic)
    writer = Writer(cluster, topic)
    writer.write(300)
    writer.flush()
    found = admin.list_topics(topic, timeout=60)
    led = states(admin, topic)[0][0]
    dead = found.controller_id if victim == "controller" else led
    before = cluster.pids()[dead]
    begun = time.monotonic()
    cluster.signal_broker(dead, signal.SIGKILL)
    writer.write(300)
    writer.flush()
    # It is started again at once, at the same address, and joins although its old session is still there.
    until(lambda: cluster.pids()[dead] != before, "it is started again")
    wait_until_balanced(admin, topic)
    assert time.monotonic() - begun < SESSION_SECONDS, "somebody has waited for the session's end"
    assert not writer.failed
    read = read_all(cluster, topic, writer.next)
    assert len(read) == len(set(read)) == writer.next
    assert set(read) == set(writer.acknowledged)


def test_a_silent_zookeeper_stops_no_records(zookeeper: ZooKeeper, cluster: ClusterProcess, admin: AdminClient) -> None:
    topic = new_topic(admin)
    writer = Writer(cluster, topic)
    # A producer's id comes from the store: it has one before.
    writer.write(30)
    writer.flush()
    zookeeper.kill(0)
    try:
        writer.write(300)
        writer.flush()
    finally:
        zookeeper.start_server(0)
    assert not writer.failed
    # Topics are made again as soon as it is back.
    new_topic(admin)
    wait_until_balanced(admin, topic)
    read = read_all(cluster, topic, writer.next)
    assert sorted(read) == sorted(writer.acknowledged)


def test_leaders_act_for_longer_than_a_lease_without_zookeeper(
    zookeeper: ZooKeeper, cluster: ClusterProcess, admin: AdminClient
) -> None:
    topic = new_topic(admin)
    wait_until_balanced(admin, topic)
    writer = Writer(cluster, topic)
    writer.write(30)
    writer.flush()
    zookeeper.kill(0)
    try:
        begun = time.monotonic()
        while time.monotonic() - begun < 3 * LEASE_SECONDS:
            writer.write(3)
            writer.flush()
        assert time.monotonic() - begun < SESSION_SECONDS, "a leader waited for ZooKeeper"
    finally:
        zookeeper.start_server(0)
    assert not writer.failed
    zookeeper.wait_until_serving()
    wait_until_balanced(admin, topic)
    assert sorted(read_all(cluster, topic, writer.next)) == sorted(writer.acknowledged)


def test_silent_broker_is_replaced_while_its_session_lasts(cluster: ClusterProcess, admin: AdminClient) -> None:
    topic = new_topic(admin)
    wait_until_balanced(admin, topic)
    controller = admin.list_topics(topic, timeout=60).controller_id
    silent = next(leader for leader, _ in states(admin, topic).values() if leader != controller)
    asked = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 2000})
    begun = time.monotonic()
    cluster.signal_broker(silent, signal.SIGSTOP)
    try:
        # One answer has to show both: another broker, which may answer next, may know less.
        others = {1, 2, 3} - {silent}
        until(
            lambda: all(leader in others and others.issuperset(isr) for leader, isr in states(asked, topic).values()),
            "others lead, and the silent broker is not in sync",
        )
        assert time.monotonic() - begun < SESSION_SECONDS, "its session with ZooKeeper has ended"
    finally:
        cluster.signal_broker(silent, signal.SIGCONT)
    wait_until_balanced(admin, topic)
