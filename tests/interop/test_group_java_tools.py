"""Apache's consumer-groups tool and its formatters of `__consumer_offsets`, before our group coordinator."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

UniqueName = Callable[[str], str]
FORMATTERS = "org.apache.kafka.tools.consumer."


@pytest.fixture
def group(bootstrap: str, create_topic: Callable[..., str], unique_name: UniqueName) -> tuple[str, str]:
    """(group, topic): an empty group that has read all of 3 partitions with 5 records each."""
    topic, name = create_topic(partitions=3), unique_name("group")
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(15):
        producer.produce(topic, str(i), partition=i % 3)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    assert len(consumer.consume(15, timeout=30)) == 15
    consumer.commit(offsets=[TopicPartition(topic, i, 5, metadata=f"note {i}") for i in range(3)], asynchronous=False)
    consumer.close()
    return name, topic


def rows(output: str) -> list[dict[str, str]]:
    """The table that a tool printed, by its header."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    start = next(i for i, words in enumerate(lines) if words[0] in ("GROUP", "TOPIC"))
    return [dict(zip(lines[start], words, strict=False)) for words in lines[start + 1 :]]


def test_reset_describe_and_delete(bootstrap: str, java_tools: Any, group: tuple[str, str]) -> None:
    name, topic = group
    server = ("--bootstrap-server", bootstrap)
    listed = rows(java_tools.run("consumer-groups", *server, "--list", "--state", "--type"))
    assert {"GROUP": name, "TYPE": "Classic", "STATE": "Empty"} in listed
    reset = ("--reset-offsets", "--topic", topic, "--group", name, "--execute")
    for option, expected in (
        (("--to-earliest",), "0"),
        (("--shift-by", "2"), "2"),
        (("--to-offset", "4"), "4"),
        (("--to-datetime", "2020-01-01T00:00:00.000"), "0"),
        (("--to-latest",), "5"),
        (("--by-duration", "P1D"), "0"),
    ):
        changed = rows(java_tools.run("consumer-groups", *server, *reset, *option))
        assert {row["PARTITION"]: row["NEW-OFFSET"] for row in changed} == {str(i): expected for i in range(3)}
    deleted = java_tools.run("consumer-groups", *server, "--delete-offsets", "--group", name, "--topic", f"{topic}:1")
    assert "Successful" in deleted
    described = rows(java_tools.run("consumer-groups", *server, "--describe", "--group", name))
    assert {row["PARTITION"]: (row["CURRENT-OFFSET"], row["LAG"]) for row in described} == {
        "0": ("0", "5"),
        "2": ("0", "5"),
    }
    gone = java_tools.run("consumer-groups", *server, "--delete", "--group", name)
    assert "successful" in gone
    described = java_tools.run("consumer-groups", *server, "--describe", "--group", name)
    assert f"Group {name} not found" in described


def formatted(java_tools: Any, bootstrap: str, formatter: str, group: str) -> list[dict[str, Any]]:
    """What Apache's formatter makes of the three entries of the group; the tool ends by its time-out."""
    for timeout_ms in ("5000", "30000"):
        output = java_tools.run(
            "console-consumer", "--bootstrap-server", bootstrap, "--topic", "__consumer_offsets", "--from-beginning",
            "--formatter", FORMATTERS + formatter, "--timeout-ms", timeout_ms,
        )  # fmt: skip
        found = [entry for entry in entries(output) if entry["key"]["data"]["group"] == group]
        if len(found) >= 3:
            break
        # On a busy machine it may not have begun to read, or not have come so far, in five seconds.
    return found


def entries(output: str) -> list[dict[str, Any]]:
    decoder, found, position = json.JSONDecoder(), [], output.find('{"key"')
    while 0 <= position < len(output) and output[position] == "{":
        entry, position = decoder.raw_decode(output, position)
        found.append(entry)
        while position < len(output) and output[position].isspace():
            position += 1
    return found


def test_the_formatters_print_our_records(bootstrap: str, java_tools: Any, group: tuple[str, str]) -> None:
    name, topic = group
    mine = formatted(java_tools, bootstrap, "OffsetsMessageFormatter", name)
    assert {entry["key"]["data"]["partition"] for entry in mine} == {0, 1, 2}
    for entry in mine:
        assert entry["key"] == {"type": 1, "data": entry["key"]["data"]}
        data = entry["value"]["data"]
        assert entry["value"]["version"] == 4
        assert (entry["key"]["data"]["topic"], data["offset"]) == (topic, 5)
        # confluent-kafka sends the C string's end as well.
        assert data["metadata"].rstrip("\0") == f"note {entry['key']['data']['partition']}"
        assert len(data["topicId"]) == 22
    groups = formatted(java_tools, bootstrap, "GroupMetadataMessageFormatter", name)
    history = [entry["value"]["data"] for entry in groups]
    assert [len(data["members"]) for data in history] == [0, 1, 0]
    assert [data["generation"] for data in history] == [0, 1, 2]
    assert history[1]["protocolType"] == "consumer"


def test_a_member_is_described_and_its_group_cannot_be_deleted(
    bootstrap: str, java_tools: Any, group: tuple[str, str]
) -> None:
    name, topic = group
    server = ("--bootstrap-server", bootstrap)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name, "client.id": "watched"})
    consumer.subscribe([topic])
    try:
        for _ in range(300):
            consumer.poll(0.1)
            if consumer.assignment():
                break
        assert len(consumer.assignment()) == 3
        (member,) = rows(java_tools.run("consumer-groups", *server, "--describe", "--group", name, "--members"))
        assert (member["CLIENT-ID"], member["HOST"], member["#PARTITIONS"]) == ("watched", "/127.0.0.1", "3")
        state = java_tools.run("consumer-groups", *server, "--describe", "--group", name, "--state")
        assert "Stable" in state
        refused = java_tools.run("consumer-groups", *server, "--delete", "--group", name)
        assert "GroupNotEmptyException" in refused
    finally:
        consumer.close()
