import argparse
import asyncio
import io
import json
import os
from pathlib import Path

import pytest

from odradek.broker.config import BrokerConfig
from odradek.cli.cluster_restart import PROCESSES
from odradek.cli.errors import UsageError
from odradek.cli.main import main
from odradek.cli.supervisor import Supervisor, broker_settings, claim, home_of


def settings(given: dict[str, str], broker_id: int = 2) -> dict[str, str]:
    return broker_settings(given, BrokerConfig(given), broker_id, 3, ("127.0.0.1", 9093))


def test_each_broker_has_a_directory_and_all_one_store() -> None:
    found = settings({"log.dirs": "data"})
    assert (found["log.dirs"], found["odradek.metadata.store"]) == ("data/broker-2", "data/odradek-metadata.sqlite")
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9093"
    assert (found["default.replication.factor"], found["min.insync.replicas"]) == ("3", "2")


def test_several_directories_and_a_disk_for_each_broker() -> None:
    found = settings({"log.dirs": "/disk{id}/a,/disk{id}/b"})
    assert found["log.dirs"] == "/disk2/a/broker-2,/disk2/b/broker-2"
    assert found["odradek.metadata.store"] == "/disk1/a/odradek-metadata.sqlite"


def test_the_directory_of_a_properties_file_counts() -> None:
    config = BrokerConfig({"log.dirs": "/var/lib/odradek"})
    assert home_of(config) == Path("/var/lib/odradek")
    assert broker_settings({}, config, 1, 3, ("h", 1))["log.dirs"] == "/var/lib/odradek/broker-1"


def test_a_cluster_does_not_take_over_what_a_single_broker_wrote(tmp_path: Path) -> None:
    """Its brokers would find the topics in the metadata, and in their own directories no records."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(UsageError, match="holds the logs of a single broker"):
        claim(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_a_single_broker_does_not_take_over_what_a_cluster_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "broker-1" / "meta.properties").write_text("version=1\n")
    assert main(["serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]) == 2
    assert capsys.readouterr().err == (
        f"odradek serve: {tmp_path} holds a cluster of this machine: start it with --brokers N\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["broker-1"]


def test_one_supervisor_at_a_time(tmp_path: Path) -> None:
    lock = claim(tmp_path / "data")
    arguments = argparse.Namespace(listen="127.0.0.1:0", brokers=2, log_format="text", log_level="info")
    config = BrokerConfig({"log.dirs": str(tmp_path / "data")})
    with pytest.raises(UsageError, match="another process uses this directory"):
        asyncio.run(Supervisor(arguments, config, {}, io.StringIO()).run())
    lock.release()
    claim(tmp_path / "data").release()


def test_nobody_is_restarted_by_what_a_dead_cluster_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its process numbers may be anybody's by now: this test's own, say."""
    (tmp_path / PROCESSES).write_text(json.dumps({"supervisor": 1, "brokers": {"1": os.getpid()}}))
    assert main(["cluster", "restart", "--rolling", "--data-dir", str(tmp_path)]) == 1
    assert "does not run" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Not a directory"):
        claim(tmp_path / "file" / "data")
