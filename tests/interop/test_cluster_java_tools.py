"""Apache Kafka's tools for clusters, against three brokers: what they do, and what they print of it."""

from __future__ import annotations

import json
import re
import signal
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.cluster import ClusterProcess
from tests.integration.clusters import states
from tests.integration.waiting import until

Run = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    settings = {"broker.session.timeout.ms": 3000, "auto.leader.rebalance.enable": "false"}
    with ClusterProcess(tmp_path_factory.mktemp("cluster") / "data", 3, settings) as running:
        yield running
        assert running.stop() == 0, running.log()


def first(cluster: ClusterProcess) -> str:
    """The broker that no test stops: a tool that asks a silent one first waits for half a minute."""
    return cluster.bootstrap.split(",")[0]


@pytest.fixture
def admin(cluster: ClusterProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": first(cluster)})


@pytest.fixture
def run(cluster: ClusterProcess, java_tools: Any) -> Run:
    return lambda tool, *args, **more: str(java_tools.run(tool, "--bootstrap-server", first(cluster), *args, **more))


def topic_on(admin: AdminClient, *replicas: list[int], **configs: str) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    wanted = NewTopic(name, len(replicas), replica_assignment=list(replicas), config=configs)
    admin.create_topics([wanted])[name].result(30)
    return name


def written(cluster: ClusterProcess, topic: str, partitions: int, count: int, **options: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **options})
    for number in range(count):
        producer.produce(topic, bytes(1000), partition=number % partitions)
    assert producer.flush(30) == 0


def shown(run: Run, selection: str, expected: Callable[[str], bool]) -> None:
    """Wait until Apache's tool describes the selected partitions as expected."""
    until(lambda: expected(run("topics", "--describe", selection)), f"{selection} is as expected")


def plan_file(directory: Path, topic: str, *replicas: list[int]) -> str:
    rows = [{"topic": topic, "partition": i, "replicas": each} for i, each in enumerate(replicas)]
    path = directory / f"{uuid.uuid4().hex}.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def test_replicas_are_reassigned_under_a_throttle(
    cluster: ClusterProcess, admin: AdminClient, run: Run, tmp_path: Path
) -> None:
    topic = topic_on(admin, [1, 2], [2, 1])
    written(cluster, topic, 2, 8000)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = run("reassign-partitions", "--generate", "--broker-list", "1,2,3", "--topics-to-move-json-file", topics)
    current, proposed = (json.loads(line) for line in generated.splitlines() if line.startswith("{"))
    assert [row["replicas"] for row in current["partitions"]] == [[1, 2], [2, 1]]
    assert {broker for row in proposed["partitions"] for broker in row["replicas"]} <= {1, 2, 3}
    # 4 MB each at 100 KB/s, of which the first fetch may take 1 MB: it is seen under way.
    plan = ("--reassignment-json-file", plan_file(tmp_path, topic, [3, 1], [3, 2]))
    executed = run("reassign-partitions", "--execute", *plan, "--throttle", "100000")
    assert "Successfully started partition reassignments" in executed
    assert "The inter-broker throttle limit was set to 100000 B/s" in executed
    listed = run("reassign-partitions", "--list")
    assert re.search(rf"{topic}-0: replicas: 3,1,2\. adding: 3\. removing: 2\.", listed), listed
    described = run("configs", "--describe", "--entity-type", "topics", "--entity-name", topic)
    assert "follower.replication.throttled.replicas=" in described
    assert "leader.replication.throttled.replicas=" in described
    under_way = run("reassign-partitions", "--verify", *plan)
    assert f"Reassignment of partition {topic}-0 is still in progress." in under_way
    assert "follower.replication.throttled.rate=100000" in run("configs", "--describe", "--entity-type", "brokers")
    # The second execution lifts the throttle.
    run("reassign-partitions", "--execute", "--additional", *plan, "--throttle", "1000000000")
    until(lambda: {p: isr for p, (_, isr) in states(admin, topic).items()} == {0: [1, 3], 1: [2, 3]}, "it is moved")
    verified = run("reassign-partitions", "--verify", *plan)
    assert f"Reassignment of partition {topic}-1 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified
    assert "throttled" not in run("configs", "--describe", "--entity-type", "topics", "--entity-name", topic)


