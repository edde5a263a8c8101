"""`odradek metadata-quorum`: what is printed of a quorum, and which options go together."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.commands import metadata_quorum
from odradek.cli.main import main
from odradek.client.admin import QuorumDescription, QuorumReplica, RaftVoterEndpoint
from odradek.log.directories.checkpoint_formats import MetaProperties, format_meta_properties

DIRECTORY = bytes(range(1, 17))
VOTERS = [
    QuorumReplica(1, 90, 1_000, 900),
    QuorumReplica(2, 100, 1_500, 1_500, DIRECTORY),
    QuorumReplica(3, 100, 1_400, 1_400),
]
ENDPOINTS = {1: [RaftVoterEndpoint("CONTROLLER", "c1", 9093)], 2: [RaftVoterEndpoint("CONTROLLER", "::1", 9093)]}
QUORUM = QuorumDescription(2, 7, 99, VOTERS, [QuorumReplica(11, 95, None, None)], ENDPOINTS)


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """The command sees QUORUM; the arguments that reached the client."""
    asked: list[argparse.Namespace] = []

    def run_admin(arguments: argparse.Namespace, _work: Any) -> tuple[str, QuorumDescription]:
        asked.append(arguments)
        return "cluster-1", QUORUM

    monkeypatch.setattr(metadata_quorum, "run_admin", run_admin)
    return asked


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["metadata-quorum", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.usefixtures("described")
def test_status_has_the_fields_of_apaches_tool(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "describe", "--status")
    assert status == 0
    assert out.splitlines() == [
        "ClusterId:              cluster-1",
        "LeaderId:               2",
        "LeaderEpoch:            7",
        "HighWatermark:          99",
        "MaxFollowerLag:         10",
        "MaxFollowerLagTimeMs:   600",
        (
            'CurrentVoters:          [{"id": 1, "endpoints": ["CONTROLLER://c1:9093"]}, '
            '{"id": 2, "directoryId": "AQIDBAUGBwgJCgsMDQ4PEA", "endpoints": ["CONTROLLER://[::1]:9093"]}, {"id": 3}]'
        ),
        'CurrentObservers:       [{"id": 11}]',
    ]


@pytest.mark.usefixtures("described")
def test_status_is_a_document_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(run(capsys, "describe", "--status", "-o", "json")[1])
    assert (found["leader_id"], found["max_follower_lag"], found["max_follower_lag_ms"]) == (2, 10, 600)
    assert found["voters"][0] == {"id": 1, "directory_id": None, "endpoints": ["CONTROLLER://c1:9093"]}
    assert run(capsys, "describe", "--status", "-o", "tsv")[1].splitlines()[1] == "LeaderId\t2"


@pytest.mark.usefixtures("described")
def test_replication_lists_leader_followers_and_observers(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "describe", "--replication")
    assert [line.split() for line in out.splitlines()] == [
        ["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"],
        ["2", "AQIDBAUGBwgJCgsMDQ4PEA", "100", "0", "1500", "1500", "Leader"],
        ["1", "-", "90", "10", "1000", "900", "Follower"],
        ["3", "-", "100", "0", "1400", "1400", "Follower"],
        ["11", "-", "95", "5", "-", "-", "Observer"],
    ]


@pytest.mark.usefixtures("described")
def test_human_readable_times_are_distances(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.cli.commands.metadata_quorum.time.time", lambda: 1.45)
    _, out, _ = run(capsys, "describe", "--replication", "--human-readable", "-o", "tsv")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[4] for row in rows] == ["0 ms ago", "450 ms ago", "50 ms ago", "-"]


def test_controllers_are_asked_on_request(
    described: list[argparse.Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "--bootstrap-controller", "c1:9093", "describe", "--status")[0] == 0
    assert described[0].bootstrap_server == "c1:9093"


def test_lag_in_time_is_unknown_where_a_time_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum = QUORUM._replace(voters=[QuorumReplica(1, 90, None, None), VOTERS[1]])
    monkeypatch.setattr(metadata_quorum, "run_admin", lambda *_: ("c", quorum))
    assert json.loads(run(capsys, "describe", "--status", "-o", "json")[1])["max_follower_lag_ms"] == -1


def test_quorum_without_a_leader_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_quorum, "run_admin", lambda *_: ("c", QUORUM._replace(leader_id=-1)))
    status, out, err = run(capsys, "describe", "--status")
    assert (status, out) == (1, "")
    assert "the quorum has no leader" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("describe",), "exactly one view is needed: --status, --replication"),
        (("describe", "--status", "--replication"), "exactly one view is needed"),
        (("describe", "--status", "--human-readable"), "--human-readable goes with --replication only"),
        (("describe", "--status", "-b", "a:1", "--bootstrap-controller", "a:2"), "contradict"),
        (("add-controller",), "add-controller needs --controller-config"),
        (("remove-controller", "-i", "3"), "needs --controller-id and --controller-directory-id"),
        (("remove-controller", "-i", "3", "-d", "short"), "is not a UUID as `describe` shows it"),
        (("remove-controller", "-i", "-3", "-d", "AQIDBAUGBwgJCgsMDQ4PEA"), "--controller-id -3 is negative"),
        (("remove-controller", "--status"), "--status goes with describe only"),
        (("describe", "--status", "--dry-run"), "--dry-run goes with add-controller or remove-controller only"),
    ],
)
def test_wrong_options_are_an_error_of_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert message in err


# --- voters ---


class Voters:
    """The part of an admin client that changes voters: keeps what it is asked for."""

    def __init__(self) -> None:
        self.raft_voters = self
        self.asked: list[tuple[Any, ...]] = []

    async def add(self, *words: Any, of_controllers: bool) -> None:
        self.asked.append(("add", *words, of_controllers))

    async def remove(self, *words: Any, of_controllers: bool) -> None:
        self.asked.append(("remove", *words, of_controllers))


@pytest.fixture
def voters(monkeypatch: pytest.MonkeyPatch) -> Voters:
    """What the command asks of the client."""
    found = Voters()
    monkeypatch.setattr(metadata_quorum, "run_admin", lambda _arguments, work: asyncio.run(work(found)))
    return found


@pytest.fixture
def controller(tmp_path: Path) -> Path:
    """The file of a controller with a formatted directory."""
    path = tmp_path / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=3\ncontroller.quorum.bootstrap.servers=c1:9093\n"
        "controller.listener.names=CONTROLLER,BACKUP\nlisteners=CONTROLLER://:9093,BACKUP://0.0.0.0:9094\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,BACKUP:PLAINTEXT\n"
        f"advertised.listeners=CONTROLLER://[::1]:9093\nlog.dirs={tmp_path}/data\n"
    )
    (tmp_path / "data").mkdir()
    own = MetaProperties("cluster-1", 3, DIRECTORY)
    (tmp_path / "data" / "meta.properties").write_bytes(format_meta_properties(own))
    return path


def test_added_controller_is_that_of_its_file_and_directory(
    controller: Path, voters: Voters, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--bootstrap-controller", "c1:9093", "add-controller", "--controller-config", str(controller))
    text = (
        "controller 3 with directory id AQIDBAUGBwgJCgsMDQ4PEA and endpoints: CONTROLLER://[::1]:9093, "
        "BACKUP://localhost:9094\n"
    )
    assert run(capsys, *words, "--dry-run") == (0, f"DRY RUN of adding {text}", "")
    assert voters.asked == []
    assert run(capsys, *words) == (0, f"Added {text}", "")
    endpoints = [RaftVoterEndpoint("CONTROLLER", "::1", 9093), RaftVoterEndpoint("BACKUP", "localhost", 9094)]
    assert voters.asked == [("add", 3, DIRECTORY, endpoints, True)]


def test_removed_controller_is_named_by_id_and_directory(voters: Voters, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("remove-controller", "-i", "3", "-d", "AQIDBAUGBwgJCgsMDQ4PEA")
    text = "KRaft controller 3 with directory id AQIDBAUGBwgJCgsMDQ4PEA\n"
    assert run(capsys, *words, "--dry-run") == (0, f"DRY RUN of removing {text}", "")
    assert run(capsys, *words) == (0, f"Removed {text}", "")
    assert voters.asked == [("remove", 3, DIRECTORY, False)]


def test_file_without_a_formatted_controller_is_rejected(
    controller: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    controller.write_text(controller.read_text().replace("/data", "/absent"))
    status, _, err = run(capsys, "add-controller", "--controller-config", str(controller))
    assert (status, "is not formatted" in err) == (2, True)
    broker = tmp_path / "broker.properties"
    broker.write_text(f"process.roles=\nlog.dirs={tmp_path}/data\n")
    status, _, err = run(capsys, "add-controller", "--controller-config", str(broker))
    assert (status, "process.roles has no controller" in err) == (2, True)
