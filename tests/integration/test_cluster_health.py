"""`odradek cluster health` against a cluster that loses a broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient

from tests.conftest import MakeBroker
from tests.integration.clusters import new_topic, sound_cluster, wait_until_balanced


def health(bootstrap: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "odradek.cli.main", "cluster", "health", "--bootstrap-server", bootstrap]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, timeout=60)
    return done.returncode, json.loads(done.stdout)


def test_health_follows_the_loss_of_a_broker(tmp_path: Path) -> None:
    settings = {"default.replication.factor": 3, "min.insync.replicas": 1}
    with sound_cluster(tmp_path, settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        wait_until_balanced(admin, new_topic(admin))
        assert health(cluster.bootstrap) == (0, {"status": "ok", "problems": []})
        with cluster.none_started_again():
            cluster.signal_broker(2, signal.SIGKILL)
            deadline = time.monotonic() + 60
            while not (found := health(cluster.bootstrap))[0] and time.monotonic() < deadline:
                time.sleep(0.2)
        status, document = found
        checks = {problem["check"] for problem in document["problems"]}
        assert status in (3, 4)
        assert checks & {"under-replicated partitions", "offline partitions"}


def test_health_warns_of_log_directories_without_the_space_that_is_set(make_broker: MakeBroker) -> None:
    settings = {"odradek.health.free.space.min.percent": 100, "odradek.http.listener": "127.0.0.1:0"}
    with make_broker(settings) as broker:
        with urllib.request.urlopen(f"http://{broker.http}/health") as answer:
            seen_by_broker = json.load(answer)
        status, document = health(broker.bootstrap)
    assert [problem["check"] for problem in seen_by_broker["problems"]] == ["disk space"]
    assert (status, [problem["check"] for problem in document["problems"]]) == (3, ["disk space"])
