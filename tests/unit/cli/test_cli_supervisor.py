import argparse
import asyncio
import errno
import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.cli.actions import cluster_restart
from odradek.cli.actions.cluster_restart import PROCESSES
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.main import main
from odradek.cli.serving import supervisor
from odradek.cli.serving.supervisor import (
    Machine,
    Supervisor,
    broker_settings,
    claim,
    home_of,
    lines_of,
    listen_address,
    next_backoff,
    rack_of_machine,
    shared_listener,
)
from odradek.client.errors import CallTimedOut
from odradek.ports.disk import SystemDisk


def settings(given: dict[str, str], broker_id: int = 2) -> dict[str, str]:
    return broker_settings(given, BrokerConfig(given), broker_id, Machine(3), ("127.0.0.1", 9093))


def test_each_broker_has_a_directory_and_all_one_store() -> None:
    found = settings({"log.dirs": "data"})
    assert (found["log.dirs"], found["odradek.metadata.store"]) == ("data/broker-2", "data/odradek-metadata.sqlite")
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9093"
    assert (found["default.replication.factor"], found["min.insync.replicas"]) == ("3", "2")


def test_brokers_listen_on_loopback_by_default() -> None:
    assert listen_address(None) == ("127.0.0.1", 9092)
    assert listen_address("0.0.0.0:19092") == ("0.0.0.0", 19092)


def test_advertised_listeners_of_the_command_line_are_kept() -> None:
    found = settings({"advertised.listeners": "PLAINTEXT://kafka{id}.example.org:9092"})
    assert found["advertised.listeners"] == "PLAINTEXT://kafka2.example.org:9092"


def test_quorum_of_the_file_is_of_one_node() -> None:
    config = BrokerConfig({"controller.quorum.voters": "1@localhost:9093", "process.roles": "broker,controller"})
    found = broker_settings({}, config, 2, Machine(3), ("127.0.0.1", 9093))
    assert found["controller.quorum.voters"] == ""
    assert "advertised.listeners" not in found


def test_several_directories_and_a_disk_for_each_broker() -> None:
    found = settings({"log.dirs": "/disk{id}/a,/disk{id}/b"})
    assert found["log.dirs"] == "/disk2/a/broker-2,/disk2/b/broker-2"
    assert found["odradek.metadata.store"] == "/disk1/a/odradek-metadata.sqlite"


def test_the_directory_of_a_properties_file_counts() -> None:
    config = BrokerConfig({"log.dirs": "/var/lib/odradek"})
    assert home_of(config) == Path("/var/lib/odradek")
    assert broker_settings({}, config, 1, Machine(3), ("h", 1))["log.dirs"] == "/var/lib/odradek/broker-1"


def test_directory_of_the_store_is_that_of_the_first_broker() -> None:
    config = BrokerConfig({"log.dirs": "/disk{id}"})
    found = broker_settings({}, config, 5, Machine(3, first_id=4), ("h", 1))
    assert (found["node.id"], found["log.dirs"]) == ("5", "/disk5/broker-5")
    assert found["odradek.metadata.store"] == "/disk4/odradek-metadata.sqlite"
    assert home_of(config, 4) == Path("/disk4")


def test_rack_of_brokers_is_their_machine() -> None:
    machine = Machine(3, rack="kafka1")
    found = broker_settings({}, BrokerConfig({}), 2, machine, ("h", 1))
    assert found["broker.rack"] == "kafka1"


@pytest.mark.parametrize("rack", ["room-a", ""])
def test_rack_that_is_set_is_kept(rack: str) -> None:
    machine = Machine(3, rack="kafka1")
    given = {"broker.rack": rack}
    assert broker_settings(given, BrokerConfig(given), 2, machine, ("h", 1))["broker.rack"] == rack
    assert "broker.rack" not in broker_settings({}, BrokerConfig(given), 2, machine, ("h", 1))


@pytest.mark.parametrize(
    ("name", "rack"),
    [("kafka1.example.org", "kafka1.example.org"), ("localhost", None), ("localhost.localdomain", None), ("", None)],
)
def test_rack_of_a_machine_is_its_own_name(name: str, rack: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "machine_name", lambda: name)
    assert rack_of_machine() == rack


