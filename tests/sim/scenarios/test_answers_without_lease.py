"""Every API that acts as a leader or coordinator answers a retriable error while the broker's lease is gone.

A new API fails `test_each_api_is_in_one_table` until it is in the table of those, or among those that need no lease.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from odradek.api.requests.declarations import DECLARATIONS
from odradek.client.admin import Admin
from odradek.replication.leadership import Leadership
from odradek.testing.simulation import Simulation, simulate
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from tests.sim.scenarios.conversation import Conversation

_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_COORDINATOR: Final = ErrorCode.NOT_COORDINATOR
_AVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Case(NamedTuple):
    """A request that a broker with its lease does not answer with the error."""

    request: str
    error: ErrorCode


GROUP: Final = "group_id: 'g', generation_id: 1, member_id: 'm'"
PRODUCER: Final = "transactional_id: 'x', producer_id: 0, producer_epoch: 0"
OFFSETS: Final = (
    "topics: [{name: 't', partitions: [{partition_index: 0, committed_offset: 1, committed_metadata: ''}]}]"
)

ACTS: Final[dict[ApiKey, tuple[Case, ...]]] = {
    ApiKey.PRODUCE: tuple(
        Case(
            f"Produce 12 {{acks: {acks}, timeout_ms: 1000, topic_data: "
            "[{name: 't', partition_data: [{index: 0, records: records(b'a')}]}]}",
            _LEADER,
        )
        for acks in (-1, 1)
    ),
    ApiKey.FETCH: (
        Case(
            "Fetch 12 {max_wait_ms: 0, min_bytes: 0, topics: "
            "[{topic: 't', partitions: [{partition: 0, fetch_offset: 0, partition_max_bytes: 1000}]}]}",
            _LEADER,
        ),
    ),
    ApiKey.LIST_OFFSETS: tuple(
        Case(
            f"ListOffsets {{replica_id: -1, topics: [{{name: 't', partitions: "
            f"[{{partition_index: 0, timestamp: {timestamp}}}]}}]}}",
            _LEADER,
        )
        for timestamp in (-1, -2, -3, 0)
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Case("OffsetForLeaderEpoch 4 {topics: [{topic: 't', partitions: [{partition: 0, leader_epoch: 0}]}]}", _LEADER),
    ),
    ApiKey.DELETE_RECORDS: (
        Case("DeleteRecords {topics: [{name: 't', partitions: [{partition_index: 0, offset: 1}]}]}", _LEADER),
    ),
    ApiKey.DESCRIBE_PRODUCERS: (Case("DescribeProducers {topics: [{name: 't', partition_indexes: [0]}]}", _LEADER),),
    ApiKey.METADATA: (Case("Metadata 12 {topics: [{name: 't'}]}", ErrorCode.LEADER_NOT_AVAILABLE),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        Case("DescribeTopicPartitions {topics: [{name: 't'}]}", ErrorCode.LEADER_NOT_AVAILABLE),
    ),
    ApiKey.FIND_COORDINATOR: tuple(
        Case(f"FindCoordinator {{coordinator_keys: ['{key}'], key_type: {kind}}}", _AVAILABLE)
        for kind, key in enumerate("gx")
    ),
    ApiKey.OFFSET_COMMIT: (Case(f"OffsetCommit 9 {{group_id: 'g', member_id: '', {OFFSETS}}}", _COORDINATOR),),
    ApiKey.OFFSET_FETCH: (
        Case("OffsetFetch 7 {group_id: 'g', topics: None}", _COORDINATOR),
        Case("OffsetFetch 8 {groups: [{group_id: 'g', topics: None}]}", _COORDINATOR),
    ),
    ApiKey.JOIN_GROUP: (
        Case(
            "JoinGroup 9 {group_id: 'g', session_timeout_ms: 10000, rebalance_timeout_ms: 10000, member_id: '', "
            "protocol_type: 'consumer', protocols: [{name: 'range', metadata: b'm'}]}",
            _COORDINATOR,
        ),
    ),
    ApiKey.SYNC_GROUP: (
        Case(f"SyncGroup 5 {{{GROUP}, protocol_type: 'consumer', protocol_name: 'r', assignments: []}}", _COORDINATOR),
    ),
    ApiKey.HEARTBEAT: (Case(f"Heartbeat 4 {{{GROUP}}}", _COORDINATOR),),
    ApiKey.LEAVE_GROUP: (Case("LeaveGroup 5 {group_id: 'g', members: [{member_id: 'm'}]}", _COORDINATOR),),
    ApiKey.DESCRIBE_GROUPS: (Case("DescribeGroups 6 {groups: ['g']}", _COORDINATOR),),
    ApiKey.DELETE_GROUPS: (Case("DeleteGroups 2 {groups_names: ['g']}", _COORDINATOR),),
    ApiKey.OFFSET_DELETE: (
        Case("OffsetDelete {group_id: 'g', topics: [{name: 't', partitions: [{partition_index: 0}]}]}", _COORDINATOR),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        Case(
            "ConsumerGroupHeartbeat 1 {group_id: 'h', member_id: 'm', member_epoch: 0, rebalance_timeout_ms: 10000, "
            "subscribed_topic_names: ['t'], topic_partitions: []}",
            _COORDINATOR,
        ),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (Case("ConsumerGroupDescribe 1 {group_ids: ['h']}", _COORDINATOR),),
    ApiKey.TXN_OFFSET_COMMIT: (Case(f"TxnOffsetCommit 4 {{{PRODUCER}, group_id: 'g', {OFFSETS}}}", _AVAILABLE),),
    ApiKey.INIT_PRODUCER_ID: (
        Case("InitProducerId 5 {transactional_id: 'x', transaction_timeout_ms: 60000}", _COORDINATOR),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        Case(
            "AddPartitionsToTxn 3 {v3_and_below_transactional_id: 'x', v3_and_below_producer_id: 0, "
            "v3_and_below_producer_epoch: 0, v3_and_below_topics: [{name: 't', partitions: [0]}]}",
            _COORDINATOR,
        ),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (Case(f"AddOffsetsToTxn 4 {{{PRODUCER}, group_id: 'g'}}", _COORDINATOR),),
    ApiKey.END_TXN: (Case(f"EndTxn 4 {{{PRODUCER}, committed: True}}", _COORDINATOR),),
    ApiKey.DESCRIBE_TRANSACTIONS: (Case("DescribeTransactions {transactional_ids: ['x']}", _COORDINATOR),),
    ApiKey.LIST_GROUPS: (Case("ListGroups 5 {}", _AVAILABLE),),
    ApiKey.LIST_TRANSACTIONS: (Case("ListTransactions 2 {}", _AVAILABLE),),
}
"""What a broker does as the leader of a partition, or as a coordinator."""

NEEDS_NONE: Final = {
    "it is decided by the controller, which the metadata store or its quorum confirms": {
        *(each.key for each in DECLARATIONS.values() if each.is_forwarded or each.is_decided_by_quorum),
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ENVELOPE,
        ApiKey.LEADERSHIP_LEASE,
    },
    "the controller or another leader notifies this broker": {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.LEADERSHIP_PROMISE,
    },
    "its answer waits until every in-sync replica has the marker, which a deposed leader does not see": {
        ApiKey.WRITE_TXN_MARKERS
    },
    "it concerns the connection": {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS},
    "it describes or changes this process or its disks": {
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    },
    "it describes the cluster's metadata, without leaders": {
        ApiKey.DESCRIBE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.LIST_CONFIG_RESOURCES,
    },
}
CASES: Final = [(key, case) for key, cases in ACTS.items() for case in cases]


async def prepared(sim: Simulation, admin: Admin) -> Conversation:
    """A topic with a record, a group with an offset, and a transactional id."""
    talk = Conversation(sim, admin)
    await talk.play("> CreateTopics 7 {topics: [{name: 't', num_partitions: 1, replication_factor: 1}]}\n> 2 s pass")
    for kind, key in enumerate("gx"):
        await talk.play(f"> FindCoordinator {{coordinator_keys: ['{key}'], key_type: {kind}}}")
    await talk.play("> 3 s pass")
    for act in (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT, ApiKey.INIT_PRODUCER_ID):
        await talk.play(f"> {ACTS[act][0].request}")
    return talk


def answered(request: str, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The answers with the lease, and without it."""

    async def scenario(sim: Simulation) -> tuple[str, str]:
        async with Admin(bootstrap_servers=sim.bootstrap_servers, client_id="c") as admin:
            talk = await prepared(sim, admin)
            before = await talk.play(f"> {request}")
            with monkeypatch.context() as patched:
                patched.setattr(Leadership, "may_lead", lambda _leadership, _partition: False)
                # The partitions have one replica each, which would lead without a lease.
                patched.setattr(Leadership, "is_lease_needed", lambda _leadership, _image: True)
                return before, await talk.play(f"> {request}")

    found: tuple[str, str] = simulate(scenario, 7).result
    return found


def test_each_api_is_in_one_table() -> None:
    tables = [ACTS.keys(), *NEEDS_NONE.values()]
    assert sum(map(len, tables)) == len(DECLARATIONS)
    assert set().union(*tables) == {each.key for each in DECLARATIONS.values()}


@pytest.mark.parametrize(("key", "case"), CASES, ids=lambda each: each.name if isinstance(each, ApiKey) else "")
def test_broker_without_its_lease_answers_a_retriable_error(
    key: ApiKey, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, after = answered(case.request, monkeypatch)
    assert case.error.name not in before, "the error says nothing of the lease"
    assert case.error.name in after
    assert KafkaError(case.error).retriable
