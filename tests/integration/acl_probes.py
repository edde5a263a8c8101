"""Requests of a client with few rights, and what of their answers depends on the rights.

Clients differ by their address: the administrator connects from 127.0.0.1, the client from 127.0.0.2. So the same
requests can be sent to a broker without any authentication, Apache Kafka's too.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from typing import Any

from odradek.records.builder import BatchFields, encode_batch
from odradek.wire.acls import AclBinding, AclOperation, AclPermissionType, PatternType, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
)
from tests.integration.conftest import RawClient

ADMINISTRATOR, CLIENT = "127.0.0.1", "127.0.0.2"
TOPIC, GROUP, TRANSACTION = "orders", "billing", "tx"
AUTHORIZATION = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_NAMES = ("name", "topic", "topic_name", "group_id", "transactional_id", "key", "resource_name", "user")
_HIDING = ("topics", "groups", "transaction_states")


class Client(RawClient):
    """A connection from one of the addresses of this machine."""

    def __init__(self, bootstrap: str, source: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), 20, source_address=(source, 0))
        self._ids = itertools.count(1)


def everything_for_the_administrator() -> list[AclBinding]:
    """ACLs on every type of resources, without which `allow.everyone.if.no.acl.found` would decide."""
    return [
        AclBinding(
            kind,
            "kafka-cluster" if kind is ResourceType.CLUSTER else "*",
            "User:ANONYMOUS",
            AclOperation.ALL,
            host=ADMINISTRATOR,
        )
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID)
    ]


def creation(bindings: list[AclBinding]) -> create_acls.CreateAclsRequest:
    """The request that adds ACLs."""
    return create_acls.CreateAclsRequest(
        [
            create_acls.CreateAclsRequestCreation(
                each.resource_type,
                each.resource_name,
                each.pattern_type,
                each.principal,
                each.host,
                each.operation,
                each.permission,
            )
            for each in bindings
        ]
    )


def removal_of_the_clients() -> delete_acls.DeleteAclsRequest:
    """The request that removes the ACLs of the client."""
    return delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsRequestFilter(1, None, 1, None, CLIENT, 1, 1)])


def sets_of_rights() -> Iterator[list[AclBinding]]:
    """ACLs of the client: none, each right alone, and some together."""

    def right(kind: ResourceType, name: str, operation: AclOperation, **others: Any) -> AclBinding:
        return AclBinding(kind, name, "User:ANONYMOUS", operation, host=CLIENT, **others)

    op = AclOperation
    yield []
    for operation in (
        op.READ,
        op.WRITE,
        op.CREATE,
        op.DELETE,
        op.ALTER,
        op.DESCRIBE,
        op.DESCRIBE_CONFIGS,
        op.ALTER_CONFIGS,
    ):
        yield [right(ResourceType.TOPIC, TOPIC, operation)]
    for operation in (op.READ, op.DELETE, op.DESCRIBE, op.DESCRIBE_CONFIGS, op.ALTER_CONFIGS):
        yield [right(ResourceType.GROUP, GROUP, operation)]
    for operation in (
        op.CREATE,
        op.DELETE,
        op.ALTER,
        op.DESCRIBE,
        op.CLUSTER_ACTION,
        op.DESCRIBE_CONFIGS,
        op.ALTER_CONFIGS,
        op.IDEMPOTENT_WRITE,
    ):
        yield [right(ResourceType.CLUSTER, "kafka-cluster", operation)]
    for operation in (op.WRITE, op.DESCRIBE):
        yield [right(ResourceType.TRANSACTIONAL_ID, TRANSACTION, operation)]
    yield [
        right(ResourceType.TOPIC, "or", op.ALL, pattern_type=PatternType.PREFIXED),
        right(ResourceType.GROUP, GROUP, op.ALL),
    ]
    yield [
        right(ResourceType.TOPIC, "*", op.ALL),
        right(ResourceType.TOPIC, TOPIC, op.WRITE, permission=AclPermissionType.DENY),
    ]
    yield [
        right(ResourceType.TOPIC, TOPIC, op.ALL),
        right(ResourceType.GROUP, "*", op.READ),
        right(ResourceType.TRANSACTIONAL_ID, "t", op.ALL, pattern_type=PatternType.PREFIXED),
    ]


def probes() -> Iterator[tuple[Any, int]]:
    """Requests and their versions; where they are allowed, they change nothing that another one needs."""
    topics = [TOPIC, "missing"]
    yield (
        metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(name=n) for n in topics], False, include_topic_authorized_operations=True
        ),
        12,
    )
    yield (
        metadata.MetadataRequest(
            None, False, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
        ),
        10,
    )
    yield metadata.MetadataRequest([metadata.MetadataRequestTopic(name="created")], True), 9
    yield (
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            [describe_topic_partitions.DescribeTopicPartitionsRequestTopic(n) for n in topics]
        ),
        0,
    )
    yield describe_topic_partitions.DescribeTopicPartitionsRequest([]), 0
    yield (
        list_offsets.ListOffsetsRequest(
            -1,
            topics=[
                list_offsets.ListOffsetsRequestTopic(n, [list_offsets.ListOffsetsRequestPartition(0, -1, -1)])
                for n in topics
            ],
        ),
        7,
    )
    yield (
        fetch.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                fetch.FetchRequestTopic(n, partitions=[fetch.FetchRequestPartition(0, partition_max_bytes=100)])
                for n in topics
            ],
        ),
        12,
    )
    batch = bytes(encode_batch([(0, None, b"v", ())], BatchFields()))
    yield (
        produce.ProduceRequest(
            None,
            1,
            1000,
            [
                produce.ProduceRequestTopic(n, partition_data=[produce.ProduceRequestPartition(0, batch)])
                for n in topics
            ],
        ),
        9,
    )
    commit = offset_commit
    yield (
        commit.OffsetCommitRequest(
            GROUP,
            topics=[
                commit.OffsetCommitRequestTopic(n, partitions=[commit.OffsetCommitRequestPartition(0, 0)])
                for n in topics
            ],
        ),
        8,
    )
    for asked in ([offset_fetch.OffsetFetchRequestGroupTopic(n, partition_indexes=[0]) for n in topics], None):
        yield offset_fetch.OffsetFetchRequest(groups=[offset_fetch.OffsetFetchRequestGroup(GROUP, topics=asked)]), 8
    yield offset_fetch.OffsetFetchRequest(GROUP, [offset_fetch.OffsetFetchRequestTopic(n, [0]) for n in topics]), 5
    yield find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP, "other"]), 4
    yield find_coordinator.FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION, "other"]), 4
    yield find_coordinator.FindCoordinatorRequest(GROUP), 2
    yield join_group.JoinGroupRequest(GROUP, 6000, 6000, "none", None, "consumer", []), 5
    yield sync_group.SyncGroupRequest(GROUP, 1, "none"), 3
    yield heartbeat.HeartbeatRequest(GROUP, 1, "none"), 3
    yield leave_group.LeaveGroupRequest(GROUP, members=[leave_group.LeaveGroupRequestMember("none")]), 4
    yield describe_groups.DescribeGroupsRequest([GROUP, "other"], True), 5
    yield list_groups.ListGroupsRequest(), 4
    yield (
        create_topics.CreateTopicsRequest(
            [create_topics.CreateTopicsRequestTopic(n, 1, 1) for n in topics], 5000, True
        ),
        5,
    )
    yield delete_topics.DeleteTopicsRequest(topic_names=["missing", "unknown"], timeout_ms=5000), 5
    yield (
        delete_records.DeleteRecordsRequest(
            [
                delete_records.DeleteRecordsRequestTopic(n, [delete_records.DeleteRecordsRequestPartition(0, 0)])
                for n in topics
            ],
            1000,
        ),
        2,
    )
    yield init_producer_id.InitProducerIdRequest(None, 1000), 4
    yield init_producer_id.InitProducerIdRequest(TRANSACTION, 1000), 4
    epochs = offset_for_leader_epoch
    yield (
        epochs.OffsetForLeaderEpochRequest(
            -1,
            [
                epochs.OffsetForLeaderEpochRequestTopic(n, [epochs.OffsetForLeaderEpochRequestPartition(0, -1, 0)])
                for n in topics
            ],
        ),
        4,
    )
    yield (
        add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTION,
            v3_and_below_producer_id=9,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnRequestTopic(TOPIC, [0])],
        ),
        3,
    )
    yield add_offsets_to_txn.AddOffsetsToTxnRequest(TRANSACTION, 9, 0, GROUP), 3
    yield end_txn.EndTxnRequest(TRANSACTION, 9, 0, True), 3
    yield (
        txn_offset_commit.TxnOffsetCommitRequest(
            TRANSACTION,
            GROUP,
            9,
            0,
            topics=[
                txn_offset_commit.TxnOffsetCommitRequestTopic(
                    TOPIC, [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 0)]
                )
            ],
        ),
        3,
    )
    yield describe_acls.DescribeAclsRequest(2, "none", 3, None, None, 1, 1), 2
    yield create_acls.CreateAclsRequest([create_acls.CreateAclsRequestCreation(4, "wrong", 3, "User:a", "*", 2, 3)]), 2
    yield delete_acls.DeleteAclsRequest([delete_acls.DeleteAclsRequestFilter(2, "none", 3, None, None, 1, 1)]), 2
    yield (
        describe_configs.DescribeConfigsRequest(
            [
                describe_configs.DescribeConfigsRequestResource(k, n, ["retention.ms"])
                for k, n in ((2, TOPIC), (4, "1"), (2, "missing"), (32, GROUP))
            ]
        ),
        4,
    )
    changes = incremental_alter_configs
    yield (
        changes.IncrementalAlterConfigsRequest(
            [
                changes.IncrementalAlterConfigsRequestResource(k, n, [])
                for k, n in ((2, TOPIC), (4, "1"), (8, "1"), (32, GROUP))
            ],
            True,
        ),
        1,
    )
    yield alter_configs.AlterConfigsRequest([alter_configs.AlterConfigsRequestResource(2, TOPIC, [])], True), 1
    yield describe_log_dirs.DescribeLogDirsRequest(None), 4
    yield (
        create_partitions.CreatePartitionsRequest(
            [create_partitions.CreatePartitionsRequestTopic(n, 9) for n in topics], 5000, True
        ),
        2,
    )
    yield delete_groups.DeleteGroupsRequest(["other", GROUP]), 2
    yield elect_leaders.ElectLeadersRequest(0, [elect_leaders.ElectLeadersRequestTopicPartitions(TOPIC, [0])], 5000), 2
    moves = alter_partition_reassignments
    yield (
        moves.AlterPartitionReassignmentsRequest(
            5000,
            topics=[
                moves.AlterPartitionReassignmentsRequestReassignableTopic(
                    "missing", [moves.AlterPartitionReassignmentsRequestReassignablePartition(0, [1])]
                )
            ],
        ),
        0,
    )
    yield list_partition_reassignments.ListPartitionReassignmentsRequest(5000), 0
    yield (
        offset_delete.OffsetDeleteRequest(
            GROUP,
            [
                offset_delete.OffsetDeleteRequestTopic(n, [offset_delete.OffsetDeleteRequestPartition(0)])
                for n in topics
            ],
        ),
        0,
    )
    yield (
        describe_client_quotas.DescribeClientQuotasRequest(
            [describe_client_quotas.DescribeClientQuotasRequestComponent("user", 0, "x")]
        ),
        1,
    )
    yield (
        alter_client_quotas.AlterClientQuotasRequest(
            [
                alter_client_quotas.AlterClientQuotasRequestEntry(
                    [alter_client_quotas.AlterClientQuotasRequestEntity("user", "x")], []
                )
            ],
            True,
        ),
        1,
    )
    yield (
        describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            [describe_user_scram_credentials.DescribeUserScramCredentialsRequestUser("x")]
        ),
        0,
    )
    yield (
        alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            [alter_user_scram_credentials.AlterUserScramCredentialsRequestDeletion("x", 1)]
        ),
        0,
    )
    yield (
        describe_quorum.DescribeQuorumRequest(
            [
                describe_quorum.DescribeQuorumRequestTopic(
                    "__cluster_metadata", [describe_quorum.DescribeQuorumRequestPartition(0)]
                )
            ]
        ),
        1,
    )
    yield describe_cluster.DescribeClusterRequest(True), 0
    yield (
        describe_producers.DescribeProducersRequest(
            [describe_producers.DescribeProducersRequestTopic(n, [0]) for n in topics]
        ),
        0,
    )
    yield describe_transactions.DescribeTransactionsRequest([TRANSACTION, "other"]), 0
    yield list_transactions.ListTransactionsRequest(), 0
    yield consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(GROUP, "none", 5), 0
    yield (
        consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(GROUP, "none", 5, subscribed_topic_names=["missing"]),
        0,
    )
    yield consumer_group_describe.ConsumerGroupDescribeRequest([GROUP, "other"], True), 0
    yield list_config_resources.ListConfigResourcesRequest(), 0


def shape(answer: Any) -> set[tuple[object, ...]]:
    """What depends on the client's rights: authorization errors with what they are of, bit fields, hidden names."""
    found: set[tuple[object, ...]] = set()
    _collect(answer, type(answer).__name__, found)
    return found


def _collect(part: Any, owner: str, found: set[tuple[object, ...]]) -> None:
    kind = type(part).__name__
    label = next((getattr(part, name) for name in _NAMES if isinstance(getattr(part, name, None), str)), owner)
    if kind == "DescribeUserScramCredentialsResponseResult":
        label = ""  # Apache Kafka forgets the name of the user
    for name in part.__slots__:
        value = getattr(part, name)
        if name.endswith("error_code") and value in AUTHORIZATION:
            found.add((kind, label, name, ErrorCode(value).name))
        elif name.endswith("authorized_operations") and label != "created":
            found.add((kind, label, name, value))
        for each in value if isinstance(value, list) else [value]:
            if hasattr(each, "__slots__") and not isinstance(each, int | str | bytes):
                if name in _HIDING and owner == kind:
                    hidden = next((getattr(each, n) for n in _NAMES if isinstance(getattr(each, n, None), str)), None)
                    if hidden in (TOPIC, GROUP, TRANSACTION):
                        found.add((kind, "names", hidden))
                _collect(each, label, found)
