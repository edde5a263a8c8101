"""`odradek metadata-shell` on the metadata log and a snapshot of a broker of Apache Kafka 4.3.0."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.wire.messages import cluster_metadata as md
from tests.unit.broker.migration.kraft_folder import metadata_log, write_metadata
from tests.unit.kraft.golden_files import GOLDEN

APACHE = GOLDEN / "apache"
SNAPSHOT = APACHE / "00000000000000000106-0000000003.checkpoint"


def shown(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["metadata-shell", *map(str, words)]) == 0
    return capsys.readouterr().out


def rejected(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    status = main(["metadata-shell", *map(str, words)])
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return status, line


def test_partition_is_shown_as_the_log_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    state = json.loads(shown(capsys, "--directory", APACHE, "cat", "/image/topics/byName/single/0"))
    assert (state["replicas"], state["isr"], state["elr"], state["lastKnownElr"]) == ([3, 2], [], [2, 3], [2])
    assert (state["leader"], state["leaderEpoch"], state["partitionEpoch"]) == (-1, 3, 5)
    assert state["directories"] == ["DdKCW-KjNMc_QL0N1fmEQg", "twYoqlvAczqlPMpgMc0llQ"]


def test_topic_is_found_by_its_id(capsys: pytest.CaptureFixture[str]) -> None:
    topic_id = shown(capsys, "-d", APACHE, "cat", "/image/topics/byName/orders/id").strip()
    assert shown(capsys, "-d", APACHE, "cat", f"/image/topics/byId/{topic_id}/name") == "orders\n"


def test_snapshot_is_shown_as_of_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(shown(capsys, "--snapshot", SNAPSHOT, "cat", "/image/provenance")) == {"endOffset": 106}
    brokers = shown(capsys, "-s", SNAPSHOT, "tree", "/image/cluster/brokers").splitlines()
    assert [json.loads(line.partition(": ")[2])["fenced"] for line in brokers] == [False, False, False]


def test_log_directory_of_a_node_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(APACHE, tmp_path / "__cluster_metadata-0")
    found = shown(capsys, "-d", tmp_path, "ls", "image/topics/byName")
    assert found.split() == ["orders", "payments", "single"]


def test_find_lists_a_node_and_all_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "-d", APACHE, "find", "/image/configs/TOPIC:orders").split() == [
        "/image/configs/TOPIC:orders",
        "/image/configs/TOPIC:orders/cleanup.policy",
        "/image/configs/TOPIC:orders/retention.ms",
    ]
    assert "/image/clientQuotas/clientId(c)_user(alice)/producer_byte_rate" in shown(capsys, "-d", APACHE, "find")


def test_secrets_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_metadata(
        tmp_path,
        [
            md.UserScramCredentialRecord("alice", 1, b"the salt", b"the stored", b"the server", 4096),
            md.ConfigRecord(4, "1", "ssl.keystore.password", "hush"),
            md.ConfigRecord(4, "1", "some.plugin.secret", "hush"),
            md.ConfigRecord(4, "1", "log.cleaner.threads", "2"),
        ],
    )
    found = shown(capsys, "-d", tmp_path, "tree")
    assert "hush" not in found
    assert "alice: " + json.dumps({"iterations": 4096, "credential": "[redacted]"}) in found
    assert "log.cleaner.threads: 2" in found


def test_name_with_a_slash_and_an_escape_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user = [md.ClientQuotaRecordEntityData("user", "a/b")]
    odd = [md.ClientQuotaRecordEntityData("user", "x\x1b[2J")]
    records = [md.ClientQuotaRecord(each, "producer_byte_rate", 7.0) for each in (user, odd)]
    write_metadata(tmp_path, records)
    assert shown(capsys, "-d", tmp_path, "cat", "/image/clientQuotas/user(a/b)/producer_byte_rate") == "7\n"
    assert "\x1b" not in shown(capsys, "-d", tmp_path, "tree")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("cat", "/image"), "/image has children"),
        (("ls", "/image/topics/byName/orders/id"), "is a leaf"),
        (("find", "/image/nope"), "there is no node /image/nope"),
        (("tree", "/image/topics/byName/orders/0/deeper"), "there is no node"),
    ],
)
def test_path_that_does_not_fit_is_rejected(
    words: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, line = rejected(capsys, "-d", APACHE, *words)
    assert (status, text in line) == (2, True)


def test_missing_and_foreign_files_are_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, line = rejected(capsys, "-d", tmp_path / "missing", "ls")
    assert (status, "missing: No such file or directory" in line) == (2, True)
    status, line = rejected(capsys, "-d", tmp_path, "ls")
    assert (status, "there are no records of a metadata log" in line) == (1, True)
    (tmp_path / "x.checkpoint").write_bytes(b"")
    status, line = rejected(capsys, "-s", tmp_path / "x.checkpoint", "ls")
    assert (status, "OFFSET-EPOCH.checkpoint" in line) == (1, True)


def test_log_that_begins_after_every_snapshot_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"{7:020d}.log").write_bytes(metadata_log([md.NoOpRecord()], 7))
    status, line = rejected(capsys, "-d", tmp_path, "ls")
    assert (status, "begins at offset 7, and no snapshot reaches it" in line) == (1, True)
