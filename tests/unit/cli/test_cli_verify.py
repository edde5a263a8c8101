"""`odradek verify`: which folders hold logs, and what a damaged one exits with."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.log.directories.log_directories import LogDirectories
from odradek.ports.disk import SystemDisk
from odradek.ports.randomness import SeededRandom
from tests.unit.log.support import StandingClock, batch


def make_cluster(home: Path) -> Path:
    """The data folder of a cluster of two brokers; the log of broker 1."""
    for number in (1, 2):
        directories = LogDirectories(
            SystemDisk(), StandingClock(), SeededRandom(str(number)), [str(home / f"broker-{number}")]
        )
        directories.startup.load(cluster_id="c", node_id=number)
        directories.create("orders", 0, b"t" * 16)
        directories.startup.unlock()
    log = home / "broker-1" / "orders-0" / f"{0:020d}.log"
    log.write_bytes(bytes(batch()))
    (log.with_suffix(".index")).touch()
    (log.with_suffix(".timeindex")).touch()
    return log


def test_verify_descends_into_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_cluster(tmp_path)
    assert main(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "2 partitions checked, no problems found\n"


def test_verify_finds_damage_in_a_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = make_cluster(tmp_path)
    data = bytearray(log.read_bytes())
    data[-1] ^= 1
    log.write_bytes(data)
    assert main(["verify", str(tmp_path)]) == 1
    assert str(log) in capsys.readouterr().out


def test_verify_warns_of_a_broker_that_writes_meanwhile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_cluster(tmp_path)
    directories = LogDirectories(SystemDisk(), StandingClock(), SeededRandom("1"), [str(tmp_path / "broker-1")])
    directories.startup.lock()
    assert main(["verify", str(tmp_path)]) == 0
    directories.startup.unlock()
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        f"odradek verify: a broker uses {tmp_path}/broker-1 (it holds .lock): what it writes meanwhile may look like "
        "damage; stop it first"
    )
    assert main(["verify", str(tmp_path)]) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize("name", ["etc", "broker-1", "."])
def test_verify_rejects_a_folder_without_a_log(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name / "rc-0.d").mkdir(parents=True)
    (tmp_path / name / "passwd").write_text("root")
    assert main(["verify", str(tmp_path / name)]) == 2
    assert capsys.readouterr().err.endswith(
        "holds no log: name a log directory, a cluster's data folder or a partition's directory\n"
    )


def test_verify_rejects_a_missing_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "missing")]) == 2
    assert "No such file or directory" in capsys.readouterr().err


def test_verify_rejects_an_empty_name(capsys: pytest.CaptureFixture[str]) -> None:
    """As of a shell's variable that is not set."""
    assert main(["verify", ""]) == 2
    assert capsys.readouterr().err == "odradek verify: the name of a directory is empty\n"


def test_import_rejects_an_empty_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", "", "--data-dir", str(tmp_path / "new")]) == 2
    assert capsys.readouterr().err == "odradek import: the name of a folder is empty\n"
