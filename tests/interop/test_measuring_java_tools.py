"""Apache's tools that measure and verify: performance, latency, compaction, compatibility, copies in transactions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

CreateTopic = Callable[..., str]
UniqueName = Callable[[str], str]


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(count):
        producer.produce(topic, f"{i}", partition=0)
    assert producer.flush(30) == 0


def test_end_to_end_latency(bootstrap: str, java_tools: Any, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=1)
    printed = java_tools.run(
        "e2e-latency", "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "200",
        "--producer-acks", "all", "--record-size", "64", "--record-key-size", "8", "--num-headers", "2",
        "--record-header-key-size", "4", "--record-header-size", "6",
    )  # fmt: skip
    assert float(re.findall(r"Avg latency: ([\d.,]+)", printed)[0].replace(",", ".")) > 0
    assert "50th" in printed
    assert "99.9th" in printed


@pytest.mark.long
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_producer_and_consumer_performance(
    bootstrap: str, java_tools: Any, create_topic: CreateTopic, unique_name: UniqueName, codec: str
) -> None:
    topic, protocol = create_topic(partitions=3), "consumer" if codec in ("none", "lz4") else "classic"
    printed = java_tools.run(
        "producer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "20000",
        "--record-size", "200", "--throughput", "-1", "--command-property", f"compression.type={codec}",
        "--command-property", "enable.idempotence=true",
    )  # fmt: skip
    assert "20000 records sent" in printed.splitlines()[-1]
    printed = java_tools.run(
        "consumer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic, "--num-records", "20000",
        "--group", unique_name("group"), "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    header, row = (line.split(", ") for line in printed.strip().splitlines()[-2:])
    measured = dict(zip(header, row, strict=True))
    assert int(measured["data.consumed.in.nMsg"]) == 20000


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_consumers_of_both_protocols(
    bootstrap: str, java_tools: Any, create_topic: CreateTopic, unique_name: UniqueName, protocol: str
) -> None:
    topic, group = create_topic(partitions=1), unique_name("group")
    produce(bootstrap, topic, 300)
    own = ("--group-remote-assignor", "range") if protocol == "consumer" else ()
    printed = java_tools.run(
        "verifiable-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group,
        "--group-protocol", protocol, *own, "--reset-policy", "earliest", "--max-messages", "300", "--verbose",
    )  # fmt: skip
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    names = [event["name"] for event in events]
    assert names[0] == "startup_complete"
    assert "partitions_assigned" in names
    assert "shutdown_requested" in names
    assert [event["value"] for event in events if event["name"] == "record_data"] == [str(i) for i in range(300)]
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in committed)
    assert committed[-1]["offsets"][0]["offset"] == 300
    listed = java_tools.run("groups", "--bootstrap-server", bootstrap, "--list")
    (row,) = [line.split() for line in listed.splitlines() if line.startswith(group)]
    assert row == [group, protocol.capitalize(), "consumer"]


@pytest.mark.long
def test_records_are_copied_in_transactions(
    bootstrap: str, java_tools: Any, create_topic: CreateTopic, unique_name: UniqueName
) -> None:
    source, target = create_topic(partitions=1), create_topic(partitions=1)
    produce(bootstrap, source, 200)
    printed = java_tools.run(
        "transactional-message-copier", "--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0",
        "--output-topic", target, "--transactional-id", unique_name("tx"), "--consumer-group", unique_name("group"),
        "--max-messages", "200", "--transaction-size", "30", "--enable-random-aborts",
    )  # fmt: skip
    last = [json.loads(line) for line in printed.splitlines() if line.startswith("{")][-1]
    assert last["consumed"] >= 200
    assert last["remaining"] == 0
    read = java_tools.run(
        "console-consumer", "--bootstrap-server", bootstrap, "--topic", target, "--from-beginning",
        "--isolation-level", "read_committed", "--timeout-ms", "5000",
    )  # fmt: skip
    assert read.split() == [str(i) for i in range(200)]


@pytest.mark.long
def test_the_tester_of_compaction(bootstrap: str, java_tools: Any) -> None:
    printed = java_tools.run(
        "log-compaction-tester", "--bootstrap-server", bootstrap, "--messages", "5000", "--duplicates", "5",
        "--topics", "2", "--percent-deletes", "10", "--sleep", "1", timeout_seconds=120,
    )  # fmt: skip
    assert re.search(r"Validated \d+ values, 0 mismatches", printed)
    assert "Data verification is completed" in printed
