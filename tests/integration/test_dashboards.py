"""The dashboards and alert rules of deploy/, and the queries of Strimzi's dashboards, asked of a real Prometheus that
collects from a broker under load.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.peers.broker import BrokerProcess
from odradek.broker.observability.quorum_metrics import QuorumMetrics
from odradek.broker.observability.reference import SECTIONS
from odradek.metrics.definition import Kind
from tests.integration.strimzi_queries import QUERIES, TARGET_LABELS
from tests.unit.house.sources import ROOT

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
needs_prometheus = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None, reason="prometheus and promtool are not installed (Debian: prometheus)"
)
RULES = ROOT / "deploy/prometheus/odradek-alerts.yml"
DASHBOARDS = sorted((ROOT / "deploy/grafana").glob("*.json"))
SUFFIXES = {
    Kind.COUNTER: ("_total",),
    Kind.GAUGE: ("",),
    Kind.SUMMARY: ("", "_sum", "_count"),
    Kind.HISTOGRAM: ("_bucket", "_sum", "_count"),
}
OF_PROMETHEUS = {"up"}


def dashboard_expressions() -> dict[str, str]:
    """Expression by dashboard, panel and place, with Grafana's variables filled in."""
    found = {}
    for path in DASHBOARDS:
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                expression = re.sub(r"\$__(rate_interval|range)", "10s", target["expr"])
                found[f"{path.stem}: {panel['title']} {target['refId']}"] = re.sub(
                    r'"\$(broker|topic|group)"', '".*"', expression
                )
    return found


def alert_expressions() -> dict[str, str]:
    """The left side of each rule's comparison by the name of the alert: it must have a value while nothing is wrong."""
    text = RULES.read_text()
    pairs = re.findall(r"- alert: (\w+)\n +expr: (.+?) (?:[<>]|[=!]=) [\d.]+\n", text)
    assert len(pairs) == text.count("- alert:")
    return {name: re.sub(r"\[\d+m\]", "[10s]", expression) for name, expression in pairs}


def empty_prefixes() -> tuple[str, ...]:
    """Beginnings of the names that OBSERVABILITY.md lists as empty on Strimzi's dashboards."""
    _, _, section = (ROOT / "docs/OBSERVABILITY.md").read_text().partition("### Dashboards of Strimzi\n")
    rows = re.findall(r"^\| (`.+?) \|", section.partition("\n#")[0], re.MULTILINE)
    return tuple(prefix for row in rows for prefix in re.findall(r"`(\w+)`", row))


EMPTY = empty_prefixes()
STRIMZI = {f"Strimzi: {query.expression}": query.expression for query in QUERIES if not query.metric.startswith(EMPTY)}
EXPRESSIONS = {**dashboard_expressions(), **alert_expressions()}


def test_queries_of_strimzi_are_those_of_its_three_dashboards() -> None:
    assert len(QUERIES) == 66
    assert len({query.metric for query in QUERIES if query.metric.startswith("kafka_")}) == 43


def test_list_of_empty_panels_has_only_what_no_broker_answers() -> None:
    declared = {metric.sample_name for _, group in SECTIONS if group is not QuorumMetrics.metrics for metric in group}
    assert EMPTY
    for prefix in EMPTY:
        assert not [name for name in declared if name.startswith(prefix)]
        assert [query for query in QUERIES if query.metric.startswith(prefix)]


def names_in(expression: str) -> set[str]:
    """The metrics that an expression names."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^]]*\]', " ", expression)
    bare = re.sub(r"\b(by|without|on) \([^)]*\)", " ", bare)
    return set(
        re.findall(r"\b(?!sum\b|rate\b|max\b|min\b|topk\b|deriv\b|increase\b|clamp_min\b)[a-z]\w*_\w+|\bup\b", bare)
    ) - {"histogram_quantile"}


def test_expressions_name_declared_metrics_only() -> None:
    declared = {metric.name + suffix for _, group in SECTIONS for metric in group for suffix in SUFFIXES[metric.kind]}
    named = {name for expression in EXPRESSIONS.values() for name in names_in(expression)}
    assert len(named) > 30
    assert named <= declared | OF_PROMETHEUS


def test_dashboards_have_distinct_identifiers() -> None:
    documents = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len({document["uid"] for document in documents}) == len(documents) == 3
    for document in documents:
        panels = [panel["id"] for panel in document["panels"]]
        assert len(panels) == len(set(panels))


@needs_prometheus
@pytest.mark.parametrize("what", ["rules", "config"])
def test_promtool_accepts_the_file(what: str) -> None:
    path = RULES if what == "rules" else RULES.with_name("prometheus.yml")
    done = subprocess.run([str(PROMTOOL), "check", what, str(path)], capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Load:
    """A producer and a consumer group that never stop, until `stop`."""

    def __init__(self, bootstrap: str) -> None:
        self._address = {"bootstrap.servers": bootstrap}
        self._done = threading.Event()
        admin = AdminClient({**self._address})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(20)
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        producer = Producer({**self._address})
        while not self._done.is_set():
            producer.produce("orders", b"x" * 100)
            producer.poll(0.01)
        producer.flush(10)

    def _consume(self) -> None:
        consumer = Consumer(
            {**self._address, "group.id": "readers", "auto.offset.reset": "earliest", "auto.commit.interval.ms": 200}
        )
        consumer.subscribe(["orders"])
        while not self._done.is_set():
            consumer.poll(0.1)
        consumer.close()

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(20)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that collects from a broker under load."""
    folder = tmp_path_factory.mktemp("prometheus")
    settings = {"odradek.http.listener": "127.0.0.1:0", "group.initial.rebalance.delay.ms": 0}
    with BrokerProcess(folder / "data", settings) as broker:
        load = Load(broker.bootstrap)
        config = folder / "prometheus.yml"
        target = {"targets": [broker.http], "labels": TARGET_LABELS}
        job = {"job_name": "odradek", "static_configs": [target]}
        config.write_text(json.dumps({"global": {"scrape_interval": "500ms"}, "scrape_configs": [job]}))
        address = f"127.0.0.1:{free_port()}"
        command = [
            str(PROMETHEUS),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address={address}",
        ]
        with (folder / "prometheus.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                yield address
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(20)
                load.stop()


def answer(address: str, expression: str) -> list[Any]:
    query = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{query}", timeout=60) as response:
        result: list[Any] = json.load(response)["data"]["result"]
        return result


@needs_prometheus
def test_every_expression_has_data_from_a_broker_under_load(prometheus: str) -> None:
    """Also rates of what did not happen: a counter is there with 0."""
    deadline = time.monotonic() + 60
    missing = {**EXPRESSIONS, **STRIMZI}
    while missing and time.monotonic() < deadline:
        for name, expression in list(missing.items()):
            try:
                if answer(prometheus, expression):
                    del missing[name]
            except OSError:
                break  # it starts
        time.sleep(0.5)
    assert not missing
