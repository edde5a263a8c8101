"""Controllers of Odradek: with Apache Kafka's brokers, beside its controllers, and as its tools see them."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from odradek.cli.main import main
from tests.interop.conftest import JavaTools
from tests.interop.kraft_load import (
    Load,
    assert_nothing_is_lost,
    create,
    has_joined,
    in_sync,
    kill_active,
    led_by,
    progress,
    start_cluster,
    until,
)
from tests.interop.kraft_nodes import KraftNodes

pytestmark = pytest.mark.long

Make = Callable[..., KraftNodes]


@pytest.fixture
def make(java_tools: JavaTools, tmp_path: Path) -> Iterator[Make]:
    """Formats the nodes of a cluster, and ends them."""
    made: list[KraftNodes] = []

    def nodes(*controllers: int, **settings: str) -> KraftNodes:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(KraftNodes(tmp_path, controllers=controllers, settings=named, is_static=True))
        return made[-1]

    yield nodes
    for each in made:
        each.close()


def test_brokers_of_apache_work_on_one_controller(make: Make, java_tools: JavaTools) -> None:
    """Producers, transactions and a group work, and Apache's tools see what they see on its own controllers."""
    nodes = make(100)
    nodes.start_odradek(100)
    nodes.wait_until_serving(100)
    nodes.start_apache(1, 2, 3)
    nodes.wait_until_serving(1, 2, 3)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    create(admin, "plain")
    create(admin, "transacted")
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20) and len(load.read) > 100, f"no load: {load.failures}")
    assert_nothing_is_lost(nodes, load)

    by_broker = ("--bootstrap-server", nodes.bootstrap)
    by_controller = ("--bootstrap-controller", nodes.bootstrap_controllers)
    java_tools.run("topics", *by_broker, "--create", "--topic", "made", "--partitions", "2")
    java_tools.run("topics", *by_broker, "--alter", "--topic", "made", "--partitions", "3")
    java_tools.run("configs", *by_broker, "--alter", "--topic", "made", "--add-config", "retention.ms=12345")
    assert "retention.ms=12345" in java_tools.run("configs", *by_broker, "--describe", "--topic", "made")
    assert "PartitionCount: 3" in java_tools.run("topics", *by_broker, "--describe", "--topic", "made")
    java_tools.run("topics", *by_broker, "--delete", "--topic", "made")
    until(lambda: "made" not in java_tools.run("topics", *by_broker, "--list").split(), "the topic is still there")
    for where in (by_broker, by_controller):
        status = java_tools.run("metadata-quorum", *where, "describe", "--status")
        assert re.search(r"^LeaderId: +100$", status, re.MULTILINE), status
        replicas = java_tools.run("metadata-quorum", *where, "describe", "--replication")
        found = {line.split()[0]: line.split()[-1] for line in replicas.splitlines()[1:]}
        assert found == {"100": "Leader", "1": "Observer", "2": "Observer", "3": "Observer"}, replicas
        features = java_tools.run("features", *where, "describe")
        assert re.search(r"metadata\.version.*FinalizedVersionLevel: 4\.3", features), features
    endpoints = java_tools.run("cluster", "list-endpoints", *by_controller)
    assert re.search(rf"^100 +127\.0\.0\.1 +{nodes.ports[100]} ", endpoints, re.MULTILINE), endpoints


def test_acknowledged_records_outlive_the_active_of_three_controllers(make: Make) -> None:
    """Brokers of Apache Kafka find the next active controller, and the one that was killed comes back."""
    nodes = make(100, 101, 102)
    start_cluster(nodes, odradek=(100, 101, 102), apache=(1, 2, 3))
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        for turn in range(2):
            killed = kill_active(nodes, load)
            # A change of the metadata needs the new leader, and a broker that follows it.
            create(AdminClient({"bootstrap.servers": nodes.bootstrap}), f"made-{turn}")
            nodes.start_odradek(killed)
            nodes.wait_until_serving(killed)
    assert_nothing_is_lost(nodes, load)


def test_brokers_move_in_place_on_controllers_of_odradek(make: Make) -> None:
    """Brokers of both kinds replicate to each other, and each takes the directory of the other kind over."""
    nodes = make(100)
    start_cluster(nodes, odradek=(100, 3), apache=(1, 2))
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        for node, start in ((1, nodes.start_odradek), (3, nodes.start_apache), (1, nodes.start_apache)):
            nodes.stop(node)
            start(node)
            nodes.wait_until_serving(node)
            until(partial(in_sync, nodes, node), f"{node} is not in sync:\n{nodes.output(node)[-3000:]}")
            progress(load)
    assert_nothing_is_lost(nodes, load)


