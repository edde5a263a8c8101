"""`odradek elect unclean` on a partition whose only in-sync replica is away: it leads again, without what was lost."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from odradek.cli.main import main
from tests.integration.clusters import QUICK, sound_cluster
from tests.integration.waiting import until


def write(bootstrap: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def test_unclean_leader_serves_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"t-{uuid4().hex[:8]}"

    def run(line: str, status: int = 0) -> str:
        found = main(line.split())
        printed = capsys.readouterr()
        assert found == status, printed
        return printed.out

    def leader_and_isr() -> tuple[int | None, list[int]]:
        (partition,) = json.loads(run(f"topics --describe --topic {topic} -o json"))[0]["partitions"]
        return partition["leader"], sorted(partition["isr"])

    with sound_cluster(tmp_path, {**QUICK, "broker.session.timeout.ms": 3000}) as cluster:
        # Broker 1 is the controller, and is never stopped here.
        first = cluster.bootstrap.split(",")[0]
        monkeypatch.setenv("ODRADEK_BOOTSTRAP_SERVER", first)
        run(f"topics --create --topic {topic} --replica-assignment 3:2 --config min.insync.replicas=1")
        write(first, topic, b"kept")
        cluster.signal_broker(2, signal.SIGSTOP)
        try:
            until(lambda: leader_and_isr() == (3, [3]), "broker 2 is out of sync")
            write(first, topic, b"lost")
            cluster.signal_broker(3, signal.SIGSTOP)
        finally:
            cluster.signal_broker(2, signal.SIGCONT)
        try:
            until(lambda: leader_and_isr()[0] is None, "no replica in sync is alive")
            run(f"elect preferred {topic}:0", status=1)
            run(f"elect unclean {topic}:0", status=2)
            done = run(f"elect unclean {topic}:0 --yes")
            assert done == f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0\n"
            assert leader_and_isr()[0] == 2
            assert run(f"consume --topic {topic} --offset start:end") == "kept\n"
        finally:
            cluster.signal_broker(3, signal.SIGCONT)
        until(lambda: leader_and_isr() == (2, [2, 3]), "broker 3 has given way")
