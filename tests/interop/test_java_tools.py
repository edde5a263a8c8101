"""Apache Kafka's own Java clients, through its command-line tools."""

import json
from collections.abc import Callable
from typing import Any

UniqueName = Callable[[str], str]


def test_produce_consume_commit_and_resume(bootstrap: str, java_tools: Any, unique_name: UniqueName) -> None:
    topic, group = unique_name("java"), unique_name("group")
    server = ("--bootstrap-server", bootstrap)
    java_tools.run("topics", *server, "--create", "--topic", topic, "--partitions", "1")
    assert "PartitionCount: 1" in java_tools.run("topics", *server, "--describe", "--topic", topic)
    lines = [f"key-{i}:value-{i}" for i in range(20)]
    java_tools.run(
        "console-producer", *server, "--topic", topic, "--reader-property", "parse.key=true",
        "--reader-property", "key.separator=:", "--compression-codec", "lz4", stdin="\n".join(lines) + "\n",
    )  # fmt: skip
    reader = (*server, "--topic", topic, "--group", group, "--from-beginning", "--timeout-ms", "30000")
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    head = java_tools.run("console-consumer", *reader, *shown, "--max-messages", "8").split()
    tail = java_tools.run("console-consumer", *reader, *shown, "--max-messages", "12").split()
    assert head == lines[:8]
    assert tail == lines[8:]
    described = java_tools.run("consumer-groups", *server, "--describe", "--group", group)
    row = next(line.split() for line in described.splitlines() if topic in line)
    header = next(line.split() for line in described.splitlines() if "CURRENT-OFFSET" in line)
    by_name = dict(zip(header, row, strict=False))
    assert (by_name["CURRENT-OFFSET"], by_name["LOG-END-OFFSET"], by_name["LAG"]) == ("20", "20", "0")


def test_verifiable_clients(bootstrap: str, java_tools: Any, unique_name: UniqueName) -> None:
    """Apache's system-test clients: what they say was acknowledged is what they read."""
    topic, group = unique_name("java"), unique_name("group")
    sent = java_tools.run(
        "verifiable-producer",
        "--bootstrap-server",
        bootstrap,
        "--topic",
        topic,
        "--max-messages",
        "500",
        "--acks",
        "-1",
    )
    events = [json.loads(line) for line in sent.splitlines() if line.startswith("{")]
    acked = [e["value"] for e in events if e["name"] == "producer_send_success"]
    assert sorted(map(int, acked)) == list(range(500))
    got = java_tools.run(
        "verifiable-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group,
        "--reset-policy", "earliest", "--max-messages", "500", "--verbose",
    )  # fmt: skip
    events = [json.loads(line) for line in got.splitlines() if line.startswith("{")]
    read = [e["value"] for e in events if e["name"] == "record_data"]
    assert sorted(map(int, read)) == list(range(500))


def test_topic_configs_are_described_with_their_source(
    bootstrap: str, java_tools: Any, unique_name: UniqueName
) -> None:
    topic = unique_name("java")
    server = ("--bootstrap-server", bootstrap)
    java_tools.run("topics", *server, "--create", "--topic", topic, "--config", "retention.ms=7777777")
    described = java_tools.run("configs", *server, "--describe", "--topic", topic, "--all")
    line = next(line for line in described.splitlines() if line.strip().startswith("retention.ms="))
    assert "retention.ms=7777777" in line
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=7777777" in line
    assert "max.message.bytes=1048588" in described
