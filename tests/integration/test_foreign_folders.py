"""A start on data that another program wrote, or without the metadata of its own, changes nothing and says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.test_lifecycle import auto_create, serve
from tests.unit.log.test_log_ownership import contents, make_kraft_folder, make_zookeeper_folder

MakeBroker = Callable[..., Any]
Connect = Callable[[str], Any]


def test_serve_rejects_a_kraft_folder_in_one_line(tmp_path: Path) -> None:
    """With a `server.properties` of KRaft, as an administrator of Apache Kafka has it."""
    make_kraft_folder(tmp_path / "data")
    before = contents(tmp_path / "data")
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9093\n"
        "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093\ncontroller.listener.names=CONTROLLER\n"
        f"log.dirs={tmp_path / 'data'}\n"
    )
    done = serve(str(properties), "--log-level", "error")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"odradek serve: {tmp_path / 'data'} holds data of Apache Kafka (KRaft) (")
    assert done.stderr.count("\n") == 1
    assert contents(tmp_path / "data") == before


def test_serve_rejects_a_zookeeper_era_folder_in_one_line(tmp_path: Path) -> None:
    make_zookeeper_folder(tmp_path / "data")
    before = contents(tmp_path / "data")
    done = serve("--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert "data of Apache Kafka (with ZooKeeper)" in done.stderr
    assert done.stderr.count("\n") == 1
    assert contents(tmp_path / "data") == before


def test_partitions_are_not_set_aside_when_the_metadata_is_lost(make_broker: MakeBroker, connect: Connect) -> None:
    broker = make_broker().start()
    auto_create(connect(broker.bootstrap), "kept")
    broker.stop()
    for path in broker.data_dir.glob("odradek-metadata.sqlite*"):
        path.unlink()
    done = serve("--data-dir", str(broker.data_dir), "--listen", "127.0.0.1:0", "--log-level", "error")
    assert done.returncode == 2
    assert "the store is empty, but the log directories hold partitions of cluster" in done.stderr
    assert done.stderr.count("\n") == 1
    assert (broker.data_dir / "kept-0").is_dir()
    assert not list(broker.data_dir.glob("*-stray"))
