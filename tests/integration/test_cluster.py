"""Three brokers on one machine: any of them serves everything, and any of them may die."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.peers.broker import BrokerProcess
from bench.peers.cluster import ClusterProcess
from odradek.cli.main import main
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.integration.clusters import QUICK, Writer, new_topic, read_all, sound_cluster, states, wait_until_balanced
from tests.integration.waiting import PATIENCE, until

Connect = Callable[[str], Any]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with sound_cluster(tmp_path_factory.mktemp("cluster"), QUICK) as running:
        yield running


@pytest.fixture
def admin(cluster: ClusterProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def test_any_broker_takes_requests_for_the_controller(
    cluster: ClusterProcess, admin: AdminClient, connect: Connect
) -> None:
    for address in cluster.bootstrap.split(","):
        client = connect(address)
        name = f"t-{uuid.uuid4().hex[:8]}"
        wanted = CreateTopicsRequestTopic(name=name, num_partitions=2, replication_factor=3)
        made = client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000), 7)
        assert [topic.error_code for topic in made.topics] == [ErrorCode.NONE]
        known = client.call(MetadataRequest([MetadataRequestTopic(name=name)]), 12)
        assert len(known.brokers) == 3
        assert [partition.error_code for partition in known.topics[0].partitions] == [ErrorCode.NONE] * 2
        assert {len(partition.isr_nodes) for partition in known.topics[0].partitions} == {3}


def test_configurations_reach_every_broker(cluster: ClusterProcess, admin: AdminClient) -> None:
    topic = new_topic(admin)
    entry = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    for address in cluster.bootstrap.split(","):
        one = AdminClient({"bootstrap.servers": address})
        asked = ConfigResource(ResourceType.TOPIC, topic)

        def changed(one: AdminClient = one, asked: ConfigResource = asked) -> bool:
            return bool(one.describe_configs([asked])[asked].result(30)["retention.ms"].value == "123456")

        until(changed, f"{address} knows")


@pytest.mark.parametrize("victim", ["leader", "controller"])
def test_no_acknowledged_record_is_lost_with_a_broker(cluster: ClusterProcess, admin: AdminClient, victim: str) -> None:
    topic = new_topic(admin)
    writer = Writer(cluster, topic)
    writer.write(300)
    found = admin.list_topics(topic, timeout=60)
    dead = found.controller_id if victim == "controller" else states(admin, topic)[0][0]
    cluster.signal_broker(dead, signal.SIGKILL)
    writer.write(300)
    writer.flush()
    assert not writer.failed
    wait_until_balanced(admin, topic)
    writer.write(300)
    writer.flush()
    read = read_all(cluster, topic, writer.next)
    assert len(read) == len(set(read)) == writer.next
    assert set(read) == set(writer.acknowledged)


def test_a_transaction_across_brokers_and_its_coordinators_death(cluster: ClusterProcess, admin: AdminClient) -> None:
    topic = new_topic(admin)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "retry.backoff.ms": 50})
    producer.init_transactions(PATIENCE)
    expected = []
    for number in range(6):
        producer.begin_transaction()
        for index in range(3):
            producer.produce(topic, b"%d-%d" % (number, index), partition=index)
        if number == 2:
            coordinator = states(admin, "__transaction_state")
            cluster.signal_broker(coordinator[0][0], signal.SIGKILL)
        if number % 2:
            producer.abort_transaction(PATIENCE)
        else:
            producer.commit_transaction(PATIENCE)
            expected += [b"%d-%d" % (number, index) for index in range(3)]
    read = read_all(cluster, topic, len(expected), **{"isolation.level": "read_committed"})
    assert sorted(read) == sorted(expected)
    wait_until_balanced(admin, topic)


def test_group_continues_when_its_coordinator_dies(cluster: ClusterProcess, admin: AdminClient) -> None:
    topic = new_topic(admin)
    writer = Writer(cluster, topic)
    writer.write(30)
    writer.flush()
    consumer = Consumer({
        "bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "session.timeout.ms": 10_000, "reconnect.backoff.max.ms": 200,
    })  # fmt: skip
    consumer.subscribe([topic])
    seen: set[bytes] = set()

    def take() -> bool:
        for message in consumer.consume(100, 0.2):
            if not message.error():
                seen.add(message.value() or b"")
        return len(seen) == writer.next

    until(take, "all is read")
    consumer.commit(asynchronous=False)
    groups = admin.describe_consumer_groups([topic])[topic].result(30)
    cluster.signal_broker(groups.coordinator.id, signal.SIGKILL)
    writer.write(30)
    writer.flush()
    until(take, "all is read after the coordinator's death")

    def committed() -> bool:
        places = [TopicPartition(topic, index) for index in range(3)]
        # Both fail while another coordinator takes over; a commit also where there is nothing left to commit.
        with contextlib.suppress(KafkaException):
            consumer.commit(asynchronous=False)
        with contextlib.suppress(KafkaException):
            return sum(place.offset for place in consumer.committed(places, timeout=60)) == writer.next
        return False

    until(committed, "offsets are committed")
    consumer.close()
    wait_until_balanced(admin, topic)


def odradek(cluster: ClusterProcess, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """The document that a command prints."""
    assert main([*words, "--bootstrap-server", cluster.bootstrap, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_a_command_moves_arrives(
    cluster: ClusterProcess, admin: AdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 6, replica_assignment=[[1, 2]] * 6)])[name].result(30)
    writer = Writer(cluster, name)
    for _ in range(20):
        writer.write(300)
        writer.flush()
    found = odradek(cluster, capsys, "cluster", "balance")["partitions"]
    assert any(3 in move["replicas"] for move in found if move["topic"] == name)
    odradek(cluster, capsys, "cluster", "balance", "--execute")
    assert odradek(cluster, capsys, "cluster", "balance")["partitions"] == []
    assert {broker for _, isr in states(admin, name).values() for broker in isr} == {1, 2, 3}
    read = read_all(cluster, name, writer.next)
    assert sorted(read) == sorted(writer.acknowledged)


def test_rolling_restart_stops_no_client(
    cluster: ClusterProcess, admin: AdminClient, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = new_topic(admin)
    before = cluster.pids()
    writer = Writer(cluster, topic)
    restart = threading.Thread(
        target=main,
        args=(["cluster", "restart", "--rolling", "--data-dir", str(cluster.data_dir),
               "--bootstrap-server", cluster.bootstrap],),
    )  # fmt: skip
    restart.start()
    while restart.is_alive():
        writer.write(20)
        restart.join(0.02)
    writer.flush()
    assert "3 brokers have restarted" in capsys.readouterr().out
    assert not before.items() & cluster.pids().items()
    assert not writer.failed
    read = read_all(cluster, topic, writer.next)
    assert sorted(read) == sorted(writer.acknowledged)
    status = odradek(cluster, capsys, "cluster", "status")
    assert (status["under_replicated"], status["leaderless"]) == (0, 0)
    assert [(broker["broker"], broker["lag"]) for broker in status["brokers"]] == [(1, 0), (2, 0), (3, 0)]
    assert [broker["leads"] for broker in status["brokers"]] == [broker["preferred"] for broker in status["brokers"]]


def test_brokers_find_each_other_through_the_store_and_the_control_plane(
    tmp_path: Path, make_broker: Callable[..., BrokerProcess]
) -> None:
    brokers = []
    for broker_id in (1, 2):
        settings = {
            "node.id": broker_id,
            "odradek.metadata.store": tmp_path / "metadata.sqlite",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROL://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROL:PLAINTEXT",
            "control.plane.listener.name": "CONTROL",
        }
        brokers.append(make_broker(settings, f"broker-{broker_id}").start())
    admin = AdminClient({"bootstrap.servers": brokers[1].bootstrap})
    admin.create_topics([NewTopic("t", 2, 2)])["t"].result(30)
    until(lambda: all(isr == [1, 2] for _, isr in states(admin, "t").values()), "both are in sync")
    found = admin.describe_cluster().result(30)
    assert [f"{node.host}:{node.port}" for node in found.nodes] == [broker.bootstrap for broker in brokers]
    assert found.controller.id == 1
    brokers[0].kill()
    until(lambda: {leader for leader, _ in states(admin, "t").values()} == {2}, "the other leads")