@pytest.mark.parametrize("odradek", [(102,), (101, 102)], ids=["one-of-ours", "two-of-ours"])
def test_mixed_quorum_loses_nothing_when_leaders_are_killed(make: Make, odradek: tuple[int, ...]) -> None:
    """Whoever is elected leads the followers of both kinds, and each that was killed comes back."""
    nodes = make(100, 101, 102)
    kinds = {node: "odradek" if node in odradek else "apache" for node in nodes.controllers}
    apache = [node for node in nodes.controllers if node not in odradek]
    start_cluster(nodes, odradek=odradek, apache=(*apache, 1, 2, 3))
    led = set()
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        for turn in range(3):
            killed = kill_active(nodes, load)
            led |= {kinds[killed], kinds[led_by(nodes)]}
            create(AdminClient({"bootstrap.servers": nodes.bootstrap}), f"made-{turn}")
            (nodes.start_odradek if killed in odradek else nodes.start_apache)(killed)
            nodes.wait_until_serving(killed)
    assert ("odradek" if len(odradek) > 1 else "apache") in led, "the kind with two voters has led"
    assert_nothing_is_lost(nodes, load)


def test_controllers_of_apache_are_replaced_in_place_and_back(make: Make) -> None:
    """Each takes the directory of the other kind over, one after the other, under load."""
    nodes = make(100, 101, 102)
    start_cluster(nodes, apache=(100, 101, 102, 1, 2, 3))
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        for start in (nodes.start_odradek, nodes.start_apache):
            for node in nodes.controllers:
                nodes.stop(node)
                led_by(nodes)
                start(node)
                nodes.wait_until_serving(node)
                until(partial(has_joined, nodes, node), f"{node} has no records:\n{nodes.output(node)[-3000:]}")
                progress(load)
            create(AdminClient({"bootstrap.servers": nodes.bootstrap}), f"made-by-{start.__name__}")
    assert_nothing_is_lost(nodes, load)


def test_apache_reads_the_log_and_the_snapshots_of_our_controller(
    make: Make, java_tools: JavaTools, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tool decodes every record, and its broker begins with a snapshot that ours has written."""
    nodes = make(100, metadata_log_max_record_bytes_between_snapshots="6000")
    nodes.start_odradek(100)
    nodes.start_apache(1)
    nodes.wait_until_serving(100, 1)
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    for number in range(80):
        create(admin, f"topic-{number}", 1, 1, **{"retention.ms": "1000000"})
    by_broker = ("--bootstrap-server", nodes.bootstrap)
    java_tools.run("configs", *by_broker, "--alter", "--add-config", "producer_byte_rate=99999", "--client-defaults")
    until(lambda: bool(list(nodes.metadata_log(100).glob("*.checkpoint"))), "the controller wrote no snapshot")
    written = {each.read_bytes() for each in nodes.metadata_log(100).glob("*.checkpoint")}
    nodes.start_apache(2)
    nodes.wait_until_serving(2)
    second = AdminClient({"bootstrap.servers": f"127.0.0.1:{nodes.ports[2]}"})
    until(lambda: len(second.list_topics(timeout=10).topics) == 80, "broker 2 does not know all topics")
    nodes.stop(1, 2, how=signal.SIGKILL)
    nodes.stop(100)
    fetched = sorted(nodes.metadata_log(2).glob("*.checkpoint"))
    assert fetched, "broker 2 has read the whole log"
    found = sorted(nodes.metadata_log(100).glob("*.checkpoint"))
    assert fetched[0].read_bytes() in written | {each.read_bytes() for each in found}
    logs = sorted(nodes.metadata_log(100).glob("*.log"))
    seen = set()
    for path in (*found, *logs):
        theirs = java_tools.run("dump-log", "--cluster-metadata-decoder", "--files", str(path))
        assert not re.search("Error at|Exception", theirs), theirs
        assert main(["dump-log", "--cluster-metadata-decoder", "--files", str(path)]) == 0
        assert capsys.readouterr().out.split("\n")[1:] == theirs.split("\n")[1:]
        seen |= set(re.findall(r'"type":"([A-Z_]+)"', theirs))
    assert {"TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD", "REGISTER_BROKER_RECORD"} <= seen, seen
