"""Quotas, credentials, features, elections, moves, loggers and the like: over the wire's codecs, in every version."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.requests.registry import endpoint
from odradek.api.requests.session import Session
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.log_levels import BrokerLoggers
from odradek.controller.configs import ResourceType
from odradek.controller.topics import NewTopic
from odradek.metadata.image import Endpoint
from odradek.ports.clock import SystemClock
from odradek.wire.apis import APIS, ApiKey, request_class, response_class
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_configs,
    describe_quorum,
    describe_user_scram_credentials,
    elect_leaders,
    incremental_alter_configs,
    list_config_resources,
    list_partition_reassignments,
    unregister_broker,
    update_features,
)
from tests.unit.api.lone_controller import lone_controller

Ask = Callable[..., Any]


def served(test: Callable[[Ask], Any]) -> None:
    """Run a test with a function that asks one API of a broker with the topic `t`."""

    async def main() -> None:
        config = BrokerConfig({"node.id": "1"})
        controller, view = await lone_controller(config, {"PLAINTEXT": Endpoint("h", 9092, "PLAINTEXT")})
        await controller.create_topics([NewTopic("t", 2, 1)])
        services = SimpleNamespace(
            telemetry=None,
            authorization=None,
            audit=None,
            controller=controller,
            config=config,
            clock=SystemClock(),
            loggers=BrokerLoggers(1),
            certificates=SimpleNamespace(check_update=lambda _resource: None),
            image=lambda: view.image,
        )

        async def ask(request: Any, version: int) -> Any:
            key = request.API_KEY
            out = bytearray()
            request.encode(out, version)
            decoded, _ = request_class(key).decode(memoryview(out), 0, version)
            found = endpoint(key)
            assert found is not None
            response = found.handle(
                decoded, SimpleNamespace(services=services, version=version, session=Session("PLAINTEXT", "127.0.0.1"))
            )
            if inspect.isawaitable(response):
                response = await response
            answer = bytearray()
            response.encode(answer, version)
            return response_class(key).decode(memoryview(answer), 0, version)[0]

        await test(ask)

    asyncio.run(main())


def versions(key: ApiKey) -> Any:
    return pytest.mark.parametrize("version", range(APIS[key].min_version, APIS[key].max_version + 1))


@versions(ApiKey.DESCRIBE_ACLS)
def test_without_an_authorizer_there_are_no_access_control_lists(version: int) -> None:
    async def test(ask: Ask) -> None:
        described = await ask(describe_acls.DescribeAclsRequest(), version)
        made = await ask(create_acls.CreateAclsRequest([create_acls.CreateAclsRequestCreation()] * 2), version)
        deleted = await ask(delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsRequestFilter()] * 3), version)
        assert described.error_code == ErrorCode.SECURITY_DISABLED
        assert [result.error_code for result in made.results] == [ErrorCode.SECURITY_DISABLED] * 2
        assert [result.error_code for result in deleted.filter_results] == [ErrorCode.SECURITY_DISABLED] * 3

    served(test)


@versions(ApiKey.ELECT_LEADERS)
def test_elections(version: int) -> None:
    async def test(ask: Ask) -> None:
        asked = [elect_leaders.ElectLeadersRequestTopicPartitions("t", [0, 5])]
        (topic,) = (await ask(elect_leaders.ElectLeadersRequest(0, asked), version)).replica_election_results
        codes = {part.partition_id: part.error_code for part in topic.partition_result}
        assert codes == {0: ErrorCode.ELECTION_NOT_NEEDED, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        everything = await ask(elect_leaders.ElectLeadersRequest(0, None), version)
        assert everything.replica_election_results == []

    served(test)


@versions(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
def test_moves(version: int) -> None:
    async def test(ask: Ask) -> None:
        made = alter_partition_reassignments
        parts = [
            made.AlterPartitionReassignmentsRequestReassignablePartition(0, [1]),
            made.AlterPartitionReassignmentsRequestReassignablePartition(1, [1, 2]),
            made.AlterPartitionReassignmentsRequestReassignablePartition(2, None),
        ]
        topic = made.AlterPartitionReassignmentsRequestReassignableTopic("t", parts)
        answer = await ask(made.AlterPartitionReassignmentsRequest(topics=[topic]), version)
        assert [part.error_code for part in answer.responses[0].partitions] == [
            0,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        listed = await ask(list_partition_reassignments.ListPartitionReassignmentsRequest(topics=None), 0)
        assert (listed.error_code, listed.topics) == (0, [])

    served(test)


@versions(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def test_quotas(version: int) -> None:
    async def test(ask: Ask) -> None:
        made = alter_client_quotas
        entries = [
            made.AlterClientQuotasRequestEntry(
                [made.AlterClientQuotasRequestEntity(kind, name)], [made.AlterClientQuotasRequestOp(key, 5.0)]
            )
            for kind, name, key in (
                ("user", "u", "producer_byte_rate"),
                ("client-id", None, "request_percentage"),
                ("user", "u", "nonsense"),
            )
        ]
        answer = await ask(made.AlterClientQuotasRequest(entries), version)
        assert [entry.error_code for entry in answer.entries] == [0, 0, ErrorCode.INVALID_REQUEST]
        assert answer.entries[1].entity[0].entity_name is None
        component = describe_client_quotas.DescribeClientQuotasRequestComponent("user", 2, None)
        described = await ask(describe_client_quotas.DescribeClientQuotasRequest([component], True), version)
        (entry,) = described.entries
        assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 5.0)]
        component = describe_client_quotas.DescribeClientQuotasRequestComponent("group", 2, None)
        refused = await ask(describe_client_quotas.DescribeClientQuotasRequest([component]), version)
        assert (refused.error_code, refused.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)

    served(test)


def test_credentials() -> None:
    async def test(ask: Ask) -> None:
        made = alter_user_scram_credentials
        request = made.AlterUserScramCredentialsRequest(
            [made.AlterUserScramCredentialsRequestDeletion("unknown", 1)],
            [made.AlterUserScramCredentialsRequestUpsertion("u", 1, 4096, b"salt", b"x" * 32)],
        )
        answer = await ask(request, 0)
        assert {r.user: r.error_code for r in answer.results} == {"unknown": ErrorCode.RESOURCE_NOT_FOUND, "u": 0}
        described = await ask(describe_user_scram_credentials.DescribeUserScramCredentialsRequest(None), 0)
        (result,) = described.results
        assert [(c.mechanism, c.iterations) for c in result.credential_infos] == [(1, 4096)]

    served(test)


@versions(ApiKey.UPDATE_FEATURES)
def test_features(version: int) -> None:
    async def test(ask: Ask) -> None:
        made = update_features

        async def update(name: str, level: int, *, downgrade: bool) -> Any:
            change = made.UpdateFeaturesRequestFeatureUpdate(name, level)
            if version:
                change.upgrade_type = 2 if downgrade else 1
            else:
                change.allow_downgrade = downgrade
            return await ask(made.UpdateFeaturesRequest(feature_updates=[change]), version)

        def code(answer: Any) -> int:
            return int(answer.error_code if version > 1 else answer.results[0].error_code)

        assert code(await update("transaction.version", 1, downgrade=False)) == ErrorCode.INVALID_UPDATE_VERSION
        assert code(await update("nonsense", 1, downgrade=False)) == ErrorCode.INVALID_UPDATE_VERSION
        answer = await update("transaction.version", 1, downgrade=True)
        assert (answer.error_code, [r.error_code for r in answer.results]) == (0, [0] if version < 2 else [])
        versions = await ask(api_versions.ApiVersionsRequest("a", "1"), 4)
        assert {f.name: f.max_version_level for f in versions.finalized_features}["transaction.version"] == 1
        assert versions.finalized_features_epoch == 2

    served(test)


@versions(ApiKey.DESCRIBE_QUORUM)
def test_the_quorum_is_the_controller(version: int) -> None:
    async def test(ask: Ask) -> None:
        made = describe_quorum

        async def asked(name: str, partition: int) -> Any:
            parts = [made.DescribeQuorumRequestPartition(partition)]
            return await ask(made.DescribeQuorumRequest([made.DescribeQuorumRequestTopic(name, parts)]), version)

        answer = await asked("__cluster_metadata", 0)
        (partition,) = answer.topics[0].partitions
        assert (answer.error_code, partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 0, 1, 1)
        assert [voter.replica_id for voter in partition.current_voters] == [1]
        assert partition.current_voters[0].log_end_offset == partition.high_watermark > 0
        assert [node.node_id for node in answer.nodes] == ([1] if version > 1 else [])
        other = await asked("t", 0)
        assert other.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    served(test)


def test_a_running_broker_is_not_unregistered() -> None:
    async def test(ask: Ask) -> None:
        assert (await ask(unregister_broker.UnregisterBrokerRequest(1), 0)).error_code == ErrorCode.INVALID_REQUEST
        answer = await ask(unregister_broker.UnregisterBrokerRequest(9), 0)
        assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    served(test)


def increment(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    made = incremental_alter_configs
    configs = [made.IncrementalAlterConfigsRequestConfig(key, operation, value) for key, operation, value in changes]
    resource = made.IncrementalAlterConfigsRequestResource(kind, name, configs)
    return made.IncrementalAlterConfigsRequest([resource])


def describe(kind: int, name: str, keys: list[str] | None = None) -> Any:
    made = describe_configs
    return made.DescribeConfigsRequest([made.DescribeConfigsRequestResource(kind, name, keys)], True, True)


def test_subscriptions_to_clients_metrics() -> None:
    async def test(ask: Ask) -> None:
        kind = ResourceType.CLIENT_METRICS
        good = increment(kind, "s/1", ("interval.ms", 0, "1000"), ("match", 0, "client_id=a.*"))
        assert (await ask(good, 1)).responses[0].error_code == 0
        for key, value in (("interval.ms", "99"), ("match", "colour=red"), ("match", "client_id=("), ("x", "1")):
            refused = (await ask(increment(kind, "s/1", (key, 0, value)), 1)).responses[0]
            assert refused.error_code == ErrorCode.INVALID_CONFIG, key
        assert (await ask(increment(kind, "", ("interval.ms", 0, "1000")), 1)).responses[0].error_code != 0
        (result,) = (await ask(describe(kind, "s/1"), 4)).results
        values = {config.name: (config.value, config.config_source) for config in result.configs}
        assert values == {"interval.ms": ("1000", 7), "match": ("client_id=a.*", 7), "metrics": ("", 5)}
        listed = await ask(list_config_resources.ListConfigResourcesRequest(), 0)
        assert [found.resource_name for found in listed.config_resources] == ["s/1"]
        gone = increment(kind, "s/1", ("interval.ms", 1, None), ("match", 1, None))
        assert (await ask(gone, 1)).responses[0].error_code == 0
        assert (await ask(list_config_resources.ListConfigResourcesRequest(), 0)).config_resources == []

    served(test)


def test_config_resources() -> None:
    async def test(ask: Ask) -> None:
        def request(*kinds: int) -> Any:
            return list_config_resources.ListConfigResourcesRequest(list(kinds))

        assert (await ask(increment(ResourceType.GROUP, "g", ("consumer.session.timeout.ms", 0, "50000")), 1)).responses
        everything = (await ask(request(), 1)).config_resources
        assert {(found.resource_type, found.resource_name) for found in everything} == {
            (ResourceType.TOPIC, "t"),
            (ResourceType.BROKER, "1"),
            (ResourceType.BROKER_LOGGER, "1"),
            (ResourceType.GROUP, "g"),
        }
        topics = (await ask(request(ResourceType.TOPIC), 1)).config_resources
        assert [found.resource_name for found in topics] == ["t"]
        assert (await ask(request(3), 1)).error_code == ErrorCode.UNSUPPORTED_VERSION

    served(test)


def test_loggers() -> None:
    name = "odradek.test-of-levels"
    logger = logging.getLogger(name)

    async def test(ask: Ask) -> None:
        kind = ResourceType.BROKER_LOGGER
        assert (await ask(increment(kind, "1", (name, 0, "debug")), 1)).responses[0].error_code == 0
        assert logger.level == logging.DEBUG
        (result,) = (await ask(describe(kind, "1", [name]), 4)).results
        (config,) = result.configs
        assert (config.value, config.config_source, config.read_only) == ("DEBUG", 6, False)
        for changes, code in (
            ([("odradek.no-such-logger", 0, "INFO")], ErrorCode.INVALID_CONFIG),
            ([(name, 0, "LOUD")], ErrorCode.INVALID_CONFIG),
            ([(name, 2, "INFO")], ErrorCode.INVALID_REQUEST),
            ([("root", 1, None)], ErrorCode.INVALID_REQUEST),
            ([(name, 0, "ERROR"), (name, 0, "INFO")], ErrorCode.INVALID_REQUEST),
            ([(name, 0, "ERROR"), ("odradek.no-such-logger", 0, "INFO")], ErrorCode.INVALID_CONFIG),
        ):
            assert (await ask(increment(kind, "1", *changes), 1)).responses[0].error_code == code, changes
        assert logger.level == logging.DEBUG, "all or nothing"
        for broker in ("", "x", "2"):
            assert (await ask(describe(kind, broker), 4)).results[0].error_code == ErrorCode.INVALID_REQUEST
            refused = (await ask(increment(kind, broker, (name, 0, "INFO")), 1)).responses[0]
            assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert (await ask(increment(kind, "1", (name, 1, None)), 1)).responses[0].error_code == 0
        assert logger.level == logging.NOTSET
        older = alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsRequestResource(kind, "1", [])])
        assert (await ask(older, 2)).responses[0].error_code == ErrorCode.INVALID_REQUEST

    served(test)
