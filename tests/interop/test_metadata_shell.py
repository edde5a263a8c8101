"""The image of a metadata log as `odradek metadata-shell` shows it, beside Apache's `kafka-metadata-shell`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from odradek.broker.storage.stored_files import Tree, tree_of_directory
from odradek.ports.disk import SystemDisk
from tests.interop.conftest import JavaTools
from tests.interop.kraft_load import Load, create, start_cluster, until
from tests.interop.kraft_nodes import CONTROLLER, KraftNodes

pytestmark = pytest.mark.long

_BRANCHES = ("features", "cluster", "topics", "configs", "producerIds", "clientQuotas")
_ATTEMPTS = 10
"""Apache's shell runs its command when a part of the log is loaded."""


@pytest.fixture
def nodes(java_tools: JavaTools, tmp_path: Path) -> Iterator[KraftNodes]:
    made = KraftNodes(tmp_path)
    yield made
    made.close()


def leaves(tree: Tree, path: str = "") -> dict[str, str]:
    """The texts of a tree by their paths."""
    found: dict[str, str] = {}
    for name, node in tree.items():
        found |= {f"{path}/{name}": node} if isinstance(node, str) else leaves(node, f"{path}/{name}")
    return found


def printed_leaves(text: str) -> dict[str, str]:
    """The same of what Apache's `tree` prints: names end with a colon, what is below them is indented by two more."""
    found: dict[str, str] = {}
    names: list[str] = []
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        depth = (len(line) - len(line.lstrip())) // 2
        del names[depth:]
        if line.endswith(":") and len(following) - len(following.lstrip()) > 2 * depth:
            names.append(line.strip()[:-1])
        else:
            found["/" + "/".join(names)] = line.strip()
    return found


def in_apaches_words(path: str, text: str) -> list[str]:
    """What Apache's text of a leaf must have."""
    if path.endswith("/metadataVersion"):
        return ["4.3-IV0" if text == "30" else text]
    if not text.startswith("{"):
        return [text]
    facts: Mapping[str, Any] = json.loads(text)
    if "partitionEpoch" in facts:
        return [f"PartitionRegistration({', '.join(f'{name}={_java(value)}' for name, value in facts.items())})"]
    assert "incarnationId" in facts, path
    wanted = [f"id={facts['id']}, ", f"incarnationId={facts['incarnationId']}"]
    wanted += [f"host='{each['host']}', port={each['port']}" for each in facts["listeners"]]
    wanted += [f"{name}: {least}-{most}" for name, (least, most) in facts["supportedFeatures"].items()]
    named = ("epoch", "fenced", "inControlledShutdown", "directories")
    return [*wanted, *(f"{name}={_java(facts[name])}" for name in named if name in facts)]


def _java(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def differ(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """What Apache's leaves lack, or have in excess; empty if both show the same."""
    if ours.keys() != theirs.keys():
        return f"{ours.keys() ^ theirs.keys()} are shown by one"
    for path, text in ours.items():
        if any(each not in theirs[path] for each in in_apaches_words(path, text)):
            return f"{path} is {theirs[path]} in place of {text}"
    return ""


def test_both_shells_show_the_same_image_of_one_log(nodes: KraftNodes, java_tools: JavaTools) -> None:
    """Our controller wrote the log, for brokers of both kinds; a broker of Apache's has fetched the same."""
    start_cluster(nodes, odradek=(CONTROLLER, 2, 3), apache=(1,))
    with Load(nodes.bootstrap) as load:
        until(lambda: load.has_written(100, 10), f"no load: {load.failures}")
    create(AdminClient({"bootstrap.servers": nodes.bootstrap}), "set", 2, 2, **{"retention.ms": "12345"})
    by_broker = ("--bootstrap-server", nodes.bootstrap)
    java_tools.run("configs", *by_broker, "--alter", "--add-config", "log.cleaner.threads=2", "--entity-default",
                   "--entity-type", "brokers")  # fmt: skip
    quota = ("--add-config", "producer_byte_rate=99999", "--entity-type", "users", "--entity-name", "alice")
    java_tools.run("configs", *by_broker, "--alter", *quota)
    nodes.stop(1, 2, 3)
    nodes.stop(CONTROLLER)
    ours = leaves(tree_of_directory(SystemDisk(), str(nodes.metadata_log(CONTROLLER))))
    for node in (CONTROLLER, 1):
        (log,) = nodes.metadata_log(node).glob("*.log")  # which the shell reads as well as a snapshot
        for branch in _BRANCHES:
            if node == 1 and branch in ("cluster", "topics"):
                continue  # it has stopped before the controller's last records of these
            path = f"/image/{branch}"
            wanted = {name: text for name, text in ours.items() if name.startswith(f"{path}/")}
            problem = ""
            for _ in range(_ATTEMPTS):
                shown = printed_leaves(java_tools.run("metadata-shell", "--snapshot", str(log), "tree", path))
                problem = differ(wanted, {f"{path}{name}": text for name, text in shown.items()})
                if not problem:
                    break
            assert not problem, f"node {node}: {problem}"
