"""Numbers in the records and answers of groups.

A number of the protocol or of a stored format is not ours to choose: it is compared with Apache Kafka's here.
"""

from __future__ import annotations

from odradek.groups.classic.records import CLASSIC_RECORD_TYPES
from odradek.groups.consumer.group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    NO_SUBSCRIPTION,
    NOT_JOINED,
    STATIC_LEAVING_EPOCH,
)
from odradek.groups.consumer.records import CONSUMER_RECORD_TYPES, MemberState
from odradek.groups.offsets.committed import NO_OFFSET, NO_PRODUCER_ID
from odradek.groups.offsets.records import OFFSET_RECORD_TYPES
from odradek.groups.settings import GroupSettings


def test_epochs_of_members_are_those_of_heartbeats() -> None:
    assert (JOINING_EPOCH, LEAVING_EPOCH, STATIC_LEAVING_EPOCH) == (0, -1, -2)


def test_member_that_has_not_joined_has_no_assignment() -> None:
    assert NOT_JOINED[:3] == (0, -1, MemberState.STABLE)
    assert (NO_SUBSCRIPTION.rebalance_timeout_ms, NO_SUBSCRIPTION.topics) == (-1, ())


def test_states_of_members_have_their_numbers() -> None:
    assert {each.name: int(each) for each in MemberState} == {
        "STABLE": 1, "UNREVOKED_PARTITIONS": 2, "UNRELEASED_PARTITIONS": 3, "UNKNOWN": 127,
    }  # fmt: skip


def test_record_types_have_the_key_versions_of_the_offsets_topic() -> None:
    assert [each.number for each in CLASSIC_RECORD_TYPES] == [2]
    assert {each.number for each in OFFSET_RECORD_TYPES} == {0, 1}
    assert {each.number for each in CONSUMER_RECORD_TYPES} == {3, 4, 5, 6, 7, 8, 16}


def test_values_that_stand_for_none_are_minus_one() -> None:
    assert (NO_OFFSET, NO_PRODUCER_ID) == (-1, -1)


def test_settings_have_the_defaults_of_kafka() -> None:
    assert GroupSettings() == GroupSettings(
        min_session_timeout_ms=6_000,
        max_session_timeout_ms=1_800_000,
        initial_rebalance_delay_ms=3_000,
        max_size=2_147_483_647,
        new_member_join_timeout_ms=300_000,
        offset_metadata_max_bytes=4_096,
        offsets_retention_ms=604_800_000,
        offsets_retention_check_interval_ms=600_000,
        offset_commit_timeout_ms=5_000,
        consumer_session_timeout_ms=45_000,
        consumer_heartbeat_interval_ms=5_000,
        consumer_assignment_interval_ms=1_000,
        consumer_max_size=2_147_483_647,
        consumer_assignors=("uniform", "range"),
        consumer_migration_policy="bidirectional",
        unsettled_heartbeat_interval_ms=500,
        new_partitions_from_start=True,
    )
