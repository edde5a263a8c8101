"""Our client with two Apache brokers in two racks, which take the metrics of clients: what one broker cannot show."""

import base64
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from odradek.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from odradek.client.admin import AlterConfig, ConfigResource, ConfigResourceType, raise_first
from odradek.testing import eventually
from tests.interop.client_suite import run

pytestmark = pytest.mark.long

KAFKA = Path(__file__).parents[2] / "bench" / "peers" / "kafka.py"
PLUGIN = Path(__file__).with_name("TelemetryLines.java")
LARGE = bytes(200_000)


class ApacheCluster(NamedTuple):
    server: str
    lines: Path

    def pushes(self, client_id: str) -> list[tuple[str, bool, MetricsData]]:
        """(instance id, whether it is the last one, metrics) of each push of a client."""
        found = []
        for line in self.lines.read_text().splitlines() if self.lines.exists() else ():
            name, instance, is_last, data = line.split(" ")
            if name == client_id:
                found.append((instance, is_last == "true", MetricsData.FromString(base64.b64decode(data))))
        return found


@pytest.fixture(scope="module")
def apache_cluster(java_tools: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCluster]:
    if not shutil.which("javac") or not shutil.which("jar"):
        pytest.skip("Apache's brokers take metrics with a plug-in only, which needs a JDK to be compiled")
    directory = tmp_path_factory.mktemp("apache-cluster")
    classes, libraries, lines = directory / "classes", directory / "home" / "libs", directory / "lines"
    libraries.mkdir(parents=True)
    path = subprocess.run(
        [sys.executable, KAFKA, "classpath"], capture_output=True, text=True, check=True
    ).stdout.strip()
    subprocess.run(["javac", "-cp", path, "-d", classes, PLUGIN], check=True)
    for each in Path(path).parent.glob("*.jar"):
        (libraries / each.name).symlink_to(each)
    subprocess.run(["jar", "cf", libraries / "telemetry.jar", "-C", classes, "."], check=True)
    settings = {
        "broker.rack": "rack-{id}",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "metric.reporters": "TelemetryLines",
    }
    command = [sys.executable, str(KAFKA), "run", "--quick", "--brokers", "2", "--port", "0", "--for", "900"]
    command += [
        "--dir",
        str(directory / "data"),
        *(part for item in settings.items() for part in ("--set", "=".join(item))),
    ]
    environment = {**os.environ, "KAFKA_HOME": str(directory / "home"), "TELEMETRY_LINES": str(lines)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        try:
            assert ready[:1] == ["ready"], f"Apache Kafka did not start, see {directory}"
            yield ApacheCluster(ready[1], lines)
        finally:
            process.terminate()


async def created(server: str, topic: NewTopic) -> int:
    """Create a topic; the leader of its first partition."""
    async with Admin(bootstrap_servers=server) as admin:
        raise_first(await admin.create_topics([topic]))
        await admin.cluster.topic(topic.name)
        return admin.cluster.metadata.leader(topic.name, 0)


def test_consumer_reads_from_the_replica_of_its_rack(
    apache_cluster: ApacheCluster, unique_name: Callable[[str], str]
) -> None:
    """KIP-392: after the first answer, the leader sends no record."""
    server, name = apache_cluster.server, unique_name("near")

    async def body() -> None:
        leader = await created(server, NewTopic(name, 1, 2))
        options: dict[str, Any] = {"client_rack": f"rack-{3 - leader}", "auto_offset_reset": "earliest"}
        async with (
            Producer(bootstrap_servers=server) as producer,
            Consumer(bootstrap_servers=server, **options) as consumer,
        ):
            await producer.send_and_wait(name, b"first")
            consumer.assign([TopicPartition(name, 0)])
            values: list[Any] = []
            async for record in consumer:
                values.append(record.value)
                if len(values) == 1:
                    await producer.send_and_wait(name, LARGE)
                    await producer.send_and_wait(name, LARGE)
                if len(values) == 3:
                    break
            assert values == [b"first", LARGE, LARGE]
            assert consumer.metrics().value("incoming-byte-total", node_id=f"node-{leader}") < len(LARGE)

    run(body())


@pytest.mark.parametrize("assignor", ["range", "sticky", "cooperative-sticky"])
def test_members_get_partitions_of_their_racks(
    apache_cluster: ApacheCluster, unique_name: Callable[[str], str], assignor: str
) -> None:
    """KIP-881: the partitions have one replica each, crosswise to the members' order."""
    server, name = apache_cluster.server, unique_name("racks")
    expected = {1: {TopicPartition(name, 1)}, 2: {TopicPartition(name, 0)}}

    async def body() -> None:
        await created(server, NewTopic(name, replica_assignments={0: [2], 1: [1]}))
        options: dict[str, Any] = {
            "bootstrap_servers": server,
            "group_id": name,
            "partition_assignment_strategy": assignor,
            "heartbeat_interval_ms": 100,
        }
        async with (
            Consumer(name, client_rack="rack-1", **options) as first,
            Consumer(name, client_rack="rack-2", **options) as second,
        ):
            while {1: first.assignment(), 2: second.assignment()} != expected:
                await first.poll(50)
                await second.poll(50)

    run(body())


def test_metrics_are_pushed_to_apache_brokers(apache_cluster: ApacheCluster, unique_name: Callable[[str], str]) -> None:
    """KIP-714: the subscribed metrics, with the client's instance id, and a last push when it closes."""
    server, name = apache_cluster.server, unique_name("pushed")
    wanted = {
        "metrics": "org.apache.kafka.producer.record.send.total",
        "interval.ms": "100",
        "match": f"client_id={name}",
    }

    async def body() -> None:
        await created(server, NewTopic(name, 1, 2))
        async with Admin(bootstrap_servers=server) as admin:
            resource = ConfigResource(ConfigResourceType.CLIENT_METRICS, name)
            alterations = [AlterConfig(*item) for item in wanted.items()]
            raise_first(await admin.alter_configs({resource: alterations}))
        async with Producer(bootstrap_servers=server, client_id=name) as producer:
            instance = await producer.client_instance_id()
            for _ in range(7):
                await producer.send_and_wait(name, b"value")
            await eventually(lambda: len(apache_cluster.pushes(name)) >= 2, 30)
            for _ in range(4):
                await producer.send_and_wait(name, b"value")
        pushes = apache_cluster.pushes(name)
        assert {each[0] for each in pushes} == {instance}
        assert [each[1] for each in pushes] == [False] * (len(pushes) - 1) + [True]
        metrics = [
            metric
            for _, _, data in pushes
            for resource_metrics in data.resource_metrics
            for scope in resource_metrics.scope_metrics
            for metric in scope.metrics
        ]
        assert {each.name for each in metrics} == {wanted["metrics"]}
        # Delta temporality: the pushes add up to the records, those of all topics apart from those by topic.
        sums = [point for metric in metrics for point in metric.sum.data_points]
        assert sum(point.as_double or point.as_int for point in sums if not point.attributes) == 11

    run(body())
