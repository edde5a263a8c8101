"""The administrative APIs as a client sees them: request bytes in, response bytes out, in every version."""

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.registry import endpoint
from odradek.api.requests.session import Session
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.configs import ResourceChanges
from odradek.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from odradek.quotas.client_quotas import ClientQuotas
from odradek.wire.apis import APIS, ApiKey, request_class, response_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
)
from odradek.wire.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestReplicaAssignment,
    CreateTopicsRequestTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestState
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource
from odradek.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsRequestTopic,
)
from odradek.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from tests.unit.api.lone_controller import lone_controller

TOPIC, BROKER = 2, 4


class Side:
    """A controller and what handlers need of a broker around it."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.config = BrokerConfig(settings or {})
        self.fixed: ClusterImage | None = None

    async def start(self) -> None:
        endpoints = {"PLAINTEXT": Endpoint("h", 9092, "PLAINTEXT"), "INSIDE": Endpoint("i", 9093, "PLAINTEXT")}
        self.controller, self.view = await lone_controller(self.config, endpoints, "r")

    def check_certificates(self, resource: ResourceChanges) -> None:
        if any(change.value == "/nowhere" for change in resource.changes):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "No such file")

    async def ask(self, key: ApiKey, request: Any, version: int) -> Any:
        out = bytearray()
        request.encode(out, version)
        decoded, end = request_class(key).decode(memoryview(out), 0, version)
        assert end == len(out)
        services = SimpleNamespace(
            authorization=None,
            audit=None,
            unreachable=frozenset(),
            leadership=None,
            quotas=ClientQuotas(11, 1),
            controller=self.controller,
            config=self.config,
            cluster=self.view,
            certificates=SimpleNamespace(check_update=self.check_certificates),
            image=lambda: self.fixed or self.view.image,
        )
        context = SimpleNamespace(
            denied=None, services=services, version=version, session=Session("PLAINTEXT", "127.0.0.1"), client_id="c"
        )
        found = endpoint(key)
        assert found is not None
        response = found.handle(decoded, context)
        if inspect.isawaitable(response):
            response = await response
        answer = bytearray()
        response.encode(answer, version)
        return response_class(key).decode(memoryview(answer), 0, version)[0]


def side(test: Any, settings: dict[str, str] | None = None) -> None:
    async def main() -> None:
        made = Side(settings)
        await made.start()
        await test(made)

    asyncio.run(main())


def versions(key: ApiKey) -> list[int]:
    return list(range(APIS[key].min_version, APIS[key].max_version + 1))


def new_topic(name: str, partitions: int = 1, **configs: str) -> CreateTopicsRequestTopic:
    found = [CreateTopicsRequestConfig(key.replace("_", "."), value) for key, value in configs.items()]
    return CreateTopicsRequestTopic(name, partitions, 1, [], found)


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_create_topics(version: int) -> None:
    async def test(broker: Side) -> None:
        request = CreateTopicsRequest([new_topic("t", 2, retention_ms="5"), new_topic("a b")])
        good, bad = (await broker.ask(ApiKey.CREATE_TOPICS, request, version)).topics
        assert (good.name, good.error_code, good.error_message) == ("t", 0, None)
        assert (bad.name, bad.error_code) == ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)
        assert "contains one or more characters" in bad.error_message
        if version >= 5:
            assert (good.num_partitions, good.replication_factor) == (2, 1)
            assert len(good.configs) == 33
            (retention,) = [config for config in good.configs if config.name == "retention.ms"]
            assert (retention.value, retention.config_source) == ("5", 1)
        if version >= 7:
            assert good.topic_id == broker.view.image.topics["t"].id
        assert len(broker.view.image.topics["t"].partitions) == 2
        manual = CreateTopicsRequestTopic("m", -1, -1, [CreateTopicsRequestReplicaAssignment(0, [1])])
        tried = await broker.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([manual], validate_only=True), version)
        assert tried.topics[0].error_code == 0
        assert "m" not in broker.view.image.topics

    side(test)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_delete_topics(version: int) -> None:
    async def test(broker: Side) -> None:
        await broker.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([new_topic("a"), new_topic("b")]), 7)
        b = broker.view.image.topics["b"]
        if version >= 6:
            states = [DeleteTopicsRequestState("a"), DeleteTopicsRequestState(None, b.id)]
            request = DeleteTopicsRequest(topics=[*states, DeleteTopicsRequestState("none")])
        else:
            request = DeleteTopicsRequest(topic_names=["a", "b", "none"])
        first, second, third = (await broker.ask(ApiKey.DELETE_TOPICS, request, version)).responses
        assert (first.name, first.error_code, second.name, second.error_code) == ("a", 0, "b", 0)
        assert (third.name, third.error_code) == ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert broker.view.image.topics == {}
        if version >= 6:
            assert second.topic_id == b.id

    side(test)


@pytest.mark.parametrize(("version", "code"), [(1, 42), (2, 42), (3, 73), (6, 73)])
def test_deletion_that_is_disabled(version: int, code: int) -> None:
    async def test(broker: Side) -> None:
        await broker.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([new_topic("a")]), 7)
        request = DeleteTopicsRequest(
            [DeleteTopicsRequestState("a")] if version >= 6 else [], ["a"] if version < 6 else []
        )
        assert (await broker.ask(ApiKey.DELETE_TOPICS, request, version)).responses[0].error_code == code

    side(test, {"delete.topic.enable": "false"})


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_create_partitions(version: int) -> None:
    async def test(broker: Side) -> None:
        await broker.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([new_topic("a"), new_topic("b")]), 7)
        manual = CreatePartitionsRequestTopic("b", 2, [CreatePartitionsRequestAssignment([1])])
        request = CreatePartitionsRequest([CreatePartitionsRequestTopic("a", 3, None), manual])
        request.topics.append(CreatePartitionsRequestTopic("c", 3, None))
        results = (await broker.ask(ApiKey.CREATE_PARTITIONS, request, version)).results
        assert [(r.name, r.error_code) for r in results] == [("a", 0), ("b", 0), ("c", 3)]
        topics = broker.view.image.topics
        assert (len(topics["a"].partitions), len(topics["b"].partitions)) == (3, 2)

    side(test)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_describe_configs(version: int) -> None:
    async def test(broker: Side) -> None:
        await broker.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([new_topic("t", retention_ms="5")]), 7)
        request = DescribeConfigsRequest(
            [
                DescribeConfigsRequestResource(TOPIC, "t", ["retention.ms", "segment.bytes"]),
                DescribeConfigsRequestResource(BROKER, "1", None),
                DescribeConfigsRequestResource(TOPIC, "none", None),
            ],
            include_synonyms=version >= 1,
            include_documentation=version >= 3,
        )
        topic, server, missing = (await broker.ask(ApiKey.DESCRIBE_CONFIGS, request, version)).results
        assert [(config.name, config.value) for config in topic.configs] == [
            ("retention.ms", "5"),
            ("segment.bytes", "1073741824"),
        ]
        assert len(server.configs) >= 340
        assert (missing.error_code, missing.configs) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
        if version >= 1:
            assert [config.config_source for config in topic.configs] == [1, 5]
            assert [s.name for s in topic.configs[1].synonyms] == ["log.segment.bytes"]
        if version >= 3:
            assert [config.config_type for config in topic.configs] == [5, 3]
            assert all(config.documentation for config in topic.configs)

    side(test)


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_alter_configs(version: int) -> None:
    async def test(broker: Side) -> None:
        await broker.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([new_topic("t", retention_ms="5")]), 7)
        good = AlterConfigsRequestResource(TOPIC, "t", [AlterConfigsRequestConfig("segment.ms", "6")])
        bad = AlterConfigsRequestResource(TOPIC, "x", [AlterConfigsRequestConfig("segment.ms", "6")])
        responses = (await broker.ask(ApiKey.ALTER_CONFIGS, AlterConfigsRequest([good, bad]), version)).responses
        assert [(r.resource_type, r.resource_name, r.error_code) for r in responses] == [
            (TOPIC, "t", 0),
            (TOPIC, "x", 3),
        ]
        assert broker.view.image.topic_configs("t") == {"segment.ms": "6"}

    side(test)


@pytest.mark.parametrize("version", versions(ApiKey.ALTER_CONFIGS))
def test_alter_configs_refuses_a_certificate_that_the_broker_cannot_use(version: int) -> None:
    async def test(broker: Side) -> None:
        await broker.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([new_topic("t")]), 7)
        store = "listener.name.plaintext.ssl.keystore.location"
        bad = AlterConfigsRequestResource(BROKER, "1", [AlterConfigsRequestConfig(store, "/nowhere")])
        good = AlterConfigsRequestResource(TOPIC, "t", [AlterConfigsRequestConfig("segment.ms", "6")])
        for resources in ([good, bad], [bad]):
            responses = (await broker.ask(ApiKey.ALTER_CONFIGS, AlterConfigsRequest(resources), version)).responses
            assert {(r.resource_type, r.error_code, r.error_message) for r in responses} == {
                (each.resource_type, *((42, "No such file") if each is bad else (0, None))) for each in resources
            }
        assert broker.view.image.topic_configs("t") == {"segment.ms": "6"}

    side(test)


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_incremental_alter_configs(version: int) -> None:
    async def test(broker: Side) -> None:
        await broker.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest([new_topic("t", retention_ms="5")]), 7)
        changes = [
            IncrementalAlterConfigsRequestConfig("retention.ms", 1, None),
            IncrementalAlterConfigsRequestConfig("cleanup.policy", 2, "compact"),
        ]
        resource = IncrementalAlterConfigsRequestResource(TOPIC, "t", changes)
        wrong = IncrementalAlterConfigsRequestResource(
            BROKER, "1", [IncrementalAlterConfigsRequestConfig("log.dirs", 0, "x")]
        )
        for validate_only in (True, False):
            before = dict(broker.view.image.topic_configs("t"))
            request = IncrementalAlterConfigsRequest([resource, wrong], validate_only)
            good, bad = (await broker.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, version)).responses
            assert (good.error_code, good.error_message, bad.error_code) == (0, None, ErrorCode.INVALID_REQUEST)
            after = broker.view.image.topic_configs("t")
            assert after == (before if validate_only else {"cleanup.policy": "delete,compact"})

    side(test)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_describe_cluster(version: int) -> None:
    async def test(broker: Side) -> None:
        broker.fixed = broker.view.image.with_broker(
            Broker(2, 0, None, {"PLAINTEXT": Endpoint("f", 1, "PLAINTEXT")}, fenced=True)
        ).with_broker(Broker(3, 0, None, {"INSIDE": Endpoint("f", 1, "PLAINTEXT")}))
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        answer = await broker.ask(ApiKey.DESCRIBE_CLUSTER, request, version)
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster", 1)
        assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [(1, "h", 9092, "r")]
        assert answer.cluster_authorized_operations > 0
        if version >= 1:
            answer = await broker.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=2), version)
            assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            answer = await broker.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=7), version)
            assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
        if version >= 2:
            request = DescribeClusterRequest(include_fenced_brokers=True)
            answer = await broker.ask(ApiKey.DESCRIBE_CLUSTER, request, version)
            assert [(b.broker_id, b.is_fenced) for b in answer.brokers] == [(1, False), (2, True)]

    side(test)


def test_describe_topic_partitions_in_pages() -> None:
    async def test(broker: Side) -> None:
        state = PartitionState(1, 3, (1, 9), (1,))
        topics = [Topic(name, name.encode() * 16, (state,) * count) for name, count in (("a", 3), ("b", 1), ("c", 5))]
        broker.fixed = broker.view.image.with_topics(topics)
        seen: list[tuple[str, int]] = []
        cursor = None
        pages = 0
        while True:
            request = DescribeTopicPartitionsRequest([], 2, cursor)
            answer = await broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request, 0)
            pages += 1
            seen += [(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions]
            assert sum(len(topic.partitions) for topic in answer.topics) <= 2
            if answer.next_cursor is None:
                break
            cursor = DescribeTopicPartitionsRequestCursor(
                answer.next_cursor.topic_name, answer.next_cursor.partition_index
            )
        assert seen == [(topic.name, i) for topic in topics for i in range(len(topic.partitions))]
        assert pages == 5

    side(test)


def test_describe_topic_partitions_by_name() -> None:
    async def test(broker: Side) -> None:
        state = PartitionState(1, 3, (1, 9), (1,))
        broker.fixed = broker.view.image.with_topic(Topic("__consumer_offsets", b"o" * 16, (state,)))
        wanted = [DescribeTopicPartitionsRequestTopic(name) for name in ("none", "__consumer_offsets", "a b")]
        answer = await broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, DescribeTopicPartitionsRequest(wanted), 0)
        found, invalid, missing = answer.topics
        assert (found.name, found.topic_id, found.is_internal) == ("__consumer_offsets", b"o" * 16, True)
        (partition,) = found.partitions
        assert (partition.leader_id, partition.leader_epoch) == (1, 3)
        assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1, 9], [1], [9])
        assert (missing.name, missing.error_code) == ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert (invalid.name, invalid.error_code) == ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)
        gone = DescribeTopicPartitionsRequest([], 10, DescribeTopicPartitionsRequestCursor("A", 7))
        answer = await broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, gone, 0)
        assert [len(topic.partitions) for topic in answer.topics] == [1]
        negative = DescribeTopicPartitionsRequest([], 10, DescribeTopicPartitionsRequestCursor("A", -1))
        with pytest.raises(KafkaError) as raised:
            await broker.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, negative, 0)
        assert raised.value.code is ErrorCode.INVALID_REQUEST

    side(test)
