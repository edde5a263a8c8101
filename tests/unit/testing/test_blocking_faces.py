"""The faces of test brokers for code without an event loop: blocking, unittest, testcontainers' class."""

from __future__ import annotations

import asyncio
import io
import socket
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from confluent_kafka import Consumer, Producer

from odradek import client
from odradek.client.blocking_clients import BlockingProducer
from odradek.testing import BlockingBroker, BlockingCluster, BrokerFailed
from odradek.testing.containers import KafkaContainer
from odradek.testing.unittest import KafkaTestCase


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    with BlockingBroker(links=["worker"]) as broker:
        yield broker


def test_another_client_writes_what_records_returns(broker: BlockingBroker) -> None:
    topic = broker.topic()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, b"by librdkafka")
    producer.flush(30)
    assert [record.value for record in broker.records(topic)] == [b"by librdkafka"]


def test_another_client_reads_what_was_produced(broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, "for librdkafka")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.value() == b"for librdkafka"


def test_blocking_link_cuts_and_heals(broker: BlockingBroker) -> None:
    topic = broker.topic()
    link = broker.link("worker")
    with BlockingProducer(bootstrap_servers=link.bootstrap_servers, retry_backoff_ms=20) as producer:
        producer.send_and_wait(topic, b"1")
        link.cut()
        delivery = producer.send(topic, b"2")
        broker.produce(topic, "3")
        assert not delivery.done()
        link.heal()
        assert delivery.result(30).offset == 2


def test_link_without_that_name_is_an_error(broker: BlockingBroker) -> None:
    with pytest.raises(KeyError):
        broker.link("elsewhere")


def test_restart_keeps_records_and_port(broker: BlockingBroker) -> None:
    topic, port = broker.topic(), broker.port
    broker.produce(topic, "kept")
    broker.restart()
    assert broker.port == port
    assert [record.value for record in broker.records(topic)] == [b"kept"]


def test_blocking_cluster_finds_leader_and_controller() -> None:
    with BlockingCluster(2) as cluster:
        topic = cluster.topic()
        cluster.produce(topic, "1")
        assert cluster.leader_of(topic) in cluster.brokers
        assert cluster.controller() in cluster.brokers
        assert len(cluster.records(topic)) == 1


def test_container_takes_settings_by_the_names_of_images() -> None:
    container = KafkaContainer("confluentinc/cp-kafka:7.6.0").with_kraft().with_env("KAFKA_NUM_PARTITIONS", "3")
    with container.with_env("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9093") as kafka:
        assert kafka.get_bootstrap_server() == f"127.0.0.1:{kafka.get_exposed_port(9093)}"
        kafka.broker.produce("created-on-demand", "1")
        assert len(kafka.broker.records("created-on-demand")) == 1
    with pytest.raises(RuntimeError):
        container.get_bootstrap_server()


def cluster_id_at(bootstrap_servers: str) -> str | None:
    async def ask() -> str | None:
        async with client.Admin(bootstrap_servers=bootstrap_servers) as admin:
            return (await admin.describe_cluster()).cluster_id

    return asyncio.run(ask())


def test_container_has_the_cluster_id_that_was_given() -> None:
    with KafkaContainer().with_kraft().with_cluster_id("MkU3OEVBNTcwNTJENDM2Qg") as kafka:
        assert cluster_id_at(kafka.get_bootstrap_server()) == "MkU3OEVBNTcwNTJENDM2Qg"
    with KafkaContainer().with_env("CLUSTER_ID", "by-the-environment") as kafka:
        assert cluster_id_at(kafka.get_bootstrap_server()) == "by-the-environment"


def test_container_serves_at_the_port_that_was_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    container = KafkaContainer().with_network(None).with_network_aliases("kafka").with_kwargs(mem_limit="1g")
    kafka = container.with_bind_ports("9093/tcp", port).start()
    assert kafka.get_bootstrap_server() == f"127.0.0.1:{port}"
    assert kafka.get_exposed_port(9093) == port
    kafka.stop(True)
    with pytest.raises(LookupError, match="9092 is not exposed"):
        KafkaContainer().with_bind_ports(9092, port)


