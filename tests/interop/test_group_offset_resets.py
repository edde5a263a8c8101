"""Every way in which Apache's consumer-groups tool resets offsets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

Reset = Callable[..., dict[tuple[str, int], int]]


@pytest.fixture
def group(bootstrap: str, create_topic: Callable[..., str], unique_name: Callable[[str], str]) -> tuple[str, str, str]:
    """(group, topic, another topic): a group with offset 3 of all partitions, which have 5 records each."""
    first, second, name = create_topic(partitions=2), create_topic(partitions=2), unique_name("group")
    producer = Producer({"bootstrap.servers": bootstrap})
    for i in range(10):
        for topic in (first, second):
            # A second apart from each other, from 2020 on.
            producer.produce(topic, str(i), partition=i % 2, timestamp=1_577_836_800_000 + i // 2 * 1000)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    partitions = [TopicPartition(topic, i, 3) for topic in (first, second) for i in range(2)]
    # As a member: the tool lists no groups of which it does not know what they read.
    consumer.subscribe([first, second])
    for _ in range(300):
        consumer.poll(0.1)
        if consumer.assignment():
            break
    consumer.commit(offsets=partitions, asynchronous=False)
    consumer.close()
    return name, first, second


@pytest.fixture
def reset(bootstrap: str, java_tools: Any, group: tuple[str, str, str]) -> Reset:
    """Reset and answer what the tool says the offsets are now, by partition."""

    def run(*options: str) -> dict[tuple[str, int], int]:
        printed = java_tools.run(
            "consumer-groups", "--bootstrap-server", bootstrap, "--reset-offsets", "--group", group[0], *options
        )
        rows = [line.split() for line in printed.splitlines() if line.startswith(group[0])]
        return {(topic, int(partition)): int(offset) for _, topic, partition, offset in rows}

    return run


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(p.topic, p.partition): p.offset for p in found.result().topic_partitions}


@pytest.mark.long
def test_every_option(bootstrap: str, reset: Reset, group: tuple[str, str, str], tmp_path: Path) -> None:
    name, first, second = group
    both = [(first, 0), (first, 1)]
    for options, offset in (
        (("--to-earliest",), 0),
        (("--to-latest",), 5),
        (("--to-offset", "2"), 2),
        (("--to-offset", "99"), 5),  # no further than the end
        (("--shift-by", "-3"), 2),
        (("--shift-by", "1"), 3),
        (("--to-current",), 3),
        (("--to-datetime", "2020-01-01T00:00:01.500Z"), 2),
        (("--by-duration", "PT1S"), 5),
    ):
        assert reset("--topic", first, *options, "--execute") == dict.fromkeys(both, offset), options
        assert committed(bootstrap, name)[both[0]] == offset
    assert committed(bootstrap, name)[(second, 0)] == 3, "the other topic is left alone"
    assert reset("--topic", f"{first}:1", "--to-offset", "1", "--execute") == {(first, 1): 1}
    assert committed(bootstrap, name)[(first, 0)] == 5
    assert reset("--all-topics", "--to-earliest", "--dry-run") == {(t, i): 0 for t in (first, second) for i in (0, 1)}
    assert committed(bootstrap, name)[(second, 0)] == 3, "a dry run changes nothing"
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{first},0,4\n{second},1,2\n")
    assert reset("--from-file", str(plan), "--execute") == {(first, 0): 4, (second, 1): 2}
    after = committed(bootstrap, name)
    assert (after[(first, 0)], after[(first, 1)], after[(second, 0)], after[(second, 1)]) == (4, 1, 3, 2)


@pytest.mark.long
def test_the_plan_can_be_exported(bootstrap: str, java_tools: Any, group: tuple[str, str, str]) -> None:
    name, first, _ = group
    printed = java_tools.run(
        "consumer-groups", "--bootstrap-server", bootstrap, "--reset-offsets", "--group", name, "--topic", first,
        "--to-earliest", "--export", "--dry-run",
    )  # fmt: skip
    assert sorted(line for line in printed.splitlines() if first in line) == [f"{first},0,0", f"{first},1,0"]
