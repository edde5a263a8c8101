"""`odradek serve --security`: a secured broker or cluster in one command."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.broker import first_line
from odradek.cli.main import main
from tests.unit.house.sources import ROOT

SECONDS = 60
PAGE = (ROOT / "docs/SECURITY.md").read_text()
"""The page names the options, and the file for clients."""
DOCUMENTED = re.search(r"^    odradek serve --security (.*)$", PAGE, re.MULTILINE)


@contextlib.contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """The address of a secured broker or cluster."""
    command = [sys.executable, "-m", "odradek.cli.main", "serve", "--security", "--data-dir", str(folder / "data")]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        line = first_line(process, SECONDS)
        assert line.startswith("odradek ready"), line
        yield line.split("bootstrap=")[1].split()[0]
    finally:
        process.terminate()
        process.wait(SECONDS)
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.parametrize("is_cluster", [False, True])
def test_administrator_uses_a_secured_cluster_and_others_do_not(
    is_cluster: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert DOCUMENTED is not None
    assert "odradek-data-security/admin.properties" in PAGE
    options = DOCUMENTED.group(1).split() if is_cluster else []
    config = ["--command-config", str(tmp_path / "data-security" / "admin.properties")]
    with serving(tmp_path, *options) as bootstrap:
        created = main(["topics", "--create", "--topic", "t", "-b", bootstrap, *config])
        assert created == 0
        assert main(["topics", "--list", "-b", bootstrap, "--timeout", "2000", "--connect-timeout", "2000"]) != 0
        assert "closed the connection" in capsys.readouterr().err
    with serving(tmp_path, *options) as bootstrap:
        assert main(["topics", "--list", "-b", bootstrap, *config, "-o", "json"]) == 0
        assert '"t"' in capsys.readouterr().out, "the files and the user are used again"


def test_files_are_for_their_owner_only(tmp_path: Path) -> None:
    with serving(tmp_path):
        folder = tmp_path / "data-security"
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
        assert {each.name for each in folder.iterdir()} == {"ca.pem", "broker.pem", "admin.properties"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["server.properties"], "--security is for trials without a properties file"),
        (["--set", "zookeeper.connect=127.0.0.1:1"], "--security keeps the user admin in the data folder"),
    ],
)
def test_security_is_rejected_beside_other_settings(
    options: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=1\n")
    options = [str(tmp_path / each) if each.endswith(".properties") else each for each in options]
    assert main(["serve", "--security", "--data-dir", str(tmp_path / "data"), *options]) == 2
    assert text in capsys.readouterr().err


def test_incomplete_folder_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data-security"
    folder.mkdir()
    (folder / "ca.pem").write_text("")
    assert main(["serve", "--security", "--data-dir", str(tmp_path / "data")]) == 2
    assert "has no broker.pem; remove the folder" in capsys.readouterr().err
    assert os.listdir(folder) == ["ca.pem"]
