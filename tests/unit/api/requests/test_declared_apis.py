"""What is declared of each API beside its rights: who sends it, where it is decided, how large it may be."""

from __future__ import annotations

from odradek.api.requests.declarations import DECLARATIONS, Audience, Declaration, Size
from odradek.wire.apis import ApiKey as K


def those(wanted: str) -> set[int]:
    """The APIs that have the flag."""
    return {key for key, declared in DECLARATIONS.items() if getattr(declared, wanted)}


def with_size(size: Size) -> set[int]:
    return {key for key, declared in DECLARATIONS.items() if declared.size is size}


BETWEEN_BROKERS = {K.LEADER_AND_ISR, K.STOP_REPLICA, K.UPDATE_METADATA, K.LEADERSHIP_PROMISE}
TO_THE_CONTROLLER = {
    K.CONTROLLED_SHUTDOWN, K.ALTER_PARTITION, K.ENVELOPE, K.ALLOCATE_PRODUCER_IDS, K.LEADERSHIP_LEASE,
}  # fmt: skip
LOGINS = {K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE}


def test_declaration_has_the_limits_of_most_apis_by_default() -> None:
    found = Declaration(K.METADATA)
    flags = found.is_forwarded, found.is_decided_by_quorum, found.is_overtaking, found.is_throttled, found.names_topics
    assert flags == (False, False, False, True, False)
    assert (found.is_for_sasl, found.is_for_telemetry) == (False, False)
    assert (found.audience, found.size) == (Audience.CLIENTS, Size.CONTROL)


def test_only_brokers_send_what_is_between_brokers() -> None:
    found = {audience: {k for k, d in DECLARATIONS.items() if d.audience is audience} for audience in Audience}
    assert found[Audience.BROKERS] - {K.WRITE_TXN_MARKERS} == BETWEEN_BROKERS
    assert found[Audience.CONTROLLER] == TO_THE_CONTROLLER


def test_quotas_delay_clients_and_no_broker_or_login() -> None:
    unthrottled = set(DECLARATIONS) - those("is_throttled")
    assert unthrottled >= BETWEEN_BROKERS | TO_THE_CONTROLLER | LOGINS
    assert not unthrottled & {K.PRODUCE, K.FETCH, K.METADATA, K.CREATE_TOPICS, K.API_VERSIONS}


def test_requests_of_records_and_commits_overtake_waiting_answers() -> None:
    assert those("is_overtaking") == {K.PRODUCE, K.FETCH, K.OFFSET_COMMIT}


def test_apis_are_listed_where_they_are_of_use() -> None:
    assert those("is_for_sasl") == LOGINS
    assert those("is_for_telemetry") == {K.GET_TELEMETRY_SUBSCRIPTIONS, K.PUSH_TELEMETRY}


def test_requests_before_a_login_are_small_and_those_of_records_large() -> None:
    assert with_size(Size.SMALL) == {*LOGINS, K.API_VERSIONS}
    assert with_size(Size.LARGE) == {K.PRODUCE}


def test_controller_decides_changes_of_the_cluster() -> None:
    assert those("is_forwarded") == {
        K.CREATE_TOPICS, K.DELETE_TOPICS, K.CREATE_PARTITIONS, K.ALTER_CONFIGS, K.INCREMENTAL_ALTER_CONFIGS,
        K.ELECT_LEADERS, K.ALTER_PARTITION_REASSIGNMENTS, K.ALTER_CLIENT_QUOTAS, K.ALTER_USER_SCRAM_CREDENTIALS,
        K.UPDATE_FEATURES, K.UNREGISTER_BROKER,
    }  # fmt: skip


def test_quorum_decides_what_any_broker_decides_without_one() -> None:
    assert those("is_decided_by_quorum") == {
        K.CREATE_ACLS, K.DELETE_ACLS, K.CREATE_DELEGATION_TOKEN, K.RENEW_DELEGATION_TOKEN, K.EXPIRE_DELEGATION_TOKEN,
        K.LIST_PARTITION_REASSIGNMENTS, K.DESCRIBE_QUORUM, K.ADD_RAFT_VOTER, K.REMOVE_RAFT_VOTER,
    }  # fmt: skip


def test_requests_that_grow_with_topics_are_declared_so() -> None:
    few = set(DECLARATIONS) - those("names_topics")
    groups = {K.JOIN_GROUP, K.HEARTBEAT, K.LEAVE_GROUP, K.SYNC_GROUP, K.DESCRIBE_GROUPS, K.LIST_GROUPS, K.DELETE_GROUPS}
    transactions = {K.END_TXN, K.ADD_OFFSETS_TO_TXN, K.DESCRIBE_TRANSACTIONS, K.LIST_TRANSACTIONS, K.INIT_PRODUCER_ID}
    assert few >= groups | transactions | LOGINS | {K.FIND_COORDINATOR, K.API_VERSIONS}
    assert those("names_topics") >= BETWEEN_BROKERS | TO_THE_CONTROLLER | {
        K.PRODUCE, K.FETCH, K.LIST_OFFSETS, K.METADATA, K.OFFSET_COMMIT, K.OFFSET_FETCH, K.CREATE_TOPICS,
        K.DELETE_TOPICS, K.DELETE_RECORDS, K.OFFSET_FOR_LEADER_EPOCH, K.ADD_PARTITIONS_TO_TXN, K.WRITE_TXN_MARKERS,
        K.TXN_OFFSET_COMMIT, K.DESCRIBE_CONFIGS, K.ALTER_CONFIGS, K.ALTER_REPLICA_LOG_DIRS, K.DESCRIBE_LOG_DIRS,
        K.CREATE_PARTITIONS, K.ELECT_LEADERS, K.INCREMENTAL_ALTER_CONFIGS, K.ALTER_PARTITION_REASSIGNMENTS,
        K.LIST_PARTITION_REASSIGNMENTS, K.OFFSET_DELETE, K.DESCRIBE_PRODUCERS, K.CONSUMER_GROUP_HEARTBEAT,
        K.DESCRIBE_TOPIC_PARTITIONS,
    }  # fmt: skip
