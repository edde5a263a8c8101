"""A partition's state and its records. Source: Kafka's `PartitionRegistration` (`merge`, `toRecord`)."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from odradek.kraft.errors import CorruptMetadata
from odradek.metadata.image import PartitionState
from odradek.wire.messages.cluster_metadata import PartitionChangeRecord, PartitionRecord

UNCHANGED_LEADER: Final = -2
"""The leader in a PartitionChangeRecord that elects none."""
UNCHANGED_RECOVERY: Final = -1

Item = TypeVar("Item")

Shared = dict[tuple[Any, ...], tuple[Any, ...]]
"""Tuples by their value: equal lists of replicas and directories of many partitions become the same object."""


def partition_of(record: PartitionRecord, shared: Shared) -> PartitionState:
    """The state that a PartitionRecord sets. Raises CorruptMetadata."""
    replicas = tuple(record.replicas)
    isr = tuple(record.isr)
    directories = tuple(record.directories)
    _check_directories(replicas, directories)
    return PartitionState(
        record.leader,
        record.leader_epoch,
        shared.setdefault(replicas, replicas),
        shared.setdefault(isr, isr),
        record.partition_epoch,
        tuple(record.adding_replicas),
        tuple(record.removing_replicas),
        0,
        tuple(record.eligible_leader_replicas or ()),
        -1,
        (),
        shared.setdefault(directories, directories),
        tuple(record.last_known_elr or ()),
        record.leader_recovery_state,
    )


def partition_record(topic_id: bytes, index: int, state: PartitionState) -> PartitionRecord:
    """The record that sets this state, whatever the partition was before."""
    return PartitionRecord(
        index,
        topic_id,
        list(state.replicas),
        list(state.isr),
        list(state.removing_replicas),
        list(state.adding_replicas),
        state.leader,
        state.recovery,
        state.leader_epoch,
        state.partition_epoch,
        list(state.directories),
        list(state.elr) or None,
        list(state.last_known_elr) or None,
    )


def changed_partition(before: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    """The state after a change: its epoch grows by one, and so does the leader's where the record names a leader.

    The directories are those of the replicas by position, so that a record that changes the replicas must name both,
    as Apache Kafka demands: its nodes end at one that does not. Raises CorruptMetadata.
    """
    elects = record.leader != UNCHANGED_LEADER
    recovers = record.leader_recovery_state != UNCHANGED_RECOVERY
    replicas = _changed(record.replicas, before.replicas)
    directories = _changed(record.directories, before.directories)
    _check_directories(replicas, directories)
    return before._replace(
        leader=record.leader if elects else before.leader,
        leader_epoch=before.leader_epoch + elects,
        partition_epoch=before.partition_epoch + 1,
        isr=_changed(record.isr, before.isr),
        replicas=replicas,
        adding_replicas=_changed(record.adding_replicas, before.adding_replicas),
        removing_replicas=_changed(record.removing_replicas, before.removing_replicas),
        elr=_changed(record.eligible_leader_replicas, before.elr),
        last_known_elr=_changed(record.last_known_elr, before.last_known_elr),
        directories=directories,
        recovery=record.leader_recovery_state if recovers else before.recovery,
    )


def partition_change(
    topic_id: bytes, index: int, before: PartitionState, after: PartitionState
) -> PartitionChangeRecord | PartitionRecord | None:
    """The shortest record that leads from one state to the other; None where records carry no difference."""
    if carried(before) == carried(after):
        return None
    elects = after.leader != before.leader or after.leader_epoch != before.leader_epoch
    change = PartitionChangeRecord(index, topic_id)
    change.leader = after.leader if elects else UNCHANGED_LEADER
    change.isr = _difference(before.isr, after.isr)
    change.replicas = _difference(before.replicas, after.replicas)
    change.adding_replicas = _difference(before.adding_replicas, after.adding_replicas)
    change.removing_replicas = _difference(before.removing_replicas, after.removing_replicas)
    change.eligible_leader_replicas = _difference(before.elr, after.elr)
    change.last_known_elr = _difference(before.last_known_elr, after.last_known_elr)
    change.directories = _changed_directories(before, after)
    if after.recovery != before.recovery:
        change.leader_recovery_state = after.recovery
    # An epoch that jumps needs the complete record.
    if carried(changed_partition(before, change)) == carried(after):
        return change
    return partition_record(topic_id, index, after)


def cleared_elr(before: PartitionState) -> PartitionState:
    """The state after a ClearElrRecord; the same where there was no eligible leader replica."""
    if not before.elr and not before.last_known_elr:
        return before
    return before._replace(elr=(), last_known_elr=(), partition_epoch=before.partition_epoch + 1)


def carried(state: PartitionState) -> PartitionState:
    """The state without what no record carries: the epochs of controller and registration, and dead replicas."""
    return state._replace(controller_epoch=0, leader_broker_epoch=-1, offline_replicas=())


def with_uncarried(found: PartitionState, before: PartitionState) -> PartitionState:
    """The state `found`, with what no record carries as `before` has it."""
    return found._replace(
        controller_epoch=before.controller_epoch,
        leader_broker_epoch=before.leader_broker_epoch,
        offline_replicas=before.offline_replicas,
    )


def _changed_directories(before: PartitionState, after: PartitionState) -> list[bytes] | None:
    """What a change names: the directories where they differ, and beside changed replicas all that are known."""
    names_them = after.directories != before.directories or (after.directories and after.replicas != before.replicas)
    return list(after.directories) if names_them else None


def _check_directories(replicas: tuple[int, ...], directories: tuple[bytes, ...]) -> None:
    if directories and len(directories) != len(replicas):
        raise CorruptMetadata(f"the partition has {len(replicas)} replicas and {len(directories)} directories")


def _changed(new: list[Item] | None, old: tuple[Item, ...]) -> tuple[Item, ...]:
    return old if new is None else tuple(new)


def _difference(before: tuple[int, ...], after: tuple[int, ...]) -> list[int] | None:
    return None if before == after else list(after)
