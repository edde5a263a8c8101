"""Start and stop of the real process: the ready line, signals, what is left behind, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import fetch, join_group, metadata

MakeBroker = Callable[..., Any]
Connect = Callable[[str], Any]


def serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "odradek.cli.main", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def auto_create(client: Any, name: str) -> Any:
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    return client.call(asked, 12)


def test_clean_marker_exists_only_after_a_clean_stop(make_broker: MakeBroker, connect: Connect) -> None:
    broker = make_broker().start()
    marker = broker.data_dir / ".kafka_cleanshutdown"
    assert not marker.exists()
    assert auto_create(connect(broker.bootstrap), "kept").topics[0].error_code == 0
    broker.stop()
    assert marker.exists()
    broker.start()
    assert not marker.exists()
    answer = connect(broker.bootstrap).call(metadata.MetadataRequest(None), 12)
    assert [topic.name for topic in answer.topics] == ["kept"]


def test_cluster_and_topic_ids_survive_a_kill(make_broker: MakeBroker, connect: Connect) -> None:
    broker = make_broker().start()
    before = auto_create(connect(broker.bootstrap), "t")
    broker.kill()
    broker.start()
    after = connect(broker.bootstrap).call(metadata.MetadataRequest(None), 12)
    assert after.cluster_id == before.cluster_id
    assert [topic.topic_id for topic in after.topics] == [before.topics[0].topic_id]


def test_a_second_broker_on_the_same_data_is_rejected_in_one_line(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    second = serve("--listen", "127.0.0.1:0", "--data-dir", str(broker.data_dir))
    assert second.returncode == 2
    assert second.stdout == ""
    assert second.stderr == (
        f"odradek serve: {broker.data_dir}: another process uses this log directory (it holds .lock)\n"
    )


def test_a_port_in_use_is_one_line_and_exit_code_2(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker().start()
    second = serve("--listen", broker.bootstrap, "--data-dir", str(tmp_path / "other"))
    assert second.returncode == 2
    assert second.stderr == f"odradek serve: cannot listen on {broker.bootstrap}: the address is in use\n"


def test_a_directory_of_another_node_is_rejected(make_broker: MakeBroker) -> None:
    broker = make_broker().start()
    broker.stop()
    other = serve("--listen", "127.0.0.1:0", "--data-dir", str(broker.data_dir), "--set", "node.id=7")
    assert other.returncode == 2
    assert "belongs to node 1, and this broker is configured as 7" in other.stderr


def test_mistakes_on_the_command_line_are_exit_code_2(tmp_path: Path) -> None:
    for arguments, reason in (
        (("--listen", "nonsense"), "HOST:PORT expected"),
        (("--set", "num.partitions"), "NAME=VALUE expected"),
        (("--set", "num.partitions=many"), "num.partitions"),
        (("--set", "log.such.setting=1"), "command line: unknown configuration log.such.setting"),
        (("--set", "authorizer.class.name=x"), "authorizer.class.name=x is refused"),
        ((str(tmp_path / "missing.properties"),), "missing.properties: No such file"),
    ):
        result = serve("--data-dir", str(tmp_path / "data"), *arguments)
        assert result.returncode == 2, result
        assert reason in result.stderr
        assert result.stderr.count("\n") == 1, "one line"


def test_all_bad_settings_are_shown_at_once(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("sasl.enabled.mechanisms=SCRAM-SHA-512\nlog.dris=/x\n")
    result = serve(str(file), "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    assert result.returncode == 2
    summary, *problems = result.stderr.splitlines()
    assert summary == "odradek serve: 2 settings cannot be used:"
    assert [line.strip().partition(": ")[0] for line in problems] == [f"{file}:1", f"{file}:2"]
    assert not (tmp_path / "data").exists()


def test_settings_without_effect_are_named_in_a_warning(make_broker: MakeBroker) -> None:
    broker = make_broker({"num.network.threads": 3, "num.io.threads": 8}).start()
    warnings = [line for line in broker.log().splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert "num.io.threads, num.network.threads" in warnings[0]


def test_settings_can_come_with_the_input(tmp_path: Path) -> None:
    """As from a supervisor; the process ends with its input."""
    settings = {"log.dirs": str(tmp_path / "data"), "listeners": "PLAINTEXT://127.0.0.1:0"}
    command = [sys.executable, "-m", "odradek.cli.main", "serve", "--until-input-ends"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("odradek ready bootstrap=127.0.0.1:")
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert (tmp_path / "data" / "meta.properties").exists()


def test_the_log_can_be_json(tmp_path: Path) -> None:
    result = serve("--data-dir", str(tmp_path), "--listen", "256.0.0.1:0", "--log-format", "json")
    assert result.returncode == 2
    assert "cannot listen on 256.0.0.1:0" in result.stderr


def test_a_stop_does_not_wait_for_consumers_that_wait_for_records(make_broker: MakeBroker, connect: Connect) -> None:
    broker = make_broker().start()
    client = connect(broker.bootstrap)
    auto_create(client, "t")
    wanted = fetch.FetchRequestTopic("t", partitions=[fetch.FetchRequestPartition(0, partition_max_bytes=1000)])
    client.send(
        fetch.FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=[wanted]), 12
    )
    assert connect(broker.bootstrap).call(metadata.MetadataRequest(None), 12).brokers, "the fetch was served before"
    broker.stop()
    assert client.is_closed_by_peer()
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_waiting_members_learn_that_the_coordinator_stops(make_broker: MakeBroker, connect: Connect) -> None:
    broker = make_broker({"group.initial.rebalance.delay.ms": 60_000, "offsets.topic.num.partitions": 1}).start()
    client = connect(broker.bootstrap)
    auto_create(client, "__consumer_offsets")
    protocol = join_group.JoinGroupRequestProtocol("range", b"")
    joining = join_group.JoinGroupRequest("g", 30_000, 300_000, protocol_type="consumer", protocols=[protocol])
    token = client.send(joining, 3)
    assert connect(broker.bootstrap).call(metadata.MetadataRequest(None), 12).brokers, "the join was served before"
    broker.stop()
    assert client.receive(token).error_code == ErrorCode.NOT_COORDINATOR