def test_container_reads_its_environment_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "kafka.env"
    file.write_text("# topics\n\nKAFKA_NUM_PARTITIONS=3\nexport CLUSTER_ID='by-the-file'\nKAFKA_EMPTY=\n")
    container = KafkaContainer().with_env_file(file)
    assert container.env == {"KAFKA_NUM_PARTITIONS": "3", "CLUSTER_ID": "by-the-file", "KAFKA_EMPTY": ""}
    file.write_text("KAFKA_NUM_PARTITIONS=3\nnothing\n")
    with pytest.raises(ValueError, match=r"kafka\.env:2: NAME=VALUE expected, not 'nothing'"):
        KafkaContainer().with_env_file(str(file))


def test_container_keeps_its_data_in_the_folder_that_was_mapped(tmp_path: Path) -> None:
    for count in (1, 2):
        container = KafkaContainer().with_volume_mapping(tmp_path, "/var/lib/kafka/data", "rw")
        assert container.status == "not_started"
        with container.with_volume_mapping(tmp_path / "jars", "/opt/jars").with_tmpfs_mount("/run") as kafka:
            assert kafka.status == "running"
            kafka.broker.produce("orders", str(count))
            assert len(kafka.broker.records("orders")) == count
    with pytest.raises(ValueError, match="mode rw expected, not ro"):
        KafkaContainer().with_volume_mapping(tmp_path, "/var/lib/kafka/data")


def test_container_rejects_protocols_that_it_would_not_ask_for() -> None:
    with pytest.raises(ValueError, match="without TLS and SASL, not SASL_SSL"):
        KafkaContainer(security_protocol="SASL_SSL")
    mapped = "BROKER:PLAINTEXT,PLAINTEXT:SSL"
    with pytest.raises(ValueError, match="without TLS and SASL, not SSL"):
        KafkaContainer().with_env("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", mapped).start()
    with pytest.raises(ValueError, match="without TLS and SASL, not SASL_PLAINTEXT"):
        KafkaContainer().with_env("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9093,SASL_PLAINTEXT://0.0.0.0:9094").start()


def test_container_says_that_it_runs_no_commands() -> None:
    container = KafkaContainer().with_command("/etc/confluent/docker/run").waiting_for(None).maybe_emulate_amd64()
    with pytest.raises(NotImplementedError, match="kafka-topics"):
        container.exec(["kafka-topics", "--list"])


def test_container_that_does_not_start_in_time_is_an_error() -> None:
    container = KafkaContainer()
    with pytest.raises(TimeoutError, match=r"does not serve after 0\.001 s"):
        container.start(timeout=0.001)
    with pytest.raises(RuntimeError, match="start"):
        container.get_bootstrap_server()


def test_broker_keeps_its_cluster_id_and_rejects_another_one(tmp_path: Path) -> None:
    for _ in range(2):
        with BlockingBroker(folder=tmp_path, cluster_id="first") as broker:
            assert cluster_id_at(broker.bootstrap_servers) == "first"
    with pytest.raises(BrokerFailed, match="are of cluster first, not of second"):
        BlockingBroker(folder=tmp_path, cluster_id="second").start()


def test_test_case_with_coroutines_has_a_broker() -> None:
    class Orders(KafkaTestCase, unittest.IsolatedAsyncioTestCase):
        kafka_settings: ClassVar = {"num.partitions": 3}

        async def test_one(self) -> None:
            async with client.Producer(bootstrap_servers=self.kafka.bootstrap_servers) as producer:
                await producer.send_and_wait("orders", b"1", partition=2)

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Orders)
    result = unittest.TextTestRunner(io.StringIO()).run(suite)
    assert (result.testsRun, result.wasSuccessful()) == (1, True)


def test_test_case_of_unittest_has_a_broker() -> None:
    class Orders(KafkaTestCase):
        def test_one(self) -> None:
            topic = self.kafka.topic()
            self.kafka.produce(topic, "1")
            assert len(self.kafka.records(topic)) == 1

    suite = unittest.defaultTestLoader.loadTestsFromTestCase(Orders)
    result = unittest.TextTestRunner(io.StringIO()).run(suite)
    assert result.testsRun == 1
    assert result.wasSuccessful()
    assert not Orders.kafka.is_running