@pytest.mark.long
def test_a_reassignment_is_cancelled(cluster: ClusterProcess, admin: AdminClient, run: Run, tmp_path: Path) -> None:
    topic = topic_on(admin, [1, 2])
    written(cluster, topic, 1, 4000)
    plan = ("--reassignment-json-file", plan_file(tmp_path, topic, [3, 2]))
    run("reassign-partitions", "--execute", *plan, "--throttle", "10000")
    cancelled = run("reassign-partitions", "--cancel", *plan)
    assert f"Successfully cancelled partition reassignment for: {topic}-0" in cancelled
    assert "No partition reassignments found." in run("reassign-partitions", "--list")
    until(lambda: states(admin, topic) == {0: (1, [1, 2])}, "it is as it was")


def test_what_is_short_of_replicas_and_elections(
    cluster: ClusterProcess, admin: AdminClient, run: Run, java_tools: Any
) -> None:
    safe = topic_on(admin, [3, 1, 2], **{"min.insync.replicas": "2"})
    sole = topic_on(admin, [3])
    cluster.signal_broker(3, signal.SIGSTOP)
    # librdkafka continues to ask the broker that it is connected to: that may be the stopped one, or one that returns
    # its old state.
    living = AdminClient({"bootstrap.servers": ",".join(cluster.bootstrap.split(",")[:2])})
    try:
        until(
            lambda: states(living, safe)[0] in ((1, [1, 2]), (2, [1, 2])), "another broker leads without the silent one"
        )
        # The tool asks any broker, and each learns of the change by itself.
        short = rf"{safe}\s+Partition: 0\s+Leader: [12]\s+Replicas: 3,1,2\s+Isr: (1,2|2,1)"
        shown(run, "--under-replicated-partitions", lambda found: bool(re.search(short, found)))
        missing = rf"{sole}\s+Partition: 0\s+Leader: none"
        shown(run, "--unavailable-partitions", lambda found: bool(re.search(missing, found)) and safe not in found)
        shown(run, "--at-min-isr-partitions", lambda found: safe in found)
    finally:
        cluster.signal_broker(3, signal.SIGCONT)
    until(lambda: states(living, safe)[0][1] == [1, 2, 3], "it is back")
    assert states(living, safe)[0][0] != 3
    place = ("--topic", safe, "--partition", "0")
    elected = run("leader-election", "--election-type", "preferred", *place)
    assert f"Successfully completed leader election (PREFERRED) for partitions {safe}-0" in elected
    until(lambda: states(living, safe)[0][0] == 3, "it leads again")
    again = run("leader-election", "--election-type", "preferred", *place)
    assert f"Valid replica already elected for partitions {safe}-0" in again


@pytest.mark.long
def test_an_unclean_election_and_directories(cluster: ClusterProcess, admin: AdminClient, run: Run) -> None:
    topic = topic_on(admin, [3, 2], **{"min.insync.replicas": "1"})
    cluster.signal_broker(2, signal.SIGSTOP)
    until(lambda: states(admin, topic)[0] == (3, [3]), "one is out")
    cluster.signal_broker(3, signal.SIGSTOP)
    cluster.signal_broker(2, signal.SIGCONT)
    try:
        until(lambda: states(admin, topic)[0][0] == -1, "no replica in sync is left")
        elected = run("leader-election", "--election-type", "unclean", "--topic", topic, "--partition", "0")
        assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in elected
        until(lambda: states(admin, topic)[0][0] == 2, "the other leads")
    finally:
        cluster.signal_broker(3, signal.SIGCONT)
    until(lambda: states(admin, topic)[0][1] == [2, 3], "both are in sync")
    output = run("log-dirs", "--describe", "--topic-list", topic, "--broker-list", "2,3")
    found = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    held = {
        broker["broker"]: [p["partition"] for d in broker["logDirs"] for p in d["partitions"]]
        for broker in found["brokers"]
    }
    assert held == {2: [f"{topic}-0"], 3: [f"{topic}-0"]}
