"""KIP-848 groups with the clients that speak the protocol: librdkafka and Apache's own."""

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import ConsumerGroupState as State
from confluent_kafka import ConsumerGroupType as Type
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.interop.conftest import KAFKA

UniqueName = Callable[[str], str]
CreateTopic = Callable[..., str]
TIMEOUT_SECONDS = 40


class Member:
    def __init__(self, bootstrap: str, group: str, protocol: str = "consumer", **config: Any) -> None:
        self.values: list[str] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **config,
            }
        )

    def poll(self) -> None:
        for message in self.consumer.consume(500, 0.05):
            assert not message.error(), message.error()
            self.values.append((message.value() or b"").decode())

    def parts(self) -> set[tuple[str, int]]:
        return {(p.topic, p.partition) for p in self.consumer.assignment()}


def subscribed(bootstrap: str, group: str, *topics: str, protocol: str = "consumer", **config: Any) -> Member:
    member = Member(bootstrap, group, protocol, **config)
    member.consumer.subscribe(list(topics))
    return member


def until(condition: Callable[[], bool], *members: Member) -> None:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, [member.parts() for member in members]
        for member in members:
            member.poll()


def shared(topic: str, count: int, *members: Member) -> Callable[[], bool]:
    """Whether the members have all partitions between them, each some."""

    def is_shared() -> bool:
        owners = Counter(part for member in members for part in member.parts())
        return owners == {(topic, i): 1 for i in range(count)} and all(member.parts() for member in members)

    return is_shared


def produce(bootstrap: str, topic: str, values: list[str], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n, value in enumerate(values):
        producer.produce(topic, value, partition=n % partitions)
    assert producer.flush(30) == 0


def test_members_come_and_go(bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName) -> None:
    topic, group = create_topic(partitions=6), unique_name("group")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    members = [subscribed(bootstrap, group, topic)]
    until(shared(topic, 6, *members), *members)
    for _ in range(2):
        members.append(subscribed(bootstrap, group, topic))
        until(shared(topic, 6, *members), *members)
    assert sorted(len(member.parts()) for member in members) == [2, 2, 2]
    described = admin.describe_consumer_groups([group])[group].result(60)
    assert (described.type, described.partition_assignor, len(described.members)) == (Type.CONSUMER, "uniform", 3)
    values = [str(i) for i in range(600)]
    produce(bootstrap, topic, values, 6)
    until(lambda: sum(len(member.values) for member in members) == 600, *members)
    assert sorted(value for member in members for value in member.values) == sorted(values)
    for member in members:
        member.consumer.commit(asynchronous=False)
    members.pop(0).consumer.close()
    until(shared(topic, 6, *members), *members)
    admin.create_partitions([NewPartitions(topic, 8)])[topic].result(60)
    until(shared(topic, 8, *members), *members)
    for member in members:
        member.consumer.close()
    listed = {g.group_id: g for g in admin.list_consumer_groups().result(60).valid}
    assert (listed[group].state, listed[group].type) == (State.EMPTY, Type.CONSUMER)
    again = subscribed(bootstrap, group, topic)
    until(shared(topic, 8, again), again)
    produce(bootstrap, topic, ["last"], 8)
    until(lambda: bool(again.values), again)
    assert again.values == ["last"]
    again.consumer.close()
    assert admin.delete_consumer_groups([group])[group].result(60) is None


def test_a_static_member_comes_back_without_a_rebalance(
    bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName
) -> None:
    topic, group = create_topic(partitions=4), unique_name("group")
    first = subscribed(bootstrap, group, topic, **{"group.instance.id": "one"})
    second = subscribed(bootstrap, group, topic, **{"group.instance.id": "two"})
    until(shared(topic, 4, first, second), first, second)
    before = first.parts(), second.parts()
    first.consumer.close()
    again = subscribed(bootstrap, group, topic, **{"group.instance.id": "one"})
    until(lambda: bool(again.parts()), again, second)
    assert (again.parts(), second.parts()) == before
    again.consumer.close()
    second.consumer.close()


def test_a_pattern_sees_topics_that_come_later(
    bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName
) -> None:
    first, group = create_topic(partitions=2), unique_name("group")
    member = subscribed(bootstrap, group, "^interop-[0-9a-f]+$")
    until(lambda: {(first, 0), (first, 1)} <= member.parts(), member)
    second = create_topic(partitions=1)
    until(lambda: (second, 0) in member.parts(), member)
    member.consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_changes_its_protocol_member_by_member(
    bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName, strategy: str
) -> None:
    topic, group = create_topic(partitions=6), unique_name("group")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    assignor = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 500}

    def classic() -> Member:
        return subscribed(bootstrap, group, topic, protocol="classic", **assignor)

    def kind() -> Type:
        found: Type = admin.describe_consumer_groups([group])[group].result(60).type
        return found

    members = [classic(), classic()]
    until(shared(topic, 6, *members), *members)
    assert kind() is Type.CLASSIC
    for _ in range(2):
        members.pop(0).consumer.close()
        members.append(subscribed(bootstrap, group, topic))
        until(shared(topic, 6, *members), *members)
        assert kind() is Type.CONSUMER
    for expected in (Type.CONSUMER, Type.CLASSIC):
        new = classic()
        until(shared(topic, 6, *members, new), *members, new)
        members.pop(0).consumer.close()
        members.append(new)
        until(shared(topic, 6, *members), *members)
        assert kind() is expected
    values = [str(i) for i in range(300)]
    produce(bootstrap, topic, values, 6)
    until(lambda: sum(len(member.values) for member in members) >= 300, *members)
    assert sorted(value for member in members for value in member.values) == sorted(values)
    for member in members:
        member.consumer.close()


