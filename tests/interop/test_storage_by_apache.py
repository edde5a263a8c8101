"""Directories formatted by Apache's tool or by ours are read by the other, and both describe Apache's quorum alike."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.storage.bootstrap_records import feature_records, without_unsupported_features
from odradek.cli.main import main
from odradek.kraft.checkpoints import read_checkpoint
from odradek.kraft.metadata_records import decode_metadata_record

pytestmark = pytest.mark.long

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
USER = "SCRAM-SHA-256=[name=alice,password=alice-secret]"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a controller with a metadata directory beside two others."""
    path = tmp_path / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.quorum.voters=1@localhost:9093\n"
        "controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://localhost:9093\n"
        f"log.dirs={tmp_path}/a,{tmp_path}/b\nmetadata.log.dir={tmp_path}/m\n"
    )
    return path


def odradek(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def report_of(text: str) -> list[str]:
    """The lines about directories, without those of Java's logging."""
    lines = text.split("\n")
    return lines[lines.index("Found log directories:") :]


def test_directories_that_odradek_formatted_are_read_by_apache(
    config: Path, java_tools: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    odradek(capsys, "storage", "format", "-t", CLUSTER, "-c", str(config), "-S", USER)
    theirs = report_of(java_tools.run("storage", "info", "-c", str(config)))
    # It shows the properties of any of the directories.
    hidden = re.compile(r"directory\.id=\S+,")
    ours = odradek(capsys, "storage", "info", "-c", str(config)).split("\n")
    assert [hidden.sub("", line) for line in theirs] == [hidden.sub("", line) for line in ours]
    assert "already formatted" in java_tools.run("storage", "format", "-t", CLUSTER, "-c", str(config), "-g")
    path = str(config.parent / "m" / "bootstrap.checkpoint")
    dumped = java_tools.run("dump-log", "--cluster-metadata-decoder", "--files", path)
    assert dumped.split("\n")[1:] == odradek(
        capsys, "dump-log", "--cluster-metadata-decoder", "--files", path
    ).split("\n")[1:]  # fmt: skip


def test_directories_that_apache_formatted_are_read_by_odradek(
    config: Path, java_tools: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    java_tools.run("storage", "format", "-t", CLUSTER, "-c", str(config), "-S", USER)
    out = odradek(capsys, "storage", "info", "-c", str(config))
    assert re.search(rf"Found metadata: {{cluster.id={CLUSTER}, directory.id=\S{{22}}, node.id=1, version=1}}", out)
    words = ("storage", "format", "-t", CLUSTER, "-c", str(config), "-g")
    assert odradek(capsys, *words) == "All of the log directories are already formatted.\n"
    entries = read_checkpoint((config.parent / "m" / "bootstrap.checkpoint").read_bytes()).entries
    records = without_unsupported_features([decode_metadata_record(each.value).record for each in entries])
    assert records[:-1] == feature_records()
    assert (records[-1].name, records[-1].mechanism, records[-1].iterations) == ("alice", 1, 4096)


def dynamic(config: Path) -> Path:
    """The same controller with its voters in the metadata log."""
    config.write_text(config.read_text().replace("quorum.voters=1@", "quorum.bootstrap.servers="))
    return config


def first_snapshot(config: Path) -> bytes:
    return (config.parent / "m/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint").read_bytes()


def without_times(data: bytes) -> list[object]:
    """Each batch of a file without its timestamps and its checksum, and the version and the voters."""
    position, found = 0, []
    while position < len(data):
        length = int.from_bytes(data[position + 8 : position + 12]) + 12
        batch = data[position : position + length]
        found.append((batch[:17], batch[21:27], batch[43:67], len(batch)))
        position += length
    return [*found, *map(repr, read_checkpoint(data).controls)]


@pytest.mark.parametrize(
    "voters",
    [
        "1@localhost:9093:JEXY6aqzQY-32P5TStzaFg",
        "1@localhost:9093:JEXY6aqzQY-32P5TStzaFg,12@c12:9094:MvDxzVmcRsaTz33bUuRU6A",
        "2@c2:9094:MvDxzVmcRsaTz33bUuRU6A",
    ],
)
def test_first_snapshot_with_initial_controllers_is_that_of_apache(
    voters: str, config: Path, java_tools: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("storage", "format", "-t", CLUSTER, "-c", str(dynamic(config)), "-I", voters)
    said = odradek(capsys, *words)
    ours = first_snapshot(config)
    for name in "abm":
        shutil.rmtree(config.parent / name)
    theirs = java_tools.run(*words)
    kinds = re.compile(r"Formatt\w+ (\D+ directory) (\S+) with (\S+ \S+)\.")
    assert sorted(kinds.findall(said)) == sorted(kinds.findall(theirs))
    assert without_times(ours) == without_times(first_snapshot(config))


def test_standalone_voter_is_that_of_apache(config: Path, java_tools: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("storage", "format", "-t", CLUSTER, "-c", str(dynamic(config)), "--standalone")
    odradek(capsys, *words)
    ours = first_snapshot(config)
    for name in "abm":
        shutil.rmtree(config.parent / name)
    java_tools.run(*words)
    directory = re.compile(r"voter_directory_id=b?(['\"]).*?\1,")
    assert [directory.sub("", str(each)) for each in without_times(ours)] == [
        directory.sub("", str(each)) for each in without_times(first_snapshot(config))
    ]


@pytest.mark.parametrize("release", ["3.3-IV3", "3.5", "3.9", "4.0-IV1", "4.0", "4.2-IV0", "4.3"])
def test_levels_of_a_release_are_those_of_apache(release: str, java_tools: Any) -> None:
    text = java_tools.run("storage", "version-mapping", "-r", release)
    theirs = dict(re.findall(r"^(\S+)=(\d+)", text, re.MULTILINE))
    ours = {each.name: str(each.feature_level) for each in feature_records(release=release)}
    names = ("metadata.version", "group.version", "transaction.version")
    assert {name: theirs[name] for name in names} == {name: ours.get(name, "0") for name in names}


@pytest.mark.parametrize("release", ["3.3-IV3", "3.9", "4.0-IV1", "4.1", "4.2-IV0", "4.3"])
def test_version_mapping_is_that_of_apache(release: str, java_tools: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("storage", "version-mapping", "-r", release)
    assert odradek(capsys, *words) == java_tools.run(*words)


def test_feature_dependencies_are_those_of_apache(java_tools: Any, capsys: pytest.CaptureFixture[str]) -> None:
    levels = (
        "metadata.version=23", "kraft.version=1", "transaction.version=1", "group.version=0", "share.version=1",
        "eligible.leader.replicas.version=0", "eligible.leader.replicas.version=1", "streams.version=1",
    )  # fmt: skip
    words = ("storage", "feature-dependencies", *(word for each in levels for word in ("-f", each)))
    assert odradek(capsys, *words) == java_tools.run(*words)


def test_quorum_of_apache_is_described_as_by_its_tool(
    apache_kafka: str, java_tools: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = java_tools.run("metadata-quorum", "--bootstrap-server", apache_kafka, "describe", "--status")
    ours = odradek(capsys, "metadata-quorum", "-b", apache_kafka, "describe", "--status")
    moving = re.compile(r"^(HighWatermark|MaxFollowerLag\w*):.*$", re.MULTILINE)
    assert moving.sub(r"\1", ours) in moving.sub(r"\1", theirs)
    endpoint = re.search(r"CONTROLLER://([^\"]+)", ours)
    assert endpoint is not None
    words = ("metadata-quorum", "--bootstrap-controller", endpoint[1], "describe", "--status")
    assert moving.sub(r"\1", odradek(capsys, *words)) == moving.sub(r"\1", ours)
