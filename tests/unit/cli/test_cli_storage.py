"""`odradek storage`: output, exit status and errors of one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.cli.main import main

CLUSTER = "4L6g3nShT-eMCtK--X86sw"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a broker of a KRaft cluster, with two directories that do not exist."""
    path = tmp_path / "broker.properties"
    path.write_text(
        "process.roles=broker\nnode.id=7\ncontroller.quorum.voters=1@localhost:9093\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tmp_path}/a,{tmp_path}/b\n"
    )
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["storage", *map(str, words)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_random_uuid_prints_another_id_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    ids = {run(capsys, "random-uuid") for _ in range(10)}
    assert len(ids) == 10
    for status, out, _ in ids:
        assert status == 0
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", out)


def test_format_names_each_directory_and_info_reads_them(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "format", "-t", CLUSTER, "-c", config) == (
        0,
        (
            f"Formatted metadata directory {tmp_path}/a with metadata.version 4.3-IV0.\n"
            f"Formatted data directory {tmp_path}/b with metadata.version 4.3-IV0.\n"
        ),
        "",
    )
    status, out, _ = run(capsys, "info", "-c", config)
    assert status == 0
    assert re.fullmatch(
        rf"Found log directories:\n  {tmp_path}/a\n  {tmp_path}/b\n\n"
        rf"Found metadata: {{cluster.id={CLUSTER}, directory.id=\S{{22}}, node.id=7, version=1}}\n\n",
        out,
    )


def test_formatted_directories_fail_unless_they_are_ignored(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("format", "-t", CLUSTER, "-c", config)
    run(capsys, *words)
    status, out, err = run(capsys, *words)
    assert (status, out) == (1, "")
    assert "is already formatted: --ignore-formatted skips it" in err
    assert run(capsys, *words, "-g") == (0, "All of the log directories are already formatted.\n", "")


def test_info_fails_where_directories_are_not_formatted(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").mkdir()
    assert run(capsys, "info", "-c", config) == (
        1,
        (
            f"Found log directory:\n  {tmp_path}/a\n\n"
            f"Found problems:\n  {tmp_path}/a is not formatted.\n  {tmp_path}/b does not exist\n\n"
        ),
        "",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("format",), "format needs --config"),
        (("format", "-c", "FILE"), "format needs --cluster-id"),
        (("format", "-c", "absent.properties", "-t", CLUSTER), "absent.properties: No such file"),
        (("format", "-c", "FILE", "-t", "short"), "--cluster-id 'short' is not a UUID"),
        (("format", "-c", "FILE", "-t", CLUSTER, "--standalone"), "remove that setting, or format without"),
        (
            ("format", "-c", "FILE", "-t", CLUSTER, "-I", "1@localhost:9093:x"),
            "--initial-controllers: the voters are in",
        ),
        (("format", "-c", "FILE", "-t", CLUSTER, "-N", "-s"), "not allowed with"),
        (("info", "-c", "FILE", "-g"), "--ignore-formatted goes with format only"),
        (("random-uuid", "-c", "FILE"), "--config goes with format or info only"),
    ],
)
def test_wrong_options_are_an_error_of_one_line(
    config: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    status, out, err = run(capsys, *(config if each == "FILE" else each for each in words))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_disk_that_fails_is_named(tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "bootstrap.checkpoint").mkdir()
    status, out, err = run(capsys, "format", "-t", CLUSTER, "-c", config)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "later directories are not formatted" in err
    assert not (tmp_path / "a" / "meta.properties").exists()


def test_voters_in_the_configuration_may_be_said_to_stay_there(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "format", "-t", CLUSTER, "-c", config, "--no-initial-controllers")[0] == 0


STOCK = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
"""


def test_standalone_node_of_the_stock_file_is_formatted_as_a_voter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.properties"
    path.write_text(f"{STOCK}log.dirs={tmp_path}/data\n")
    assert not BrokerConfig.load(str(path)).joins_quorum
    status, out, _ = run(capsys, "format", "--standalone", "-t", CLUSTER, "-c", path)
    assert status == 0
    assert out == f"Formatted dynamic metadata voter directory {tmp_path}/data with metadata.version 4.3-IV0.\n"
    assert BrokerConfig.load(str(path)).joins_quorum


def test_version_mapping_prints_the_levels_of_a_release(capsys: pytest.CaptureFixture[str]) -> None:
    rest = (
        "kraft.version=1\ntransaction.version=2\ngroup.version=1\neligible.leader.replicas.version=1\n"
        "share.version=1\nstreams.version={streams}\n"
    )
    assert run(capsys, "version-mapping") == (0, "metadata.version=30 (4.3-IV0)\n" + rest.format(streams=1), "")
    words = ("version-mapping", "-r", "4.2-IV0")
    assert run(capsys, *words) == (0, "metadata.version=28 (4.2-IV0)\n" + rest.format(streams=0), "")


def test_feature_dependencies_prints_what_a_level_needs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("feature-dependencies", "-f", "metadata.version=20", "-f", "eligible.leader.replicas.version=1")
    found = run(capsys, *words)
    assert (found[0], found[1].splitlines()) == (
        0,
        [
            "metadata.version=20 (3.8-IV0) has no dependencies.",
            "eligible.leader.replicas.version=1 requires:",
            "    metadata.version=23 (4.0-IV1)",
        ],
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("version-mapping", "-r", "9.9"), "--release-version 9.9"),
        (("version-mapping", "-f", "group.version=1"), "--feature goes with format and feature-dependencies only"),
        (("feature-dependencies", "-r", "4.1"), "--release-version goes with format and version-mapping only"),
        (("feature-dependencies",), "needs --feature"),
        (("feature-dependencies", "-f", "nope=1"), "no such feature"),
        (("feature-dependencies", "-f", "group.version=2"), "levels 0 to 1"),
        (("feature-dependencies", "-f", "metadata.version=6"), "levels 7 to 30"),
        (("feature-dependencies", "-f", "group.version"), "NAME=LEVEL expected"),
        (("version-mapping", "-c", "x"), "--config goes with format or info only"),
    ],
)
def test_wrong_questions_about_features_are_rejected(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert said in err
