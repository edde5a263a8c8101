"""Brokers of Odradek in a KRaft cluster of Apache Kafka: beside Apache's brokers, and in their place."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ElectionType, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.interop.conftest import JavaTools
from tests.interop.kraft_load import (
    Load,
    assert_nothing_is_lost,
    create,
    in_sync,
    number_of,
    seconds_since_unfenced,
    until,
)
from tests.interop.kraft_nodes import CONTROLLER, KraftNodes, free_ports

pytestmark = pytest.mark.long


@pytest.fixture
def nodes(java_tools: JavaTools, tmp_path: Path) -> Iterator[KraftNodes]:
    found = KraftNodes(tmp_path)
    try:
        yield found
    finally:
        found.close()


def test_brokers_move_to_odradek_in_place_and_back_under_load(nodes: KraftNodes) -> None:
    """An idempotent and a transactional producer and a group work meanwhile; nothing is lost or torn."""
    nodes.start_apache(CONTROLLER, 1, 2, 3)
    nodes.wait_until_serving(1, 2, 3)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    create(admin, "plain")
    create(admin, "transacted")
    with Load(nodes.bootstrap) as load:
        until(lambda: len(load.acknowledged) > 200 and len(load.committed) > 20, f"no load: {load.failures}")
        for start in (nodes.start_odradek, nodes.start_apache):
            for node in (1, 2, 3):
                nodes.stop(node)
                before = len(load.acknowledged), len(load.committed)
                start(node)
                nodes.wait_until_serving(node)
                until(partial(in_sync, nodes, node), f"{node} is not in sync:\n{nodes.output(node)[-3000:]}")
                if start == nodes.start_odradek:
                    print(f"broker {node} is in sync {seconds_since_unfenced(nodes, node):.2f} s after its unfencing")
                until(
                    partial(load.has_written, before[0] + 100, before[1] + 10),
                    f"no progress: {load.failures}",
                )
    assert_nothing_is_lost(nodes, load)


def test_broker_that_stood_still_leads_again(nodes: KraftNodes) -> None:
    """The controller unfences it with its next heartbeat; it leads once it has all that was committed meanwhile."""
    nodes.start_apache(CONTROLLER, 2, 3)
    nodes.start_odradek(1)
    nodes.wait_until_serving(1, 2, 3)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    create(admin, "plain")
    places = [TopicPartition("plain", partition) for partition in range(4)]
    acknowledged: list[bytes] = []

    def leaders() -> list[int] | None:
        try:
            # A new client: one that has asked the silent broker may ask it again and again.
            found = AdminClient({"bootstrap.servers": nodes.bootstrap}).list_topics("plain", timeout=2)
        except KafkaException:
            return None
        return [found.topics["plain"].partitions[each.partition].leader for each in places]

    def write(value: bytes) -> None:
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all", "message.timeout.ms": 20_000})
        for place in places:
            producer.produce(place.topic, value, partition=place.partition, on_delivery=delivered)
        producer.flush(30)

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        acknowledged.append(message.value())

    def leads_at_its_places() -> bool:
        admin.elect_leaders(ElectionType.PREFERRED, places).result(30)
        return 1 in (leaders() or ())

    def leads_nothing() -> bool:
        found = leaders()
        return found is not None and 1 not in found

    until(partial(in_sync, nodes, 1), "the broker is not in sync")
    until(leads_at_its_places, "the broker leads nothing")
    write(b"before")
    for turn in (b"first", b"second"):
        nodes.signal(1, signal.SIGSTOP)
        until(leads_nothing, "the silent broker still leads")
        write(turn)
        nodes.signal(1, signal.SIGCONT)
        until(partial(in_sync, nodes, 1), f"the broker is not in sync again:\n{nodes.output(1)[-3000:]}")
        until(leads_at_its_places, f"the broker does not lead again:\n{nodes.output(1)[-3000:]}")
        write(b"after")
    assert sorted(acknowledged) == sorted([b"before", b"first", b"after", b"second", b"after"] * 4)


def test_group_and_transactional_id_outlive_the_move_of_their_coordinators(nodes: KraftNodes) -> None:
    """Offsets that Apache's coordinators wrote are read by ours, and the next epoch of a producer follows."""
    nodes.start_apache(CONTROLLER, 1, 2, 3)
    nodes.wait_until_serving(1, 2, 3)
    create(AdminClient({"bootstrap.servers": nodes.bootstrap}), "plain", 1)
    settings = {"bootstrap.servers": nodes.bootstrap}
    producer = Producer({**settings, "transactional.id": "t"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in range(10):
        producer.produce("plain", str(number))
    producer.commit_transaction(60)
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe(["plain"])
    got: list[int] = []
    while len(got) < 6:
        got += [number_of(each) for each in consumer.consume(6 - len(got), 1.0)]
    consumer.commit(asynchronous=False)
    consumer.close()
    for node in (1, 2, 3):
        nodes.stop(node)
        nodes.start_odradek(node)
        nodes.wait_until_serving(node)
        until(partial(in_sync, nodes, node), f"{node} is not in sync:\n{nodes.output(node)[-3000:]}")
    successor = Producer({**settings, "transactional.id": "t"})
    successor.init_transactions(60)
    successor.begin_transaction()
    successor.produce("plain", "10")
    successor.commit_transaction(60)
    consumer = Consumer(
        {**settings, "group.id": "g", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    )
    consumer.subscribe(["plain"])
    while len(got) < 11:
        got += [number_of(each) for each in consumer.consume(100, 1.0)]
    consumer.close()
    assert got == list(range(11))


def test_odradek_refuses_a_cluster_with_features_that_it_lacks(java_tools: JavaTools, tmp_path: Path) -> None:
    nodes = KraftNodes(tmp_path, brokers=(1,), features=["share.version=1"])
    try:
        nodes.start_apache(CONTROLLER)
        nodes.wait_until_serving(CONTROLLER)
        nodes.start_odradek(1)
        until(lambda: "downgrade --feature share.version=0" in nodes.output(1), "no refusal that says what to do")
    finally:
        nodes.close()


def test_acls_of_the_cluster_are_enforced_by_odradek(java_tools: JavaTools, tmp_path: Path) -> None:
    """Apache's controller keeps them: created and removed through our broker, which decides by them at once."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    nodes = KraftNodes(
        tmp_path, brokers=(1,), settings={"authorizer.class.name": authorizer, "super.users": "User:ANONYMOUS"}
    )
    (port,) = free_ports(1)
    listeners = f"PLAINTEXT://127.0.0.1:{nodes.ports[1]},SASL_PLAINTEXT://127.0.0.1:{port}"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
    nodes.add_settings(
        1,
        {
            "listeners": listeners,
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
        },
    )
    alice = {
        "bootstrap.servers": f"127.0.0.1:{port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "message.timeout.ms": 10_000,
    }

    def is_denied() -> bool:
        results: list[Any] = []
        producer = Producer(alice)
        producer.produce("guarded", b"x", on_delivery=lambda error, _message: results.append(error))
        producer.flush(30)
        assert results[0] is None or results[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, results
        return results[0] is not None

    try:
        nodes.start_apache(CONTROLLER)
        nodes.wait_until_serving(CONTROLLER)
        nodes.start_odradek(1)
        nodes.wait_until_serving(1)
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
        create(admin, "guarded", 1, 1, **{"min.insync.replicas": "1"})
        assert is_denied()
        rule = (ResourceType.TOPIC, "guarded", ResourcePatternType.LITERAL, "User:alice", "*")
        allow = AclBinding(*rule, AclOperation.WRITE, AclPermissionType.ALLOW)
        admin.create_acls([allow])[allow].result(30)
        until(lambda: not is_denied(), "the ACL that allows has no effect", 10)
        everything_of_alice = AclBindingFilter(*rule, AclOperation.ANY, AclPermissionType.ANY)
        assert admin.delete_acls([everything_of_alice])[everything_of_alice].result(30) == [allow]
        until(is_denied, "the ACL that was removed has an effect", 10)
        assert admin.describe_acls(everything_of_alice).result(30) == []
    finally:
        nodes.close()


def test_brokers_and_controllers_know_each_other_by_sasl(java_tools: JavaTools, tmp_path: Path) -> None:
    """An Apache broker and ours replicate to each other where only logins with the right to cluster actions may."""
    mechanism = "PLAIN"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required "
    login += 'username="admin" password="secret" user_admin="secret";'
    settings = {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        "sasl.mechanism.controller.protocol": mechanism,
        f"listener.name.plaintext.{mechanism.lower()}.sasl.jaas.config": login,
        f"listener.name.controller.{mechanism.lower()}.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin",
        "offsets.topic.replication.factor": "2",
    }
    nodes = KraftNodes(tmp_path, brokers=(1, 2), settings=settings)
    client: dict[str, str | int | float | bool] = {
        "bootstrap.servers": nodes.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "admin",
        "sasl.password": "secret",
    }
    try:
        nodes.start_apache(CONTROLLER, 1)
        nodes.wait_until_serving(1)
        nodes.start_odradek(2)
        nodes.wait_until_serving(2)
        admin = AdminClient(client)
        create(admin, "both", 2, 2)
        delivered: list[Any] = []
        producer = Producer({**client, "acks": "all"})
        for partition in (0, 1):
            for number in range(50):
                producer.produce(
                    "both",
                    str(number),
                    partition=partition,
                    on_delivery=lambda error, _message: delivered.append(error),
                )
        assert producer.flush(60) == 0
        assert delivered == [None] * 100
        leaders = {each.leader for each in admin.list_topics("both", timeout=30).topics["both"].partitions.values()}
        assert leaders == {1, 2}
    finally:
        nodes.close()


def test_migration_check_finds_what_stands_in_the_way(java_tools: JavaTools, tmp_path: Path) -> None:
    nodes = KraftNodes(tmp_path, brokers=(1,), features=["share.version=1"])
    try:
        nodes.start_apache(CONTROLLER, 1)
        nodes.wait_until_serving(1)
        check = [sys.executable, "-m", "odradek.cli.main", "migrate", "check", "-b", nodes.bootstrap, "-o", "json"]
        done = subprocess.run(check, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        found = json.loads(done.stdout)
        obstacles = [each["text"] for each in found if each["severity"] == "obstacle"]
        assert [each.partition(" ")[0] for each in obstacles] == ["share.version", "streams.version"]
    finally:
        nodes.close()
