"""Numbers in requests, and the versions from which an answer differs.

A number of the protocol or of a stored format is not ours to choose: it is compared with Apache Kafka's here.
"""

from __future__ import annotations

import tomllib

import pytest

from odradek.api import api_00_produce as produce
from odradek.api import api_01_fetch as fetch
from odradek.api import api_02_list_offsets as list_offsets
from odradek.api import api_03_metadata as metadata
from odradek.api import api_08_offset_commit as offset_commit
from odradek.api import api_09_offset_fetch as offset_fetch
from odradek.api import api_10_find_coordinator as find_coordinator
from odradek.api import api_13_leave_group as leave_group
from odradek.api import api_14_sync_group as sync_group
from odradek.api import api_15_describe_groups as describe_groups
from odradek.api import api_19_create_topics as create_topics
from odradek.api import api_20_delete_topics as delete_topics
from odradek.api import api_21_delete_records as delete_records
from odradek.api import api_22_init_producer_id as init_producer_id
from odradek.api import api_24_add_partitions_to_txn as add_partitions
from odradek.api import api_25_add_offsets_to_txn as add_offsets
from odradek.api import api_26_end_txn as end_txn
from odradek.api import api_37_create_partitions as create_partitions
from odradek.api import api_38_create_delegation_token as create_token
from odradek.api import api_60_describe_cluster as describe_cluster
from odradek.api import api_69_consumer_group_describe as describe_consumer_group
from odradek.api.authorization import group_guards, topic_guards, transaction_guards
from odradek.api.data import described_topics, encoded_topics, produced_records
from odradek.wire.acls import AclOperation as Op
from odradek.wire.definitions import SCHEMA_DIR, parse_versions


def test_offsets_that_stand_for_a_place_have_the_numbers_of_list_offsets() -> None:
    names = ("LATEST", "EARLIEST", "MAX_TIMESTAMP", "EARLIEST_LOCAL", "LATEST_TIERED", "EARLIEST_PENDING_UPLOAD")
    assert [getattr(list_offsets, name) for name in names] == [-1, -2, -3, -4, -5, -6]
    assert (list_offsets.CONSUMER, list_offsets.DEBUGGING_REPLICA) == (-1, -2)
    since = {-3: 7, -4: 8, -5: 9, -6: 11}
    assert since == list_offsets._SINCE, "KIP-734, KIP-405, KIP-1005, KIP-1023"


def test_other_values_of_requests_have_the_numbers_of_kafka() -> None:
    assert produce._VALID_ACKS == (-1, 0, 1)
    assert delete_records.NO_LOW_WATERMARK == -1
    assert (find_coordinator.GROUP, find_coordinator.TRANSACTION) == (0, 1)
    assert (describe_cluster.BROKERS, describe_cluster.CONTROLLERS) == (1, 2)
    assert (describe_consumer_group._CLASSIC_MEMBER, describe_consumer_group._CONSUMER_MEMBER) == (0, 1)
    assert described_topics.OMITTED == -2_147_483_648
    assert (produced_records.FIRST_WITH_ZSTD, produced_records._ZSTD) == (7, 4)
    assert group_guards._SHARE == 2


def operations(bits: int) -> set[Op]:
    return {Op(code) for code in range(bits.bit_length()) if bits >> code & 1}


def test_authorized_operations_of_a_resource_are_those_that_it_supports() -> None:
    """As `AclEntry.supportedOperations` of Apache Kafka."""
    assert operations(metadata.CLUSTER_OPERATIONS) == {
        Op.CREATE, Op.CLUSTER_ACTION, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS, Op.IDEMPOTENT_WRITE, Op.ALTER,
        Op.DESCRIBE,
    }  # fmt: skip
    assert operations(metadata.TOPIC_OPERATIONS) == {
        Op.READ, Op.WRITE, Op.CREATE, Op.DESCRIBE, Op.DELETE, Op.ALTER, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
    }  # fmt: skip
    assert operations(describe_groups.ALL_GROUP_OPERATIONS) == {
        Op.READ, Op.DESCRIBE, Op.DELETE, Op.DESCRIBE_CONFIGS, Op.ALTER_CONFIGS,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("constant", "schema", "field"),
    [
        (fetch._ERROR_OF_THE_WHOLE_FROM, "fetch/FetchResponse", "ErrorCode"),
        (fetch._FROM_ANY_REPLICA, "fetch/FetchRequest", "RackId"),
        (offset_fetch._SEVERAL_GROUPS, "offset_fetch/OffsetFetchRequest", "Groups"),
        (group_guards._SEVERAL_GROUPS_FROM, "offset_fetch/OffsetFetchRequest", "Groups"),
        (leave_group._SEVERAL_MEMBERS, "leave_group/LeaveGroupRequest", "Members"),
        (sync_group._WITH_PROTOCOL, "sync_group/SyncGroupRequest", "ProtocolType"),
        (group_guards._SEVERAL_KEYS_FROM, "find_coordinator/FindCoordinatorRequest", "CoordinatorKeys"),
        (add_partitions._BATCHED_FROM, "add_partitions_to_txn/AddPartitionsToTxnRequest", "Transactions"),
        (transaction_guards._BATCHED_FROM, "add_partitions_to_txn/AddPartitionsToTxnRequest", "Transactions"),
        (topic_guards._BY_ID_FROM, "delete_topics/DeleteTopicsRequest", "Topics"),
        (topic_guards._CONFIGS_FROM, "create_topics/CreateTopicsResponse", "Configs"),
        (create_token._REQUESTER_FROM, "create_delegation_token/CreateDelegationTokenRequest", "OwnerPrincipalName"),
    ],
)
def test_answer_differs_from_the_version_that_has_the_field(constant: int, schema: str, field: str) -> None:
    file, message = schema.split("/")
    table = tomllib.loads((SCHEMA_DIR / f"{file}.toml").read_text())[message]
    rows = [row for fields in (table["fields"], *table.get("structs", {}).values()) for row in fields]
    (versions,) = {row["versions"] for row in rows if row["name"] == field and "versions" in row}
    assert constant == parse_versions(versions).low


def test_answer_differs_from_the_version_in_which_kafka_changed_it() -> None:
    throttled = [each._THROTTLING_FROM for each in (create_topics, delete_topics, create_partitions)]
    assert throttled == [6, 5, 3], "KIP-599"
    fenced = [each._FENCED_FROM for each in (init_producer_id, add_partitions, add_offsets, end_txn)]
    assert fenced == [4, 2, 2, 2], "KIP-588"
    assert end_txn._BUMPING_FROM == 5, "KIP-890"
    assert offset_commit._CONSUMER_GROUPS_FROM == 9, "KIP-848"
    assert (offset_fetch._BY_ID, group_guards._TOPIC_IDS_FROM) == (10, 10), "KIP-848"
    assert (encoded_topics._OFFLINE_FROM, encoded_topics._EPOCH_FROM, encoded_topics._FLEXIBLE_FROM) == (5, 7, 9)
    assert described_topics._BY_ID == 12
    assert (group_guards._ERROR_OF_THE_GROUP_FROM, group_guards._PROTOCOL_FROM, group_guards._NO_OFFSET) == (2, 5, -1)
