"""Spark queries in the console, by the markers that the sink's own code writes."""

import asyncio
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.client.admin import GroupState
from odradek.client.model import OffsetAndMetadata
from odradek.client.producer.transactions import TransactionalProducer
from odradek.client.reports.spark_queries import query_of
from odradek.records.topic_partition import TopicPartition
from odradek.spark.markers import Markers, Recorded
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import AT, ask


def test_query_is_shown_with_its_last_batch(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}

    async def write() -> None:
        async with TransactionalProducer(**options, transactional_id=f"{topic}-tx") as producer:
            markers = Markers(options, "__odradek_spark_batches", 30_000)
            for batch in (40, 41):
                async with producer.transaction():
                    await producer.send(topic, b"row")
                    await markers.add(producer, Recorded(batch, "query-4711"), topic, 123)

    asyncio.run(write())
    text = client.get(f"{AT}/queries?q={topic}").text
    assert f"{topic}-tx</a>" in text
    assert "query-4711" in text
    assert '<td class="n">41</td><td class="n">123</td>' in text
    assert "CompleteCommit" in text


def test_group_that_commits_without_members_is_listed(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    place = TopicPartition(topic, 0)
    ask(broker.bootstrap_servers, lambda admin: admin.groups.alter_offsets(f"{topic}-source", {place: 0}))
    (listed,) = [
        each
        for each in ask(broker.bootstrap_servers, lambda admin: admin.groups.list())
        if each.group_id == f"{topic}-source"
    ]
    assert listed.state is GroupState.EMPTY
    assert f"{topic}-source</a>" in client.get(f"{AT}/queries?q={topic}").text


@pytest.mark.parametrize("metadata", [None, "", "no json", "[1]", '{"query": 7, "records": "many"}', "[" * 100_000])
def test_marker_of_strangers_is_read_as_far_as_it_goes(metadata: str | None) -> None:
    found = query_of("__eos-x", TopicPartition("t", 0), OffsetAndMetadata(3, metadata or ""), None)
    assert (found.transactional_id, found.batch, found.query_id, found.records) == ("x", 3, None, None)
