"""What an answer says beside its authorization error: as Apache Kafka's, and nothing that the client may not know."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.api.api_38_create_delegation_token import handle as create_token
from odradek.api.authorization.group_guards import visible_groups
from odradek.api.authorization.guards import GUARDS
from odradek.api.requests.failures import failure_response
from odradek.api.requests.session import ANONYMOUS, Principal
from odradek.authorization.acl_index import grouped
from odradek.authorization.authorizer import Access as RealAccess
from odradek.authorization.authorizer import Authorizer, Settings
from odradek.metadata.image import ClusterImage, Topic
from odradek.records.builder import BatchFields, encode_batch
from odradek.wire.acls import CLUSTER_NAME, AclBinding, AclOperation, ResourceType
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_replica_log_dirs,
    consumer_group_describe,
    create_topics,
    delete_records,
    delete_topics,
    find_coordinator,
    init_producer_id,
    offset_fetch,
    offset_for_leader_epoch,
    sync_group,
)
from odradek.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.wire.primitives import ZERO_UUID
from odradek.wire.produce import ProduceRequest
from tests.unit.api.test_guards import Access

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
AUDIT_ID = b"a" * 16


class Refusing(Access):
    """Remembers nothing, so that guards ask."""

    def remembered(self, _right: int) -> dict[str, int]:
        return {}


def guarded(request: Any, version: int, *granted: tuple[AclOperation, ResourceType], answer: Any = None) -> Any:
    """The answer of the API's guard, whose handler answers with `answer`."""
    key = ApiKey(request.API_KEY) if hasattr(request, "API_KEY") else ApiKey.PRODUCE
    image = SimpleNamespace(topics={"orders": None}, topic_names={})
    services = SimpleNamespace(image=lambda: image)
    context: Any = SimpleNamespace(version=version, services=services, denied=None)
    access: Any = Refusing(*granted)
    access.request = key.name
    return GUARDS[key](request, context, access, lambda _request, _context: answer)


def failed(request: Any, version: int) -> Any:
    return failure_response(request.API_KEY, request, version, DENIED)


def test_denied_creation_says_no_number_of_partitions() -> None:
    request = create_topics.CreateTopicsRequest([create_topics.CreateTopicsRequestTopic("orders", 3, 2)])
    (topic,) = failed(request, 7).topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)


def test_denied_deletion_of_records_says_no_low_watermark() -> None:
    parts = [delete_records.DeleteRecordsRequestPartition(0, 5)]
    request = delete_records.DeleteRecordsRequest([delete_records.DeleteRecordsRequestTopic("orders", parts)])
    assert failed(request, 2).topics[0].partitions[0].low_watermark == -1


@pytest.mark.parametrize("key_type", [0, 1], ids=["group", "transaction"])
def test_denied_search_for_a_coordinator_names_no_broker(key_type: int) -> None:
    code = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)[key_type]
    old = guarded(find_coordinator.FindCoordinatorRequest("g", key_type), 3)
    assert (old.error_code, old.node_id, old.host, old.port) == (code, -1, "", -1)
    request = find_coordinator.FindCoordinatorRequest("", key_type, ["g", "h"])
    several = guarded(request, 4).coordinators
    assert [(each.key, each.error_code) for each in several] == [("g", code), ("h", code)]
    assert {(each.node_id, each.host, each.port) for each in several} == {(-1, "", -1)}


def test_denied_producer_gets_no_epoch() -> None:
    answer = failed(init_producer_id.InitProducerIdRequest("tx"), 4)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


def test_denied_epoch_is_not_that_of_the_request() -> None:
    parts = [offset_for_leader_epoch.OffsetForLeaderEpochRequestPartition(0, leader_epoch=4)]
    topics = [offset_for_leader_epoch.OffsetForLeaderEpochRequestTopic("orders", parts)]
    answer = failed(offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, topics), 4)
    assert answer.topics[0].partitions[0].leader_epoch == -1


