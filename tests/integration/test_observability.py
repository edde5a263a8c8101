"""Metrics and health of real brokers over HTTP."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from bench.peers.broker import BrokerProcess
from odradek.broker.observability.quorum_metrics import QuorumMetrics
from odradek.broker.observability.reference import SECTIONS
from odradek.client import BlockingProducer
from tests.conftest import MakeBroker
from tests.newcomer.pages import Page

RECORDS = 100
GROUP = "readers"
OPENMETRICS = {"Accept": "application/openmetrics-text"}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def get(broker: BrokerProcess, path: str, headers: dict[str, str] | None = None) -> str:
    request = urllib.request.Request(f"http://{broker.http}{path}", headers=headers or {})
    with urllib.request.urlopen(request, timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def scrape(broker: BrokerProcess) -> Samples:
    """Values by name and labels."""
    families = parse_openmetrics(get(broker, "/metrics", OPENMETRICS))
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


def work(broker: BrokerProcess, topic: str) -> None:
    """Produce RECORDS, read them, commit the offset of half of them, and ask for a partition that is not there."""
    address = {"bootstrap.servers": broker.bootstrap}
    admin = AdminClient({**address})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
    producer = Producer(address)
    for number in range(RECORDS):
        producer.produce(topic, b"value %d" % number, timestamp=1_700_000_000_000 + number)
    assert producer.flush(20) == 0
    consumer = Consumer({**address, "group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    consumer.subscribe([topic])
    read = 0
    while read < RECORDS:
        read += len(consumer.consume(RECORDS, 1.0))
    consumer.commit(offsets=[TopicPartition(topic, 0, RECORDS // 2)], asynchronous=False)
    consumer.close()


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that has served a producer and a consumer."""
    settings = {
        "odradek.http.listener": "127.0.0.1:0",
        "group.initial.rebalance.delay.ms": 0,
        "odradek.audit.topic.enable": "true",
        "odradek.audit.topic.replication.factor": 1,
        "odradek.audit.topic.min.isr": 1,
    }
    with BrokerProcess(tmp_path_factory.mktemp("observed") / "data", settings) as broker:
        work(broker, "orders")
        yield broker


