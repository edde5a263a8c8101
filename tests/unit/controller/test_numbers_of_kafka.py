"""Numbers that the controller shares with Kafka's clients and other brokers.

A number of the protocol or of a stored format is not ours to choose: it is compared with Apache Kafka's here.
"""

from __future__ import annotations

from odradek.controller.client_quotas import Match
from odradek.controller.configs import OperationType, ResourceType
from odradek.controller.elections import ElectionType
from odradek.controller.features import UpgradeType
from odradek.controller.in_sync import UNKNOWN_EPOCH
from odradek.controller.names import MAX_NAME_LENGTH
from odradek.controller.notices import TOPIC_DELETED
from odradek.controller.partition_changes import NEVER_LED
from odradek.controller.producer_ids import MAX_PRODUCER_ID, PRODUCER_IDS_PER_BLOCK
from odradek.controller.topics import DEFAULT, MAX_PARTITIONS_DELETED_AT_ONCE, MAX_PARTITIONS_PER_REQUEST


def test_resources_and_operations_have_the_numbers_of_requests() -> None:
    assert {each.name: int(each) for each in ResourceType} == {
        "UNKNOWN": 0, "TOPIC": 2, "BROKER": 4, "BROKER_LOGGER": 8, "CLIENT_METRICS": 16, "GROUP": 32,
    }  # fmt: skip
    assert [each.name for each in sorted(OperationType)] == ["SET", "DELETE", "APPEND", "SUBTRACT"]
    assert [int(each) for each in sorted(OperationType)] == [0, 1, 2, 3]


def test_kinds_of_matches_elections_and_upgrades_have_their_numbers() -> None:
    assert [(each.name, int(each)) for each in Match] == [("EXACT", 0), ("DEFAULT", 1), ("ANY", 2)]
    assert [(each.name, int(each)) for each in ElectionType] == [("PREFERRED", 0), ("UNCLEAN", 1)]
    assert [int(each) for each in (UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE)] == [1, 2]
    assert int(UpgradeType.UNSAFE_DOWNGRADE) == 3


def test_values_that_stand_for_none_are_those_of_the_requests() -> None:
    assert (DEFAULT, UNKNOWN_EPOCH, NEVER_LED) == (-1, -1, -1)
    assert TOPIC_DELETED == -2, "LeaderAndIsr.EPOCH_DURING_DELETE"


def test_limits_of_topics_and_producer_ids_are_kafkas() -> None:
    assert MAX_NAME_LENGTH == 249, "Topic.MAX_NAME_LENGTH"
    assert MAX_PARTITIONS_PER_REQUEST == 10_000, "ReplicationControlManager.MAX_PARTITIONS_PER_BATCH"
    assert MAX_PARTITIONS_DELETED_AT_ONCE == 500
    assert PRODUCER_IDS_PER_BLOCK == 1000, "ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE"
    assert MAX_PRODUCER_ID == 9_223_372_036_854_775_807