def test_denied_quota_names_its_entity() -> None:
    entity = [alter_client_quotas.AlterClientQuotasRequestEntity("user", "alice")]
    request = alter_client_quotas.AlterClientQuotasRequest([alter_client_quotas.AlterClientQuotasRequestEntry(entity)])
    (entry,) = failed(request, 1).entries
    assert [(each.entity_type, each.entity_name) for each in entry.entity] == [("user", "alice")]


def test_denied_move_names_its_topics() -> None:
    topics = [alter_replica_log_dirs.AlterReplicaLogDirsRequestTopic("orders", [0, 1])]
    request = alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        [alter_replica_log_dirs.AlterReplicaLogDirsRequestDir("/a", topics)]
    )
    (topic,) = failed(request, 2).results
    assert topic.topic_name == "orders"
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, DENIED), (1, DENIED)]


def test_denied_batch_of_transactions_fails_as_a_whole() -> None:
    wanted = add_partitions_to_txn.AddPartitionsToTxnRequestTransaction(
        "tx", 1, 0, False, [add_partitions_to_txn.AddPartitionsToTxnRequestTopic("orders", [0])]
    )
    answer = failed(add_partitions_to_txn.AddPartitionsToTxnRequest([wanted]), 4)
    assert (answer.error_code, answer.results_by_transaction) == (DENIED, [])


def test_sync_without_protocol_is_left_to_the_handler() -> None:
    assert guarded(sync_group.SyncGroupRequest("billing"), 5, answer="handled") == "handled"


@pytest.mark.parametrize("version", [4, 5])
def test_sync_without_right_is_rejected(version: int) -> None:
    request = sync_group.SyncGroupRequest("billing", protocol_type="consumer", protocol_name="range")
    with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
        guarded(request, version)


