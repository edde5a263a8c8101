"""The limits and delays of the group coordinator, under the names of Kafka's configs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Times in ms unless the name says otherwise; defaults are Kafka's."""

    min_session_timeout_ms: int = 6_000
    """group.min.session.timeout.ms"""
    max_session_timeout_ms: int = 1_800_000
    """group.max.session.timeout.ms"""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms"""
    max_size: int = 2_147_483_647
    """group.max.size"""
    new_member_join_timeout_ms: int = 300_000
    """How long a new member's JoinGroup may wait: it has no session yet. Fixed in Kafka."""
    offset_metadata_max_bytes: int = 4_096
    """offset.metadata.max.bytes; Kafka compares it with the string's length, not with its bytes."""
    offsets_retention_ms: int = 7 * 24 * 3600 * 1000
    """offsets.retention.minutes"""
    offsets_retention_check_interval_ms: int = 600_000
    """offsets.retention.check.interval.ms"""
    offset_commit_timeout_ms: int = 5_000
    """offsets.commit.timeout.ms"""
    consumer_session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms; a group's own is consumer.session.timeout.ms"""
    consumer_heartbeat_interval_ms: int = 5_000
    """group.consumer.heartbeat.interval.ms; a group's own is consumer.heartbeat.interval.ms"""
    consumer_assignment_interval_ms: int = 1_000
    """group.consumer.assignment.interval.ms; a group's own is consumer.assignment.interval.ms"""
    consumer_max_size: int = 2_147_483_647
    """group.consumer.max.size"""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors; the first is the one for members that do not ask for any"""
    consumer_migration_policy: str = "bidirectional"
    """group.consumer.migration.policy: disabled, upgrade, downgrade or bidirectional"""
    unsettled_heartbeat_interval_ms: int = 500
    """odradek.group.unsettled.heartbeat.interval.ms; 0 keeps to the interval above at all times"""
    new_partitions_from_start: bool = True
    """odradek.group.new.partitions.from.start"""
