"""Static voters become voters in the metadata log by Apache's own tool, on controllers of each kind and of both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.conftest import JavaTools
from tests.interop.kraft_load import (
    Load,
    assert_nothing_is_lost,
    create,
    has_joined,
    kill_active,
    led_by,
    progress,
    start_cluster,
    until,
)
from tests.interop.kraft_nodes import KraftNodes

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

Make = Callable[..., KraftNodes]


@pytest.fixture
def nodes(java_tools: JavaTools, tmp_path: Path) -> Iterator[KraftNodes]:
    """Three controllers that are named in all configurations."""
    made = KraftNodes(tmp_path, controllers=(100, 101, 102), is_static=True)
    yield made
    made.close()


def finalized(nodes: KraftNodes, tools: JavaTools) -> int:
    """The kraft.version that Apache's tool shows."""
    shown = tools.run("features", "--bootstrap-server", nodes.bootstrap, "describe")
    found = re.search(r"Feature: kraft\.version.*FinalizedVersionLevel: (\d+)", shown)
    return int(found[1]) if found else 0


def is_upgraded(nodes: KraftNodes, tools: JavaTools) -> bool:
    """Whether Apache's tool can upgrade it: each voter reports itself to a new leader first."""
    try:
        tools.run("features", "--bootstrap-server", nodes.bootstrap, "upgrade", "--feature", "kraft.version=1")
    except AssertionError as error:
        if "Could not upgrade kraft.version to 1" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("odradek", "apache"),
    [((100, 101, 102), ()), ((102,), (100, 101)), ((101, 102), (100,))],
    ids=["ours", "two-of-apache", "two-of-ours"],
)
def test_quorum_keeps_its_voters_in_the_log_after_the_upgrade(
    nodes: KraftNodes, java_tools: JavaTools, odradek: tuple[int, ...], apache: tuple[int, ...]
) -> None:
    """Under load; then each controller is killed in turn, and starts again with the voters of the log."""
    start_cluster(nodes, odradek=(*odradek, 2, 3), apache=(*apache, 1))
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(200, 20), f"no load: {load.failures}")
        assert finalized(nodes, java_tools) == 0
        until(partial(is_upgraded, nodes, java_tools), "kraft.version is not upgraded", 90)
        until(lambda: finalized(nodes, java_tools) == 1, "kraft.version is not finalized")
        progress(load)
        for turn in range(2):
            killed = kill_active(nodes, load)
            create(AdminClient({"bootstrap.servers": nodes.bootstrap}), f"made-{turn}")
            (nodes.start_odradek if killed in odradek else nodes.start_apache)(killed)
            nodes.wait_until_serving(killed)
            until(partial(has_joined, nodes, killed), f"{killed} has no records:\n{nodes.output(killed)[-3000:]}")
        removed = next(each for each in nodes.controllers if each != led_by(nodes))
        where = ("--bootstrap-controller", f"127.0.0.1:{nodes.ports[led_by(nodes)]}")
        named = ("--controller-id", str(removed), "--controller-directory-id", nodes.directory_id(removed))
        java_tools.run("metadata-quorum", *where, "remove-controller", *named)
        until(lambda: removed not in nodes.quorum_voters(), f"{removed} is a voter")
        progress(load)
    assert_nothing_is_lost(nodes, load)