@pytest.mark.parametrize(
    ("topic", "answer"), [("missing", "handled"), ("orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
)
def test_deletion_without_right_says_what_the_client_may_describe(topic: str, answer: object) -> None:
    request = delete_topics.DeleteTopicsRequest(topic_names=[topic])
    found = guarded(request, 5, (AclOperation.DESCRIBE, ResourceType.TOPIC), answer="handled")
    assert (found if found == "handled" else found.responses[0].error_code) == answer


@pytest.mark.parametrize("name", ["__odradek_audit", None], ids=["name", "id"])
def test_right_to_delete_all_topics_does_not_include_the_audit_topic(name: str | None) -> None:
    """Whatever ACLs allow on it, as everywhere else: who deletes it deletes the record of what was done."""
    acl = AclBinding(ResourceType.CLUSTER, CLUSTER_NAME, "User:alice", AclOperation.DELETE)
    asked = delete_topics.DeleteTopicsRequestState(name, ZERO_UUID if name else AUDIT_ID)

    def answer(*super_users: str) -> Any:
        image = ClusterImage().with_topics([Topic("__odradek_audit", AUDIT_ID, ())])
        authorizer = Authorizer(Settings(frozenset(super_users)))
        authorizer.update(grouped([acl, acl._replace(resource_type=ResourceType.TOPIC, resource_name="*")]))
        context: Any = SimpleNamespace(version=6, services=SimpleNamespace(image=lambda: image))
        access = RealAccess(authorizer, "User:alice", "10.0.0.1")
        request = delete_topics.DeleteTopicsRequest([asked])
        return GUARDS[ApiKey.DELETE_TOPICS](request, context, access, lambda _request, _context: "handled")

    assert [each.error_code for each in answer().responses] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert answer("User:alice") == "handled"


def test_transactional_batch_without_transactional_id_is_rejected_as_such() -> None:
    fields = BatchFields(producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    records = memoryview(encode_batch([(0, None, b"v", ())], fields))
    with pytest.raises(KafkaError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        guarded(ProduceRequest(None, 1, 1000, [("orders", [(0, records)])]), 9)


def test_group_with_hidden_topics_is_answered_without_its_epochs() -> None:
    topic = consumer_group_describe.ConsumerGroupDescribeResponseTopicPartitions(topic_name="secrets")
    assignment = consumer_group_describe.ConsumerGroupDescribeResponseAssignment([topic])
    member = consumer_group_describe.ConsumerGroupDescribeResponseMember(
        "m", assignment=assignment, target_assignment=assignment
    )
    group = consumer_group_describe.ConsumerGroupDescribeResponseGroup(
        0, None, "billing", "Stable", 5, 5, "uniform", [member], 3400
    )
    request = consumer_group_describe.ConsumerGroupDescribeRequest(["billing"], True)
    described = consumer_group_describe.ConsumerGroupDescribeResponse(groups=[group])
    found = guarded(request, 1, (AclOperation.DESCRIBE, ResourceType.GROUP), answer=described).groups[0]
    assert found == consumer_group_describe.ConsumerGroupDescribeResponseGroup(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, found.error_message, "billing"
    )


@pytest.mark.parametrize(
    ("principal", "code"),
    [
        (ANONYMOUS, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
        (Principal("User", "bob"), ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    ],
)
def test_denied_token_names_owner_and_requester(principal: Principal, code: ErrorCode) -> None:
    session = SimpleNamespace(principal=principal, is_broker=False)
    services = SimpleNamespace(authorization=object(), tokens=None)
    for version in (1, 2, 3):
        context: Any = SimpleNamespace(session=session, access=Access(), services=services, version=version)
        answer = asyncio.run(create_token(CreateDelegationTokenRequest("User", "zoe", [], -1), context))
        assert (answer.error_code, answer.principal_name) == (code, "zoe")
        assert answer.token_requester_principal_name == (principal.name if version == 3 else "")
        assert (answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (-1, -1, -1)
        answer.encode(bytearray(), version)


def test_configs_of_each_created_topic_are_hidden() -> None:
    """CREATE does not include DESCRIBE_CONFIGS. An error comes without configurations."""
    response = create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreateTopicsResponseTopic("exists", error_code=ErrorCode.TOPIC_ALREADY_EXISTS),
            *(
                create_topics.CreateTopicsResponseTopic(
                    name, num_partitions=3, replication_factor=2, configs=[create_topics.CreateTopicsResponseConfig()]
                )
                for name in ("orders", "payments")
            ),
        ]
    )
    request = create_topics.CreateTopicsRequest()
    answer = guarded(request, 7, (AclOperation.CREATE, ResourceType.CLUSTER), answer=response)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [
        (each.topic_config_error_code, each.num_partitions, each.replication_factor, each.configs)
        for each in answer.topics
    ] == [(0, -1, -1, []), (code, -1, -1, []), (code, -1, -1, [])]


def test_offsets_of_hidden_topics_are_left_out_where_all_are_asked_for() -> None:
    def answered(group_id: str) -> offset_fetch.OffsetFetchResponseGroup:
        return offset_fetch.OffsetFetchResponseGroup(
            group_id, topics=[offset_fetch.OffsetFetchResponseGroupTopic("orders", partitions=[])]
        )

    request = offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup("all", topics=None)])
    response = offset_fetch.OffsetFetchResponse(groups=[answered("all")])
    group_only = (AclOperation.DESCRIBE, ResourceType.GROUP)
    assert [each.topics for each in guarded(request, 8, group_only, answer=response).groups] == [[]]
    response = offset_fetch.OffsetFetchResponse(groups=[answered("all")])
    answer = guarded(request, 8, group_only, (AclOperation.DESCRIBE, ResourceType.TOPIC), answer=response)
    assert [topic.name for each in answer.groups for topic in each.topics] == ["orders"]


@pytest.mark.parametrize(("sees_cluster", "names"), [(False, ["mine"]), (True, ["mine", "other"])])
def test_groups_that_the_client_may_not_describe_are_not_listed(sees_cluster: bool, names: list[str]) -> None:
    access: Any = SimpleNamespace(
        allows_cluster=lambda _operation, *, quiet: sees_cluster,
        allows=lambda _operation, _kind, name, *, quiet: name == "mine",
    )
    answer = SimpleNamespace(groups=[SimpleNamespace(group_id=name) for name in ("mine", "other")])
    visible_groups(None, answer, SimpleNamespace(), access)  # type: ignore[arg-type]
    assert [each.group_id for each in answer.groups] == names