def test_traffic_of_a_topic_is_counted(observed: BrokerProcess) -> None:
    samples = scrape(observed)
    assert value(samples, "kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == RECORDS
    assert value(samples, "kafka_server_brokertopicmetrics_messagesin_total") >= RECORDS
    assert value(samples, "kafka_server_brokertopicmetrics_bytesout_total", topic="orders") > 0


def test_requests_are_counted_with_their_times(observed: BrokerProcess) -> None:
    samples = scrape(observed)
    produced = value(samples, "kafka_network_requestmetrics_requests_total", request="Produce")
    assert produced > 0
    assert value(samples, "kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99") > 0
    assert value(samples, "odradek_request_duration_seconds_count", request="Produce") == produced
    assert value(samples, "kafka_network_requestmetrics_requests_total", request="FetchConsumer") > 0


def test_waiting_fetch_is_in_the_purgatory(observed: BrokerProcess) -> None:
    """A consumer that has read everything: its next request waits for records."""
    consumer = Consumer({"bootstrap.servers": observed.bootstrap, "group.id": "none", "fetch.wait.max.ms": 30_000})
    consumer.assign([TopicPartition("orders", 0, RECORDS)])
    waiting = 0.0
    deadline = time.monotonic() + 30
    while not waiting and time.monotonic() < deadline:
        consumer.poll(0.1)
        samples = scrape(observed)
        waiting = value(samples, "kafka_server_delayedoperationpurgatory_purgatorysize", delayedOperation="Fetch")
    consumer.close()
    assert waiting


def test_lag_of_a_group_is_exact_in_records_and_seconds(observed: BrokerProcess) -> None:
    labels = {"consumergroup": GROUP, "topic": "orders", "partition": "0"}
    samples = scrape(observed)
    assert value(samples, "kafka_consumergroup_current_offset", **labels) == RECORDS // 2
    assert value(samples, "kafka_consumergroup_lag", **labels) == RECORDS // 2
    expected = time.time() - (1_700_000_000_000 + RECORDS // 2) / 1000
    assert value(samples, "kafka_consumergroup_lag_seconds", **labels) == pytest.approx(expected, abs=60)


def test_partition_has_its_offsets_and_size(observed: BrokerProcess) -> None:
    samples = scrape(observed)
    labels = {"topic": "orders", "partition": "0"}
    assert value(samples, "kafka_topic_partition_current_offset", **labels) == RECORDS
    assert value(samples, "kafka_log_log_logendoffset", **labels) == RECORDS
    assert value(samples, "kafka_log_log_size", **labels) > 0
    assert value(samples, "kafka_server_replicamanager_underreplicatedpartitions") == 0


def test_scrape_has_the_declared_families_with_their_types(observed: BrokerProcess) -> None:
    declared = {metric.name: metric for _, metrics in SECTIONS for metric in metrics}
    for family in parse_openmetrics(get(observed, "/metrics", OPENMETRICS)):
        metric = declared[family.name]
        assert family.type == metric.kind.value, family.name
        for sample in family.samples:
            assert set(sample.labels) <= set(metric.labels), sample


IDLE = {
    "odradek_client_metric",  # no client is asked for metrics
    "kafka_server_socket_server_metrics_connection_count",  # the clients have gone
    "kafka_server_socket_server_metrics_connections_software",  # with them
    "kafka_network_requestmetrics_errors",  # all went well
}


def test_declared_families_are_in_a_scrape_of_a_busy_broker(observed: BrokerProcess) -> None:
    scraped = {family.name for family in parse_openmetrics(get(observed, "/metrics", OPENMETRICS))}
    of_controllers = {metric.name for metric in QuorumMetrics.metrics}
    declared = {metric.name for _, metrics in SECTIONS for metric in metrics}
    assert declared - scraped <= IDLE | of_controllers


@pytest.mark.parametrize("path", ["/healthy", "/ready"])
def test_probe_is_answered_while_the_broker_serves(observed: BrokerProcess, path: str) -> None:
    assert get(observed, path).strip() in ("ok", "ready")


def test_health_of_a_sound_broker_is_ok(observed: BrokerProcess) -> None:
    assert json.loads(get(observed, "/health")) == {"status": "ok", "problems": []}


def test_scrape_has_only_the_metrics_that_are_named(observed: BrokerProcess) -> None:
    text = get(observed, "/metrics?name[]=process_cpu_seconds_total&name[]=kafka_brokers")
    names = {line.split()[0] for line in text.splitlines() if not line.startswith("#")}
    assert names == {"process_cpu_seconds_total", "kafka_brokers"}


def test_top_shows_the_processor_time_of_a_broker(observed: BrokerProcess) -> None:
    command = [sys.executable, "-m", "odradek.cli.main", "top", "--bootstrap-server", observed.bootstrap, "-o", "json"]
    command += ["--view", "brokers", "-n", "1", "--interval", "0.2", "--metrics", f"1={observed.http}"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    (row,) = json.loads(done.stdout)["brokers"]
    assert row["cpu_percent"] >= 0


def test_partition_series_are_absent_when_they_are_off(make_broker: MakeBroker) -> None:
    settings = {"odradek.http.listener": "127.0.0.1:0", "odradek.metrics.partitions": "none"}
    broker = make_broker(settings)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 3)])["t"].result(20)
    samples = scrape(broker)
    assert value(samples, "kafka_server_replicamanager_leadercount") == 3
    assert not [name for name, labels in samples if dict(labels).get("partition")]


def test_no_http_is_served_unless_it_is_set(make_broker: MakeBroker) -> None:
    broker = make_broker()
    broker.start()
    assert broker.http == ""


def test_start_fails_when_the_http_address_is_in_use(make_broker: MakeBroker, observed: BrokerProcess) -> None:
    with pytest.raises(Exception, match=r"cannot listen on .* \(odradek\.http\.listener\): the address is in use"):
        make_broker({"odradek.http.listener": observed.http}).start()


def test_every_request_is_logged_when_the_threshold_is_zero(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker({"odradek.slow.request.ms": 0})
    broker.start()
    AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=20)
    deadline = time.monotonic() + 60
    while "Metadata v" not in broker.log() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "odradek.requests.slow: Metadata v" in broker.log()


def test_commands_of_the_page_work(tmp_path: Path) -> None:
    """The commands of OBSERVABILITY.md: the broker is started by the first, on free ports, and asked by the others."""
    serve, *questions = Page("docs/OBSERVABILITY.md").commands("Turn it on")
    (setting,) = (word for word in shlex.split(serve) if word.startswith("odradek.http.listener="))
    address = setting.partition("=")[2]
    with BrokerProcess(tmp_path / "data", {"odradek.http.listener": "127.0.0.1:0"}) as broker:
        assert questions
        for question in questions:
            target = shlex.split(question)[-1]
            assert target.startswith(f"http://{address}/"), question
            assert get(broker, target.removeprefix(f"http://{address}"))


