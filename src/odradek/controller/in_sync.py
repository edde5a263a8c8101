"""Changes of in-sync replicas that leaders ask for (AlterPartition, KIP-497, KIP-841, KIP-903). Pure decisions.

Source: Kafka's `ReplicationControlManager.alterPartition`; a change that has been made already is accepted again,
as `KafkaController` did, since its answer may have been lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odradek.controller.aliveness import BY_SESSIONS, Aliveness
from odradek.controller.brokers import registered
from odradek.controller.outcome import Decision
from odradek.controller.partition_changes import Defaults, PartitionChanges, is_alive, next_state, rules_of
from odradek.metadata.image import ClusterImage, PartitionState
from odradek.wire.errors import ErrorCode

UNKNOWN_EPOCH = -1


class IsrChange(NamedTuple):
    """What a leader wants its ISR to be; `isr` are (broker id, its registration's epoch or UNKNOWN_EPOCH)."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class IsrChanged(NamedTuple):
    """`state` after the change; None with an error."""

    topic_id: bytes
    partition: int
    error: ErrorCode
    state: PartitionState | None


def alter_partitions(
    image: ClusterImage,
    broker_id: int,
    broker_epoch: int,
    changes: Sequence[IsrChange],
    defaults: Defaults,
    *,
    aliveness: Aliveness = BY_SESSIONS,
) -> Decision[IsrChanged]:
    """One reply for each change. Raises KafkaError BROKER_ID_NOT_REGISTERED or STALE_BROKER_EPOCH for all of them."""
    registered(image, broker_id, broker_epoch)
    gathered = PartitionChanges(image)
    replies = [_changed(gathered, broker_id, change, defaults, aliveness) for change in changes]
    return gathered.decision(replies)


def _changed(
    gathered: PartitionChanges, broker_id: int, change: IsrChange, defaults: Defaults, aliveness: Aliveness
) -> IsrChanged:
    image = gathered.image
    topic = image.topic_by_id(change.topic_id)
    if topic is None:
        return _refused(change, ErrorCode.UNKNOWN_TOPIC_ID)
    before = gathered.state(topic.name, change.partition)
    if before is None:
        return _refused(change, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    isr = tuple(member for member, _ in change.isr)
    if _is_done(before, broker_id, change, isr):
        return IsrChanged(change.topic_id, change.partition, ErrorCode.NONE, before)
    error = _problem(image, before, broker_id, change)
    if error is not ErrorCode.NONE:
        return _refused(change, error)
    wanted = before._replace(isr=tuple(b for b in before.replicas if b in isr))
    after = next_state(before, wanted, rules_of(image, topic, defaults, aliveness))
    gathered.put(topic, change.partition, before, after)
    if after.leader != broker_id or after.leader_epoch != before.leader_epoch:
        # The change ended a move, and the move the leader's reign.
        return _refused(change, ErrorCode.NEW_LEADER_ELECTED)
    return IsrChanged(change.topic_id, change.partition, ErrorCode.NONE, after)


def _is_done(state: PartitionState, broker_id: int, change: IsrChange, isr: tuple[int, ...]) -> bool:
    return (
        state.leader == broker_id
        and change.leader_epoch == state.leader_epoch
        and change.partition_epoch <= state.partition_epoch
        and set(isr) == set(state.isr)
        and len(isr) == len(state.isr)
    )


def _problem(image: ClusterImage, state: PartitionState, broker_id: int, change: IsrChange) -> ErrorCode:
    if change.leader_epoch > state.leader_epoch or change.partition_epoch > state.partition_epoch:
        # It knows a controller that is newer than this one.
        return ErrorCode.NOT_CONTROLLER
    if change.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if state.leader != broker_id:
        return ErrorCode.INVALID_REQUEST
    if change.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member for member, _ in change.isr]
    if broker_id not in members or len(set(members)) != len(members) or not set(members) <= set(state.replicas):
        return ErrorCode.INVALID_REQUEST
    for member, epoch in change.isr:
        if member == broker_id:
            # A leader that is shutting down may still shrink its ISR.
            continue
        if not is_alive(state, member, image.brokers):
            return ErrorCode.INELIGIBLE_REPLICA
        if epoch not in (UNKNOWN_EPOCH, image.brokers[member].epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _refused(change: IsrChange, error: ErrorCode) -> IsrChanged:
    return IsrChanged(change.topic_id, change.partition, error, None)