def test_a_cluster_does_not_take_over_what_a_single_broker_wrote(tmp_path: Path) -> None:
    """Its brokers would find the topics in the metadata, and in their own directories no records."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(UsageError, match="holds the logs of a single broker"):
        claim(tmp_path, SystemDisk())
    assert [path.name for path in tmp_path.iterdir()] == ["meta.properties"]


def test_a_single_broker_does_not_take_over_what_a_cluster_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broker-4").mkdir()
    (tmp_path / "broker-4" / "meta.properties").write_text("version=1\n")
    assert main(["serve", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]) == 2
    assert capsys.readouterr().err == (
        f"odradek serve: {tmp_path} holds a cluster of this machine: start it with --brokers N\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["broker-4"]


def supervisor_of(home: Path, *, first_id: int | None = None, listen: str = "127.0.0.1:0") -> Supervisor:
    arguments = argparse.Namespace(
        listen=listen,
        brokers=2,
        first_id=first_id,
        bootstrap_port=None,
        log_format="text",
        log_level="info",
        properties=None,
        console=None,
    )
    return Supervisor(arguments, BrokerConfig({"log.dirs": str(home)}), {}, io.StringIO())


def test_directory_of_a_cluster_is_for_its_owner(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        claim(tmp_path / "of" / "cluster", SystemDisk()).release()
    finally:
        os.umask(before)
    assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("of", "of/cluster")} == {0o700}


def test_one_supervisor_at_a_time(tmp_path: Path) -> None:
    lock = claim(tmp_path / "data", SystemDisk())
    with pytest.raises(UsageError, match="another process uses this directory"):
        asyncio.run(supervisor_of(tmp_path / "data").run())
    lock.release()
    claim(tmp_path / "data", SystemDisk()).release()


def test_brokers_are_numbered_from_the_first_id(tmp_path: Path) -> None:
    cluster = supervisor_of(tmp_path, first_id=4, listen="127.0.0.1:9092")
    assert [child.broker_id for child in cluster._children] == [4, 5]
    assert [cluster._address(child)[1] for child in cluster._children] == [9092, 9093]


def test_first_id_may_be_zero(tmp_path: Path) -> None:
    assert [child.broker_id for child in supervisor_of(tmp_path, first_id=0)._children] == [0, 1]


@pytest.mark.parametrize(
    ("held", "first_id", "rejected"),
    [
        ([1, 2], 3, "holds the logs of brokers 1 to 2: start it with --first-id 1"),
        ([4], None, "holds the logs of broker 4: start it with --first-id 4"),
        ([1, 2, 3], None, None),
        ([1], 0, None),
    ],
)
def test_logs_of_other_brokers_are_not_left_behind(
    held: list[int], first_id: int | None, rejected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in held:
        (tmp_path / f"broker-{number}").mkdir()
        (tmp_path / f"broker-{number}" / "meta.properties").write_text("version=1\n")
    (tmp_path / "broker-old").mkdir()
    (tmp_path / "broker-old" / "meta.properties").write_text("version=1\n")
    cluster = supervisor_of(tmp_path, first_id=first_id)

    async def supervise() -> int:
        return 0

    monkeypatch.setattr(Supervisor, "_supervise", lambda _: supervise())
    if rejected is None:
        assert asyncio.run(cluster.run()) == 0
    else:
        with pytest.raises(UsageError, match=rejected):
            asyncio.run(cluster.run())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--bootstrap-port", "9092"], "--bootstrap-port is for the brokers of --brokers N; a single one has --listen"),
        (
            ["--first-id", "4"],
            "--first-id numbers the brokers of --brokers N; for a single one, use --set broker.id=ID",
        ),
        (["--brokers", "2", "--first-id", "-1"], "--first-id -1: ids of 2 brokers are from 0 to 2147483647"),
        (
            ["--brokers", "2", "--first-id", "2147483647"],
            "--first-id 2147483647: ids of 2 brokers are from 0 to 2147483647",
        ),
    ],
)
def test_option_of_clusters_is_rejected_when_it_cannot_apply(
    options: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--data-dir", str(tmp_path / "data"), *options]) == 2
    assert capsys.readouterr().err == f"odradek serve: {problem}\n"


def test_port_of_a_broker_is_not_shared() -> None:
    with pytest.raises(UsageError, match="--bootstrap-port 9093: the brokers' own ports are 9092 to 9094"):
        shared_listener("127.0.0.1:9092", 3, 9093)


def test_shared_port_that_is_in_use_is_rejected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"--bootstrap-port {port}: Address already in use"):
            shared_listener("127.0.0.1:0", 3, port)


@pytest.mark.parametrize("port", [-1, 70_000])
def test_shared_port_that_is_no_port_is_rejected(port: int) -> None:
    with pytest.raises(UsageError, match=f"--bootstrap-port {port}: ports are from 0 to 65535"):
        shared_listener("127.0.0.1:0", 3, port)


def test_shared_port_is_bound_on_the_host_of_the_brokers() -> None:
    with shared_listener("127.0.0.1:0", 3, 0) as opened:
        assert opened.getsockname()[0] == "127.0.0.1"
        assert not opened.get_inheritable()


def test_no_broker_is_restarted_by_notes_of_a_dead_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its process numbers may be anybody's by now: this test's own, say."""
    (tmp_path / PROCESSES).write_text(json.dumps({"supervisor": 1, "brokers": {"1": os.getpid()}}))
    assert main(["cluster", "restart", "--rolling", "--data-dir", str(tmp_path)]) == 1
    assert "is not running there" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="Not a directory"):
        claim(tmp_path / "file" / "data", SystemDisk())


