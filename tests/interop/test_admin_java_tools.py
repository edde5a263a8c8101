"""Apache Kafka's administrative command-line tools: what they print of a broker of ours.

A tool's JVM takes a second or two to start, so that each one is asked as much as it can answer at once.
"""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

UniqueName = Callable[[str], str]
Run = Callable[..., str]


@pytest.fixture
def run(bootstrap: str, java_tools: Any) -> Run:
    """Run a tool against the broker under test."""
    return lambda tool, *args, **more: str(java_tools.run(tool, "--bootstrap-server", bootstrap, *args, **more))


def squeezed(text: str) -> str:
    """With single blanks, as no table of theirs has."""
    return re.sub(r"[ \t]+", " ", text)


def test_topics_grow_and_go(run: Run, unique_name: UniqueName) -> None:
    topic = unique_name("tool")
    created = run("topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=60000")
    assert f"Created topic {topic}." in created
    run("topics", "--alter", "--topic", topic, "--partitions", "5")
    described = squeezed(run("topics", "--describe", "--topic", topic))
    assert "PartitionCount: 5" in described
    assert "ReplicationFactor: 1" in described
    assert "retention.ms=60000" in described
    partitions = re.findall(r"Partition: (\d+) Leader: (\d+) Replicas: (\d+) Isr: (\d+)", described)
    assert [int(row[0]) for row in partitions] == [0, 1, 2, 3, 4]
    assert all(leader == replicas == isr for _, leader, replicas, isr in partitions)
    run("topics", "--delete", "--topic", topic)
    assert topic not in run("topics", "--list").splitlines()


def test_offsets_of_a_topic(
    bootstrap: str, run: Run, unique_name: UniqueName, create_topic: Callable[..., str]
) -> None:
    topic = create_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap})
    begun_ms = int(time.time() * 1000)  # retention would delete old records
    for number in range(7):
        producer.produce(topic, b"x", partition=number % 2, timestamp=begun_ms + number)
    assert producer.flush(30) == 0
    assert set(run("get-offsets", "--topic", topic).split()) == {f"{topic}:0:4", f"{topic}:1:3"}
    assert set(run("get-offsets", "--topic", topic, "--time", "earliest").split()) == {f"{topic}:0:0", f"{topic}:1:0"}
    max_timestamp = run("get-offsets", "--topic-partitions", f"{topic}:1", "--time", "max-timestamp")
    assert max_timestamp.split() == [f"{topic}:1:2"]


def test_configs_of_a_topic_are_changed_and_described(run: Run, create_topic: Callable[..., str]) -> None:
    entity = ("--entity-type", "topics", "--entity-name", create_topic(1))
    run("configs", "--alter", *entity, "--add-config", "cleanup.policy=[compact,delete],segment.ms=100000")
    run("configs", "--alter", *entity, "--delete-config", "segment.ms")
    described = run("configs", "--describe", *entity)
    assert re.search(r"cleanup\.policy=compact,delete sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:", described)
    assert "segment.ms" not in described


@pytest.mark.long
def test_configs_of_brokers_and_loggers(bootstrap: str, run: Run) -> None:
    node = re.search(r"id: (\d+)", run("broker-api-versions"))
    assert node is not None
    broker = ("--entity-type", "brokers", "--entity-name", node[1])
    run("configs", "--alter", *broker, "--add-config", "log.cleaner.threads=2")
    described = run("configs", "--describe", *broker)
    assert "log.cleaner.threads=2 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.cleaner.threads=2" in described
    run("configs", "--alter", *broker, "--delete-config", "log.cleaner.threads")
    loggers = ("--entity-type", "broker-loggers", "--entity-name", node[1])
    run("configs", "--alter", *loggers, "--add-config", "odradek.background=DEBUG")
    assert "odradek.background=DEBUG" in run("configs", "--describe", *loggers)
    run("configs", "--alter", *loggers, "--delete-config", "odradek.background")


def test_quotas_through_the_configs_tool(run: Run, unique_name: UniqueName) -> None:
    user, client = unique_name("user"), unique_name("client")
    both = ("--entity-type", "users", "--entity-name", user, "--entity-type", "clients", "--entity-name", client)
    added = "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=50.5"
    run("configs", "--alter", *both, "--add-config", added)
    described = run("configs", "--describe", *both)
    assert f"Quota configs for user-principal '{user}', client-id '{client}' are" in described
    for value in ("producer_byte_rate=1048576.0", "consumer_byte_rate=2097152.0", "request_percentage=50.5"):
        assert value in described
    run("configs", "--alter", *both, "--delete-config", "producer_byte_rate,consumer_byte_rate,request_percentage")
    assert "byte_rate" not in run("configs", "--describe", *both)


