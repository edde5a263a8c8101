"""Metadata: which topics an answer names, by name and by id."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api import api_03_metadata, api_60_describe_cluster
from odradek.api.data import encoded_topics
from odradek.api.data.described_topics import OMITTED
from odradek.api.data.encoded_topics import EncodedTopics
from odradek.api.data.first_metadata import LONGEST_WAIT_S
from odradek.api.requests.session import Session
from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.stored_configs import StoredConfigs
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from odradek.metadata.stores.memory_store import MemoryStore
from odradek.wire.errors import ErrorCode as E
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tests.unit.client.virtual_time import run_in_virtual_time

TOPIC_ID = bytes(range(16))


def context_of(image: ClusterImage, cluster: Any, version: int) -> Any:
    config = SimpleNamespace(flag=lambda _name: True)
    return SimpleNamespace(
        version=version,
        session=Session("PLAINTEXT", "127.0.0.1"),
        services=SimpleNamespace(
            authorization=None,
            audit=None,
            image=lambda: image if cluster is TOLD else cluster.image,
            config=config,
            unreachable=frozenset(),
            leadership=None,
            cluster=cluster,
        ),
    )


TOLD: Any = SimpleNamespace(has_metadata=True)


def ask(*topics: MetadataRequestTopic, version: int = 13) -> MetadataResponse:
    image = ClusterImage("cluster").with_topic(Topic("t", TOPIC_ID, (PartitionState(1, 0, (1,), (1,)),)))
    context = context_of(image, TOLD, version)
    answer: Any = api_03_metadata.handle(MetadataRequest(list(topics), version > 3), context)
    out = bytearray()
    answer.encode(out, version)
    return MetadataResponse.decode(memoryview(out), 0, version)[0]


@pytest.mark.parametrize("name", [None, ""])
@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_is_found_by_its_id_whatever_a_client_sends_as_its_name(name: str | None, version: int) -> None:
    (topic,) = ask(MetadataRequestTopic(TOPIC_ID, name), version=version).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (E.NONE, "t", TOPIC_ID)
    assert len(topic.partitions) == 1


@pytest.mark.parametrize("version", [10, 11])
def test_topic_by_id_is_rejected_in_versions_that_only_encode_ids(version: int) -> None:
    response = ask(MetadataRequestTopic(name="t"), MetadataRequestTopic(TOPIC_ID, None), version=version)
    assert [(topic.error_code, topic.name) for topic in response.topics] == [
        (E.INVALID_REQUEST, "t"),
        (E.INVALID_REQUEST, ""),
    ]
    assert response.topics[1].topic_id == TOPIC_ID
    assert response.brokers == []


def test_an_unknown_id_has_no_name_and_is_not_created() -> None:
    (topic,) = ask(MetadataRequestTopic(b"x" * 16, "")).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (E.UNKNOWN_TOPIC_ID, None, b"x" * 16)


@pytest.mark.parametrize("version", [1, 9, 10, 12])
def test_a_topic_is_found_by_its_name(version: int) -> None:
    (topic,) = ask(MetadataRequestTopic(name="t"), version=version).topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (E.NONE, "t", 1)
    assert topic.topic_id == (TOPIC_ID if version >= 10 else bytes(16))


def test_neither_name_nor_id_is_no_topic() -> None:
    (topic,) = ask(MetadataRequestTopic(name="")).topics
    assert topic.error_code == E.INVALID_TOPIC_EXCEPTION


def generated(topic: Topic, brokers: Any, operations: int) -> MetadataResponseTopic:
    rows = []
    for index, state in enumerate(topic.partitions):
        code = 0 if state.leader in brokers else E.LEADER_NOT_AVAILABLE
        offline = [replica for replica in state.replicas if replica not in brokers]
        row = MetadataResponsePartition(
            code,
            index,
            -1 if code else state.leader,
            state.leader_epoch,
            list(state.replicas),
            list(state.isr),
            offline,
        )
        rows.append(row)
    return MetadataResponseTopic(0, topic.name, topic.id, topic.is_internal, rows, operations)


@pytest.mark.parametrize("version", range(14))
def test_topics_are_encoded_as_the_generated_codec_does_and_once(version: int) -> None:
    operations = 7 if version >= 8 else OMITTED
    states = tuple(
        PartitionState(index % 4 - 1, 5, (index % 3, index % 3 + 1), (index % 3 + 1,) * (index % 2))
        for index in range(300)
    )
    image = ClusterImage("cluster")
    brokers: Any = {0: None, 1: None, 2: None}
    image.brokers = brokers
    topic = Topic("__consumer_offsets", TOPIC_ID, states)
    encoded = EncodedTopics()
    expected, out = bytearray(), bytearray()
    generated(topic, image.brokers, operations).encode(expected, version)
    first = encoded.get(topic, image, version, operations)
    first.encode(out, version)
    assert out == expected
    assert encoded.get(topic, image, version, operations) is first
    changed = ClusterImage("cluster")
    fewer: Any = {0: None}
    changed.brokers = fewer
    expected, out = bytearray(), bytearray()
    generated(topic, fewer, operations).encode(expected, version)
    encoded.get(topic, changed, version, operations).encode(out, version)
    assert out == expected, "another set of brokers is another answer"
    shorter = topic._replace(partitions=states[:2])
    expected, out = bytearray(), bytearray()
    generated(shorter, fewer, operations).encode(expected, version)
    encoded.get(shorter, changed, version, operations).encode(out, version)
    assert out == expected


def test_deleted_topics_are_not_remembered() -> None:
    encoded = EncodedTopics()
    states = (PartitionState(1, 5, (1,), (1,)),)
    lasting = [Topic(f"lasting-{number}", number.to_bytes(16, "big"), states) for number in range(20)]
    image = ClusterImage("cluster").with_topics(lasting)
    first = [encoded.get(topic, image, 12, OMITTED) for topic in lasting]
    for number in range(500):
        short = Topic(f"short-{number}", TOPIC_ID, states)
        encoded.get(short, image.with_topic(short), 12, OMITTED)
    assert len(encoded._known) < 2 * len(lasting)
    assert encoded._bytes == sum(len(entry.data) for *_, entry in encoded._known.values())
    assert [encoded.get(topic, image, 12, OMITTED) for topic in lasting] == first, "those that hold are kept"


def test_encoded_topics_stay_below_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set of operations is an answer of its own, and none of them is outdated."""
    topic = Topic("orders", TOPIC_ID, (PartitionState(1, 5, (1,), (1,)),))
    image = ClusterImage("cluster").with_topic(topic)
    encoded = EncodedTopics()
    size = len(encoded.get(topic, image, 12, 0).data)
    monkeypatch.setattr(encoded_topics, "_MOST_BYTES", 3 * size)
    for operations, count in enumerate([2, 3, 1, 2, 3, 1], 1):
        encoded.get(topic, image, 12, operations)
        assert (len(encoded._known), encoded._bytes) == (count, count * size)


