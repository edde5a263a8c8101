"""Requests of clients with few rights: those of `acl_probes`, and those that name topic ids, users' tokens and more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from odradek.records.builder import BatchFields, encode_batch
from odradek.wire.messages import (
    add_partitions_to_txn,
    add_raft_voter,
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_delegation_token,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    expire_delegation_token,
    fetch,
    find_coordinator,
    list_config_resources,
    list_groups,
    list_transactions,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    remove_raft_voter,
    renew_delegation_token,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from tests.integration.acl_probes import GROUP, TOPIC, TRANSACTION, probes
from tests.interop.acl_servers import ADMIN, AUDIT, MEMBERS, OPEN_TRANSACTION, SPARE, TOKEN_OWNER

UNKNOWN_ID = bytes([7]) * 16
MADE = "made"


class Probe(NamedTuple):
    """A request in a version."""

    request: Any
    version: int

    @property
    def lists_all(self) -> bool:
        """Whether the answer has every topic that exists."""
        listing = metadata.MetadataRequest | describe_topic_partitions.DescribeTopicPartitionsRequest
        return isinstance(self.request, listing) and not self.request.topics

    @property
    def changes_voters(self) -> bool:
        """Whether the answer depends on where the metadata is, for a client that has the right."""
        return isinstance(self.request, add_raft_voter.AddRaftVoterRequest | remove_raft_voter.RemoveRaftVoterRequest)

    @property
    def creates(self) -> bool:
        """Whether a topic may be created by the way, of which each broker reports another stage."""
        request = self.request
        return (
            isinstance(request, metadata.MetadataRequest) and bool(request.topics) and request.allow_auto_topic_creation
        )

    @property
    def is_for_brokers(self) -> bool:
        """Whether our broker serves it only to brokers, which CLUSTER_ACTION makes no client."""
        return isinstance(self.request, add_partitions_to_txn.AddPartitionsToTxnRequest) and self.version > 3

    @property
    def name(self) -> str:
        """Of the request, for messages."""
        return f"{type(self.request).__name__} {self.version}"


def all_probes(ids: Mapping[str, bytes], tokens: Mapping[str, bytes]) -> Iterator[Probe]:
    """Every request, with the ids of topics and the HMACs of tokens of the server that gets it."""
    for request, version in probes():
        yield Probe(request, version)
    yield from _of_topics(ids)
    yield from _of_data(ids)
    yield from _of_groups(ids)
    yield from _of_transactions()
    yield from _of_cluster()
    yield from _of_tokens(tokens)


def _of_topics(ids: Mapping[str, bytes]) -> Iterator[Probe]:
    by_id = [metadata.MetadataRequestTopic(each, None) for each in (ids[TOPIC], ids[AUDIT], UNKNOWN_ID)]
    for with_operations in (False, True):
        yield Probe(metadata.MetadataRequest(by_id, False, include_topic_authorized_operations=with_operations), 13)
    yield Probe(metadata.MetadataRequest(None, False, include_topic_authorized_operations=True), 13)
    by_name = [metadata.MetadataRequestTopic(name=name) for name in (AUDIT, "__consumer_offsets", "bad name")]
    yield Probe(metadata.MetadataRequest(by_name, True), 4)
    asked = describe_topic_partitions.DescribeTopicPartitionsRequestTopic
    yield Probe(describe_topic_partitions.DescribeTopicPartitionsRequest([asked(AUDIT), asked(TOPIC)]), 0)
    made = create_topics.CreateTopicsRequestTopic(MADE, 1, 1)
    yield Probe(create_topics.CreateTopicsRequest([made], 20_000), 7)
    yield Probe(delete_topics.DeleteTopicsRequest(topic_names=[MADE], timeout_ms=20_000), 5)
    states = [delete_topics.DeleteTopicsRequestState(None, each) for each in (ids[SPARE], UNKNOWN_ID)]
    yield Probe(delete_topics.DeleteTopicsRequest(states, timeout_ms=20_000), 6)
    yield Probe(describe_producers.DescribeProducersRequest(
        [describe_producers.DescribeProducersRequestTopic(name, [0]) for name in (TOPIC, AUDIT)]
    ), 0)  # fmt: skip


def _of_data(ids: Mapping[str, bytes]) -> Iterator[Probe]:
    plain = bytes(encode_batch([(0, None, b"v", ())], BatchFields()))
    idempotent = bytes(
        encode_batch([(0, None, b"v", ())], BatchFields(producer_id=900, producer_epoch=0, base_sequence=0))
    )
    for version, topics in (
        (13, [produce.ProduceRequestTopic(topic_id=each) for each in (ids[TOPIC], ids[AUDIT], UNKNOWN_ID)]),
        (11, [produce.ProduceRequestTopic(name) for name in (TOPIC, AUDIT, "__consumer_offsets")]),
    ):
        for each in topics:
            each.partition_data = [produce.ProduceRequestPartition(0, plain)]
        yield Probe(produce.ProduceRequest(None, 1, 1000, topics), version)
    transactional = bytes(
        encode_batch(
            [(0, None, b"v", ())],
            BatchFields(is_transactional=True, producer_id=901, producer_epoch=0, base_sequence=0),
        )
    )
    for transaction, batch in ((None, idempotent), (None, transactional), ("other", transactional)):
        topic = produce.ProduceRequestTopic(TOPIC, partition_data=[produce.ProduceRequestPartition(0, batch)])
        yield Probe(produce.ProduceRequest(transaction, -1, 1000, [topic]), 9)
    parts = [fetch.FetchRequestPartition(0, partition_max_bytes=100)]
    by_id = [fetch.FetchRequestTopic(topic_id=each, partitions=parts) for each in (ids[TOPIC], ids[AUDIT], UNKNOWN_ID)]
    yield Probe(fetch.FetchRequest(topics=by_id), 17)
    by_name = [fetch.FetchRequestTopic(AUDIT, partitions=parts)]
    yield Probe(fetch.FetchRequest(topics=by_name), 4)


def _of_groups(ids: Mapping[str, bytes]) -> Iterator[Probe]:
    parts = [offset_commit.OffsetCommitRequestPartition(0, 0)]
    known = (ids[TOPIC], ids[AUDIT], UNKNOWN_ID)
    by_id = [offset_commit.OffsetCommitRequestTopic(topic_id=each, partitions=parts) for each in known]
    yield Probe(offset_commit.OffsetCommitRequest(GROUP, topics=by_id), 10)
    asked: list[Any] = [
        offset_fetch.OffsetFetchRequestGroupTopic(topic_id=each, partition_indexes=[0]) for each in known
    ]
    groups = [offset_fetch.OffsetFetchRequestGroup(name, topics=asked) for name in (GROUP, "other")]
    yield Probe(offset_fetch.OffsetFetchRequest(groups=groups), 10)
    groups = [offset_fetch.OffsetFetchRequestGroup(name, topics=None) for name in (GROUP, MEMBERS)]
    yield Probe(offset_fetch.OffsetFetchRequest(groups=groups), 10)
    named = [offset_fetch.OffsetFetchRequestTopic(name, [0]) for name in (TOPIC, AUDIT)]
    yield Probe(offset_fetch.OffsetFetchRequest(GROUP, named), 1)
    yield Probe(offset_fetch.OffsetFetchRequest(GROUP, None), 7)
    yield Probe(sync_group.SyncGroupRequest(GROUP, 1, "none"), 5)
    yield Probe(list_groups.ListGroupsRequest(types_filter=["consumer"]), 5)
    yield Probe(describe_groups.DescribeGroupsRequest([GROUP, MEMBERS, "other"], True), 6)
    described = consumer_group_describe.ConsumerGroupDescribeRequest
    yield Probe(described([MEMBERS, GROUP], True), 1)
    heartbeat = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest
    for names in ([TOPIC], [TOPIC, AUDIT]):
        yield Probe(heartbeat(MEMBERS, "none", 5, subscribed_topic_names=names), 1)
    yield Probe(heartbeat(GROUP, "none", 5, subscribed_topic_regex="a.*"), 1)


def _of_transactions() -> Iterator[Probe]:
    yield Probe(find_coordinator.FindCoordinatorRequest(OPEN_TRANSACTION, 1), 1)
    yield Probe(find_coordinator.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP, MEMBERS, ""]), 6)
    adding = add_partitions_to_txn
    topics = [adding.AddPartitionsToTxnRequestTopic(name, [0]) for name in (TOPIC, AUDIT, "__consumer_offsets")]
    yield Probe(adding.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTION, v3_and_below_producer_id=9, v3_and_below_topics=topics
    ), 3)  # fmt: skip
    batched = [adding.AddPartitionsToTxnRequestTransaction(TRANSACTION, 9, 0, True, topics[:2])]
    yield Probe(adding.AddPartitionsToTxnRequest(batched), 5)
    parts = [txn_offset_commit.TxnOffsetCommitRequestPartition(0, 0)]
    commits = [txn_offset_commit.TxnOffsetCommitRequestTopic(name, parts) for name in (TOPIC, AUDIT)]
    yield Probe(txn_offset_commit.TxnOffsetCommitRequest(TRANSACTION, GROUP, 9, 0, topics=commits), 5)
    yield Probe(describe_transactions.DescribeTransactionsRequest([OPEN_TRANSACTION, TRANSACTION]), 0)
    yield Probe(list_transactions.ListTransactionsRequest(["Ongoing"]), 1)
    marker = write_txn_markers.WriteTxnMarkersRequestMarker(
        9, 0, False, [write_txn_markers.WriteTxnMarkersRequestTopic("missing", [0])]
    )
    yield Probe(write_txn_markers.WriteTxnMarkersRequest([marker]), 1)


def _of_cluster() -> Iterator[Probe]:
    yield Probe(api_versions.ApiVersionsRequest("probe", "1"), 3)
    for version in (0, 1):
        yield Probe(describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=False), version)
    resources = [
        alter_configs.AlterConfigsRequestResource(kind, name, [])
        for kind, name in ((4, "1"), (32, GROUP), (2, "missing"))
    ]
    yield Probe(alter_configs.AlterConfigsRequest(resources, True), 2)
    moved = alter_replica_log_dirs.AlterReplicaLogDirsRequestTopic(TOPIC, [0])
    yield Probe(alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        [alter_replica_log_dirs.AlterReplicaLogDirsRequestDir("/nowhere", [moved])]
    ), 2)  # fmt: skip
    yield Probe(
        describe_log_dirs.DescribeLogDirsRequest([describe_log_dirs.DescribeLogDirsRequestTopic(TOPIC, [0])]), 1
    )
    yield Probe(update_features.UpdateFeaturesRequest(validate_only=True), 1)
    yield Probe(unregister_broker.UnregisterBrokerRequest(999), 0)
    yield Probe(add_raft_voter.AddRaftVoterRequest("another", 1000, 999, bytes(16), []), 0)
    yield Probe(remove_raft_voter.RemoveRaftVoterRequest("another", 999, bytes(16)), 0)
    yield Probe(list_config_resources.ListConfigResourcesRequest([]), 1)


def _of_tokens(tokens: Mapping[str, bytes]) -> Iterator[Probe]:
    described = describe_delegation_token
    yield Probe(described.DescribeDelegationTokenRequest(None), 3)
    owners = [described.DescribeDelegationTokenRequestOwner("User", ADMIN)]
    yield Probe(described.DescribeDelegationTokenRequest(owners), 3)
    for hmac in (b"unknown", tokens[TOKEN_OWNER]):
        yield Probe(renew_delegation_token.RenewDelegationTokenRequest(hmac, 1000), 2)
        yield Probe(expire_delegation_token.ExpireDelegationTokenRequest(hmac, 1000), 2)
    # The last one: a broker of Apache Kafka describes the new token after a while only.
    yield Probe(create_delegation_token.CreateDelegationTokenRequest("User", TOKEN_OWNER, [], -1), 3)