# --- Apache's tools ---


def test_console_consumer(bootstrap: str, java_tools: Any, create_topic: CreateTopic, unique_name: UniqueName) -> None:
    topic, group = create_topic(partitions=3), unique_name("group")
    values = [f"value {i}" for i in range(30)]
    produce(bootstrap, topic, values, 3)
    output = java_tools.run(
        "console-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group", group, "--from-beginning",
        "--max-messages", "30", "--timeout-ms", "30000", "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    assert sorted(output.splitlines()) == sorted(values)
    listed = java_tools.run("consumer-groups", "--bootstrap-server", bootstrap, "--list", "--state", "--type")
    assert [group, "Consumer", "Empty"] in [line.split() for line in listed.splitlines()]


def test_consumer_groups_describes_members(
    bootstrap: str, java_tools: Any, create_topic: CreateTopic, unique_name: UniqueName
) -> None:
    topic, group = create_topic(partitions=4), unique_name("group")
    members = [subscribed(bootstrap, group, topic, **{"client.id": f"c{n}"}) for n in range(2)]
    until(shared(topic, 4, *members), *members)
    describe = ("consumer-groups", "--bootstrap-server", bootstrap, "--describe", "--group", group)
    state = java_tools.run(*describe, "--state", "--verbose").splitlines()
    assert {group, "uniform", "Stable"} <= set(state[-1].split())
    table = [line.split() for line in java_tools.run(*describe, "--members", "--verbose").splitlines() if line]
    assert {words[3] for words in table[1:]} == {"c0", "c1"}
    assert all(words[table[0].index("#PARTITIONS")] == "2" for words in table[1:])
    for member in members:
        member.consumer.close()


@pytest.mark.usefixtures("java_tools")
def test_verifiable_consumer(bootstrap: str, create_topic: CreateTopic, unique_name: UniqueName) -> None:
    topic, group = create_topic(partitions=3), unique_name("group")
    produce(bootstrap, topic, [str(i) for i in range(90)], 3)
    command = [
        sys.executable, str(KAFKA), "tool", "verifiable-consumer", "--bootstrap-server", bootstrap, "--topic", topic,
        "--group-id", group, "--group-protocol", "consumer", "--max-messages", "90", "--reset-policy", "earliest",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 90
    assigned = [event for event in events if event["name"] == "partitions_assigned"]
    assert sorted(p["partition"] for p in assigned[0]["partitions"]) == [0, 1, 2]
    assert [event for event in events if event["name"].startswith("shutdown")]