def test_steps_of_the_chapter_on_monitoring_work(tmp_path: Path) -> None:
    """The commands as they stand there, with this broker's addresses: grep fails where a series is missing."""
    steps = Page("docs/OBSERVABILITY.md").commands("Monitoring step by step")
    assert len(steps) > 12
    command = tmp_path / "odradek"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m odradek.cli.main "$@"\n')
    command.chmod(0o755)
    settings = {"odradek.http.listener": "127.0.0.1:0", "group.initial.rebalance.delay.ms": 0}
    with BrokerProcess(tmp_path / "data", settings) as broker:
        script = "set -emx -o pipefail\ntrap 'kill %1 2> jobs.txt' EXIT\n" + "\n".join(steps)
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "ODRADEK_BOOTSTRAP_SERVER": broker.bootstrap,
        }
        done = subprocess.run(
            ["timeout", "120", "bash", "-c", script.replace("127.0.0.1:9644", broker.http)],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
        )
    assert not done.returncode, done.stdout + done.stderr


def subscribe(broker: BrokerProcess, name: str, configs: dict[str, str]) -> None:
    """Create a client-metrics resource."""
    command = [sys.executable, "-m", "odradek.cli.main", "configs", "--bootstrap-server", broker.bootstrap]
    settings = ",".join("=".join(item) for item in configs.items())
    subprocess.run([*command, "--alter", "--client-metrics", name, "--add-config", settings], check=True, timeout=60)


def test_librdkafka_pushes_its_metrics(observed: BrokerProcess) -> None:
    """confluent-kafka asks for its subscription, pushes, and its metrics are in a scrape (KIP-714)."""
    address = {"bootstrap.servers": observed.bootstrap}
    subscribe(observed, "all", {"metrics": "*", "interval.ms": "200", "match": "client_id=pusher"})
    producer = Producer({**address, "client.id": "pusher"})
    found: dict[str, float] = {}
    deadline = time.monotonic() + 40
    while not found and time.monotonic() < deadline:
        producer.produce("pushed", b"value")
        producer.poll(0.1)
        found = {
            labels["metric"]: value
            for (name, pairs), value in scrape(observed).items()
            if name == "odradek_client_metric" and (labels := dict(pairs))["client_id"] == "pusher"
        }
    producer.flush(20)
    assert any(name.startswith("org.apache.kafka.producer.") for name in found)


def test_our_client_pushes_its_metrics(observed: BrokerProcess) -> None:
    """A producer of ours subscribes, pushes again and again, and a last time when it is closed (KIP-714)."""
    wanted = "org.apache.kafka.producer.record.send.total"
    subscribe(observed, "ours", {"metrics": wanted, "interval.ms": "200", "match": "client_id=ours"})

    def pushed() -> list[float]:
        return [
            value
            for (name, pairs), value in scrape(observed).items()
            if name == "odradek_client_metric"
            and dict(pairs)["client_id"] == "ours"
            and dict(pairs)["metric"] == wanted
            and "topic" not in dict(pairs)
        ]

    with BlockingProducer(bootstrap_servers=observed.bootstrap, client_id="ours") as producer:
        producer.send_and_wait("pushed-by-us", b"1")
        deadline = time.monotonic() + 40
        while pushed() != [1.0] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert pushed() == [1.0]
        assert len(producer.client_instance_id()) == 22
        for number in range(5):
            producer.send("pushed-by-us", b"%d" % number)
    assert pushed() == [6.0]  # the last push


def test_pushes_are_records_of_the_topic_that_is_set(make_broker: MakeBroker) -> None:
    """They wait until the topic is there."""
    broker = make_broker({"odradek.http.listener": "127.0.0.1:0", "odradek.telemetry.topic": "pushes"})
    broker.start()
    address = {"bootstrap.servers": broker.bootstrap}
    subscribe(broker, "all", {"metrics": "*", "interval.ms": "200", "match": "client_id=pusher"})
    producer = Producer({**address, "client.id": "pusher"})
    deadline = time.monotonic() + 60
    while not value(scrape(broker), "odradek_client_metric_pushes_total") and time.monotonic() < deadline:
        producer.produce("orders", b"value")
        producer.poll(0.1)
    admin = AdminClient({**address})
    admin.create_topics([NewTopic("pushes", 1)])["pushes"].result(20)
    consumer = Consumer({**address, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("pushes", 0, 0)])
    records = consumer.consume(1, 60)
    assert records
    assert dict(records[0].headers() or ())["client_id"] == b"pusher"
    assert b"org.apache.kafka.producer." in (records[0].value() or b"")
    consumer.close()
    producer.flush(20)
