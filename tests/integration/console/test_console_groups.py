"""Pages of groups and transactions: lag, preview and reset of offsets, deletion, hanging transactions."""

import re

import pytest
from starlette.testclient import TestClient

from odradek.client.consumer.blocking_consumer import BlockingConsumer
from odradek.records.topic_partition import TopicPartition
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import AT, ask, console, post, until


@pytest.fixture
def group(broker: BlockingBroker) -> tuple[str, str]:
    """A topic with two partitions, and a group of its name that has read two of the five records in partition 0."""
    topic = broker.topic(partitions=2)
    key = next(f"k{i}" for i in range(100) if _in_first(broker, topic, f"k{i}"))
    broker.produce(topic, *["x"] * 4, key=key)
    ask(broker.bootstrap_servers, lambda admin: admin.groups.alter_offsets(topic, {TopicPartition(topic, 0): 2}))
    return topic, topic


def _in_first(broker: BlockingBroker, topic: str, key: str) -> bool:
    """Write a record until one is in partition 0: it is the first there."""
    broker.produce(topic, "first", key=key)
    return broker.records(topic)[-1].partition == 0 or any(each.partition == 0 for each in broker.records(topic))


def committed(broker: BlockingBroker, name: str) -> dict[int, int]:
    """Committed offsets by partition."""
    found = ask(broker.bootstrap_servers, lambda admin: admin.groups.offsets(name))
    return {place.partition: at.offset for place, at in found.items()}


def proposed(client: TestClient, name: str, **fields: str) -> dict[int, int]:
    """Offsets of a preview by partition."""
    text = client.get(f"{AT}/group/preview", params={"name": name, **fields}).text
    return {int(p): int(o) for p, o in re.findall(r'name="offset:[^":]*:(\d+)" value="(\d+)"', text)}


def test_group_page_shows_lag_in_records_and_time(client: TestClient, group: tuple[str, str]) -> None:
    text = client.get(f"{AT}/group", params={"name": group[1]}).text
    assert "<dt>Lag</dt><dd>3 <small>records</small>" in text
    assert re.search(r"<dt>Lag in time</dt><dd>[0-9.]+ ", text)


def test_groups_are_listed_and_searched(client: TestClient, group: tuple[str, str]) -> None:
    assert group[1] in client.get(f"{AT}/groups?q={group[1].upper()}").text
    assert "No group matches" in client.get(f"{AT}/groups?q=nothing-of-this-name").text


def test_missing_group_is_not_found(client: TestClient) -> None:
    assert client.get(f"{AT}/group?name=missing").status_code == 404


@pytest.mark.parametrize(
    ("fields", "offset"),
    [
        ({"way": "to-earliest"}, 0),
        ({"way": "to-latest"}, 5),
        ({"way": "to-current"}, 2),
        ({"way": "to-offset", "target": "4"}, 4),
        ({"way": "to-offset", "target": "99"}, 5),
        ({"way": "shift-by", "target": "-1"}, 1),
        ({"way": "to-datetime", "target": "2001-01-01"}, 0),
        ({"way": "by-duration", "target": "60"}, 0),
    ],
)
def test_preview_proposes_offsets_and_sets_none(
    client: TestClient, broker: BlockingBroker, group: tuple[str, str], fields: dict[str, str], offset: int
) -> None:
    assert proposed(client, group[1], **fields) == {0: offset}
    assert committed(broker, group[1]) == {0: 2}


def test_preview_of_a_topic_has_all_its_partitions(client: TestClient, group: tuple[str, str]) -> None:
    assert proposed(client, group[1], way="to-earliest", topic=group[0]) == {0: 0, 1: 0}


@pytest.mark.parametrize(("way", "target"), [("to-offset", "x"), ("to-datetime", "soon"), ("sideways", "")])
def test_wrong_target_is_reported(client: TestClient, group: tuple[str, str], way: str, target: str) -> None:
    response = client.get(f"{AT}/group/preview", params={"name": group[1], "way": way, "target": target})
    assert response.status_code == 400


def test_edited_offsets_are_set_after_confirmation(
    client: TestClient, broker: BlockingBroker, group: tuple[str, str]
) -> None:
    topic, name = group
    form = {"group": name, f"offset:{topic}:0": "3", f"offset:{topic}:1": ""}
    assert post(client, f"{AT}/group/reset", confirm="wrong", **form).status_code == 400
    assert committed(broker, name) == {0: 2}
    assert post(client, f"{AT}/group/reset", confirm=name, **form).status_code == 200
    assert committed(broker, name) == {0: 3}


def test_offset_outside_the_log_is_rejected(client: TestClient, broker: BlockingBroker, group: tuple[str, str]) -> None:
    topic, name = group
    form = {"group": name, "confirm": name, f"offset:{topic}:0": "6"}
    assert post(client, f"{AT}/group/reset", **form).status_code == 400
    assert committed(broker, name) == {0: 2}


def test_group_is_deleted_after_confirmation(
    client: TestClient, broker: BlockingBroker, group: tuple[str, str]
) -> None:
    name = group[1]
    assert post(client, f"{AT}/group/delete", group=name, confirm="").status_code == 400
    post(client, f"{AT}/group/delete", group=name, confirm=name)
    assert client.get(f"{AT}/group", params={"name": name}).status_code == 404


def test_rebalances_and_clients_of_a_group_are_shown(broker: BlockingBroker) -> None:
    """Two consumers of a group, one after the other, while samples are taken."""
    topic = broker.topic(partitions=4)

    def consumer(name: str) -> BlockingConsumer:
        return BlockingConsumer(
            topic, bootstrap_servers=broker.bootstrap_servers, group_id=f"{topic}-watched", client_id=name
        )

    with console(broker.bootstrap_servers, sample_s=0.05) as client, consumer("first") as first:

        def shown() -> str:
            first.poll(50)
            return client.get(f"{AT}/group?name={topic}-watched").text

        until(lambda: "first at 127.0.0.1" in shown() or "<dd>Stable</dd>" in shown())
        until(lambda: "first" in client.get(f"{AT}/clients?q={topic}-watched").text)
        with consumer("second") as second:

            def has_joined() -> bool:
                second.poll(50)
                text = shown()
                return "second at 127.0.0.1" in text and "1 joined" in text and "running for" not in text

            until(has_joined)
            text = client.get(f"{AT}/clients?q=second").text
            assert f"{topic}-watched" in text
        until(lambda: "1 left or timed out" in shown())


def test_transactional_ids_are_listed(client: TestClient, broker: BlockingBroker) -> None:
    import asyncio

    from odradek.client.producer.transactions import TransactionalProducer

    async def begin() -> None:
        async with TransactionalProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="console-<b>-tx"):
            pass

    asyncio.run(begin())
    text = client.get(f"{AT}/transactions").text
    assert "console-&lt;b&gt;-tx" in text


def test_no_transaction_hangs_in_an_idle_cluster(client: TestClient) -> None:
    assert "No transaction hangs" in client.get(f"{AT}/transactions?hanging=yes").text


def test_access_says_that_no_authorizer_is_set(client: TestClient) -> None:
    assert "SECURITY_DISABLED" in client.get(f"{AT}/access").text


def test_reassignment_shows_bytes_of_brokers(client: TestClient) -> None:
    text = client.get(f"{AT}/reassignment").text
    assert "No partition moves" in text
    assert "<rect" in text