def test_a_broker_that_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[int] = []

    async def body() -> None:
        cluster = supervisor_of(tmp_path)

        async def refuse(*words: str, **_: Any) -> None:
            tried.append(len(words))
            if len(tried) == 3:
                cluster._stop.set()
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
        await cluster._keep(cluster._children[0])

    monkeypatch.setattr(supervisor, "_FIRST_BACKOFF_SECONDS", 0.0001)
    asyncio.run(body())
    assert len(tried) == 3
    assert "[broker 1] cannot be started: [Errno 24] Too many open files" in capsys.readouterr().err


def test_a_broker_is_looked_after_although_its_process_cannot_be_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisor_of(tmp_path / "nowhere")._note_processes()
    assert "No such file" in capsys.readouterr().err


def test_broker_is_supervised_though_its_output_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when standard error is a file on a full disk: a pipe without a reader would block its broker."""

    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    async def body() -> bool:
        cluster = supervisor_of(tmp_path)
        lines = asyncio.StreamReader()
        lines.feed_data(b"one\ntwo\n")
        lines.feed_eof()
        monkeypatch.setattr(sys, "stderr", Full())
        await cluster._follow_log(cluster._children[0], lines)
        cluster._home = tmp_path / "nowhere"
        cluster._note_processes()
        return lines.at_eof()

    assert asyncio.run(body())


def test_lines_of_any_length_are_passed_on() -> None:
    async def body() -> list[str]:
        stream = asyncio.StreamReader(limit=1000)
        for data in (b"a\n\nb", b"c" * 300_000, b"\xff\n", b"end"):
            stream.feed_data(data)
        stream.feed_eof()
        return [line async for line in lines_of(stream)]

    assert asyncio.run(body()) == ["a", "", f"b{'c' * 300_000}\ufffd", "end"]


def test_the_longest_wait_is_the_longest() -> None:
    waits = [0.1]
    for _ in range(9):
        waits.append(next_backoff(waits[-1], 1.0))
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert waits[-2:] == [10.0, 10.0]
    assert next_backoff(10.0, 3600.0) == 0.1


def test_a_broker_that_has_just_died_need_not_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    cluster_restart._stop_process(gone.pid)

    def refuse(*_: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(CommandError, match="Operation not permitted"):
        cluster_restart._stop_process(gone.pid)


def test_a_cluster_that_does_not_answer_is_not_said_to_be_out_of_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(_: Any) -> Any:
        raise CallTimedOut("no broker answers")

    monkeypatch.setattr(cluster_restart, "look", look)
    with pytest.raises(CallTimedOut):
        asyncio.run(cluster_restart._until(None, lambda _: True, 300.0))  # type: ignore[arg-type]