@pytest.mark.parametrize(
    ("api", "request_of"), [(api_03_metadata, MetadataRequest), (api_60_describe_cluster, DescribeClusterRequest)]
)
def test_metadata_of_a_cluster_without_brokers_is_not_returned(api: Any, request_of: Any) -> None:
    """A broker that has just started knows no broker before the controller has sent an image. librdkafka drops all
    brokers that an answer does not name, and sends no more requests when none is left."""

    async def scenario() -> None:
        view = ClusterView(BrokerConfig({"node.id": "1"}))
        await StoredConfigs(MemoryStore(), view).load()
        answer = asyncio.ensure_future(api.handle(request_of(), context_of(ClusterImage(), view, 2)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not answer.done()
        itself = Broker(1, 7, None, {"PLAINTEXT": Endpoint("127.0.0.1", 9092, "PLAINTEXT")})
        await view.take(view.image.with_brokers({1: itself}))
        assert [(broker.host, broker.port) for broker in (await answer).brokers] == [("127.0.0.1", 9092)]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("api", "request_of"), [(api_03_metadata, MetadataRequest), (api_60_describe_cluster, DescribeClusterRequest)]
)
def test_client_is_disconnected_while_no_controller_sends_metadata(api: Any, request_of: Any) -> None:
    closed: list[str] = []

    async def main() -> None:
        cluster = ClusterView(BrokerConfig({"node.id": "1"}))
        context = context_of(cluster.image, cluster, 1)
        context.connection = SimpleNamespace(close=closed.append)
        with pytest.raises(KafkaError) as raised:
            await api.handle(request_of(), context)
        assert raised.value.code == E.REQUEST_TIMED_OUT
        assert asyncio.get_running_loop().time() == LONGEST_WAIT_S

    run_in_virtual_time(main())
    assert len(closed) == 1
