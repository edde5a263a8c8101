"""Reports for people on the terminal: lag in time, sizes and rates; the debug bundle of docs/OBSERVABILITY.md."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import tarfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers.zookeeper import free_ports
from odradek.cli.main import main
from odradek.cli.terminal import watching
from odradek.testing import BlockingBroker

SECRET = "planted-4711"


class LastLook(Exception):
    """Ends a command that repeats."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    """A broker with 5 records in the topic orders, of which the group billing has committed 2."""
    with BlockingBroker() as started:
        started.topic("orders", partitions=1)
        started.produce("orders", *"abcde")
        place = ["--topic", "orders:0", "--to-offset", "2", "--execute"]
        connection = ["-b", started.bootstrap_servers]
        assert main(["groups", "--reset-offsets", "--group", "billing", *place, *connection]) == 0
        yield started


def look(broker: BlockingBroker, capsys: pytest.CaptureFixture[str], line: str) -> Any:
    """The document that a command prints."""
    capsys.readouterr()
    assert main([*line.split(), "-b", broker.bootstrap_servers, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_lag_in_seconds_is_the_age_of_the_first_unread_record(
    broker: BlockingBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    record = broker.records("orders")[2]
    least = time.time() - record.timestamp / 1000
    (row,) = look(broker, capsys, "groups --describe --group billing")
    most = time.time() - record.timestamp / 1000
    assert row["lag"] == 3
    assert least - 0.001 <= row["lag_seconds"] <= most + 0.001


def test_watched_group_shows_lag_in_seconds_and_its_trend(
    broker: BlockingBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(1))

    def pause(_seconds: float) -> None:
        if next(looks, None) is None:
            raise LastLook

    monkeypatch.setattr(watching.repeat, "__defaults__", (pause,))
    capsys.readouterr()
    with pytest.raises(LastLook):
        main(["groups", "--describe", "--group", "billing", "--watch", "-b", broker.bootstrap_servers])
    heading, first, _, second = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert heading[5:9] == ["LAG", "LAG-SECONDS", "TREND", "CONSUMER-ID"]
    assert (first[5], first[7]) == ("3", "-")
    assert (second[5], second[7]) == ("3", "steady")


def test_sizes_of_topics_are_those_of_their_records(broker: BlockingBroker, capsys: pytest.CaptureFixture[str]) -> None:
    (topic,) = look(broker, capsys, "topics --describe --sizes --topic orders")
    (partition,) = topic["partitions"]
    assert (topic["topic"], topic["records"], partition["end_offset"]) == ("orders", 5, 5)
    assert topic["size_bytes"] == topic["total_bytes"] == partition["size_bytes"] > 5
    assert (topic["records_per_second"], topic["bytes_per_second"]) == (0, 0)


def test_top_shows_brokers_topics_and_groups(broker: BlockingBroker, capsys: pytest.CaptureFixture[str]) -> None:
    shown = look(broker, capsys, "top -n 1 --interval 0.1")
    assert [each["leads"] > 0 for each in shown["brokers"]] == [True]
    orders = next(each for each in shown["topics"] if each["topic"] == "orders")
    assert (orders["records"], orders["records_per_second"]) == (5, 0)
    (billing,) = shown["groups"]
    assert (billing["group"], billing["lag"], billing["lag_per_second"]) == ("billing", 3, 0)


def test_top_prints_plain_tables_without_a_terminal(broker: BlockingBroker, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    line = "top --view groups --filter BILL -n 2 --interval 0.1 -b"
    assert main([*line.split(), broker.bootstrap_servers]) == 0
    lines = [each.split() for each in capsys.readouterr().out.splitlines()]
    assert [each[0] for each in lines] == ["GROUP", "billing", "GROUP", "billing"]
    assert lines[1][4] == "3"


def test_top_rejects_a_column_that_the_view_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--view", "topics", "--sort", "lag"]) == 2
    assert "--sort lag: topic, partitions, " in capsys.readouterr().err
    assert main(["top", "--sort", "lag"]) == 2
    assert capsys.readouterr().err == "odradek top: --sort needs --view\n"


def read_until(descriptor: int, text: str, shown: str = "") -> str:
    """What a terminal shows, up to a text that must come."""
    deadline = time.monotonic() + 30
    while text not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([descriptor], [], [], 0.1)[0]:
            shown += os.read(descriptor, 65_536).decode(errors="replace")
    return shown


def test_top_obeys_keys_and_restores_the_terminal(broker: BlockingBroker) -> None:
    outer, inner = pty.openpty()
    before = termios.tcgetattr(inner)
    command = [sys.executable, "-m", "odradek.cli.main", "top", "--interval", "60", "-b", broker.bootstrap_servers]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    environment.pop("NO_COLOR", None)
    process = subprocess.Popen(command, stdin=inner, stdout=inner, stderr=inner, env=environment)
    try:
        assert "billing" not in read_until(outer, "orders")
        os.write(outer, b"g")
        read_until(outer, "billing")
        os.write(outer, b"q")
        assert process.wait(30) == 0
        assert termios.tcgetattr(inner)[3] == before[3]
    finally:
        process.kill()
        process.wait()
        os.close(outer)
        os.close(inner)


# --- debug bundle ---


def test_debug_bundle_has_the_cluster_and_no_planted_secret(tmp_path: Path) -> None:
    log, file = tmp_path / "broker.log", tmp_path / "cluster.tar.gz"
    log.write_text(f"started\nssl.key.password={SECRET}\nAuthorization: Bearer {SECRET}\n")
    http = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {"odradek.http.listener": http, "delegation.token.secret.key": SECRET}
    with BlockingBroker(settings) as broker:
        broker.topic("orders", configs={"retention.ms": "60000"})
        arguments = ["debug", "bundle", str(file), "--log", str(log), "-b", broker.bootstrap_servers]
        arguments += ["--metrics", http, "--profile-seconds", "0.1"]
        assert main(arguments) == 0
        assert main(arguments) == 2
    contents = unpacked(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert not [name for name, text in contents.items() if SECRET in text]
    assert "started" in contents["log-0.txt"]
    assert "\nkafka_server_brokertopicmetrics_messagesin_total" in contents["metrics-0.txt"]
    assert "distinct stacks" in contents["stacks-0.txt"]
    assert contents["profile-0.txt"].startswith("# event loop: ")
    (topic,) = json.loads(contents["topics.json"])
    assert (topic["topic"], topic["configs"]) == ("orders", {"retention.ms": "60000"})
    (config,) = json.loads(contents["configs.json"]).values()
    assert config["delegation.token.secret.key"]["value"] is None
    assert json.loads(contents["versions.json"])["odradek"]
    assert json.loads(contents["health.json"]) == []


def test_debug_bundle_is_written_when_the_cluster_does_not_answer(tmp_path: Path) -> None:
    log, file = tmp_path / "broker.log", tmp_path / "cluster.tar.gz"
    log.write_text("stopped\n")
    # Ports below 2 have no listener.
    server = ["--connect-timeout", "1", "-b", "127.0.0.1:1", "--metrics", "127.0.0.1:1"]
    assert main(["debug", "bundle", str(file), "--log", str(log), *server]) == 1
    contents = unpacked(file)
    assert contents["log-0.txt"] == "stopped\n"
    assert "error" in json.loads(contents["cluster.json"])
    assert contents["metrics-0.txt"].startswith("# http://127.0.0.1:1/metrics: ")


def unpacked(file: Path) -> dict[str, str]:
    """The texts of an archive by name."""
    with tarfile.open(file) as archive:
        found = {}
        for member in archive.getmembers():
            data = archive.extractfile(member)
            assert data is not None
            found[member.name.removeprefix("odradek-debug/")] = data.read().decode()
        return found
