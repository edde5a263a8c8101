"""Quorums whose voters are in the metadata log (KIP-853), with controllers of Apache Kafka and of Odradek.

Each product's own tool changes the voters, and a producer, transactions and a group work meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.conftest import JavaTools
from tests.interop.kraft_load import Load, assert_nothing_is_lost, create, kill_active, progress, start_cluster, until
from tests.interop.kraft_nodes import KraftNodes

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

APACHE = (100, 101, 102)
OURS = (103, 104, 105)
BROKERS = {"apache": (1,), "odradek": (2, 3)}
AUTO_JOIN = {"controller.quorum.auto.join.enable": "true"}


@pytest.fixture
def nodes(java_tools: JavaTools, tmp_path: Path) -> Iterator[KraftNodes]:
    """Controller 100 votes alone at first; the others are started by the test."""
    made = KraftNodes(tmp_path, controllers=(*APACHE, *OURS))
    yield made
    made.close()


def is_voter(nodes: KraftNodes, node: int) -> bool:
    return node in nodes.quorum_voters()


def is_removed(nodes: KraftNodes, node: int) -> bool:
    voters = nodes.quorum_voters()
    return bool(voters) and node not in voters


def add_by_apache(nodes: KraftNodes, tools: JavaTools, node: int) -> None:
    """Apache's tool adds a controller that has started and has caught up."""
    arguments = ("--bootstrap-controller", others_than(nodes, node), "--command-config", str(nodes.settings(node)))
    tools.run("metadata-quorum", *arguments, "add-controller")
    until(partial(is_voter, nodes, node), f"{node} is no voter")


def remove_by_apache(nodes: KraftNodes, tools: JavaTools, node: int) -> None:
    """Apache's tool removes a controller, which is stopped afterwards."""
    named = ("--controller-id", str(node), "--controller-directory-id", nodes.directory_id(node))
    tools.run("metadata-quorum", "--bootstrap-controller", others_than(nodes, node), "remove-controller", *named)
    until(partial(is_removed, nodes, node), f"{node} is a voter")


def odradek(*words: str) -> None:
    """Our own tool."""
    command = [sys.executable, "-m", "odradek.cli.main", "metadata-quorum", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def add_by_odradek(nodes: KraftNodes, _tools: JavaTools, node: int) -> None:
    where = ("--bootstrap-controller", others_than(nodes, node))
    odradek("add-controller", *where, "--controller-config", str(nodes.settings(node)))
    until(partial(is_voter, nodes, node), f"{node} is no voter")


def remove_by_odradek(nodes: KraftNodes, _tools: JavaTools, node: int) -> None:
    named = ("--controller-id", str(node), "--controller-directory-id", nodes.directory_id(node))
    odradek("remove-controller", "--bootstrap-controller", others_than(nodes, node), *named)
    until(partial(is_removed, nodes, node), f"{node} is a voter")


def others_than(nodes: KraftNodes, node: int) -> str:
    """Addresses of the voters but this one."""
    return ",".join(f"127.0.0.1:{nodes.ports[each]}" for each in sorted(nodes.quorum_voters() - {node}))


def has_caught_up(nodes: KraftNodes, node: int) -> bool:
    """Whether the leader knows the node, and the node its log."""
    ends = nodes.quorum_ends(observers=True)
    return bool(ends) and ends.get(node, -1) >= max(ends.values()) - 20


def join(nodes: KraftNodes, tools: JavaTools, node: int, add: Callable[[KraftNodes, JavaTools, int], None]) -> None:
    """Start a controller as an observer, and let it vote."""
    (nodes.start_odradek if node in OURS else nodes.start_apache)(node)
    nodes.wait_until_serving(node)
    until(partial(has_caught_up, nodes, node), f"{node} has not caught up:\n{nodes.output(node)[-3000:]}")
    add(nodes, tools, node)


def test_controllers_of_apache_give_way_to_ours_voter_by_voter_and_back(
    nodes: KraftNodes, java_tools: JavaTools
) -> None:
    """There by the tools of both, back by `controller.quorum.auto.join.enable` of Apache's."""
    nodes.start_apache(100)
    nodes.wait_until_serving(100)
    for node in (101, 102):
        join(nodes, java_tools, node, add_by_apache)
    start_cluster(nodes, apache=BROKERS["apache"], odradek=BROKERS["odradek"])
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        by_both = (add_by_odradek, add_by_apache, add_by_odradek), (remove_by_apache, remove_by_odradek) * 2
        for new, old, add, remove in zip(OURS, APACHE, *by_both, strict=False):
            join(nodes, java_tools, new, add)
            remove(nodes, java_tools, old)
            nodes.stop(old)
            progress(load)
        assert nodes.quorum_voters() == set(OURS)
        create(AdminClient({"bootstrap.servers": nodes.bootstrap}), "made-by-ours")
        killed = kill_active(nodes, load)
        nodes.start_odradek(killed)
        nodes.wait_until_serving(killed)
        for new, old in zip(APACHE, OURS, strict=True):
            nodes.add_settings(new, AUTO_JOIN)
            nodes.start_apache(new)
            until(partial(is_voter, nodes, new), f"{new} does not join:\n{nodes.output(new)[-3000:]}")
            remove_by_odradek(nodes, java_tools, old)
            nodes.stop(old)
            progress(load)
        assert nodes.quorum_voters() == set(APACHE)
        create(AdminClient({"bootstrap.servers": nodes.bootstrap}), "made-by-apache")
    assert_nothing_is_lost(nodes, load)


def test_controllers_join_a_quorum_of_the_other_kind_by_themselves(nodes: KraftNodes, java_tools: JavaTools) -> None:
    """One of ours joins Apache's, one of Apache's joins ours, and whoever is killed is succeeded."""
    for node in (*APACHE, *OURS):
        nodes.add_settings(node, AUTO_JOIN)
    nodes.start_apache(100)
    nodes.wait_until_serving(100)
    nodes.start_odradek(103)
    until(partial(is_voter, nodes, 103), f"103 does not join:\n{nodes.output(103)[-3000:]}")
    nodes.start_odradek(104)
    until(partial(is_voter, nodes, 104), f"104 does not join:\n{nodes.output(104)[-3000:]}")
    start_cluster(nodes, apache=BROKERS["apache"], odradek=BROKERS["odradek"])
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        killed = kill_active(nodes, load)
        assert killed == 100
        nodes.start_apache(101)
        until(partial(is_voter, nodes, 101), f"101 does not join:\n{nodes.output(101)[-3000:]}")
        progress(load)
        create(AdminClient({"bootstrap.servers": nodes.bootstrap}), "made-by-ours")
        nodes.start_apache(100)
        nodes.wait_until_serving(100)
        until(partial(has_caught_up, nodes, 100), f"100 has not caught up:\n{nodes.output(100)[-3000:]}")
        kill_active(nodes, load)
        create(AdminClient({"bootstrap.servers": nodes.bootstrap}), "made-by-the-next")
    assert_nothing_is_lost(nodes, load)