@pytest.mark.long
def test_credentials_through_the_configs_tool(run: Run, unique_name: UniqueName) -> None:
    user = ("--entity-type", "users", "--entity-name", unique_name("user"))
    run("configs", "--alter", *user, "--add-config", "SCRAM-SHA-512=[iterations=8192,password=secret]")
    described = run("configs", "--describe", *user)
    assert "are SCRAM-SHA-512=iterations=8192" in described
    assert "secret" not in described
    run("configs", "--alter", *user, "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM" not in run("configs", "--describe", *user)


def test_the_cluster_and_its_quorum(bootstrap: str, java_tools: Any, run: Run) -> None:
    output = java_tools.run("cluster", "cluster-id", "--bootstrap-server", bootstrap)
    identifier = re.search(r"Cluster ID: ([\w-]{22})", output)
    assert identifier is not None
    endpoints = java_tools.run("cluster", "list-endpoints", "--bootstrap-server", bootstrap).splitlines()
    assert endpoints[0].split() == ["ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"]
    node, host, port, _, state, kind = endpoints[1].split()
    assert (f"{host}:{port}", state, kind) == (bootstrap, "unfenced", "broker")
    status = squeezed(run("metadata-quorum", "describe", "--status"))
    assert f"ClusterId: {identifier[1]}" in status
    assert f"LeaderId: {node}" in status
    assert "MaxFollowerLag: 0" in status
    replication = run("metadata-quorum", "describe", "--replication").splitlines()
    assert replication[1].split()[0] == node
    assert replication[1].split()[-1] == "Leader"


@pytest.mark.long
def test_features_are_described_and_finalized(run: Run) -> None:
    def level(text: str) -> str:
        (line,) = [line for line in squeezed(text).splitlines() if line.startswith("Feature: transaction.version")]
        found = re.search(r"FinalizedVersionLevel: (\d+)", line)
        assert found is not None
        return found[1]

    assert level(run("features", "describe")) == "2"
    assert "was downgraded to 1" in run("features", "downgrade", "--feature", "transaction.version=1")
    try:
        assert level(run("features", "describe")) == "1"
    finally:
        assert "was upgraded to 2" in run("features", "upgrade", "--feature", "transaction.version=2")


def test_what_a_broker_serves(bootstrap: str, run: Run) -> None:
    served = run("broker-api-versions")
    assert served.startswith(f"{bootstrap} (id: ")
    for line in ("Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]", "ApiVersions(18): 0 to 4"):
        assert line in served
    assert "UNKNOWN" not in served


def test_leaders_are_elected_where_that_is_needed(run: Run, create_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = create_topic(2)
    path = tmp_path / "partitions.json"
    path.write_text(json.dumps({"partitions": [{"topic": topic, "partition": number} for number in (0, 1)]}))
    output = run("leader-election", "--election-type", "preferred", "--path-to-json-file", str(path))
    assert f"{topic}-0" in output
    assert f"{topic}-1" in output
    assert "Valid replica already elected" in output


def test_partitions_are_moved_where_they_are(run: Run, create_topic: Callable[..., str], tmp_path: Path) -> None:
    topic = create_topic(1)
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    described = squeezed(run("topics", "--describe", "--topic", topic))
    node = re.search(r"Leader: (\d+)", described)
    assert node is not None
    generated = run(
        "reassign-partitions", "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", node[1]
    )
    current, proposed = (json.loads(line) for line in generated.splitlines() if line.startswith("{"))
    assert proposed["partitions"][0]["replicas"] == [int(node[1])] == current["partitions"][0]["replicas"]
    plan.write_text(json.dumps(proposed))
    executed = run("reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignment" in executed
    assert f"Reassignment of partition {topic}-0 is completed." in run(
        "reassign-partitions", "--verify", "--reassignment-json-file", str(plan)
    )
    assert "No partition reassignments found." in run("reassign-partitions", "--list")


@pytest.mark.long
def test_subscriptions_to_clients_metrics(run: Run, unique_name: UniqueName) -> None:
    name = unique_name("metrics")
    run("client-metrics", "--alter", "--name", name, "--interval", "30000", "--match", "client_id=a.*")
    assert name in run("client-metrics", "--list").split()
    described = run("client-metrics", "--describe", "--name", name)
    assert "interval.ms=30000" in described
    assert "match=client_id=a.*" in described
    run("client-metrics", "--delete", "--name", name)
    assert name not in run("client-metrics", "--list").split()
